"""Every method, by the name that the command line and saved files use."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from .base import Method
from .deep import Deep
from .fast_geometric import FastGeometric
from .packed import Packed
from .single import Single
from .snapshot import Snapshot
from .swag import Swag

__all__ = ["METHODS", "Deep", "FastGeometric", "Method", "Packed", "Single", "Snapshot", "Swag", "catalogue"]

METHODS: dict[str, type[Method]] = {
    cls.__name__.lower(): cls
    for cls in (
        Deep,
        FastGeometric,
        Packed,
        Single,
        Snapshot,
        Swag,
    )
}


def catalogue() -> list[dict[str, Any]]:
    """Every method as data: name, class, summary, and each field with its default and comment."""
    return [
        {
            "name": name,
            "class": cls.__name__,
            "summary": _summary(cls),
            "fields": [
                {"name": f.name, "type": str(f.type), "default": _plain(f.default), "comment": _comment(cls, f.name)}
                for f in dataclasses.fields(cls)
            ],
        }
        for name, cls in sorted(METHODS.items())
    ]


def _summary(cls: type[Method]) -> str:
    """The first sentence of the method's file."""
    doc = inspect.getdoc(inspect.getmodule(cls)) or ""
    return doc.split("\n\n")[0].replace("\n", " ")


def _comment(cls: type[Method], field: str) -> str:
    """The comment behind a field, which is its documentation."""
    found = re.search(rf"^    {field}: [^#\n]*#\s*(.*)$", inspect.getsource(cls), re.M)
    return found.group(1) if found else ""


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
