"""What is drawn of items that need the numbers of their cells alone: each function takes what is trained of an item.

A figure's numbers are found by the fields of the rows (`Row.varied`, `Row.method`, `Row.recipe`). Nothing is drawn of
what is not done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pandas as pd
from matplotlib.figure import Figure as Drawing

from ...data.corruptions import SEVERITIES
from ...metrics.statistics import over_seeds
from ..base import Row
from ..exact import divergences
from ..measured import Trained
from ..results import Picture
from ..speed import BATCH, RELATIVE, relative_rates
from .drawings import circles_chart, regression_forest
from .panels import BARS, MEASURES, Measure, Panel, Point, bars, boxes, curves, gathered, measured

Chart: TypeAlias = Callable[[Trained], dict[str, Picture]]

BOXES = "A box is the middle half of the settings, its line their median; dots are the settings."
MOST_CURVES = 7  # more of them are not told apart
REGRESSION = ("data", "measure", "PE", "DE", "difference", "low", "high", "splits", "paper")  # columns


def together(*charts: Chart) -> Chart:
    """One chart after the other."""
    return lambda trained: {name: picture for chart in charts for name, picture in chart(trained).items()}


def by_data(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by their data; the first one's name is "", as its picture's is."""
    data = list(dict.fromkeys(row.data for row in rows))
    return {"" if i == 0 else name: [row for row in rows if row.data == name] for i, name in enumerate(data)}


def named(*parts: str, by: str = ", ") -> str:
    """A title or a name of the parts that are not empty."""
    return by.join(filter(None, parts))


def picture(
    trained: Trained,
    title: str,
    caption: str,
    draw: Callable[[pd.DataFrame], Drawing | None],
    numbers: pd.DataFrame,
    name: str = "",
) -> dict[str, Picture]:
    """A picture by its name, if anything can be drawn of its numbers, or of those that were kept of it."""
    numbers = trained.kept.get(name, numbers)
    drawn = None if numbers.empty else draw(numbers)
    return {} if drawn is None else {name: Picture(title, caption, drawn, numbers)}


def _by_row(trained: Trained, *measures: str) -> pd.DataFrame:
    """The measures of every row."""
    points = [Point(row.label, row.label, 0, measured(*measures)) for row in trained.run.rows]
    return gathered(trained, "at", points).drop(columns=["curve", "at"], errors="ignore")


def sweep(
    x: str,
    measures: Sequence[str],
    title: str,
    text: str,
    *,
    name: str = "",
    along: str = "",
    log: bool = False,
    single_points: bool = True,
    boxed: bool = False,
    parts: Mapping[str, str] | None = None,
) -> Chart:
    """Panels of measures against a number that rows vary, a curve for each of what they vary beside.

    There is one picture for each data set.

    Args:
        text: what to expect.
        name: of the picture's file; "" for an item's first.
        along: under the horizontal axis; x by default.
        single_points: whether curves of one point are drawn.
        boxed: whether many curves become boxes.
        parts: curves by the beginning of their measures' names: "member_" for those of members.
    """

    def chart(trained: Trained) -> dict[str, Picture]:
        every: dict[str, Picture] = {}
        for data, rows in by_data([row for row in trained.run.rows if x in row.varied]).items():
            points = [
                Point(row.label, named(part, _beside(row, x)), float(row.varied[x]), measured(*measures, of=prefix))
                for part, prefix in (parts or {"": ""}).items()
                for row in rows
            ]
            numbers = gathered(trained, x, points)
            if not single_points and not numbers.empty:
                numbers = numbers[numbers.groupby("curve")[x].transform("nunique") > 1].reset_index(drop=True)
            many = boxed and len({point.curve for point in points}) > MOST_CURVES

            def draw(numbers: pd.DataFrame, many: bool = many) -> Drawing | None:
                panels = [Panel(numbers, x, m, along or (f"{x}, log scale" if log else x), log=log) for m in measures]
                return boxes(panels) if many else curves(panels)

            caption = f"{text} {BOXES if many else BARS}"
            every |= picture(trained, named(title, data), caption, draw, numbers, named(name, data, by="-"))
        return every

    return chart


