"""Figures of the papers that need the numbers of cells alone, drawn from our own: by item, each with its numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from ...metrics.evaluate import SEVERITIES
from ..base import Row
from ..results import Picture, Result
from ..trained import Trained
from .circles import circles
from .curves import BARS, MEASURES, Measure, Panel, Point, by_data, curves, gathered, parted, pictures
from .forest import ordering_chart, regressions
from .more import bars, boxes, constant_rate

__all__ = ["CHARTS", "EXACT_CHARTS", "ordering_chart"]

BOXES = "A box is the middle half of the settings, its line their median; dots are the settings."
MOST_CURVES = 7  # more of them are not told apart


# -- Packed-Ensembles --------------------------------------------------------------------------------------------------


def _divergence(result: Result) -> dict[str, Picture]:
    """Figure 5: the divergence of a sparse layer and its bound by the share of weights kept."""
    lines = []
    for line in result.lines:
        sigma = parted(line.row, "sigma")
        if sigma and (p := parted(sigma.rest, "p")):
            curve = f"{line.column}, sigma = {sigma.value:g}"
            lines.append({"curve": curve, "p": p.value, "divergence": line.ours})
    if not lines:
        return {}
    numbers = pd.DataFrame(lines).sort_values("curve", kind="stable", ignore_index=True)
    panel = Panel(numbers, "p", "divergence", "p: the share of weights that is kept")
    drawn = curves([panel], pairs=True)
    caption = (
        "How far a layer with a share p of its weights is from the dense one: the divergence itself, and dashed the "
        "paper's bound on it. Both are 0 where all weights are kept, and the bound is never below."
    )
    return pictures({"": ("Divergence of a sparse layer from a dense one", caption, drawn, numbers)})


def _ablation(trained: Trained) -> dict[str, Picture]:
    """Figures 6 and 7: accuracy and OOD detection by alpha and by gamma; and by M, of which the text speaks."""
    found: dict[str, Picture] = {}
    along = {"": "alpha", "gamma": "gamma", "members": "M"}
    for name, letter in along.items():
        told = "The text expects a rise with alpha up to a plateau, no change with gamma, and a rise with M."
        title = f"Packed-Ensembles by {letter}"
        found |= _sweep(trained, trained.run.rows, letter, ("accuracy", "aupr"), name, title, told, alone=not name)
    return found


def _widths(trained: Trained) -> dict[str, Picture]:
    """Figure 8: accuracy and OOD detection by the width of one network."""
    told = "Width 1 is the network itself. The text sees accuracy rise with the width, and AUPR stay as it is."
    measures = ("accuracy", "aupr")
    return _sweep(trained, trained.run.rows, "width", measures, "", "One network by its width", told, log=True)


def _shift(trained: Trained) -> dict[str, Picture]:
    """Figure 9: accuracy and calibration error by the severity of corruptions."""
    points = [
        Point(row.label, row.label, severity, {name: _at(severity, name) for name in ("accuracy", "ece")})
        for row in trained.run.rows
        for severity in (0, *SEVERITIES)
    ]
    numbers = gathered(trained, "severity", points)
    panels = [Panel(numbers, "severity", name, "severity (0: clean)") for name in ("accuracy", "ece")]
    some = sorted({row.shift_items for row in trained.run.rows if row.shift_items})
    of = "".join(f" of {items:,} test items" for items in some)
    caption = f"Means over corruptions{of}; severity 0 is the whole clean test set. {BARS}"
    return pictures({"": ("Accuracy and calibration under shift", caption, curves(panels), numbers)})


def _at(severity: int, name: str) -> Measure:
    """A measure at one severity, of cells that have corrupted images."""

    def measure(result: Mapping[str, Any]) -> float | None:
        table = result["numbers"].get("shift")
        if not table:
            return None
        if severity == 0:
            return MEASURES[name](result)
        return sum(row[str(severity)][name] for row in table.values()) / len(table)

    return measure


# -- MIMO --------------------------------------------------------------------------------------------------------------


def _diversity(trained: Trained) -> dict[str, Picture]:
    """Figure 4, right: how much members differ, method by method."""
    names = ("disagreement", "kl")
    points = [Point(row.label, row.label, 0, {name: MEASURES[name] for name in names}) for row in trained.run.rows]
    numbers = gathered(trained, "at", points).drop(columns=["curve", "at"], errors="ignore")
    caption = (
        "Pairs of members on the test set: how often their classes differ, and the divergence of their probabilities. "
        f"Members that are all the same have 0 in both. {BARS}"
    )
    return pictures({"": ("Diversity of members", caption, bars(numbers, names), numbers)})


def _members(trained: Trained) -> dict[str, Picture]:
    """Figure 5: the ensemble and its subnetworks by their number."""
    found = {}
    for name, rows in by_data(trained).items():
        points = [
            Point(row.label, curve, at.value, {m: MEASURES[prefix + m] for m in ("accuracy", "nll")})
            for curve, prefix in (("ensemble", ""), ("subnetworks, their mean", "member_"))
            for row in rows
            if (at := parted(row.label, "M"))
        ]
        numbers = gathered(trained, "M", points)
        drawn = curves([Panel(numbers, "M", measure, "subnetworks M") for measure in ("accuracy", "nll")])
        caption = (
            "M = 1 is a plain network. In the paper subnetworks become weaker as M grows, and their ensemble is best "
            f"between M = 2 and M = 4. {BARS}"
        )
        title = ", ".join(filter(None, ("MIMO by its number of subnetworks", name)))
        found[name] = (title, caption, drawn, numbers)
    return pictures(found)


def _repetitions(trained: Trained) -> dict[str, Picture]:
    """Figure 6: by the share of equal inputs, and by the repetitions of a batch."""
    rows, measures = trained.run.rows, ("accuracy", "nll")
    equal = "At rho = 0 subnetworks see independent inputs, at 1 always the same one."
    often = "Every item comes so often into a batch; the paper sees a slight gain."
    return {
        **_sweep(trained, rows, "rho", measures, "", "MIMO by rho, the share of equal inputs", equal),
        **_sweep(trained, rows, "repetitions", measures, "repetitions", "MIMO by batch repetitions", often, boxed=True),
    }


def _regularisation(trained: Trained) -> dict[str, Picture]:
    """Figures 7 and 8: by the strength of L1 or L2, a curve for each number of subnetworks."""
    found: dict[str, Picture] = {}
    told = "The text expects that more subnetworks suffer more where regularisation is strong."
    for kind in ("L1", "L2"):
        for data, rows in by_data(trained).items():
            name = "-".join(filter(None, ("l2" if kind == "L2" else "", data)))
            title = ", ".join(filter(None, (f"MIMO by {kind} regularisation", data)))
            found |= _sweep(trained, rows, kind, ("accuracy", "nll"), name, title, told, log=True)
    return found


# -- MixtureEnsembles --------------------------------------------------------------------------------------------------


def _scaling(trained: Trained) -> dict[str, Picture]:
    """Figure 3: by the number of parameters, and by the number of members at a number of parameters."""
    mixed: list[tuple[Row, Any]] = [(row, row.method) for row in trained.run.rows if row.method.name == "mixture"]
    budgets = {method.budget: found[0] for row, method in mixed if (found := re.findall(r"P = [^,]*", row.label))}
    measures = {"accuracy": MEASURES["accuracy"], "params": MEASURES["params"]}
    points = [Point(r.label, budgets.get(m.budget, r.label), m.members, measures) for r, m in mixed]
    numbers = gathered(trained, "members", points).drop(columns="params error", errors="ignore")
    if numbers.empty:
        return {}
    four = numbers[numbers["members"] == 4].assign(curve="4 members")
    several = numbers[numbers.groupby("curve")["members"].transform("nunique") > 1]
    by_size = Panel(
        four, "params", "accuracy", "parameters, log scale", log=True, counts=True, title="accuracy by parameters"
    )
    by_members = Panel(several, "members", "accuracy", "members", title="accuracy by members")
    caption = (
        "Left: four members that share more or fewer parameters. Right: more or fewer members that share as many. "
        f"The paper finds that accuracy rises with parameters, and that four members are best. {BARS}"
    )
    title = "MixtureEnsembles by parameters and by members"
    return pictures({"": (title, caption, curves([by_size, by_members]), numbers)})


# -- hypernetworks -----------------------------------------------------------------------------------------------------


def _nested(result: Result) -> dict[str, Picture]:
    """Figure 1: what is shared, after each member's step."""
    pattern = re.compile(r"(.+), after member (\d+)")
    found = [(match, line.ours) for line in result.lines if (match := pattern.fullmatch(line.row))]
    if not found:
        return {}
    numbers = pd.DataFrame([{"curve": m[1], "member": int(m[2]), "theta": theta} for m, theta in found])
    panel = Panel(numbers, "member", "theta", "after the step of member (0: before)", title="theta, what members share")
    caption = (
        "Plain SGD moves what is shared at every member's step; nested SGD holds it until all members have stepped, "
        "and moves it once by the sum."
    )
    return pictures({"": ("Nested against plain SGD", caption, curves([panel]), numbers)})


