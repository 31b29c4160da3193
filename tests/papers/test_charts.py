"""Charts of items: their numbers are what the cells hold, and what is drawn is their numbers."""

from __future__ import annotations

import dataclasses
import io
import math
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from torch import nn

from multum.figures.figure import svg
from multum.metrics.speed import Speed, Speeds
from multum.papers import ITEMS, find, speed
from multum.papers.along import TESTED
from multum.papers.base import Row
from multum.papers.charts.drawings import COLOURS, Compared, Grove, ordering_chart
from multum.papers.exact import exact
from multum.papers.measured import Trained
from multum.papers.results import Ordering, Picture

Cells = Callable[[Row, int], Mapping[str, Any] | None]
CHARTS = [id for id, item in ITEMS.items() if item.chart and item.status != "exact"]
EXACT_CHARTS = [id for id, item in ITEMS.items() if item.chart and item.status == "exact"]


def draw(*names: Any) -> float:
    """A number between 0 and 1 that depends on the names alone."""
    return zlib.crc32(repr(names).encode()) / 2**32


def cell(row: Row, seed: int) -> dict[str, Any]:
    """A result with a number of its own in every place."""

    def number(*names: Any) -> float:
        return draw(row.label, seed, *names)

    names = ("accuracy", "nll", "ece", "member_accuracy", "member_nll", "disagreement", "kl", "rmse")
    found: dict[str, Any] = {name: number(name) for name in names}
    if row.ood:
        found["ood"] = {s: {"msp": {"aupr": number(s)}, "entropy": {"aupr": 9.0}} for s in ("a", "b")}
    if row.shift:
        kinds = {c: {str(s): {m: number(c, s, m) for m in ("accuracy", "ece")} for s in range(1, 6)} for c in row.shift}
        found["shift"] = kinds
    log = [{"epoch": e, "loss": 1.0, "accuracy": number("epoch", e)} for e in range(1, row.epochs + 1)]
    return {"numbers": found, "cost": {"params": 100 * len(row.label)}, "curves": {"training": log}}


def trained(id: str, cells: Cells = cell, scale: str = "cpu", kind: type[Trained] = Trained) -> Trained:
    run = find(id).run(scale)
    results = {r.label: {s: x for s in r.seeds if (x := cells(r, s)) is not None} for r in run.rows}
    return kind(run, Path("nowhere"), results, {})


def untrained(id: str) -> Trained:
    return Trained(find(id).run("paper"), Path("nowhere"), {}, {})


def over(found: Trained, label: str, value: Callable[[Mapping[str, Any]], float]) -> tuple[float, float]:
    """Mean and standard error, by numpy."""
    values = np.array([value(result) for result in found.results[label].values()])
    return values.mean(), values.std(ddof=1) / math.sqrt(len(values))


def holds(picture: Picture, label: str, at: Mapping[str, Any], expected: Mapping[str, tuple[float, float]]) -> None:
    """The frame has one line of that row and place, with these means and errors."""
    frame = picture.numbers[picture.numbers["row"] == label]
    for column, value in at.items():
        frame = frame[frame[column] == value]
    assert len(frame) == 1, (label, at)
    for name, (mean, error) in expected.items():
        assert frame[name].item() == pytest.approx(mean, rel=1e-12)
        assert frame[f"{name} error"].item() == pytest.approx(error, rel=1e-12)


