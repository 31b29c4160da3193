"""Quality against cost, as in Figure 1 of Packed-Ensembles: a circle a method, its area the parameters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Drawing
from matplotlib.ticker import MaxNLocator

from ...figures.circles import Circle, circle_radii, draw_circles, front, spread
from ...figures.figure import NARROW, WIDE, Figure
from ...figures.formats import round_count, shown
from ...figures.palette import CONTEXT, MUTED, drawing
from ...figures.panels import FLOOR, ROUND, accuracy_axis, axes_at, canvas, log_axis, text_width
from ..view import Row, View

NARROWEST = 600  # CSS pixels: below it, everything is drawn smaller
COSTS = ("macs", "params", "latency", "train_seconds")  # the first that the comparison has


def pareto(view: View) -> Figure | None:
    """Accuracy, or RMSE of a regression, against mult-adds."""
    return _figure(view, "rmse" if view.regression else "accuracy")


def pareto_nll(view: View) -> Figure | None:
    """Negative log likelihood against mult-adds, calibrated where the document has it."""
    return _figure(view, "calibrated_nll" if "calibrated_nll" in view.columns else "nll")


def _figure(view: View, quality: str) -> Figure | None:
    cost = next((key for key in COSTS if any(row.mean(key) for row in view.rows)), None)
    rows = [row for row in view.rows if row.mean(quality) is not None and cost and row.mean(cost)]
    if quality not in view.columns or cost is None or not rows:
        return None
    higher = (view.columns[quality].get("better") or ("higher" if quality == "accuracy" else "lower")) == "higher"
    numbers = _numbers(rows, quality, cost, "higher" if higher else "lower")
    low, high = numbers[quality].min(), numbers[quality].max()
    stretched = (1 - low) / max(1 - high, 0.005) > 5 if quality == "accuracy" else bool(low > 0 and high / low > 5)
    title = f"{view.title(quality)} against {view.title(cost)}"
    caption = (
        f"{'Up' if higher else 'Down'} and to the left is better. "
        "A circle's area is the number of parameters, a bar one standard error over seeds. "
        "Methods on the line (in bold) are Pareto-optimal: no other one is both better and cheaper."
    )
    if stretched and quality == "accuracy":
        caption += " The accuracy axis is stretched towards 100 %."
    plane = _Plane(view, rows, numbers, quality, cost, higher, stretched)
    if any(plane.moved(width) for width in (WIDE, NARROW)):
        caption += " Circles that would cover each other are moved sideways: a small dot marks the true place."
    return Figure(
        f"{title[:1].upper()}{title[1:]}",
        caption,
        numbers,
        plane.draw,
        f"{title} of {len(rows)} methods; a circle's area is its number of parameters.",
        {f"point-{row.index}": _point(view, row) for row in rows},
    )


def _numbers(rows: Sequence[Row], quality: str, cost: str, better: str) -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "method": [row.label for row in rows],
            cost: [row.mean(cost) for row in rows],
            quality: [row.mean(quality) for row in rows],
            "error": np.array([row.values[quality].get("error") for row in rows], dtype=float),
            **({"params": [row.mean("params") for row in rows]} if cost != "params" else {}),
        }
    )
    return frame.assign(front=frame.index.isin(front(frame[cost].tolist(), frame[quality].tolist(), better)))


def _point(view: View, row: Row) -> dict:
    """What the page shows of a method that is pointed at."""
    titles = [column["title"] for column in view.columns.values()]
    facts = []
    for key, column in view.columns.items():
        if row.mean(key) is not None:
            title = column["title"]
            name = title if titles.count(title) == 1 else f"{title} ({column.get('group')})"
            facts.append((name, shown(row.values[key], column)))
    return {"label": row.label, "colour": row.look.css, "fill": row.look.fill, "facts": facts}


@dataclass(frozen=True, eq=False)
class _Plane:
    """The plane of quality and cost, drawn for any width."""

    view: View
    rows: Sequence[Row]
    numbers: pd.DataFrame
    quality: str
    cost: str
    higher: bool  # is better
    stretched: bool  # the vertical axis, where one outlier would squeeze all others

    def draw(self, width: float) -> Drawing:
        narrow = width < NARROWEST
        figure, axes = self._axes(width)
        height = figure.bbox.height
        upright, level = self._axis_names()
        figure.text(0, 1 - 10 / height, upright, size=11, color=MUTED, va="center")
        box = axes.get_position()
        figure.text((box.x0 + box.x1) / 2, 4 / height, level, size=11, color=MUTED, ha="center", va="bottom")
        corners = self._front_line(axes)
        size, longest = (9, 110) if narrow else (11, 190)
        obstacles = _boxes(axes.transData.transform(corners))
        draw_circles(axes, self._circles(axes, width), size=size, longest=longest, obstacles=obstacles)
        self._area_key(figure, _largest(width), width - 8, height - (38 if narrow else 26))
        return figure

    def moved(self, width: float) -> bool:
        """Whether a circle does not stand at its cost, so as not to sit on top of another."""
        with drawing():
            return any(circle.true_x is not None for circle in self._circles(self._axes(width)[1], width))

    def _axes(self, width: float) -> tuple[Drawing, Axes]:
        """The plane without anything on it."""
        narrow, largest = width < NARROWEST, _largest(width)
        height = 430 if narrow else 520
        left, right, below, above = (46, 8, 42, 60) if narrow else (58, 24, 46, 52)
        inside = width - left - right, height - below - above
        figure = canvas(width, height)
        axes = axes_at(figure, left, below, *inside)
        self._cost_axis(axes, (largest + 14) / (inside[0] - 2 * (largest + 14)))
        self._quality_axis(axes, (largest + 10) / (inside[1] - 2 * (largest + 10)))
        return figure, axes

    def _circles(self, axes: Axes, width: float) -> list[Circle]:
        radii = self._radii(_largest(width))
        places = axes.transData.transform(self.numbers[[self.cost, self.quality]].to_numpy(float))
        (left, _), (right, _) = axes.transAxes.transform([(0, 0), (1, 1)])
        shown_x = spread(np.column_stack([places, radii]), left + 4, right - 4)
        beside = axes.transData.inverted().transform(np.column_stack([shown_x, places[:, 1]]))[:, 0]
        circles = []
        for i, (row, (_, at)) in enumerate(zip(self.rows, self.numbers.iterrows(), strict=True)):
            moved = abs(shown_x[i] - places[i, 0]) > 1
            circles.append(
                Circle(
                    row.label,
                    float(beside[i]) if moved else at[self.cost],
                    at[self.quality],
                    radii[i],
                    row.look,
                    at["error"],
                    at["front"],
                    str(row.index),
                    at[self.cost] if moved else None,
                )
            )
        return circles

    def _axis_names(self) -> tuple[str, str]:
        quality, cost = self.view.columns[self.quality], self.view.columns[self.cost]
        unit = f" ({quality['unit']})" if quality.get("unit") not in ("", "%", "count", None) else ""
        scale = ", log scale" if self.stretched and self.quality != "accuracy" else ""
        what = (
            " per example" if self.cost == "macs" else f" ({cost['unit']})" if cost.get("unit") in ("ms", "s") else ""
        )
        return f"{quality['title']}{unit}{scale}", f"{cost['title']}{what}, log scale"

    @property
    def _has_params(self) -> bool:
        return "params" in self.numbers and not self.numbers["params"].isna().any()

    def _radii(self, largest: float) -> np.ndarray:
        return circle_radii(self.numbers["params"], largest) if self._has_params else np.full(len(self.rows), 7.0)

    def _cost_axis(self, axes: Axes, share: float) -> None:
        """With room for the largest circle at both ends: its share of what is between them."""
        low, high = self.numbers[self.cost].min(), self.numbers[self.cost].max()
        spread = max(high / low, 2.0) ** share
        counted = self.view.columns[self.cost].get("unit") == "count"
        log_axis(axes, "x", low / spread, high * spread, round_count if counted else "{:g}".format)
        axes.grid(axis="x", visible=False)

    def _quality_axis(self, axes: Axes, share: float) -> None:
        error = self.numbers["error"].fillna(0)
        low = float((self.numbers[self.quality] - error).min())
        high = float((self.numbers[self.quality] + error).max())
        if self.quality == "accuracy":
            if self.stretched:
                odds = -np.log(1 - np.array([low, min(high, 1.0)]) + FLOOR)
                room = (odds[1] - odds[0]) * share
                low, high = (1 + FLOOR - math.exp(-o) for o in (odds[0] - room, odds[1] + room))
            else:
                room = max(high - low, 0.004) * share
                low, high = low - room, high + room
            accuracy_axis(axes, low, min(high, 1.0015), self.stretched)
        elif self.stretched:
            room = (high / max(low, 1e-12)) ** share
            log_axis(axes, "y", low / room, high * room)
        else:
            room = max(high - low, abs(high) * 1e-3, 1e-9) * share
            axes.set_ylim(low - room, high + room)
            axes.yaxis.set_major_locator(MaxNLocator(6, steps=ROUND))

    def _front_line(self, axes: Axes) -> np.ndarray:
        """Draw the Pareto front as steps; their corners ``[k, 2]``."""
        best = self.numbers[self.numbers["front"]]
        best = best.sort_values([self.cost, self.quality], ascending=[True, self.higher])
        costs, qualities = best[self.cost].tolist(), best[self.quality].tolist()
        x = [costs[0], *costs, axes.get_xlim()[1]]
        y = [axes.get_ylim()[0 if self.higher else 1], *qualities, qualities[-1]]
        axes.plot(x, y, color=CONTEXT, lw=1.6, drawstyle="steps-post", zorder=1.5)
        return np.column_stack([np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]])

    def _area_key(self, figure: Drawing, largest: float, x: float, y: float) -> None:
        """Two circles that say what area means what number of parameters, to the left of a point."""
        if not self._has_params:
            return
        width, height = figure.get_size_inches() * 72
        most = self.numbers["params"].max()
        place: dict[str, Any] = {"size": 10, "color": MUTED, "ha": "right", "va": "center_baseline"}
        for number in sorted({float(f"{most * share:.0e}") for share in (0.1, 0.4)}, reverse=True):
            radius = largest * math.sqrt(number / most)
            words = round_count(number)
            figure.text(x / width, y / height, words, **place)
            x -= text_width(words, 10) + radius + 6
            axes = axes_at(figure, x - radius, y - radius, 2 * radius, 2 * radius)
            axes.axis("off")
            axes.scatter([0], [0], s=(2 * radius) ** 2, facecolor="none", edgecolor=MUTED, lw=1, clip_on=False)
            x -= radius + 12
        figure.text(x / width, y / height, "parameters", **place)


def _largest(width: float) -> float:
    """The radius of the circle with the most parameters."""
    return 16 if width < NARROWEST else 24


def _boxes(corners: np.ndarray) -> list[tuple[float, ...]]:
    """A thin box around each piece of a line."""
    low, high = np.minimum(corners[:-1], corners[1:]) - 2, np.maximum(corners[:-1], corners[1:]) + 2
    return [tuple(box) for box in np.concatenate([low, high], 1)]
