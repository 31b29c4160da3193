"""Whether the runs of a method can be judged: had they converged, and had they learned anything at all?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..runs.work import Finished
from ..training.recipe import Recipe
from ..training.stopping import still_falling
from .versus import DECIDES

__all__ = ["converged", "learned_share"]


def converged(done: Iterable[Finished], recipe: Mapping[str, Any]) -> bool | None:
    """Whether the loss had stopped falling in most seeds, or early stopping ended the run; None where nobody can tell.

    Of members that were trained one by one, every log is looked at.
    """
    full = Recipe().with_overrides(recipe)
    verdicts = [verdict for cell in done if (verdict := _settled(cell, full)) is not None]
    return 2 * sum(verdicts) > len(verdicts) if verdicts else None


def _settled(cell: Finished, recipe: Recipe) -> bool | None:
    logs: dict[Any, list[float]] = {}
    for row in cell.result["curves"].get("training", ()):
        logs.setdefault(row.get("member"), []).append(row["loss"])
    if not logs or max(map(len, logs.values())) < 2:
        return None
    stopped = recipe.patience > 0 and all(len(losses) < recipe.epochs for losses in logs.values())
    return stopped or all(still_falling(losses) is None for losses in logs.values())


def learned_share(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> float | None:
    """How much of the way from chance to the best of the rows a method's calibrated NLL has come."""
    chance = row["chance"]
    if chance is None or DECIDES not in row["values"]:
        return None
    best = min(other["values"][DECIDES]["mean"] for other in rows if DECIDES in other["values"])
    way = chance["nll"] - best
    return (chance["nll"] - row["values"][DECIDES]["mean"]) / way if way > 0 else None
