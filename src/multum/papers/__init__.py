"""The papers' experiments: every table and figure as an Item, whose Run says exactly what is trained."""

from __future__ import annotations

from typing import Any

from ..errors import ConfigError, did_you_mean
from . import hypernet, hypernet_appendix, mimo, mimo_subnetworks, mixture, packed, packed_ablations, packed_appendix
from .base import Item

__all__ = ["ITEMS", "catalogue", "find"]

_MODULES = (packed, packed_ablations, packed_appendix, mixture, mimo_subnetworks, mimo, hypernet, hypernet_appendix)
ITEMS: dict[str, Item] = {item.id: item for module in _MODULES for item in module.ITEMS}


def find(id: str) -> Item:
    """An item by its name.

    >>> find("packed/table1-cost").number
    'Table 1, efficiency'
    """
    if id not in ITEMS:
        raise ConfigError(f"an item is a paper's table or figure, however: {id!r} is none. {did_you_mean(id, ITEMS)}")
    return ITEMS[id]


def catalogue() -> list[dict[str, Any]]:
    """All items as plain data.

    >>> len(catalogue())
    42
    """
    fields = ("id", "paper", "title", "number", "shows", "needs", "status")
    return [{name: getattr(item, name) for name in fields} for item in ITEMS.values()]
