"""Pictures of what goes on inside an ensemble: between members, along training, and in the units of a MIMO network.

Each function takes what the function of the same matter in `multum.inside` returns, and gives a matplotlib figure;
the numbers are in that result's `.frame()`. Nothing of pyplot is touched, so that pictures can be made anywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import FuncNorm, LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from ..errors import ConfigError, check_known
from ..figures.palette import CONTEXT, GRID, HEAT, INK, MUTED, PAPER, drawing, look
from ..figures.panels import heading, side_by_side
from .conditional_variance import ConditionalVariances
from .landscape import Interpolation, Plane
from .trajectories import Paths

MEASURES = ("accuracy", "loss", "disagreement")
LEVELS = 12  # steps of a contour plot
PANEL = 300  # CSS pixels: the side of a panel


def interpolation_plot(lines: Interpolation | Mapping[str, Interpolation]) -> Figure:
    """Accuracy and loss between two members, one curve for each line (MixtureEnsembles, Figure 4).

    Args:
        lines: one line, or several by name, such as one for each method.
    """
    named = {"": lines} if isinstance(lines, Interpolation) else dict(lines)
    if not named:
        raise ConfigError("a figure needs at least one line; got none")
    shown = [m for m in ("accuracy", "loss") if all(getattr(line, m) is not None for line in named.values())]
    with drawing():
        figure, panels = _canvas(len(shown))
        for axes, measure in zip(panels, shown, strict=True):
            for i, (name, line) in enumerate(named.items()):
                values = getattr(line, measure)
                style: dict[str, Any] = {"color": look(i).colour, "markersize": 4, "label": name or None}
                axes.plot(line.t, values, marker="o", markevery=[0, -1], **style)
            heading(axes, measure)
            axes.set_xlim(-0.03, 1.03)
            axes.set_xticks([0, 0.5, 1], ["first member", "half way", "second member"])
            axes.get_xticklabels()[0].set_horizontalalignment("left")
            axes.get_xticklabels()[-1].set_horizontalalignment("right")
            if measure == "accuracy":
                axes.set_ylim(top=min(1.02, axes.get_ylim()[1]))
                low, high = axes.get_ylim()
                axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0 if high - low > 0.05 else 1))
        if any(named):
            _legend(figure, panels[0], len(named))
    return figure


def plane_plot(
    plane: Plane,
    show: Sequence[str] = ("accuracy", "loss"),
    *,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Figure:
    """The plane through three members, which are marked (MIMO, Figure 3; hypernetworks, Figures 3 and S2).

    Args:
        show: a panel for each of "accuracy" and "loss"; "disagreement" has one for each corner.
        limits: the ends of a measure's scale, so that several figures have the same; by default the values' own.
    """
    maps: dict[str, tuple[str, np.ndarray]] = {}
    for measure in show:
        check_known(measure, MEASURES, f"show must hold some of {', '.join(MEASURES)}")
        if getattr(plane, measure) is None:
            raise ConfigError(f"{measure} needs a plane of classification; got one of a regression. Show the loss")
        values = getattr(plane, measure).numpy()
        each = {f"{measure} with {_named(m)}": own for m, own in zip(plane.members, values, strict=False)}
        maps |= {title: (measure, own) for title, own in (each if values.ndim == 3 else {measure: values}).items()}
    with drawing():
        ratio = float((plane.y[-1] - plane.y[0]) / (plane.x[-1] - plane.x[0]))
        figure, panels = _canvas(len(maps), room=76, ratio=min(max(ratio, 0.4), 1.5))
        for axes, (title, (measure, values)) in zip(panels, maps.items(), strict=True):
            _contours(figure, axes, plane, measure, values, (limits or {}).get(measure))
            heading(axes, title)
    return figure


def paths_plot(paths: Paths) -> Figure:
    """How members moved through function space: an open circle where each began, a full one where it ended."""
    with drawing():
        figure, (axes,) = _canvas(1, side=420)
        for i, member in enumerate(np.unique(paths.member)):
            mine = paths.member == member
            order = np.argsort(paths.epoch[mine], kind="stable")
            x, y, colour = paths.x[mine][order], paths.y[mine][order], look(i).colour
            axes.plot(x, y, color=colour, linewidth=1.5, alpha=0.55, zorder=2)
            axes.scatter(x[1:-1], y[1:-1], s=10, color=colour, zorder=3)
            axes.scatter(x[:1], y[:1], s=46, facecolor=PAPER, edgecolor=colour, linewidth=1.6, zorder=4)
            axes.scatter(x[-1:], y[-1:], s=70, color=colour, edgecolor=PAPER, zorder=5, label=f"member {member}")
        axes.scatter([], [], s=46, facecolor=PAPER, edgecolor=MUTED, linewidth=1.6, label="where it began")
        axes.set_aspect("equal", adjustable="datalim")
        axes.margins(0.08)
        if paths.explained is not None:
            axes.set_xlabel(f"first principal component ({paths.explained[0]:.0%} of the variance)")
            axes.set_ylabel(f"second principal component ({paths.explained[1]:.0%})")
        else:  # distances and directions of t-SNE mean nothing by themselves
            axes.set_xlabel("t-SNE")
            axes.tick_params(labelleft=False, labelbottom=False)
        _legend(figure, axes, len(np.unique(paths.member)) + 1)
    return figure


def conditional_variance_plot(variances: ConditionalVariances) -> Figure:
    """Which input each unit hears (MIMO, Figure 4): how far one input prevails, and where every unit stands among them.

    Two inputs are two axes, V_0 and V_1 over their sum at the layer's mean; three or more are the corners of a polygon,
    and a unit is drawn near those that it hears.
    """
    members, shares = len(variances.inputs), (variances.inputs / variances.inputs.sum(0)).numpy()
    heard = np.isfinite(shares).all(0)
    if not heard.any():
        raise ConfigError("some unit must vary with its inputs; got constant ones only. Train the network")
    shares, owner = shares[:, heard], variances.owner.numpy()[heard]
    with drawing():
        figure, (left, right) = _canvas(2)
        edges = np.linspace(1 / members, 1, 26).tolist()
        counts = [shares.max(0)[owner == m] for m in range(members)]
        colours = [look(m).colour for m in range(members)]
        left.hist(counts, edges, stacked=True, color=colours, label=[f"input {m}" for m in range(members)], zorder=2)
        heading(left, "the prevailing input's share")
        left.set_xlabel(f"max V / sum V: {1 / members:.2g} all alike, 1 one alone")
        left.set_ylabel("units")
        left.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        _legend(figure, left, members)
        heading(right, "every unit")
        dots: dict[str, Any] = {"s": 14, "c": [colours[m] for m in owner], "alpha": 0.6, "linewidths": 0, "zorder": 3}
        if members == 2:
            x, y = _over_layers(variances)[:, heard]
            right.scatter(x, y, **dots)
            high = 1.05 * max(float(x.max()), float(y.max()))
            right.plot([0, high], [0, high], color=CONTEXT, linewidth=1, zorder=1)
            right.set(xlim=(-0.03 * high, high), ylim=(-0.03 * high, high), aspect="equal")
            right.set_xlabel("V of input 0, over its layer's mean variance")
            right.set_ylabel("V of input 1")
        else:
            _polygon(right, shares, dots)
    return figure


# -- parts of pictures -------------------------------------------------------------------------------------------------


def _canvas(panels: int, *, side: float = PANEL, room: float = 0, ratio: float = 1) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, in rows of three at most; four are two rows of two.

    Args:
        room: beside each panel.
        ratio: of a panel's height to its width.
    """
    columns = 2 if panels == 4 else min(panels, 3)
    height = (side * ratio + 70) * math.ceil(panels / columns)
    return side_by_side(panels, (side + 60 + room) * columns, height, columns=columns)


