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
    shift_items: int | None = None

    def settings(self) -> dict[str, Any]:
        """Everything but the label, in plain values."""
        found = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in ("label", "method")}
        found["method"] = self.method.as_dict()
        return json.loads(json.dumps({**found, "recipe": dict(self.recipe)}))

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
        raise ConfigError("a comparison has methods, however: none were named; for example --methods single,packed")
    found: dict[str, Method] = {}
    for part in parts:
        method = part if isinstance(part, Method) else parse(part)
        label = spec_of(method) if isinstance(part, Method) else part.strip().lower()
        if label in found:
            raise ConfigError(f"a method is compared once, however: {label} is named twice")
        found[label] = method
    return found


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
    """The parts of a list in which commas part methods and fields alike: a field belongs to the method before it."""
    found: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if "=" in part and ":" not in part and found:
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _in_reading_order() -> list[str]:
    """The two ends of the scale first, then the rest by name."""
    first = ["single", "deep", "packed"]
    return [*first, *(name for name in sorted(METHODS) if name not in first)]
