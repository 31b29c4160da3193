"""The papers' experiments: every table and figure as an Item, whose Run says exactly what is trained."""

from __future__ import annotations

from typing import Any

from ..errors import check_known
from . import hypernet, mimo, mixture, packed
from .base import Item

__all__ = ["ITEMS", "catalogue", "find"]

ITEMS: dict[str, Item] = {
    item.id: item
    for module in (packed, mixture, mimo, hypernet)
    for item in vars(module).values()
    if isinstance(item, Item)
}


def find(id: str) -> Item:
    """An item by its name.

    >>> find("packed/table1-cost").number
    'Table 1, efficiency'
    """
    check_known(id, ITEMS, "an item must be a paper's table or figure")
    return ITEMS[id]


def catalogue() -> list[dict[str, Any]]:
    """All items as plain data.

    >>> len(catalogue())
    43
    """
    fields = ("id", "paper", "title", "number", "shows", "needs", "status")
    return [{name: getattr(item, name) for name in fields} for item in ITEMS.values()]
