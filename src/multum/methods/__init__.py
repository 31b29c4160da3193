"""Every method, by the name that the command line and saved files use. One line here makes a file's method known."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from ..errors import check_known
from ..parsing import named
from .base import Method
from .batch_ensemble import BatchEnsemble as BatchEnsemble
from .deep import Deep as Deep
from .fast_geometric import FastGeometric as FastGeometric
from .fields import holds_several
from .hypernet import Hypernet as Hypernet
from .masksembles import Masksembles as Masksembles
from .mc_dropout import McDropout as McDropout
from .mimo import Mimo as Mimo
from .mixture import Mixture as Mixture
from .multihead import Multihead as Multihead
from .packed import Packed as Packed
from .single import Single as Single
from .snapshot import Snapshot as Snapshot
from .swag import Swag as Swag
from .tabm import TabM as TabM
from .tree_net import TreeNet as TreeNet

METHODS: dict[str, type[Method]] = {
    name.lower(): kind
    for name, kind in sorted(globals().items())
    if isinstance(kind, type) and issubclass(kind, Method) and kind is not Method
}

__all__ = ["METHODS", *sorted(["Method", *(kind.__name__ for kind in METHODS.values())]), "catalogue", "parse"]


def parse(text: str) -> Method:
    """A method as the command line writes it: its name, and fields behind a colon.

    >>> parse("packed:members=4,alpha=2.5").alpha
    2.5
    """
    name, values = named(text)
    check_known(name.lower(), METHODS, "a method must be one that multum has", got=repr(name))
    kind: Any = METHODS[name.lower()]
    known = {f.name: holds_several(kind, f.name) for f in dataclasses.fields(kind)}
    for field in values:
        check_known(field, known, f"a setting of {name} must be one of its fields")
    return kind(**{k: (v,) if known[k] and not isinstance(v, tuple) else v for k, v in values.items()})


def catalogue() -> list[dict[str, Any]]:
    """Every method as data: name, class, summary, and each field with its default and comment."""
    return [
        {
            "name": name,
            "class": kind.__name__,
            "summary": _summary(kind),
            "fields": [
                {
                    "name": f.name,
                    "type": str(f.type),
                    "default": list(f.default) if isinstance(f.default, tuple) else f.default,
                    "comment": f.metadata.get("help", ""),
                }
                for f in dataclasses.fields(kind)
            ],
        }
        for name, kind in sorted(METHODS.items())
    ]


def _summary(kind: type[Method]) -> str:
    """The first paragraph of the method's file."""
    doc = inspect.getdoc(inspect.getmodule(kind)) or ""
    return doc.split("\n\n")[0].replace("\n", " ")