def _legend(figure: Figure, axes: Axes, entries: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    columns = min(entries, 6)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, labelcolor=MUTED)


def _named(member: int | str) -> str:
    return f"member {member}" if isinstance(member, int) else f"the {member}"


def _contours(
    figure: Figure, axes: Axes, plane: Plane, measure: str, values: np.ndarray, limits: tuple[float, float] | None
) -> None:
    colours = LinearSegmentedColormap.from_list("heat", HEAT if measure != "loss" else HEAT[::-1])
    finite = values[np.isfinite(values)]
    if finite.size == 0:
        raise ConfigError(f"some point must have a finite {measure}; got none. Choose a smaller margin")
    low, high = limits or (float(finite.min()), float(finite.max()))
    # Far from the members the loss grows beyond all bounds: there, factors are seen and differences are not.
    logarithmic = measure == "loss" and low > 0 and high > 20 * low
    if high - low < 1e-9:
        low, high = low - 1e-3, high + 1e-3
    levels = np.geomspace(low, high, LEVELS) if logarithmic else np.linspace(low, high, LEVELS)
    shown = np.clip(np.where(np.isfinite(values), values, high), low, high)
    x, y = plane.x.numpy(), plane.y.numpy()
    steps = np.linspace(0, 1, LEVELS)  # the same difference in colour from each level to the next
    scale = FuncNorm((lambda v: np.interp(v, levels, steps), lambda s: np.interp(s, steps, levels)), low, high)
    filled = axes.contourf(x, y, shown, levels=levels, cmap=colours, norm=scale)
    axes.contour(x, y, shown, levels=levels, colors=[PAPER], linewidths=0.5, alpha=0.5)
    bar = figure.colorbar(filled, cax=axes.inset_axes((1.03, 0, 0.04, 1)))
    marked = levels[:: LEVELS // 4].tolist()
    places = 0 if high - low > 0.1 else 1
    bar.set_ticks(marked, labels=[f"{v:.3g}" if measure == "loss" else f"{v:.{places}%}" for v in marked], color=MUTED)
    bar.outline.set_visible(False)  # type: ignore[operator]
    for i, (member, (a, b)) in enumerate(zip(plane.members, plane.corners.tolist(), strict=True)):
        axes.plot(a, b, marker="o", markersize=9, color=look(i + 1).colour, markeredgecolor=PAPER, markeredgewidth=1.8)
        note: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "size": 10, "color": INK}
        box = {"boxstyle": "round,pad=0.15", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.75}
        below = b <= float(plane.corners[:, 1].mean())
        axes.annotate(_named(member), (a, b), (0, -18 if below else 10), bbox=box, **note)
    axes.set_aspect("equal")
    axes.grid(visible=False)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.set_xlabel("distance between weights")


