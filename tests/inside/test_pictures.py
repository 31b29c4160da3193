"""Pictures of what goes on inside: what is drawn is what was measured, and nothing of pyplot is touched."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from multum.errors import ConfigError
from multum.inside.conditional_variance import ConditionalVariances
from multum.inside.landscape import Interpolation, Plane
from multum.inside.pictures import conditional_variance_plot, interpolation_plot, paths_plot, plane_plot
from multum.inside.trajectories import Paths

T = torch.linspace(0, 1, 5, dtype=torch.float64)
LINE = Interpolation((0, 1), T, 1 + T * (1 - T), 0.9 - T * (1 - T), 12)


def plane(points: int = 6) -> Plane:
    x = torch.linspace(-1, 5, points, dtype=torch.float64)
    y = torch.linspace(-1, 4, points, dtype=torch.float64)
    loss = 0.01 + x.square() + y.square().unsqueeze(1)
    accuracy = 1 / (1 + loss)
    corners = torch.tensor([[0.0, 0.0], [4.0, 0.0], [2.0, 3.0]], dtype=torch.float64)
    disagreement = torch.stack([1 - accuracy, accuracy, accuracy / 2])
    return Plane((0, 2, "origin"), x, y, loss, accuracy, disagreement, corners, corners[2], 0.0, 12)


def paths(explained: tuple[float, float] | None = None) -> Paths:
    member, epoch = np.tile([0, 1, 2], 4), np.repeat(np.arange(4), 3)
    return Paths(member, epoch, member * epoch * 1.0, epoch * 2.0, "pca" if explained else "tsne", explained)


def variances(members: int, units: int = 20) -> ConditionalVariances:
    inputs = torch.rand(members, units, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    layers = ("a",) * (units // 2) + ("b",) * (units - units // 2)
    return ConditionalVariances(layers, tuple(range(units)), inputs, inputs.sum(0), 12, 3)


def pixels(figure: Figure) -> np.ndarray:
    """The picture as it would be saved; warnings are errors, so that overlaps and odd fonts show here."""
    assert isinstance(figure, Figure)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="rgba", dpi=40)
    found = np.frombuffer(buffer.getvalue(), dtype=np.uint8)
    assert found.std() > 5  # not an empty sheet
    return found


def words(figure: Figure) -> set[str]:
    return {text.get_text() for text in figure.findobj(lambda a: hasattr(a, "get_text"))}


def test_lines_go_through_the_measured_points():
    figure = interpolation_plot({"deep": LINE, "packed": replace(LINE, loss=LINE.loss * 2)})
    accuracy, loss = figure.axes
    assert accuracy.get_title("left") == "accuracy" and loss.get_title("left") == "loss"
    np.testing.assert_allclose(accuracy.lines[0].get_ydata(), LINE.accuracy)
    np.testing.assert_allclose(loss.lines[1].get_ydata(), LINE.loss * 2)
    assert {"deep", "packed", "first member", "half way"} <= words(figure)
    pixels(figure)


def test_one_line_needs_no_legend_and_a_regression_no_accuracy():
    figure = interpolation_plot(replace(LINE, accuracy=None))
    assert len(figure.axes) == 1 and not figure.legends
    pixels(figure)
    with pytest.raises(ConfigError, match="got none"):
        interpolation_plot({})


def test_a_plane_marks_its_members_and_has_a_panel_for_each_measure():
    figure = plane_plot(plane(), ("accuracy", "loss", "disagreement"))
    panels = [axes for axes in figure.axes if axes.get_title("left")]
    assert [axes.get_title("left") for axes in panels] == [
        *("accuracy", "loss", "disagreement with member 0", "disagreement with member 2"),
        "disagreement with the origin",
    ]
    for axes in panels:
        marked = [tuple(np.ravel(line.get_data())) for line in axes.lines]
        assert marked == [(0.0, 0.0), (4.0, 0.0), (2.0, 3.0)]
    pixels(figure)


def panel_of(figure: Figure, title: str) -> Axes:
    return next(axes for axes in figure.axes if axes.get_title("left") == title)


def levels_of_loss(figure: Figure) -> np.ndarray:
    """What is written beside the colours."""
    (bar,) = panel_of(figure, "loss").child_axes
    return np.array([float(label.get_text()) for label in bar.get_yticklabels()])


BEYOND = plane().loss > 20


@pytest.mark.parametrize("nothing", [torch.inf, torch.nan])
def test_points_without_a_finite_loss_look_like_the_highest_of_the_others(nothing: float):
    of = replace(plane(), loss=torch.where(BEYOND, nothing, plane().loss))
    highest = plane().loss[~BEYOND].max()
    figure, clipped = plane_plot(of), plane_plot(replace(plane(), loss=torch.where(BEYOND, highest, plane().loss)))
    assert (levels_of_loss(figure) == levels_of_loss(clipped)).all() and levels_of_loss(figure).max() <= highest < 20
    np.testing.assert_array_equal(pixels(figure), pixels(clipped))


def test_a_plane_of_one_height_is_drawn_in_one_colour():
    figure = plane_plot(replace(plane(), loss=torch.ones_like(plane().loss), accuracy=torch.zeros_like(plane().loss)))
    for title, height in (("loss", 1.0), ("accuracy", 0.0)):
        panel = panel_of(figure, title)
        steps = next(c for c in panel.collections if len(c.get_facecolor()))
        assert sum(len(path.vertices) > 0 for path in steps.get_paths()) == 1
        low, high = panel.child_axes[0].get_ylim()
        assert low < height < high
    pixels(figure)


def test_a_loss_may_be_negative_and_then_has_even_steps():
    """The NLL of a regression; the same plane above 0 reaches far, and has steps of equal factors."""
    even = levels_of_loss(plane_plot(replace(plane(), loss=plane().loss - 5)))
    factors = levels_of_loss(plane_plot(plane()))
    assert even[0] < 0
    np.testing.assert_allclose(np.diff(even), np.diff(even)[0], rtol=0.02)
    np.testing.assert_allclose(factors[1:] / factors[:-1], factors[1] / factors[0], rtol=0.02)


def test_a_long_plane_stays_within_its_sheet():
    long = replace(plane(), y=plane().y * 40, corners=plane().corners * torch.tensor([1.0, 40.0]))
    figure = plane_plot(long)
    pixels(figure)
    width, height = figure.get_size_inches()
    assert height / width < 1.5
    panel = panel_of(figure, "loss")
    assert [tuple(np.ravel(line.get_data())) for line in panel.lines] == [(0.0, 0.0), (4.0, 0.0), (2.0, 120.0)]
    assert panel.get_ylim() == (-40.0, 160.0)


def test_planes_that_are_refused():
    with pytest.raises(ConfigError, match="accuracy, loss, disagreement; got 'error'"):
        plane_plot(plane(), ("error",))
    with pytest.raises(ConfigError, match="accuracy needs a plane of classification"):
        plane_plot(replace(plane(), accuracy=None))
    with pytest.raises(ConfigError, match="some point must have a finite loss"):
        plane_plot(replace(plane(), loss=torch.full((6, 6), torch.nan)), ("loss",))


@pytest.mark.parametrize("explained", [None, (0.7, 0.2)])
def test_paths_run_from_the_first_epoch_to_the_last(explained):
    found = paths(explained)
    shuffled = np.random.default_rng(0).permutation(12)
    figure = paths_plot(replace(found, **{k: getattr(found, k)[shuffled] for k in ("member", "epoch", "x", "y")}))
    for member, line in enumerate(figure.axes[0].lines):
        np.testing.assert_array_equal(line.get_xydata(), [(member * e, 2 * e) for e in range(4)])
    assert {"member 0", "member 1", "member 2", "where it began"} <= words(figure)
    assert ("t-SNE" in words(figure)) == (explained is None)
    pixels(figure)


@pytest.mark.parametrize("members", [2, 3, 5])
def test_every_unit_that_varies_is_drawn_once(members):
    found = variances(members)
    found.inputs[:, 3] = 0  # a unit that is constant
    figure = conditional_variance_plot(found)
    histogram, units = figure.axes
    assert sum(patch.get_height() for patch in histogram.patches) == 19
    assert len(units.collections[0].get_offsets()) == 19
    assert {f"input {m}" for m in range(members)} <= words(figure)
    pixels(figure)


def test_units_stand_near_the_inputs_that_they_hear():
    found = variances(3, units=3)
    found.inputs.copy_(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]]))
    places = conditional_variance_plot(found).axes[1].collections[0].get_offsets()
    np.testing.assert_allclose(places, [(0, 1), (-np.sqrt(3) / 2, -0.5), (0, 0)], atol=1e-12)
    with pytest.raises(ConfigError, match="constant ones only"):
        conditional_variance_plot(replace(found, inputs=torch.zeros(3, 3)))


def test_pictures_are_the_same_every_time_and_leave_matplotlib_alone():
    import matplotlib

    before, imported = dict(matplotlib.rcParams), "matplotlib.pyplot" in sys.modules
    np.testing.assert_array_equal(pixels(plane_plot(plane())), pixels(plane_plot(plane())))
    assert dict(matplotlib.rcParams) == before
    assert ("matplotlib.pyplot" in sys.modules) == imported