def _beside(row: Row, x: str) -> str:
    """What a row varies beside x, in words."""
    rest = {name: value for name, value in row.varied.items() if name != x}
    return ", ".join(value if isinstance(value, str) else f"{name} = {value:g}" for name, value in rest.items())


def circles(trained: Trained) -> dict[str, Picture]:
    """Figure 1, with the relative speeds of Table 8: one quantity, measured in one way."""
    numbers = _by_row(trained, "accuracy", "params").drop(columns="params error", errors="ignore")
    if not numbers.empty:
        rates = relative_rates(trained, [*numbers["row"]]).get(BATCH, {})
        means = [over_seeds(rates[label]).mean if label in rates else math.nan for label in numbers["row"]]
        numbers.insert(1, RELATIVE, means)
    caption = (
        "Up and to the right is better. A circle's area is the number of parameters, a bar one standard error over "
        f"seeds. Images per second, in batches of {BATCH}, are relative to one network on this CPU, as in Table 8; a "
        "method whose speed was not measured is left out."
    )
    return picture(trained, "Accuracy against speed", caption, _circles, numbers)


def _circles(numbers: pd.DataFrame) -> Drawing | None:
    measured = numbers.dropna(subset=[RELATIVE])
    return None if measured.empty else circles_chart(measured)


def divergence_chart(trained: Trained) -> dict[str, Picture]:
    """Figure 5: the divergence of a sparse layer and its bound by the share of weights kept."""
    points = pd.DataFrame(divergences(), columns=["sigma", "p", "KL (17)", "bound (8)"]).melt(
        ["sigma", "p"], var_name="name", value_name="divergence"
    )
    points["curve"] = points["name"] + points["sigma"].map(", sigma = {:g}".format)
    points = points.sort_values("curve", kind="stable", ignore_index=True)
    numbers = points[["curve", "p", "divergence"]]
    looks = {point.curve: (f"{point.sigma:g}", point.name == "bound (8)") for point in points.itertuples()}

    def draw(numbers: pd.DataFrame) -> Drawing | None:
        positive = numbers[numbers["divergence"] > 0]
        along = "p: the share of weights that is kept"
        title = "divergence, log scale"
        return curves([Panel(positive, "p", "divergence", along, title=title, steep=True)], looks=looks)

    caption = (
        "How far a layer with a share p of its weights is from the dense one: the divergence itself, and dashed the "
        "paper's bound on it, which is never below. Both are 0 at p = 1, where all weights are kept, which a "
        "logarithmic axis cannot show."
    )
    return picture(trained, "Divergence of a sparse layer from a dense one", caption, draw, numbers)


def shift_chart(trained: Trained) -> dict[str, Picture]:
    """Figure 9: accuracy and calibration error by the severity of corruptions."""
    points = [
        Point(row.label, row.label, severity, {name: _at(severity, name) for name in ("accuracy", "ece")})
        for row in trained.run.rows
        for severity in (0, *SEVERITIES)
    ]
    numbers = gathered(trained, "severity", points)

    def draw(numbers: pd.DataFrame) -> Drawing | None:
        return curves([Panel(numbers, "severity", name, "severity (0: clean)") for name in ("accuracy", "ece")])

    some = sorted({row.shift_examples for row in trained.run.rows if row.shift_examples})
    of = "".join(f" of {n:,} test examples" for n in some)
    caption = f"Means over corruptions{of}; severity 0 is the whole clean test set. {BARS}"
    return picture(trained, "Accuracy and calibration under shift", caption, draw, numbers)


def _at(severity: int, name: str) -> Measure:
    """A measure at one severity, of cells that have corrupted images."""

    def measure(result: Mapping[str, Any]) -> float | None:
        table = result["numbers"].get("shift")
        if not table or severity == 0:
            return MEASURES[name](result) if table else None
        return sum(row[str(severity)][name] for row in table.values()) / len(table)

    return measure


