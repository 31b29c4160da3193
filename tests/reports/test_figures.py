"""Figures: every number is the document's, every method looks the same everywhere, and nothing is cut off."""

from __future__ import annotations

import copy
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_hex

from multum import reports
from multum.figures.circles import front, placed
from multum.figures.figure import NARROW, WIDE
from multum.figures.palette import DARK_HUES, DARK_PAPER, HUES, PAPER, look
from multum.figures.palette import drawing as our_settings
from multum.figures.panels import canvas, log_ticks
from multum.reports.charts import CHARTS
from multum.reports.view import View
from reports import documents

ALL = [
    "differences",
    "pareto-nll",
    "equivalent",
    "pareto",
    "reliability",
    "risk-coverage",
    "ood",
    "shift",
    "corruptions",
    "diversity",
    "training",
]


@pytest.fixture(scope="module")
def figures(document: dict) -> dict[str, reports.Figure]:
    return {figure.name: figure for figure in reports.figures(document)}


def cells(document: dict, label: str) -> list[dict]:
    return [cell for cell in document["cells"] if cell["label"] == label and cell["status"] == "done"]


def test_a_document_has_the_figures_it_has_data_for(figures: dict) -> None:
    assert list(figures) == ALL
    assert [f.name for f in reports.figures(documents.regression())] == [
        "pareto-nll",
        "pareto",
        "quantiles",
        "training",
    ]
    assert reports.figures(documents.minimal()) == []


def test_a_curve_that_no_cell_has_is_no_figure(document: dict) -> None:
    less = copy.deepcopy(document)
    for cell in less["cells"]:
        cell["curves"].pop("histograms", None)
        cell["curves"].pop("disagreement", None)
    assert [f.name for f in reports.figures(less)] == [name for name in ALL if name not in ("ood", "diversity")]


def test_a_chart_is_a_function_and_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def toy(view: View) -> reports.Figure | None:
        numbers = pd.DataFrame({"method": [row.label for row in view.rows]})
        return reports.Figure("A toy", "How to read it.", numbers, lambda width: canvas(width, 20), "An empty picture.")

    document = documents.minimal()
    monkeypatch.setitem(CHARTS, "toy", toy)
    assert reports.figures(document)[-1].name == "toy"
    reports.write(document, tmp_path)
    assert (tmp_path / "figures" / "toy.svg").is_file() and (tmp_path / "figures" / "toy.png").is_file()
    assert "figures/toy.png" in (tmp_path / "report.md").read_text()
    page = (tmp_path / "report.html").read_text()
    assert '<figure id="toy">' in page and "How to read it." in page and '"toy": {"columns": ["method"]' in page
    monkeypatch.setitem(CHARTS, "toy", lambda view: None)
    reports.write(document, tmp_path)
    assert not (tmp_path / "figures" / "toy.png").exists()


def test_failed_methods_are_in_no_figure(figures: dict) -> None:
    for figure in figures.values():
        assert "hypernet" not in set(figure.frame()["method"])
        assert "swag" in set(figure.frame()["method"])


def test_a_frame_is_the_callers_own(figures: dict) -> None:
    frame = figures["pareto"].frame()
    frame["accuracy"] = 0
    assert (figures["pareto"].frame()["accuracy"] > 0.5).all()


def test_pareto_numbers(figures: dict, document: dict) -> None:
    frame = figures["pareto"].frame().set_index("method")
    for row in document["rows"]:
        if row["status"] != "failed":
            values = row["values"]
            assert frame.loc[row["label"], "macs"] == values["macs"]["mean"]
            assert frame.loc[row["label"], "params"] == values["params"]["mean"]
            assert frame.loc[row["label"], "accuracy"] == values["accuracy"]["mean"]
            assert frame.loc[row["label"], "error"] == pytest.approx(
                values["accuracy"]["error"] or float("nan"), nan_ok=True
            )
    dominated = [
        any(
            (o.macs <= m.macs and o.accuracy > m.accuracy) or (o.macs < m.macs and o.accuracy >= m.accuracy)
            for o in frame.itertuples()
        )
        for m in frame.itertuples()
    ]
    assert frame["front"].tolist() == [not d for d in dominated]


def test_the_front_of_a_lower_is_better_quality() -> None:
    assert front([1, 2, 3], [0.5, 0.4, 0.45], "lower") == [0, 1]
    assert front([1, 1], [0.5, 0.4], "lower") == [1]
    assert front([2.0], [0.5], "higher") == [0]


def test_risk_coverage_and_severity_are_means_over_seeds(figures: dict, document: dict) -> None:
    seeds = cells(document, "packed")
    assert len(seeds) == 2
    for name, key, value in (("risk-coverage", "risk_coverage", "risk"), ("shift", "severity", "accuracy")):
        curves = [cell["curves"][key] for cell in seeds]
        both = np.array([c["risk"] if value == "risk" else list(c.values()) for c in curves])
        frame = figures[name].frame().query("method == 'packed'")
        np.testing.assert_allclose(frame[value], both.mean(0), rtol=1e-12)
        np.testing.assert_allclose(frame["error"], both.std(0, ddof=1) / 2**0.5, atol=1e-12)
        assert (frame["seeds"] == 2).all()