# -- parts -------------------------------------------------------------------------------------------------------------


def _sweep(
    trained: Trained,
    rows: Sequence[Row],
    letter: str,
    measures: Sequence[str],
    name: str,
    title: str,
    told: str,
    *,
    log: bool = False,
    alone: bool = True,
    boxed: bool = False,
) -> dict[str, Picture]:
    """Panels of measures against a number in the rows' labels, a curve for each of what the labels say beside.

    Args:
        alone: whether curves of one point are drawn.
        boxed: whether many curves become boxes.
    """
    points = [
        Point(row.label, re.sub(r", C\d+$", "", at.rest), at.value, {m: MEASURES[m] for m in measures})
        for row in rows
        if (at := parted(row.label, letter))
    ]
    numbers = gathered(trained, letter, points)
    if not alone and not numbers.empty:
        numbers = numbers[numbers.groupby("curve")[letter].transform("nunique") > 1].reset_index(drop=True)
    along = f"{letter}, log scale" if log else letter
    panels = [Panel(numbers, letter, measure, along, log=log) for measure in measures]
    boxed = boxed and not numbers.empty and numbers["curve"].nunique() > MOST_CURVES
    drawn = boxes(panels) if boxed else curves(panels)
    return pictures({name: (title, f"{told} {BOXES if boxed else BARS}", drawn, numbers)})


CHARTS: dict[str, Callable[[Trained], dict[str, Picture]]] = {
    "hypernet/table1-2": constant_rate,
    "mimo/figure4-right": _diversity,
    "mimo/figure5": _members,
    "mimo/figure6": _repetitions,
    "mimo/figure7-9": _regularisation,
    "mixture/figure3": _scaling,
    "packed/figure1": circles,
    "packed/figure8": _widths,
    "packed/figure9": _shift,
    "packed/table5": _ablation,
    "packed/table11": regressions,
}
EXACT_CHARTS: dict[str, Callable[[Result], dict[str, Picture]]] = {
    "hypernet/figure1": _nested,
    "packed/figure5": _divergence,
}