def regressions(trained: Trained) -> dict[str, Picture]:
    """Table 11: Packed-Ensembles against Deep Ensembles, data set by data set, over the same splits."""
    names = dict.fromkeys(str(row.varied["data"]) for row in trained.run.rows)
    lines = [line for measure in ("rmse", "nll") for name in names if (line := _difference(trained, name, measure))]
    frame = pd.DataFrame(lines, columns=[*REGRESSION])
    numbers = frame.astype(dict.fromkeys(["difference", "low", "high", "paper"], float))
    caption = (
        "Left of the line Packed-Ensembles (PE) are better, right of it Deep Ensembles (DE). A dot is the mean over "
        "splits of the data, its bar the 95 % interval of the paired difference (an arrow: it goes on); a bar across "
        "the line: no difference."
    )
    title = "Packed-Ensembles against Deep Ensembles on regressions"
    return picture(trained, title, caption, regression_forest, numbers)


def _difference(trained: Trained, name: str, measure: str) -> dict[str, Any] | None:
    """PE minus DE over the splits that both have, as one line of numbers; an RMSE's over DE's mean."""
    labels = {str(row.varied["method"]): row.label for row in trained.run.rows if row.varied["data"] == name}
    values = {
        method: trained.values(labels[method], lambda result: result["numbers"].get(measure))
        for method in ("PE", "DE")
        if labels[method] in trained.results
    }
    both = pd.DataFrame(values, columns=["PE", "DE"]).dropna().sort_index()
    if both.empty:
        return None
    means, relative = {name: sum(both[name]) / len(both) for name in both}, measure == "rmse"
    seeds = over_seeds(list((both["PE"] - both["DE"]) / (means["DE"] if relative else 1.0)))
    low, high = seeds.interval()
    pe, de = (trained.run.printed.get(labels[method], {}).get(measure.upper()) for method in means)
    paper = (pe.value - de.value) / (de.value if relative else 1.0) if pe and de else None
    line = {"data": name, "measure": measure, **means, "difference": seeds.mean, "low": low, "high": high}
    return {**line, "splits": len(both), "paper": paper}


def diversity(trained: Trained) -> dict[str, Picture]:
    """MIMO, Figure 4, right: how much members differ, method by method."""
    names = ("disagreement", "kl")
    numbers = _by_row(trained, *names)
    caption = (
        "Pairs of members on the test set: how often their classes differ, and the divergence of their probabilities. "
        f"Members that are all the same have 0 in both. {BARS}"
    )
    return picture(trained, "Diversity of members", caption, lambda numbers: bars(numbers, names), numbers)


def scaling(trained: Trained) -> dict[str, Picture]:
    """MixtureEnsembles, Figure 3: by the number of parameters, and by the members at a number of parameters."""
    measures, rows = measured("accuracy", "params"), trained.run.rows
    points = [Point(row.label, f"P = {row.varied['P']}", row.method.members, measures) for row in rows]
    numbers = gathered(trained, "members", points).drop(columns="params error", errors="ignore")

    def draw(numbers: pd.DataFrame) -> Drawing | None:
        four = numbers[numbers["members"] == 4].assign(curve="4 members")
        several = numbers[numbers.groupby("curve")["members"].transform("nunique") > 1]
        size: dict[str, Any] = {"log": True, "counts": True, "title": "accuracy by parameters"}
        by_size = Panel(four, "params", "accuracy", "parameters, log scale", **size)
        by_members = Panel(several, "members", "accuracy", "members", title="accuracy by members")
        return curves([by_size, by_members])

    caption = (
        "Left: four members that share more or fewer parameters. Right: more or fewer members that share as many. "
        f"The paper finds that accuracy rises with parameters, and that four members are best. {BARS}"
    )
    title = "MixtureEnsembles by parameters and by members"
    return picture(trained, title, caption, draw, numbers)