def test_reliability_pools_the_examples_of_all_seeds(figures: dict, document: dict) -> None:
    frame = figures["reliability"].frame().query("method == 'deep'")
    curves = [cell["curves"]["reliability"] for cell in cells(document, "deep")]
    right = sum(w * (a or 0) for c in curves for w, a in zip(c["weight"], c["accuracy"], strict=True)) / len(curves)
    assert (frame["weight"] * frame["accuracy"].fillna(0)).sum() == pytest.approx(right)
    assert frame["weight"].sum() == pytest.approx(1)


def test_histograms_of_seeds_with_other_bins_are_put_into_the_same(document: dict) -> None:
    other = copy.deepcopy(document)
    shares = [1.0] + [0.0] * 49
    for cell, low in zip(cells(other, "single"), (0.0, 0.5), strict=True):
        cell["curves"]["histograms"] = {"test": {"edges": np.linspace(low, low + 0.5, 51).tolist(), "share": shares}}
    [figure] = [f for f in reports.figures(other) if f.name == "ood"]
    frame = figure.frame()
    sums = frame.groupby(["method", "set"])["share"].sum()
    np.testing.assert_allclose(sums, 1)
    of_single = frame.query("method == 'single' and share > 0")
    assert of_single["from"].tolist() == [0.0, 0.48] or of_single["from"].tolist() == [0.0, 0.48, 0.52]
    assert of_single["share"].iloc[0] == pytest.approx(0.5)


@pytest.mark.parametrize(("shift", "named"), [(0.0, True), (-1.0, False), (3.0, False)])
def test_scores_are_drawn_where_they_are_and_called_what_they_are(document: dict, shift: float, named: bool) -> None:
    moved = copy.deepcopy(document)
    for cell in moved["cells"]:
        for one in cell["curves"].get("histograms", {}).values():
            one["edges"] = [edge * 0.5 + 0.25 + shift for edge in one["edges"]]
    [figure] = [f for f in reports.figures(moved) if f.name == "ood"]
    frame = figure.frame().query("method == 'packed' and set == 'mnist'")
    shares = [cell["curves"]["histograms"]["mnist"]["share"] for cell in cells(moved, "packed")]
    middles = (np.arange(50) + 0.5) / 50 * 0.5 + 0.25 + shift
    mean = (frame["share"] * (frame["from"] + frame["to"]) / 2).sum()
    assert frame["share"].sum() == pytest.approx(1)
    assert mean == pytest.approx((np.mean(shares, axis=0) * middles).sum(), abs=0.02)
    words = [text.get_text() for text in figure.plot(NARROW).texts]
    assert ("uncertainty: 1 - confidence" in words) == named


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_the_legend_of_ood_data_is_beside_the_name_of_the_axis(figures: dict, width: float) -> None:
    drawing = figures["ood"].plot(width)
    with our_settings():
        drawing.canvas.draw()
        [legend] = drawing.legends
        assert not any(legend.get_window_extent().overlaps(text.get_window_extent()) for text in drawing.texts)


def test_every_member_of_a_large_ensemble_is_in_its_matrix(figures: dict) -> None:
    frame = figures["diversity"].frame()
    assert len(frame.query("method == 'swag'")) == 8 * 7 / 2
    labels = list(frame["method"].unique())
    panels = figures["diversity"].plot().axes
    assert panels[labels.index("swag")].get_xlim() == (0, 8)
    assert panels[labels.index("deep")].get_xlim() == (0, 4)


def test_a_method_has_one_colour_in_all_figures(figures: dict, document: dict) -> None:
    labels = [row["label"] for row in document["rows"]]
    for name in ("risk-coverage", "shift", "training"):
        methods = list(figures[name].frame()["method"].unique())
        for label, axes in zip(methods, figures[name].plot(NARROW).axes, strict=True):
            assert to_hex(axes.lines[-1].get_color()) == look(labels.index(label)).colour
    circles = {c.get_gid(): c for c in figures["pareto"].plot(NARROW).axes[0].collections if c.get_gid()}
    for label in figures["pareto"].frame()["method"]:
        index = labels.index(label)
        assert to_hex(circles[f"point-{index}"].get_edgecolor()[0]) == look(index).colour


def test_area_is_parameters(figures: dict, document: dict) -> None:
    circles = {c.get_gid(): c.get_sizes()[0] for c in figures["pareto"].plot().axes[0].collections if c.get_gid()}
    params = [row["values"].get("params", {}).get("mean") for row in document["rows"]]
    ratios = [size / params[int(name.removeprefix("point-"))] for name, size in circles.items()]
    assert len(ratios) == 6
    np.testing.assert_allclose(ratios, ratios[0])


