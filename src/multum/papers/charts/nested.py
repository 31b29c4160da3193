"""Figures of the hypernetwork paper: what nested steps do, in numbers and along training."""

from __future__ import annotations

from functools import partial

import pandas as pd
from matplotlib.figure import Figure as Drawing

from ...training.recipe import Recipe
from ..along import EXAMPLES, TESTED, along_epochs
from ..base import Row
from ..exact import nested_steps
from ..measured import Trained
from ..results import Picture
from .items import by_data, named, picture
from .panels import BARS, Measure, Panel, Point, curves, gathered, training_curves

ALONG = {TESTED: TESTED, "training accuracy": "accuracy"}  # by the name in a result's curve of training


def nested_chart(trained: Trained) -> dict[str, Picture]:
    """Figure 1: what is shared, after each member's step."""
    paths = ((name, step, theta) for name, (path, _) in nested_steps().items() for step, theta in enumerate(path))
    numbers = pd.DataFrame(paths, columns=["curve", "member", "theta"])

    def draw(numbers: pd.DataFrame) -> Drawing | None:
        title = "theta, what members share"
        return curves([Panel(numbers, "member", "theta", "after the step of member (0: before)", title=title)])

    caption = (
        "Plain SGD moves what is shared at every member's step; nested SGD holds it until all members have stepped, "
        "and moves it once by the sum."
    )
    return picture(trained, "Nested against plain SGD", caption, draw, numbers)


def constant_rate(trained: Trained) -> dict[str, Picture]:
    """Figure 2: training at a constant rate, nested or not."""
    every: dict[str, Picture] = {}
    trained = along_epochs(trained)
    for data, of_data in by_data(trained.run.rows).items():
        rows = [row for row in of_data if row.recipe["schedule"] == "constant"]
        points = [
            Point(row.label, curve, epoch, {what: _epoch(epoch, key) for what, key in ALONG.items()})
            for row in rows
            for curve in ["NASGD" if row.method.as_dict().get("nested") else "ASGD"]
            for epoch in range(1, row.epochs + 1)
        ]
        numbers = gathered(trained, "epoch", points)
        for seed in sorted({seed for row in rows for seed in trained.results.get(row.label, ())}):
            places = zip(numbers["row"], numbers["epoch"], strict=True)
            numbers[f"{TESTED}, seed {seed}"] = [trained.values(r, _epoch(e, TESTED)).get(seed) for r, e in places]
        caption = (
            f"Left: the ensemble's accuracy on {EXAMPLES:,} test images after every epoch, with averaged weights from "
            "where averaging begins; at the end of the epoch in which members are born they are as noise made them. "
            "Right, not in the paper: the share of right answers on the (augmented) training images, member by member, "
            f"before averaging. {BARS}"
        )
        title = named("Nested (NASGD) against plain averaged SGD (ASGD) at a constant rate", data)
        turns = _turns(rows[0]) if rows else {}
        every |= picture(trained, title, caption, partial(training_curves, turns=turns), numbers, data)
    return every


def _epoch(epoch: int, key: str) -> Measure:
    """A number of one epoch of the curve of training."""
    return lambda result: next((x.get(key) for x in result["curves"]["training"] if x["epoch"] == epoch), None)


def _turns(row: Row) -> dict[int, str]:
    """The epochs after which members are born, and weights averaged."""
    recipe = Recipe().with_overrides(row.recipe)
    born = row.method.birth_after(recipe.epochs)
    turns = {born: "members are born"} if born else {}
    if recipe.average_from is not None:
        turns[round(recipe.average_from * recipe.epochs)] = "averaging begins"
    return turns
