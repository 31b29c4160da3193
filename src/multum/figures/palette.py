"""Colours, in light and dark, and the settings of every drawing.

A drawing is made in the light colours. In the page each of them stands for a CSS variable, which has another value in
the dark. Methods differ by hue and, from the eighth on, by fill: seven hues are as many as stay apart under the common
kinds of colour blindness with enough contrast on paper and on black.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

HUES = ("#20409a", "#d67a12", "#17a07f", "#80082f", "#8340d6", "#dc5bd0", "#536b05")
DARK_HUES = ("#5b82f7", "#f2a04a", "#6ee7d0", "#ea5a47", "#d2adff", "#bf62ab", "#e3e56a")
FILLS = ("full", "empty", "half")

# Little to much of something. Low is near the paper, in the light as in the dark.
HEAT = (
    *("#f1f5fa", "#dde8f3", "#c5d9ec", "#a9c7e3", "#89b1d8", "#6899cb"),
    *("#4a80bb", "#3268a8", "#205191", "#123b76", "#08285a"),
)
DARK_HEAT = (
    *("#1a2129", "#1c2b3b", "#1d364e", "#1f4263", "#224f79", "#295e90"),
    *("#366fa6", "#4c83ba", "#6c9bcb", "#94b7dc", "#c3d8ee"),
)

PAPER, DARK_PAPER = "#ffffff", "#14171c"
INK = "#1f2429"  # text
MUTED = "#5d6670"  # text that steps back
GRID = "#e3e7eb"
CONTEXT = "#c5ccd3"  # the other methods, behind the one that is shown
ON_LOW, ON_HIGH = "#1f242a", "#fdfdfd"  # numbers on the cells of a heat map

# Each colour of a drawing: its CSS variable, and its value in the dark.
COLOURS: dict[str, tuple[str, str]] = {
    PAPER: ("--paper", DARK_PAPER),
    INK: ("--ink", "#e6e9ec"),
    MUTED: ("--muted", "#9aa4ae"),
    GRID: ("--grid", "#2a3037"),
    CONTEXT: ("--context", "#414a54"),
    ON_LOW: ("--on-low", "#d5dbe1"),
    ON_HIGH: ("--on-high", "#10141a"),
    **{hue: (f"--method-{i}", dark) for i, (hue, dark) in enumerate(zip(HUES, DARK_HUES, strict=True))},
    **{cell: (f"--heat-{i}", dark) for i, (cell, dark) in enumerate(zip(HEAT, DARK_HEAT, strict=True))},
}

# What only the page has: its variables, in light and dark.
PAGE = {
    "--surface": ("#f4f6f8", "#1c2127"),
    "--raised": ("#ffffff", "#232930"),
    "--accent": ("#1a5fb4", "#82b4ff"),
    "--shade": ("#0000001f", "#00000080"),
    "--warn": ("#b3261e", "#ff8a80"),
    "--sure": ("#17a07f", "#6ee7d0"),
}

# One unit is a CSS pixel: a drawing has 72 of them to matplotlib's inch.
SETTINGS = {
    "figure.dpi": 72,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "font.family": "DejaVu Sans",  # comes with matplotlib, so that every machine measures the same text
    "font.size": 11,
    "text.color": INK,
    "text.parse_math": False,  # a label may hold a $
    "axes.facecolor": "none",
    "axes.edgecolor": CONTEXT,
    "axes.labelcolor": MUTED,
    "axes.linewidth": 1,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 1,
    "xtick.color": CONTEXT,
    "ytick.color": CONTEXT,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 10,
    "ytick.labelsize": 10,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 2,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "multum",
    "path.simplify_threshold": 0.3,
}


@dataclass(frozen=True)
class Look:
    """How one method looks in every figure."""

    colour: str
    fill: str  # full, empty or half

    @property
    def css(self) -> str:
        return f"var({_variable(self.colour)})"


def look(index: int) -> Look:
    """The look of the method in the given row.

    >>> look(0).colour == look(7).colour, look(0).fill, look(7).fill
    (True, 'full', 'empty')
    """
    return Look(HUES[index % len(HUES)], FILLS[index // len(HUES) % len(FILLS)])


def _variable(colour: str) -> str:
    """The CSS variable that stands for a colour of a drawing."""
    return COLOURS[colour][0]


def heat_ink(level: int) -> str:
    """The colour of a number on a heat map's cell."""
    return ON_HIGH if level >= len(HEAT) // 2 + 1 else ON_LOW


@contextmanager
def drawing() -> Iterator[None]:
    """matplotlib with our settings and none of the user's, so that a drawing is the same everywhere."""
    from matplotlib import style  # takes half a second, and colours alone do not need it

    with style.context(["default", SETTINGS]), warnings.catch_warnings():
        # A label in a script that the font does not have: the page's fonts do.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