def of(name: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda result: result["numbers"][name]


def aupr(result: Mapping[str, Any]) -> float:
    return (result["numbers"]["ood"]["a"]["msp"]["aupr"] + result["numbers"]["ood"]["b"]["msp"]["aupr"]) / 2


class InMemory(Trained):
    """Opens small untrained networks, the slower the more parameters the row's result has."""

    def open(self, label: str, seed: int | None = None) -> Any:
        width = self.results[label][0]["cost"]["params"]
        return nn.Sequential(nn.Linear(4, width), nn.Linear(width, 3)), SimpleNamespace(
            example=lambda n: torch.zeros(n, 4)
        )


def charts(id: str, cells: Cells = cell, scale: str = "cpu") -> dict[str, Picture]:
    return ITEMS[id].chart(trained(id, cells, scale))


def words(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(Text)}


def curve(figure: Figure, panel: int, label: str) -> tuple[list[float], list[float]]:
    """The data of the curve of that name; matplotlib has a name of its own for one without."""
    (found,) = [c for c in figure.axes[panel].containers if c.get_label() == (label or "_container0")]
    return list(found[0].get_xdata()), list(found[0].get_ydata())


# -- numbers -----------------------------------------------------------------------------------------------------------

# item, picture, column of x, what is measured, and by row its curve and x
SWEEPS: list[tuple[str, str, str, tuple[str, ...], dict[str, tuple[str, float]]]] = [
    (
        "packed/table5",
        "",
        "alpha",
        ("accuracy", "aupr"),
        {
            "PE-(1,4,1)": ("M = 4, gamma = 1", 1),
            "PE-(2,4,1)": ("M = 4, gamma = 1", 2),
            "PE-(3,4,1)": ("M = 4, gamma = 1", 3),
            "PE-(2,2,1)": ("M = 2, gamma = 1", 2),
            "PE-(2,8,1)": ("M = 8, gamma = 1", 2),
            "PE-(2,4,2)": ("M = 4, gamma = 2", 2),
        },
    ),
    (
        "packed/table5",
        "gamma",
        "gamma",
        ("accuracy", "aupr"),
        {f"PE-(2,4,{g})": ("alpha = 2, M = 4", g) for g in (1, 2)},
    ),
    (
        "packed/table5",
        "members",
        "M",
        ("accuracy", "aupr"),
        {f"PE-(2,{m},1)": ("alpha = 2, gamma = 1", m) for m in (2, 4, 8)},
    ),
    (
        "packed/figure8",
        "",
        "width",
        ("accuracy", "aupr"),
        {f"width {w:g}": ("", w) for w in (0.25, 0.5, 1)},
    ),
    ("mimo/figure6", "", "rho", ("accuracy", "nll"), {f"rho = {r:g}": ("", r) for r in (0, 0.5, 1)}),
    (
        "mimo/figure6",
        "repetitions",
        "repetitions",
        ("accuracy", "nll"),
        {f"repetitions = {r}": ("", r) for r in (1, 2, 4)},
    ),
    (
        "mimo/figure7-9",
        "",
        "L1",
        ("accuracy", "nll"),
        {f"L1 = {x:g}, M = {m}": (f"M = {m}", x) for m in (1, 3) for x in (1e-6, 1e-5, 1e-4, 1e-3)},
    ),
]


@pytest.mark.parametrize(("id", "name", "x", "measures", "rows"), SWEEPS)
def test_sweeps_have_the_cells_means_and_errors(
    id: str, name: str, x: str, measures: tuple[str, ...], rows: dict[str, tuple[str, float]]
) -> None:
    found = trained(id)
    picture = ITEMS[id].chart(found)[name]
    assert sorted(picture.numbers["row"]) == sorted(rows)
    for label, (curve_name, at) in rows.items():
        expected = {m: over(found, label, aupr if m == "aupr" else of(m)) for m in measures}
        holds(picture, label, {x: at, "curve": curve_name, "seeds": 3}, expected)
    for panel, measure in enumerate(measures):
        for curve_name, own in picture.numbers.groupby("curve"):
            own = own.sort_values(x)
            assert curve(picture.drawing, panel, str(curve_name)) == (list(own[x]), list(own[measure]))


def test_severities_are_means_over_corruptions() -> None:
    found = trained("packed/figure9")
    picture = ITEMS["packed/figure9"].chart(found)[""]
    assert len(picture.numbers) == 6 * len(found.run.rows)
    for row in found.run.rows:
        holds(picture, row.label, {"severity": 0}, {m: over(found, row.label, of(m)) for m in ("accuracy", "ece")})
        for severity in range(1, 6):
            expected = {}
            for m in ("accuracy", "ece"):

                def mean(result: Mapping[str, Any], m: str = m, severity: int = severity) -> float:
                    return float(np.mean([result["numbers"]["shift"][c][str(severity)][m] for c in row.shift]))  # noqa: B023

                expected[m] = over(found, row.label, mean)
            holds(picture, row.label, {"severity": severity}, expected)


def test_ensemble_and_subnetworks_are_two_curves() -> None:
    found = trained("mimo/figure5")
    picture = ITEMS["mimo/figure5"].chart(found)[""]
    assert len(picture.numbers) == 8
    for m in (1, 2, 3, 4):
        for name, prefix in (("ensemble", ""), ("subnetworks, their mean", "member_")):
            expected = {k: over(found, f"M = {m}", of(prefix + k)) for k in ("accuracy", "nll")}
            holds(picture, f"M = {m}", {"M": m, "curve": name}, expected)


def test_bars_are_the_diversities() -> None:
    found = trained("mimo/figure4-right")
    picture = ITEMS["mimo/figure4-right"].chart(found)[""]
    for row in found.run.rows:
        holds(picture, row.label, {}, {m: over(found, row.label, of(m)) for m in ("disagreement", "kl")})
    for axes, measure in zip(picture.drawing.axes, ("disagreement", "kl"), strict=True):
        assert [bar.get_width() for bar in axes.patches] == list(picture.numbers[measure])


def test_mixtures_by_parameters_and_by_members() -> None:
    found = trained("mixture/figure3", lambda row, seed: {**cell(row, seed), "cost": {"params": SIZES[row.label]}})
    picture = ITEMS["mixture/figure3"].chart(found)[""]
    for label in SIZES:
        holds(picture, label, {"params": SIZES[label]}, {"accuracy": over(found, label, of("accuracy"))})
    mean = dict(zip(picture.numbers["row"], picture.numbers["accuracy"], strict=True))
    by_size = ["P = 1x", "P = 2x", "P = 3.3x"]
    assert curve(picture.drawing, 0, "4 members") == ([SIZES[r] for r in by_size], [mean[r] for r in by_size])
    assert curve(picture.drawing, 1, "P = 1x") == ([2, 4, 8], [mean[r] for r in ("M = 2", "P = 1x", "M = 8")])
    assert picture.drawing.axes[0].get_xscale() == "log"


SIZES = {"P = 1x": 100, "P = 2x": 200, "P = 3.3x": 330, "M = 2": 99, "M = 8": 101}


def test_training_and_test_accuracy_along_the_epochs() -> None:
    def tested(row: Row, seed: int) -> dict[str, Any]:
        """As `along_epochs` gives it, of weights that lie in a run folder."""
        result = cell(row, seed)
        for epoch in result["curves"]["training"]:
            epoch[TESTED] = draw(row.label, seed, "tested", epoch["epoch"])
        return result

    found = trained("hypernet/figure2", tested)
    picture = ITEMS["hypernet/figure2"].chart(found)[""]
    labels = {"ASGD": "ASGD", "NASGD": "NASGD"}
    assert len(picture.numbers) == sum(found.run.row(label).epochs for label in labels)
    for i, (label, name) in enumerate(labels.items()):
        means = []
        for e in range(1, found.run.row(label).epochs + 1):

            def at(result: Mapping[str, Any], key: str, e: int = e) -> float:
                return result["curves"]["training"][e - 1][key]

            both = {"training accuracy": partial(at, key="accuracy"), TESTED: partial(at, key=TESTED)}
            expected = {column: over(found, label, value) for column, value in both.items()}
            holds(picture, label, {"epoch": e, "curve": name}, expected)
            means.append(expected[TESTED][0])
        assert picture.drawing.axes[0].containers[i][0].get_ydata() == pytest.approx(means)
    told = {"members are born", "averaging begins", "NASGD"}
    assert told <= words(picture.drawing)


def test_circles_stand_at_accuracy_and_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def speeds(networks: Mapping[str, Any], example: Any, **settings: Any) -> Speeds:
        asked.update(settings, examples=len(example), networks=list(networks))
        rest = dict.fromkeys(Speed.__dataclass_fields__, 0)
        times = {name: (0.5 + i, 1.5 + i) for i, name in enumerate(networks)}  # in two rounds
        rows = [Speed(**{**rest, "name": n, "batch_size": 128, "seconds": own}) for n, own in times.items()]
        return Speeds(tuple(rows))

    monkeypatch.setattr(speed, "compare_speed", speeds)
    found = trained("packed/figure1", without("MIMO"), kind=InMemory)
    picture = ITEMS["packed/figure1"].chart(found)[""]
    done = [row.label for row in found.run.rows if row.label != "MIMO"]
    assert asked["networks"] == done and asked["examples"] == 128
    for i, label in enumerate(done):
        at = {"images/s relative": (0.5 / (0.5 + i) + 1.5 / (1.5 + i)) / 2, "params": 100 * len(label)}
        holds(picture, label, at, {"accuracy": over(found, label, of("accuracy"))})
    axes = picture.drawing.axes[0]
    drawn = {tuple(c.get_offsets()[0]): c.get_sizes()[0] for c in axes.collections if isinstance(c, PathCollection)}
    where = zip(*(picture.numbers[name] for name in ("images/s relative", "accuracy", "params")), strict=True)
    for x, y, params in where:
        area = drawn[x, y]
        assert area / params == pytest.approx(max(drawn.values()) / picture.numbers["params"].max())
    assert set(done) <= words(picture.drawing)
    saved(picture.drawing)


def test_speeds_are_measured() -> None:
    sizes = {"Single Model": 10, "Deep Ensembles": 20_000}

    def cells(row: Row, seed: int) -> Mapping[str, Any] | None:
        return {**cell(row, seed), "cost": {"params": sizes[row.label]}} if row.label in sizes else None

    found = trained("packed/figure1", cells, kind=InMemory)
    frame = ITEMS["packed/figure1"].chart(found)[""].numbers.set_index("row")["images/s relative"]
    assert frame["Single Model"] == 1 > frame["Deep Ensembles"] > 0


# -- nothing to train --------------------------------------------------------------------------------------------------


def test_divergence_and_bound_by_share() -> None:
    result = exact(find("packed/figure5"))
    picture = ITEMS["packed/figure5"].chart(untrained("packed/figure5"))[""]
    frame = picture.numbers.set_index(["curve", "p"])["divergence"]
    assert len(frame) == len(result.lines)
    for line in result.lines:
        sigma, p = (float(part.split(" = ")[1]) for part in line.row.split(", "))
        assert frame[f"{line.column}, sigma = {sigma:g}", p] == line.ours
    x, y = curve(picture.drawing, 0, "bound (8), sigma = 2")
    assert y[0] > curve(picture.drawing, 0, "KL (17), sigma = 2")[1][0] and x[0] == 0.1 and x[-1] == 0.9
    assert picture.drawing.axes[0].get_yscale() == "log" and frame["KL (17), sigma = 2", 1.0] == 0
    lines = {c.get_label(): c[0] for c in picture.drawing.axes[0].containers}
    solid, dashed = lines["KL (17), sigma = 1"], lines["bound (8), sigma = 1"]
    assert solid.get_color() == dashed.get_color() != lines["KL (17), sigma = 2"].get_color()
    assert (solid.is_dashed(), dashed.is_dashed()) == (False, True)


def test_nested_sgd_holds_theta_to_the_end() -> None:
    result = exact(find("hypernet/figure1"))
    picture = ITEMS["hypernet/figure1"].chart(untrained("hypernet/figure1"))[""]
    theta = {line.row: line.ours for line in result.lines if line.column == "theta"}
    for name in ("nested SGD", "plain SGD"):
        expected = [theta[f"{name}, after member {i}"] for i in range(4)]
        assert curve(picture.drawing, 0, name) == ([0, 1, 2, 3], expected)
    assert curve(picture.drawing, 0, "nested SGD")[1][:3] == [1, 1, 1]
    assert curve(picture.drawing, 0, "plain SGD")[1][1] != 1


# -- what is not done --------------------------------------------------------------------------------------------------


def only(*labels: str) -> Cells:
    return lambda row, seed: cell(row, seed) if row.label in labels else None


def without(*labels: str) -> Cells:
    return lambda row, seed: None if row.label in labels else cell(row, seed)


@pytest.mark.parametrize("id", CHARTS)
def test_with_nothing_done_nothing_is_drawn(id: str) -> None:
    found = trained(id, lambda row, seed: None)
    assert ITEMS[id].chart(found) == {}
    assert ITEMS[id].chart(replace(found, results={})) == {}


def test_rows_and_seeds_that_are_not_done_are_left_out() -> None:
    gone = {("rho = 0", 0), ("rho = 0", 1), ("rho = 0.5", 0), ("rho = 0.5", 1), ("rho = 0.5", 2), ("rho = 1", 1)}
    found = trained("mimo/figure6", lambda row, seed: None if (row.label, seed) in gone else cell(row, seed))
    frame = ITEMS["mimo/figure6"].chart(found)[""].numbers.set_index("row")
    assert list(frame.index) == ["rho = 0", "rho = 1"] and list(frame["seeds"]) == [1, 2]
    assert frame.loc["rho = 0", "nll"] == draw("rho = 0", 2, "nll") and math.isnan(frame.loc["rho = 0", "nll error"])
    first, last = (draw("rho = 1", seed, "nll") for seed in (0, 2))
    assert frame.loc["rho = 1", "nll error"] == pytest.approx(abs(first - last) / 2)  # std / sqrt 2 of two
    assert list(charts("mimo/figure6", only("repetitions = 1", "repetitions = 2"))) == ["repetitions"]


def test_a_measure_that_no_cell_has_has_no_panel() -> None:
    def plain(row: Row, seed: int) -> Mapping[str, Any]:
        return cell(replace(row, ood=()), seed)

    picture = charts("packed/figure8", plain)[""]
    assert len(picture.drawing.axes) == 1 and picture.numbers["aupr"].isna().all()
    assert charts("packed/figure9", lambda row, seed: cell(replace(row, shift=()), seed)) == {}


def test_at_the_papers_scale_each_data_set_has_its_picture() -> None:
    assert list(charts("mimo/figure5", scale="paper")) == ["", "cifar100"]
    some = {
        f"{kind}, M = {m}, {data}" for kind in ("L1 = 5e-06", "L2 = 0.001") for m in (1, 2) for data in ("C10", "C100")
    }
    found = charts("mimo/figure7-9", only(*some), scale="paper")
    assert list(found) == ["", "cifar100", "l2", "l2-cifar100"]
    assert set(found["l2"].numbers["row"]) == {"L2 = 0.001, M = 1, C10", "L2 = 0.001, M = 2, C10"}
    assert set(found["l2"].numbers["curve"]) == {"M = 1", "M = 2"}


def test_many_settings_become_boxes() -> None:
    picture = charts("mimo/figure6", scale="paper")["repetitions"]
    assert len(picture.numbers) == 48 and "box" in picture.caption
    axes = picture.drawing.axes[0]
    medians = [
        line.get_ydata()[0] for line in axes.lines if len(line.get_ydata()) == 2 and len(set(line.get_ydata())) == 1
    ]
    for _, own in picture.numbers.groupby("repetitions"):
        assert any(m == pytest.approx(own["accuracy"].median()) for m in medians)


# -- forests -----------------------------------------------------------------------------------------------------------


def test_regressions_are_paired_over_splits() -> None:
    def cells(row: Row, seed: int) -> Mapping[str, Any] | None:
        gone = (row.label == "PE, boston" and seed == 3) or row.label == "DE, yacht"
        return None if gone else cell(row, seed)

    found = trained("packed/table11", cells)
    picture = ITEMS["packed/table11"].chart(found)[""]
    frame = picture.numbers.set_index(["data", "measure"])
    assert len(frame) == 2 * 8 and "yacht" not in frame.index.get_level_values("data")
    assert (frame.loc[("boston", "rmse"), "splits"], frame.loc[("energy", "nll"), "splits"]) == (19, 20)
    for name, measure in frame.index:
        splits = [s for s in found.run.row(f"PE, {name}").seeds if (name, s) != ("boston", 3)]
        pe, de = (np.array([draw(f"{m}, {name}", s, measure) for s in splits]) for m in ("PE", "DE"))
        unit = de.mean() if measure == "rmse" else 1.0
        line, d = frame.loc[(name, measure)], (pe - de) / unit
        reach = STUDENT[len(splits)] * d.std(ddof=1) / math.sqrt(len(splits))
        assert line["difference"] == pytest.approx(d.mean())
        assert (line["low"], line["high"]) == pytest.approx((d.mean() - reach, d.mean() + reach), rel=1e-6)
    assert frame.loc[("concrete", "rmse"), "paper"] == pytest.approx(5.092 / 5.167 - 1)
    assert frame.loc[("concrete", "nll"), "paper"] == pytest.approx(2.854 - 2.885)


STUDENT = {5: 2.7764451, 19: 2.1009220, 20: 2.0930241}  # t at 0.975 with n - 1 degrees of freedom, by n


def test_orderings_are_coloured_by_verdict_and_have_the_signs_of_the_table() -> None:
    given = (
        Ordering("Acc", "A", "B", 1.0, 2.0, 1.0, 3.0),
        Ordering("Acc", "A", "C", None, -2.0, -3.0, -1.0),
        Ordering("NLL", "A", "B", -0.1, -0.2, -0.3, -0.1, lower=True),
        Ordering("NLL", "A", "C", -0.1, 0.1, -0.3, 0.5, lower=True),
        Ordering("NLL", "B", "C", -0.1, 0.4, None, None, lower=True),
    )
    drawn = ordering_chart([{**dataclasses.asdict(o), "verdict": o.verdict} for o in given])
    assert drawn is not None
    accuracy, nll = drawn.axes
    assert accuracy.get_title("left") == "Acc" and nll.get_title("left") == "NLL"
    assert "more is better" in accuracy.get_xlabel() and "less is better" in nll.get_xlabel()
    assert dots(accuracy) == [(2.0, COLOURS["holds"]), (-2.0, COLOURS["reversed"])]
    assert dots(nll) == [(-0.2, COLOURS["holds"]), (0.1, COLOURS["open"]), (0.4, COLOURS["one seed"])]
    assert bars(nll) == [(-0.3, -0.1), (-0.3, 0.5)]
    assert [t.get_text() for t in nll.get_yticklabels()] == ["A - B", "A - C", "B - C"]
    assert {"holds", "reversed", "open", "one seed", "the paper's"} <= words(drawn)
    saved(drawn)


def test_one_long_interval_does_not_make_dots_of_the_others() -> None:
    marks = [Compared(str(i), 0.1, -0.1 * i, 0.2, "#000000") for i in (1, 2, 3, 30)]
    assert Grove("", marks).limit() == pytest.approx(1.3 * 0.3)
    assert Grove("", marks[:3]).limit() is None


def dots(axes: Any) -> list[tuple[float, str]]:
    return [(line.get_xdata()[0], to_hex(line.get_color())) for line in axes.lines if line.get_marker() == "o"]


def bars(axes: Any) -> list[tuple[float, float]]:
    return [
        tuple(x)
        for line in axes.lines
        if len(x := line.get_xdata()) == 2 and line.get_marker() == "None" and x[0] != x[1]
    ]


def test_without_orderings_there_is_no_forest() -> None:
    assert ordering_chart([]) is None


# -- drawings ----------------------------------------------------------------------------------------------------------


def saved(figure: Figure) -> None:
    """Saved as PNG, with nothing of it outside; warnings are errors."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=50)
    assert buffer.getvalue().startswith(b"\x89PNG")
    assert figure.get_figwidth() * 72 <= 700.01
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes += [part.get_window_extent() for part in (*figure.texts, *figure.legends)]
    for box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
    for legend in figure.legends:
        assert not any(legend.get_window_extent().overlaps(axes.get_tightbbox()) for axes in figure.axes)


@pytest.mark.parametrize("id", [id for id in CHARTS if id != "packed/figure1"])
def test_every_chart_is_saved_with_all_its_words(id: str) -> None:
    found = charts(id)
    assert "" in found
    for picture in found.values():
        saved(picture.drawing)
        assert picture.title and picture.caption.endswith(".")


@pytest.mark.parametrize("id", ["mimo/figure4-right", "mimo/figure5", "packed/table11"])
def test_charts_are_saved_as_svg_with_words_as_words(id: str) -> None:
    (picture,) = charts(id).values()
    root = ElementTree.fromstring(svg(picture.drawing))
    told = {"".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")}
    expected = {"mimo/figure4-right": "TreeNet (M = 3)", "mimo/figure5": "ensemble", "packed/table11": "concrete"}[id]
    assert expected in told


@pytest.mark.parametrize("id", EXACT_CHARTS)
def test_exact_charts_are_saved(id: str) -> None:
    for picture in ITEMS[id].chart(untrained(id)).values():
        saved(picture.drawing)
        assert isinstance(picture.numbers, pd.DataFrame) and len(picture.numbers) > 0


def test_nothing_of_matplotlib_is_left_changed() -> None:
    before, imported = dict(matplotlib.rcParams), "matplotlib.pyplot" in sys.modules
    charts("mimo/figure5")
    assert dict(matplotlib.rcParams) == before
    assert ("matplotlib.pyplot" in sys.modules) == imported