def _over_layers(variances: ConditionalVariances) -> np.ndarray:
    """V of every unit over the mean variance of its layer, [members, units]: layers differ in scale."""
    layers, total = np.array(variances.layers), variances.total.numpy()
    scale = np.ones(len(layers))
    for layer in dict.fromkeys(variances.layers):
        mine = layers == layer
        scale[mine] = max(float(total[mine].mean()), 1e-300)
    return variances.inputs.numpy() / scale


def _polygon(axes: Axes, shares: np.ndarray, dots: dict[str, Any]) -> None:
    """Inputs as corners of a regular polygon, units at the mean of the corners weighted by their shares."""
    members = len(shares)
    angles = math.pi / 2 + 2 * math.pi * np.arange(members) / members
    corners = np.stack([np.cos(angles), np.sin(angles)], 1)
    ring = np.concatenate([corners, corners[:1]])
    axes.plot(*ring.T, color=CONTEXT, linewidth=1, zorder=1)
    for corner in corners:
        axes.plot(*np.stack([corner, np.zeros(2)]).T, color=GRID, linewidth=1, zorder=0)
    axes.scatter(*(corners.T @ shares), **dots)
    for m, (a, b) in enumerate(corners * 1.17):
        axes.text(a, b, f"input {m}", ha="center", va="center", color=MUTED, size=10)
    low, high = corners.min(0) - 0.35, corners.max(0) + 0.35
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal")
    axes.set_axis_off()