@pytest.fixture(scope="module")
def crowded() -> reports.Figure:
    return next(f for f in reports.figures(documents.classification(seeds=2)) if f.name == "pareto")


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_names_of_fourteen_circles_do_not_overlap(crowded: reports.Figure, width: float) -> None:
    drawing = crowded.plot(width)
    renderer = drawing.canvas.get_renderer()
    names = [t for t in drawing.axes[0].texts if (t.get_gid() or "").startswith("name-")]
    assert len(names) == 13
    boxes = [name.get_window_extent(renderer) for name in names]
    for (a, first), (b, second) in itertools.combinations(zip(boxes, names, strict=True), 2):
        assert not a.padded(-1).overlaps(b.padded(-1)), (first.get_text(), second.get_text())


def test_many_circles_at_one_place_have_names_apart() -> None:
    circles = np.array([[150.0, 100.0, 8.0]] * 8)
    sizes = np.array([[60.0, 13.0]] * 8)
    middles = np.array([p.middle for p in placed(circles, sizes, (0, 0, 300, 200))])
    for a, b in itertools.combinations(middles, 2):
        assert abs(a[0] - b[0]) >= 60 or abs(a[1] - b[1]) >= 13


def nasty() -> dict:
    """Labels that are markup, mathematics, another script, or far too long."""
    document = documents.classification(seeds=2, failed="", partly="", names=["single", "deep", "packed"])
    names = ["<script>alert(1)</script>", 'a$x_1$b & "c" 方法', "packed:" + "members=4,alpha=2," * 6]
    for row, name in zip(document["rows"], names, strict=True):
        for cell in cells(document, row["label"]):
            cell["label"] = name
        row["label"] = name
    document["advice"]["label"] = names[1]
    return document


@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_nothing_leaves_its_drawing(width: float) -> None:
    for figure in reports.figures(nasty()):
        drawing = figure.plot(width)
        assert drawing.bbox.width <= width + 0.5
        with our_settings():
            box = drawing.get_tightbbox(drawing.canvas.get_renderer())
        size = drawing.get_size_inches()
        assert box.x0 > -0.03 and box.x1 < size[0] + 0.03, figure.name
        assert box.y0 > -0.03 and box.y1 < size[1] + 0.03, figure.name


def test_one_method_one_seed_and_perfect_accuracy() -> None:
    document = documents.classification(seeds=1, failed="", partly="", names=["single"])
    document["rows"][0]["values"]["accuracy"] |= {"mean": 1.0, "error": None}
    drawn = reports.figures(document)
    assert [f.name for f in drawn] == [n for n in ALL if n not in ("differences", "equivalent", "diversity")]
    for figure in drawn:
        figure.plot(NARROW).canvas.draw()


def test_an_outlier_does_not_squeeze_the_others() -> None:
    document = documents.classification(seeds=2, failed="", names=["single", "deep", "packed", "mimo"], partly="")
    document["rows"][3]["values"]["accuracy"] |= {"mean": 0.2, "error": 0.01}
    [figure] = [f for f in reports.figures(document) if f.name == "pareto"]
    assert "stretched" in figure.caption
    axes = figure.plot().axes[0]
    high, low = (axes.transData.transform((1e6, a))[1] for a in (0.95, 0.90))
    assert high - low > 0.15 * axes.bbox.height  # 0.06 of it on a plain axis
    assert all(0 <= tick <= 1 for tick in axes.get_yticks())


def test_log_ticks_are_few_and_inside() -> None:
    for low, high in itertools.product((1.0, 3.3, 7e5), (1.2, 4.0, 80.0, 1e6)):
        ticks = log_ticks(low, low * high)
        assert 1 <= len(ticks) <= 8
        assert all(low <= tick <= low * high for tick in ticks)
        assert ticks == sorted(ticks)


def linear(colours: tuple[str, ...]) -> np.ndarray:
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in colours])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def oklab(rgb: np.ndarray) -> np.ndarray:
    cones = [[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]]
    axes = [[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]]
    return np.cbrt(np.clip(rgb @ np.array(cones).T, 0, None)) @ np.array(axes).T


# Machado, Oliveira and Fernandes, 2009: how people without one kind of cone see linear RGB.
SIGHT = {
    "all cones": np.eye(3),
    "protanopia": [[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]],
    "deuteranopia": [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]],
}


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(("hues", "paper"), [(HUES, PAPER), (DARK_HUES, DARK_PAPER)], ids=["light", "dark"])
def test_hues_stay_apart_and_stand_out(hues: tuple[str, ...], paper: str, sight: str) -> None:
    seen = oklab(np.clip(linear(hues) @ np.array(SIGHT[sight]).T, 0, 1))
    apart = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[~np.eye(len(hues), dtype=bool)]
    assert apart.min() > 0.09
    light = np.array([0.2126, 0.7152, 0.0722])
    ground, inks = linear((paper,))[0] @ light + 0.05, linear(hues) @ light + 0.05
    assert (np.maximum(inks, ground) / np.minimum(inks, ground)).min() >= 3
