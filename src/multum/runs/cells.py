"""A cell is one method with one seed: what is trained and measured once, and named by its whole configuration."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..methods import Method

__all__ = ["Cell", "spec_of"]


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
    split: int | None = None  # the seed that draws the test and the validation part; None: the cell's own
    tuning: bool = False  # whether it is trained for its score on the validation part alone

    @property
    def parts_seed(self) -> int:
        """The seed that draws the test and the validation part."""
        return self.seed if self.split is None else self.split

    def settings(self) -> dict[str, Any]:
        """Everything but the label, in plain values."""
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "label"}
        for name, default in (("fingerprint", ""), ("split", None), ("tuning", False)):
            if settings[name] == default:  # folders that were named before there was such a field keep their names
                del settings[name]
        # The older name on disk stays: folders are named by these settings, and would all be run again.
        settings["shift_items"] = settings.pop("shift_examples")
        return json.loads(json.dumps({**settings, "method": self.method.as_dict(), "recipe": dict(self.recipe)}))

    @property
    def name(self) -> str:
        """The name of its folder: readable, and another one for every other configuration."""
        text = json.dumps(self.settings(), sort_keys=True)
        readable = re.sub(r"[^a-z0-9]+", "-", self.label.lower()).strip("-")[:40]
        return f"{readable}-seed{self.seed}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


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
