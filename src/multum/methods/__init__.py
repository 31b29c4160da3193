"""Every method, by the name that the command line and saved files use."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from ..errors import ConfigError, did_you_mean
from ..parsing import named
from .base import Method
from .batch_ensemble import BatchEnsemble
from .deep import Deep
from .fast_geometric import FastGeometric
from .hypernet import Hypernet
from .masksembles import Masksembles
from .mc_dropout import McDropout
from .mimo import Mimo
from .mixture import Mixture
from .multihead import Multihead
from .packed import Packed
from .single import Single
from .snapshot import Snapshot
from .swag import Swag
from .tree_net import TreeNet

__all__ = [
    "METHODS",
    "BatchEnsemble",
    "Deep",
    "FastGeometric",
    "Hypernet",
    "Masksembles",
    "McDropout",
    "Method",
    "Mimo",
    "Mixture",
    "Multihead",
    "Packed",
    "Single",
    "Snapshot",
    "Swag",
    "TreeNet",
    "catalogue",
    "parse",
]

METHODS: dict[str, type[Method]] = {
    cls.__name__.lower(): cls
    for cls in (
        BatchEnsemble,
        Deep,
        FastGeometric,
        Hypernet,
        Masksembles,
        McDropout,
        Mimo,
        Mixture,
        Multihead,
        Packed,
        Single,
        Snapshot,
        Swag,
        TreeNet,
    )
}


def parse(text: str) -> Method:
    """A method as the command line writes it: its name, and fields behind a colon.

    >>> parse("packed:members=4,alpha=2.5").alpha
    2.5
    """
    name, given = named(text)
    if name.lower() not in METHODS:
        raise ConfigError(f"a method has a name, however: {name!r} is none. {did_you_mean(name.lower(), METHODS)}")
    kind: Any = METHODS[name.lower()]
    known = [f.name for f in dataclasses.fields(kind)]
    for field in given:
        if field not in known:
            raise ConfigError(f"{name} has fields, however: {field!r} is not one. {did_you_mean(field, known)}")
    tuples = {f.name for f in dataclasses.fields(kind) if "tuple" in str(f.type)}
    return kind(**{k: (v,) if k in tuples and not isinstance(v, tuple) else v for k, v in given.items()})


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
