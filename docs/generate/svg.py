"""Shapes as SVG text. Colours are classes: docs/assets/site.css has one set for light pages and one for dark ones."""

from __future__ import annotations

from html import escape

__all__ = ["circle", "group", "line", "picture", "polyline", "rect", "text"]


def _numbers(**values: float) -> str:
    return " ".join(f'{name.replace("_", "-")}="{value:g}"' for name, value in values.items())


def rect(x: float, y: float, width: float, height: float, kind: str, radius: float = 3, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect class="{kind}" {_numbers(x=x, y=y, width=width, height=height, rx=radius)}>{inside}</rect>'


def circle(x: float, y: float, r: float, kind: str) -> str:
    return f'<circle class="{kind}" {_numbers(cx=x, cy=y, r=r)}/>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" {_numbers(x1=x1, y1=y1, x2=x2, y2=y2)}/>'


def polyline(points: list[tuple[float, float]], kind: str) -> str:
    return f'<polyline class="{kind}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in points)}"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    return f'<text class="{kind}" {_numbers(x=x, y=y)} text-anchor="{anchor}">{escape(words)}</text>'


def group(*shapes: str) -> str:
    return "<g>" + "".join(shapes) + "</g>"


def picture(width: float, height: float, label: str, shapes: list[str], style: str = "") -> str:
    """A whole drawing, as wide as the page allows; `style` is for files that no page's style sheet reaches."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="drawn" viewBox="0 0 {width:g} {height:g}" role="img"'
    inside = f"<style>{style}</style>" if style else ""
    drawn = f'{head} aria-label="{escape(label)}">{inside}{"".join(shapes)}</svg>'
    return drawn if style else f'<div class="drawing">{drawn}</div>'
