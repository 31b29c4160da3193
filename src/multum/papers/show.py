"""Items, plans and results on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from ..figures.formats import text_table
from . import ITEMS
from .base import PAPERS, STATUSES, Item
from .counting import Plan
from .headlines import table_rows
from .pages import SHOWN, line_cells, ordering_cells, remarked, summary

COLOURS = {"exact": "green", "full": "green", "reduced": "yellow"}


def listing() -> Group:
    """All items: what each shows, and what can be done with it here."""
    tables = []
    for paper, title in PAPERS.items():
        rows = [
            (item.id, item.number, item.shows, Text(item.status, COLOURS.get(item.status, "dim")))
            for item in ITEMS.values()
            if item.paper == paper
        ]
        tables.append(text_table(["item", "in the paper", "shows", "here"], rows, title=title))
    words = "\n".join(f"{status}: {meaning}" for status, meaning in STATUSES.items())
    return Group(*tables, Text(f"{words}\n\nmultum reproduce ITEM runs one, with --dry-run it shows the plan", "dim"))


def planned(plan: Plan, item: Item, scale: str) -> Group:
    """What an item would take: rows, mult-adds, hours; what it needs, and what is smaller than in the paper."""
    smaller = scale == "cpu" and item.status == "reduced"
    size = "reduced" if smaller else "as in the paper"
    rows = [
        [row.label, str(row.cells), f"{row.params:,}", f"{row.macs:,}", f"{row.training / 1e9:,.0f}"]
        for row in plan.rows
    ]
    head = ["row", "cells", "parameters", "mult-adds", "training, GMAC"]
    table = text_table(head, rows, align="lr", title=f"{item.title}: {item.number}, {size}")
    run = item.run(scale)
    sentences = [
        f"{item.shows}. Needs: {item.needs}.",
        *(f"smaller than in the paper: {sentence}" for sentence in run.reduced),
        *(f"departs, or chosen here: {sentence}" for sentence in run.departs),
        f"{plan.cells} different cells, {plan.training / 1e9:,.0f} GMAC of training: about "
        f"{_hours(plan.hours)} on this machine (at {plan.rate:g} GMAC/s), "
        f"{_hours(plan.gpu_hours)} on one A100 (at {plan.gpu_rate:,.0f} GMAC/s)",
    ]
    return Group(*([table] if plan.rows else []), Text("\n".join(sentences)))


def _hours(hours: float) -> str:
    """
    >>> _hours(0.05), _hours(30.24)
    ('3 minutes', '30.2 hours')
    """
    return f"{60 * hours:.0f} minutes" if hours < 1.5 else f"{hours:,.1f} hours"


def claims(document: Mapping[str, Any]) -> Table:
    """The papers' main claims and what our runs say of them."""
    names = ("claim", "of", "difference", "verdict", "calibrated", "seeds")
    rows = [[row[name] for name in names] for row in table_rows(document)]
    return text_table(names, rows, title="The papers' main claims", row_lines=True)


def result(document: Mapping[str, Any]) -> Group:
    """Every number beside the paper's with the difference, what is remarked, the orderings, and what came out."""
    lines = [*document["lines"], *document["exact"]]
    head = ["row", "column", "ours", "paper", "difference", "agrees"]
    title = f"{document['paper']}: {document['number']}"
    table = text_table(head, map(line_cells, lines), align="llrrrl", title=title)
    parts: list[Table | Text] = [table, *(Text(remark, "dim") for remark in remarked(lines))]
    if document["orderings"]:
        head = ["column", "better in the paper", "worse", "paper", "ours", "95 % interval", "verdict"]
        rows = map(ordering_cells, document["orderings"][:SHOWN])
        parts.append(text_table(head, rows, align="lllrrrl", title="what the paper orders"))
    return Group(*parts, Text(summary(document), "bold"))
