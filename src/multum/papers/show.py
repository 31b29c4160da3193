"""Items, plans and results on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from . import ITEMS
from .base import PAPERS, STATUSES, Item
from .pages import SHOWN, line_cells, ordering_cells, remarked, summary
from .plan import Plan

__all__ = ["listing", "planned", "result"]

COLOURS = {"exact": "green", "full": "green", "reduced": "yellow"}


def listing() -> Group:
    """All items: what each shows, and what can be done with it here."""
    found = []
    for paper, title in PAPERS.items():
        table = Table(title=escape(title), title_justify="left", expand=True)
        table.add_column("item", no_wrap=True)
        table.add_column("in the paper", ratio=2)
        table.add_column("shows", ratio=5)
        table.add_column("here", ratio=2)
        for item in ITEMS.values():
            if item.paper == paper:
                table.add_row(item.id, item.number, item.shows, Text(item.status, COLOURS.get(item.status, "dim")))
        found.append(table)
    words = "\n".join(f"{status}: {meaning}" for status, meaning in STATUSES.items())
    return Group(*found, Text(f"{words}\n\nmultum reproduce ITEM runs one, with --dry-run it shows the plan", "dim"))


def planned(plan: Plan, item: Item, scale: str) -> Group:
    """What an item would take: rows, mult-adds, hours; what it needs, and what is smaller than in the paper."""
    smaller = scale == "cpu" and item.status == "reduced"
    size = "reduced" if smaller else "as in the paper"
    table = Table(title=f"{item.title}: {item.number}, {size}", title_justify="left")
    table.add_column("row")
    for name in ("cells", "parameters", "mult-adds", "training, GMAC"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in plan.rows:
        table.add_row(row.label, str(row.cells), f"{row.params:,}", f"{row.macs:,}", f"{row.training / 1e9:,.0f}")
    run = item.run(scale)
    told = [
        f"{item.shows}. Needs: {item.needs}.",
        *(f"smaller than in the paper: {sentence}" for sentence in run.reduced),
        *(f"departs, or chosen here: {sentence}" for sentence in run.departs),
        f"{plan.cells} different cells, {plan.training / 1e9:,.0f} GMAC of training: about "
        f"{_hours(plan.hours)} on this machine (at {plan.rate:g} GMAC/s), "
        f"{_hours(plan.gpu_hours)} on one A100 (at {plan.gpu_rate:,.0f} GMAC/s)",
    ]
    return Group(*([table] if plan.rows else []), Text("\n".join(told)))


def _hours(hours: float) -> str:
    """
    >>> _hours(0.05), _hours(30.24)
    ('3 minutes', '30.2 hours')
    """
    return f"{60 * hours:.0f} minutes" if hours < 1.5 else f"{hours:,.1f} hours"


def result(document: Mapping[str, Any]) -> Group:
    """Every number beside the paper's with the difference, what is remarked, the orderings, and what came out."""
    lines = [*document["lines"], *document["exact"]]
    table = _table(f"{document['paper']}: {document['number']}", ["row", "column"], ["ours", "paper", "difference"])
    for line in lines:
        table.add_row(*line_cells(line))
    found: list[Table | Text] = [table, *(Text(remark, "dim") for remark in remarked(lines))]
    if document["orderings"]:
        words = ["column", "better in the paper", "worse"]
        orderings = _table("what the paper orders", words, ["paper", "ours", "95 % interval"])
        for ordering in document["orderings"][:SHOWN]:
            orderings.add_row(*ordering_cells(ordering))
        found.append(orderings)
    return Group(*found, Text(summary(document), "bold"))


def _table(title: str, words: Sequence[str], numbers: Sequence[str]) -> Table:
    """Columns of words, of numbers, and the verdict."""
    table = Table(*words, title=escape(title), title_justify="left")
    for name in numbers:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("agrees" if "difference" in numbers else "verdict", no_wrap=True)
    return table
