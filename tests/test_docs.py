"""docs/architecture.md: its picture is the code's, every arrow points down, and what it names exists."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "multum"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"`([\w/]+\.py):(\w+)`", PAGE)


@pytest.fixture(scope="module")
def graph() -> ModuleType:
    spec = importlib.util.spec_from_file_location("graph", ROOT / "docs" / "graph.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_that_of_the_code(graph: ModuleType) -> None:
    assert "](packages.svg)" in PAGE
    assert (ROOT / "docs" / "packages.svg").read_text() == graph.drawing(), "run `make docs-graph`"


def test_every_arrow_points_down(graph: ModuleType) -> None:
    root = ElementTree.fromstring(graph.drawing())
    heights = {
        text.text: float(text.attrib["y"])
        for text in root.iter()
        if text.tag.endswith("text") and "class" not in text.attrib
    }
    assert heights.keys() == graph.imports().keys()
    titles = [element.text or "" for element in root.iter() if element.tag.endswith("title")]
    assert len(titles) >= len(heights) - 1
    for title in titles:
        importer, imported = title.split(" imports ")
        assert heights[importer] < heights[imported]


def test_an_arrow_is_left_out_only_where_others_lead_there(graph: ModuleType) -> None:
    edges = graph.imports()
    shown = graph.reduced(edges)
    reached: dict[str, set[str]] = {}
    for part in sorted(edges, key=graph.levels(edges).__getitem__):
        reached[part] = shown[part].union(*(reached[other] for other in shown[part]))
        assert shown[part] <= edges[part] <= reached[part]
    assert graph.reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_a_circle_of_imports_is_named(graph: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"must not form a circle; got one among \['a', 'b'\]"):
        graph.levels({"a": {"b"}, "b": {"a"}, "c": set()})


@pytest.mark.parametrize(("file", "name"), STEPS, ids=[f"{file}:{name}" for file, name in STEPS])
def test_each_step_of_a_walk_exists(file: str, name: str) -> None:
    assert re.search(rf"^\s*(def|class) {name}\b", (SOURCE / file).read_text(), re.M)


def test_both_walks_have_ten_steps() -> None:
    assert len(STEPS) > 20
    assert len(re.findall(r"^10\. ", PAGE, re.M)) == 2 and not re.search(r"^11\. ", PAGE, re.M)
