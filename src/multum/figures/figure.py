"""One figure of a report: its drawing and its numbers; as a file, and as a part of a page that follows its colours."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import pandas as pd
from matplotlib.figure import Figure as Drawing

from .palette import COLOURS, drawing

WIDE = 1080  # CSS pixels: on a desk
NARROW = 343  # on a phone of 375, between its margins
FONT = "'DejaVu Sans'"
HEX = re.compile(r"#[0-9a-f]{6}\b")
LONG = re.compile(r"(\d\.\d)\d+")  # a tenth of a pixel is enough
FAMILY = re.compile(r"font-family: [^;]*;? ?")  # the page's own, for all its drawings
TURNED = re.compile(r"rotate\(-0[ )].*")
REFERENCE = re.compile(r"#([\w.-]+)")
PAINT = ("fill", "stroke")


@dataclass(frozen=True, eq=False)
class Figure:
    """A figure with its title, a sentence that says how to read it, and its numbers.

    >>> from multum.reports.charts import figures
    >>> values = {k: {"mean": m, "error": None} for k, m in {"accuracy": 0.9, "macs": 1e6, "params": 1e5}.items()}
    >>> document = {
    ...     "columns": [{"key": k, "title": k, "unit": "", "better": None} for k in values],
    ...     "rows": [{"label": "single", "status": "done", "values": values}],
    ... }
    >>> [figure] = figures(document)
    >>> figure.name, figure.frame()["accuracy"].tolist(), round(figure.plot().get_figwidth() * 72)
    ('pareto', [0.9], 1080)
    """

    title: str
    caption: str
    numbers: pd.DataFrame
    draw: Callable[[float], Drawing]  # from a width in CSS pixels
    alternative: str = ""  # what the picture shows, for those who do not see it
    points: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # what can be pointed at, by its id
    name: str = ""  # its id in the page and the name of its files

    def frame(self) -> pd.DataFrame:
        """The figure's numbers, one row for each thing drawn."""
        return self.numbers.copy()

    def plot(self, width: float = WIDE) -> Drawing:
        """The drawing, so many CSS pixels wide at most (72 to matplotlib's inch)."""
        with drawing():
            return self.draw(width)


def png(figure: Drawing) -> bytes:
    """The drawing in pixels, two to a CSS pixel."""
    return _saved(figure, "png", dpi=144, metadata={"Software": None})


def svg(figure: Drawing) -> str:
    """The drawing as a file of its own, with text as text; the same bytes for the same drawing."""
    text = _saved(figure, "svg", metadata={"Date": None, "Creator": None}).decode()
    text = re.sub(r'(width|height)="([\d.]+)pt"', r'\1="\2"', text, count=2)  # CSS pixels, not points
    return text.replace(FONT, f"{FONT}, system-ui, sans-serif")


def inline(text: str, prefix: str, alternative: str, points: Mapping[str, str] | None = None) -> str:
    """An SVG file as an element of an HTML page.

    Colours become the page's variables, ids get a prefix that makes them the page's own, and the background goes.

    Args:
        text: what :func:`svg` gives.
        prefix: of ids; another one for each drawing of the page.
        alternative: what the picture shows, for those who do not see it.
        points: elements that can be pointed at and reached by keyboard, by id, each with what it stands for.
    """
    points = points or {}
    root = ElementTree.fromstring(text)
    _strip(root)
    used = {name for element in root.iter() for value in element.attrib.values() for name in REFERENCE.findall(value)}
    for element in root.iter():
        _convert(element, prefix, used, points)
    width, height = (float(side) for side in root.attrib["viewBox"].split()[2:])
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib["style"] = f"max-width: {width:g}px; aspect-ratio: {width:g} / {height:g}"
    root.attrib |= {"role": "group" if points else "img", "aria-label": alternative}
    return ElementTree.tostring(root, encoding="unicode")


def _saved(figure: Drawing, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    with drawing():
        figure.savefig(buffer, format=kind, **options)
    return buffer.getvalue()


def _strip(root: ElementTree.Element) -> None:
    """Without namespaces, metadata, style sheets (they would reach the whole page), background and white space."""
    for parent in list(root.iter()):
        parent.tag = parent.tag.rpartition("}")[2]
        if parent.tag != "text":
            parent.text = None
        parent.tail = None
        for child in list(parent):
            if child.tag.endswith(("metadata", "}style")) or child.attrib.get("id") == "patch_1":
                parent.remove(child)
    for parent in root.iter():
        for child in [c for c in parent if c.tag in ("defs", "g") and not len(c)]:
            parent.remove(child)


def _convert(element: ElementTree.Element, prefix: str, used: Collection[str], points: Mapping[str, str]) -> None:
    styles = [element.attrib.pop("style", "")]
    for name, value in list(element.attrib.items()):
        plain = name.rpartition("}")[2]
        del element.attrib[name]
        if plain == "id":
            if value in used or "-" in value:  # a chart's own ids have a hyphen, matplotlib's have none
                element.attrib["id"] = prefix + value
            if value in points:
                element.attrib |= {"class": "point", "tabindex": "0", "role": "img", "aria-label": points[value]}
        elif plain in PAINT:
            styles.append(f"{plain}: {value}")
        else:
            if plain in ("d", "transform", "x", "y"):
                value = " ".join(LONG.sub(r"\1", TURNED.sub("", value)).split())
            if value:
                element.attrib[plain] = REFERENCE.sub(rf"#{prefix}\1", value) if "#" in value else value
    style = "; ".join(s for s in styles if s)
    if style:
        style = HEX.sub(lambda m: f"var({COLOURS[m[0]][0]})" if m[0] in COLOURS else m[0], style)
        element.attrib["style"] = FAMILY.sub("", style)
