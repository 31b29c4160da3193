"""The figures that tell what is sure: differences with intervals, worth in networks, circles that do not coincide."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from multum import reports
from multum.figures.circles import spread
from multum.figures.figure import NARROW, WIDE
from multum.reports.charts.forests import COLOURS
from reports import documents
from reports.answers import answered


def figure(document: dict, name: str) -> reports.Figure:
    return next(f for f in reports.figures(document) if f.name == name)


def test_differences_are_the_documents_and_called_what_they_are(document: dict) -> None:
    changed = copy.deepcopy(document)
    ends = {"deep": (-0.03, -0.01), "packed": (-0.003, 0.002), "swag": (-0.02, 0.01), "deep@1x": (0.01, 0.05)}
    for row in changed["rows"]:
        if row["label"] in ends:
            low, high = ends[row["label"]]
            row["against"]["single"] = {"label": "single", "mean": (low + high) / 2, "low": low, "high": high, "p": 0.5}
        else:
            row["against"]["single"] = None
    drawn = figure(changed, "differences")
    frame = drawn.frame().set_index("method")
    assert frame["verdict"].to_dict() == {
        "deep": "better",
        "swag": "cannot be told",
        "packed": "equal within the margin",
        "deep@1x": "worse",
    }
    assert list(frame.index) == ["deep", "swag", "packed", "deep@1x"], "the best first"
    assert frame.loc["deep"].tolist()[:3] == [-0.02, -0.03, -0.01]
    axes = drawn.plot().axes[0]
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [to_hex(dot.get_color()) for dot in dots] == [COLOURS[verdict] for verdict in frame["verdict"]]
    [band] = axes.patches
    assert band.get_x() == -0.004 and band.get_width() == pytest.approx(0.008), "the margin"


def test_a_method_far_off_is_an_arrow_with_its_number(document: dict) -> None:
    changed = copy.deepcopy(document)
    far = next(row for row in changed["rows"] if row["label"] == "swag")
    far["against"]["single"] |= {"mean": 9.5, "low": 9.0, "high": 10.0}
    axes = figure(changed, "differences").plot(NARROW).axes[0]
    assert axes.get_xlim()[1] < 1
    assert "+9.500" in [text.get_text() for text in axes.texts]


def test_wide_intervals_do_not_hide_the_differences(document: dict) -> None:
    changed = copy.deepcopy(document)
    for row in changed["rows"]:
        if row["against"]["single"]:
            row["against"]["single"] |= {"low": -40.0, "high": 40.0}
    drawn = figure(changed, "differences")
    largest = drawn.frame()["mean"].abs().max()
    axes = drawn.plot().axes[0]
    assert axes.get_xlim()[1] < 7 * largest
    arrows = [line.get_marker() for line in axes.lines if line.get_marker() in "<>"]
    assert len(arrows) == 2 * len(drawn.frame()), "every interval goes on at both ends"
    assert "arrowhead" in drawn.caption and "arrowhead" not in figure(document, "differences").caption


def test_without_intervals_nothing_is_sure(document: dict) -> None:
    changed = copy.deepcopy(document)
    for row in changed["rows"]:
        if row.get("against", {}).get("single"):
            row["against"]["single"] |= {"low": None, "high": None}
    drawn = figure(changed, "differences")
    assert set(drawn.frame()["verdict"]) == {"cannot be told"}
    drawn.plot(NARROW)


def test_worth_is_drawn_with_its_words_and_the_curve_of_deep(document: dict) -> None:
    drawn = figure(document, "equivalent")
    frame = drawn.frame().set_index("method")
    for row in document["rows"]:
        if row["values"]:
            assert frame.loc[row["label"], "words"] == row["equivalent"]
            assert frame.loc[row["label"], "networks"] == row["values"]["equivalent"]["mean"]
    for width in (WIDE, NARROW):
        forest, curve = drawn.plot(width).axes
        assert frame["words"].tolist() == [text.get_text() for text in forest.texts]
        cells = [c["curves"]["by_members"]["nll"] for c in document["cells"] if c["label"] == "deep"]
        np.testing.assert_allclose(curve.lines[0].get_ydata(), np.mean(cells, 0))
        assert list(curve.lines[0].get_xdata()) == [1, 2, 3, 4]


def test_worth_that_has_words_alone_is_drawn_where_they_say() -> None:
    document = answered(documents.classification(seeds=2, failed="", partly="", names=["single", "packed"]))
    for row in document["rows"]:
        row["values"].pop("equivalent")
        row["equivalent"] = "> 4" if row["label"] == "packed" else None
    drawn = figure(document, "equivalent")
    assert drawn.frame()["networks"].tolist() == [4.0]
    drawn.plot(NARROW)


def test_calibrated_nll_is_what_the_front_shows(document: dict) -> None:
    frame = figure(document, "pareto-nll").frame()
    expected = [row["values"]["calibrated_nll"]["mean"] for row in document["rows"] if row["values"]]
    assert frame["calibrated_nll"].tolist() == expected


def test_circles_that_coincide_are_moved_apart() -> None:
    rng = np.random.default_rng(0)
    circles = np.column_stack([rng.choice([100.0, 300.0], 12), rng.uniform(0, 60, 12), rng.uniform(4, 20, 12)])
    x = spread(circles, 0, 600)
    for i, j in itertools.combinations(range(12), 2):
        distance = np.hypot(x[i] - x[j], circles[i, 1] - circles[j, 1])
        assert distance >= 0.74 * (circles[i, 2] + circles[j, 2])
    apart = np.array([[10.0, 10.0, 5.0], [40.0, 10.0, 5.0], [10.0, 40.0, 5.0]])
    assert spread(apart, 0, 600).tolist() == [10.0, 40.0, 10.0], "nothing moves without a need"


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_a_moved_circle_is_marked_and_said(document: dict, width: float) -> None:
    same = copy.deepcopy(document)
    first, second = (next(r for r in same["rows"] if r["label"] == label) for label in ("deep", "packed"))
    for key in ("macs", "params", "accuracy"):
        second["values"][key] = dict(first["values"][key])
    drawn = figure(same, "pareto")
    assert "moved sideways" in drawn.caption
    axes = drawn.plot(width).axes[0]
    index = [row["label"] for row in same["rows"]].index("deep")
    [circle] = [c for c in axes.collections if c.get_gid() == f"point-{index}"]
    moved = axes.transData.transform(circle.get_offsets())[0, 0]
    true = axes.transData.transform((first["values"]["macs"]["mean"], 0.5))[0]
    assert abs(moved - true) > 4
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert first["values"]["macs"]["mean"] in dots, "the true place"
    frame = pd.DataFrame(drawn.frame()).set_index("method")
    assert frame.loc["packed", "macs"] == first["values"]["macs"]["mean"], "numbers do not move"
