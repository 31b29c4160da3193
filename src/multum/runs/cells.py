"""A cell is one method with one seed: what is trained and measured once, and named by its whole configuration."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..methods import METHODS, Method, parse

__all__ = ["Cell", "chosen_methods", "spec_of"]


@dataclass(frozen=True)
class Cell:
    """One method, one seed, and everything that its numbers depend on."""

    label: str
    seed: int
    data: str
    model: str
    method: Method
    recipe: Mapping[str, Any]
    ood: tuple[str, ...] = ()
    shift: tuple[str, ...] = ()
    shift_examples: int | None = None
    fingerprint: str = ""  # of the data's content; "" for the papers' data sets, which their names fix

    def settings(self) -> dict[str, Any]:
        """Everything but the label, in plain values."""
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "label"}
        if not self.fingerprint:
            del settings["fingerprint"]
        # The older name on disk stays: folders are named by these settings, and would all be run again.
        settings["shift_items"] = settings.pop("shift_examples")
        return json.loads(json.dumps({**settings, "method": self.method.as_dict(), "recipe": dict(self.recipe)}))

    @property
    def name(self) -> str:
        """The name of its folder: readable, and another one for every other configuration."""
        text = json.dumps(self.settings(), sort_keys=True)
        readable = re.sub(r"[^a-z0-9]+", "-", self.label.lower()).strip("-")[:40]
        return f"{readable}-seed{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def chosen_methods(text: str | Sequence[str | Method]) -> dict[str, Method]:
    """Methods by label: "all", a list as the command line writes it, or names and configs.

    >>> list(chosen_methods("single,packed:members=4,alpha=2,deep"))
    ['single', 'packed:members=4,alpha=2', 'deep']
    """
    if text == "all":
        return {name: parse(name) for name in _in_reading_order()}
    parts = _listed(text) if isinstance(text, str) else list(text)
    if not parts:
        raise ConfigError("`methods` must name one method at least; got none. Use for example --methods single,packed")
    methods: dict[str, Method] = {}
    for part in parts:
        method = part if isinstance(part, Method) else parse(part)
        label = spec_of(method) if isinstance(part, Method) else part.strip().lower()
        if label in methods:
            raise ConfigError(f"`methods` must name each method once; got {label} named twice. Leave one out")
        methods[label] = method
    return methods


def spec_of(method: Method) -> str:
    """A config as the command line writes it, with the fields that differ from the defaults.

    >>> from multum import Packed
    >>> spec_of(Packed(members=2, alpha=2))
    'packed:members=2'
    """
    defaults = {f.name: f.default for f in dataclasses.fields(method)}
    changed = {k: v for k, v in dataclasses.asdict(method).items() if v != defaults[k]}
    fields = ",".join(f"{k}={'+'.join(map(str, v)) if isinstance(v, tuple) else v}" for k, v in changed.items())
    return f"{method.name}:{fields}" if fields else method.name


def _listed(text: str) -> list[str]:
    """The methods of a list in which commas separate methods and fields alike: a field belongs to the method before."""
    methods: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if "=" in part and ":" not in part and methods:
            methods[-1] += f",{part}"
        else:
            methods.append(part)
    return methods


def _in_reading_order() -> list[str]:
    """The two ends of the scale first, then the rest by name."""
    first = ["single", "deep", "packed"]
    return [*first, *(name for name in sorted(METHODS) if name not in first)]
