"""Quality against cost, as in Figure 1 of Packed-Ensembles: a circle a method, its area the parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from ...figures.circles import Circle, circle_radii, draw_circles, front
from ...figures.figure import Figure
from ...figures.formats import count, shown
from ...figures.palette import CONTEXT, MUTED
from ...figures.panels import canvas, text_width
from ...figures.scales import ROUND, accuracy_axis, log_axis
from ..view import Method, View

__all__ = ["pareto", "pareto_nll"]

COSTS = ("macs", "params", "latency", "train_seconds")  # the first that the comparison has


def pareto(view: View) -> Figure | None:
    """Accuracy, or RMSE of a regression, against mult-adds."""
    return _figure(view, "rmse" if view.regression else "accuracy", "pareto")


def pareto_nll(view: View) -> Figure | None:
    """Negative log likelihood against mult-adds."""
    return _figure(view, "nll", "pareto-nll")


def _figure(view: View, quality: str, name: str) -> Figure | None:
    cost = next((key for key in COSTS if any(m.mean(key) for m in view.methods)), None)
    methods = [m for m in view.methods if m.mean(quality) is not None and cost and m.mean(cost)]
    if quality not in view.columns or cost is None or not methods:
        return None
    better = view.columns[quality].get("better") or ("higher" if quality == "accuracy" else "lower")
    numbers = _numbers(methods, quality, cost, better)
    names, costs = view.title(quality), view.title(cost)
    ends = numbers[quality].min(), numbers[quality].max()
    if quality == "accuracy":
        stretched = (1 - ends[0]) / max(1 - ends[1], 0.005) > 5
    else:
        stretched = bool(ends[0] > 0 and ends[1] / ends[0] > 5)

    def draw(width: float) -> Drawing:
        return _draw(view, methods, numbers, quality, cost, stretched, better, width)

    caption = (
        f"{'Up' if better == 'higher' else 'Down'} and to the left is better. "
        "A circle's area is the number of parameters, a bar one standard error over seeds; "
        "no method beats those on the line (in bold) in both."
    )
    if stretched and quality == "accuracy":
        caption += " The accuracy axis is stretched towards 100 %."
    return Figure(
        name,
        f"{names[:1].upper()}{names[1:]} against {costs}",
        caption,
        numbers,
        draw,
        f"{names} against {costs} of {len(methods)} methods; a circle's area is its number of parameters.",
        {f"point-{m.index}": _point(view, m) for m in methods},
    )


def _numbers(methods: Sequence[Method], quality: str, cost: str, better: str) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "method": [m.label for m in methods],
            cost: [m.mean(cost) for m in methods],
            quality: [m.mean(quality) for m in methods],
            "error": [m.values[quality].get("error") for m in methods],
            **({"params": [m.mean("params") for m in methods]} if cost != "params" else {}),
        }
    )
    frame["error"] = frame["error"].astype(float)
    on_front = front(frame[cost].tolist(), frame[quality].tolist(), better)
    frame["front"] = [i in on_front for i in range(len(frame))]
    return frame


def _point(view: View, method: Method) -> dict:
    """What the page shows of a method that is pointed at."""
    titles = [c["title"] for c in view.columns.values()]
    facts = [
        (
            c["title"] if titles.count(c["title"]) == 1 else f"{c['title']} ({c.get('group')})",
            shown(method.values[key], c),
        )
        for key, c in view.columns.items()
        if method.mean(key) is not None
    ]
    return {"label": method.label, "colour": method.look.css, "fill": method.look.fill, "facts": facts}


def _draw(
    view: View,
    methods: Sequence[Method],
    numbers: pd.DataFrame,
    quality: str,
    cost: str,
    stretched: bool,
    better: str,
    width: float,
) -> Drawing:
    narrow = width < 600
    height = 430 if narrow else 520
    left, right, below, above = (46, 8, 42, 60) if narrow else (58, 24, 46, 52)
    figure = canvas(width, height)
    inside = (width - left - right, height - below - above)
    axes = figure.add_axes((left / width, below / height, inside[0] / width, inside[1] / height))
    largest = 20 if narrow else 32
    _limits(axes, view, numbers, quality, cost, stretched, inside, largest)
    column = view.columns[quality]
    unit = f" ({column['unit']})" if column.get("unit") not in ("", "%", "count", None) else ""
    stated = ", log scale" if stretched and quality != "accuracy" else ""
    figure.text(0, 1 - 10 / height, f"{column['title']}{unit}{stated}", size=11, color=MUTED, va="center")
    middle = (left + inside[0] / 2) / width
    words = f"{_named(view, cost)}, log scale"
    figure.text(middle, 4 / height, words, size=11, color=MUTED, ha="center", va="bottom")
    steps = _line(axes, numbers, quality, cost, better)
    circles = [
        Circle(m.label, at[cost], at[quality], radius, m.look, at["error"], bool(at["front"]), str(m.index))
        for m, radius, (_, at) in zip(methods, _radii(numbers, largest), numbers.iterrows(), strict=True)
    ]
    size, longest = (9, 110) if narrow else (11, 190)
    draw_circles(axes, circles, size=size, longest=longest, obstacles=_boxes(axes.transData.transform(steps)))
    _scale(figure, numbers, largest, width, height, narrow)
    return figure


def _named(view: View, cost: str) -> str:
    column = view.columns[cost]
    unit = f" ({column['unit']})" if column.get("unit") in ("ms", "s") else ""
    return column["title"] + (" of one prediction" if cost == "macs" else "") + unit


def _radii(numbers: pd.DataFrame, largest: float) -> np.ndarray:
    if "params" not in numbers or numbers["params"].isna().any():
        return np.full(len(numbers), 7.0)
    return circle_radii(numbers["params"], largest)


def _limits(
    axes: Axes,
    view: View,
    numbers: pd.DataFrame,
    quality: str,
    cost: str,
    stretched: bool,
    inside: tuple[float, float],
    largest: float,
) -> None:
    """Room for the largest circle and for names at every side."""
    low, high = numbers[cost].min(), numbers[cost].max()
    share = (largest + 14) / (inside[0] - 2 * (largest + 14))
    spread = max(high / low, 2.0) ** share
    column = view.columns[cost]
    name = _round_count if column.get("unit") == "count" else "{:g}".format
    log_axis(axes, "x", low / spread, high * spread, name)
    axes.grid(axis="x", visible=False)
    error = numbers["error"].fillna(0)
    low, high = float((numbers[quality] - error).min()), float((numbers[quality] + error).max())
    share = (largest + 10) / (inside[1] - 2 * (largest + 10))
    if quality == "accuracy":
        if stretched:
            odds = -np.log(1 - np.array([low, min(high, 1.0)]) + 0.002)
            room = (odds[1] - odds[0]) * share
            low, high = (1.002 - math.exp(-o) for o in (odds[0] - room, odds[1] + room))
        else:
            room = max(high - low, 0.004) * share
            low, high = low - room, high + room
        accuracy_axis(axes, low, min(high, 1.0015), stretched)
    elif stretched:
        room = (high / max(low, 1e-12)) ** share
        log_axis(axes, "y", low / room, high * room)
    else:
        room = max(high - low, abs(high) * 1e-3, 1e-9) * share
        axes.set_ylim(low - room, high + room)
        axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))


def _line(axes: Axes, numbers: pd.DataFrame, quality: str, cost: str, better: str) -> np.ndarray:
    """The line of those that none beats; its corners ``[k, 2]``."""
    best = numbers[numbers["front"]].sort_values([cost, quality], ascending=[True, better == "higher"])
    ends = axes.get_ylim()[0 if better == "higher" else 1], axes.get_xlim()[1]
    x = [best[cost].iloc[0], *best[cost], ends[1]]
    y = [ends[0], *best[quality], best[quality].iloc[-1]]
    axes.plot(x, y, color=CONTEXT, lw=1.6, drawstyle="steps-post", zorder=1.5)
    return np.column_stack([np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]])


def _boxes(corners: np.ndarray) -> list[tuple[float, ...]]:
    """A thin box around each piece of a line."""
    low, high = np.minimum(corners[:-1], corners[1:]) - 2, np.maximum(corners[:-1], corners[1:]) + 2
    return [tuple(box) for box in np.concatenate([low, high], 1)]


def _scale(figure: Drawing, numbers: pd.DataFrame, largest: float, width: float, height: float, narrow: bool) -> None:
    """Two circles that say what area means what number of parameters."""
    if "params" not in numbers or numbers["params"].isna().any():
        return
    most = numbers["params"].max()
    rounds = sorted({float(f"{most * share:.0e}") for share in (0.1, 0.4)})
    x, y = width - 8, height - (38 if narrow else 26)
    for n in reversed(rounds):
        radius = largest * math.sqrt(n / most)
        words = _round_count(n)
        figure.text(x / width, y / height, words, size=10, color=MUTED, ha="right", va="center_baseline")
        x -= text_width(words, 10) + radius + 6
        side = (x - radius) / width, (y - radius) / height, 2 * radius / width, 2 * radius / height
        axes = figure.add_axes(side)
        axes.axis("off")
        axes.scatter([0], [0], s=(2 * radius) ** 2, facecolor="none", edgecolor=MUTED, lw=1, clip_on=False)
        x -= radius + 12
    figure.text(x / width, y / height, "parameters", size=10, color=MUTED, ha="right", va="center_baseline")


def _round_count(value: float) -> str:
    """A round number of things without its zeros: "5 M"."""
    number, _, power = count(value).partition(" ")
    return f"{float(number):g} {power}".strip()
