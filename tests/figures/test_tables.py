"""Tables in Markdown and on a terminal."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from multum.figures.formats import markdown_table, text_table

INDEX = Path(__file__).parents[2] / "docs" / "results" / "index.md"


def printed(table: object, width: int = 60) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_markdown_without_alignment_is_the_committed_pages_table() -> None:
    lines = [line for line in INDEX.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    assert len(cells) > 10
    assert markdown_table(cells[0], [*cells[2:]]) == "\n".join(lines)


def test_markdown_aligns_each_column_and_the_last_letter_goes_on() -> None:
    table = markdown_table(["a", "number", "x"], [["long name", "1", "2"]], "lr")
    assert table.splitlines() == [
        "| a         | number |   x |",
        "| --------- | -----: | --: |",
        "| long name |      1 |   2 |",
    ]


@pytest.mark.parametrize(("cell", "escaped"), [("a|b", r"a\|b"), (r"a\|b", r"a\|b")])
def test_a_pipe_is_escaped_once(cell: str, escaped: str) -> None:
    assert markdown_table(["head"], [[cell]]).splitlines()[-1] == f"| {escaped} |"


def test_text_is_no_markup_and_numbers_are_on_the_right() -> None:
    rows = [["[red]a[/red]", Text("1")], ["b", Text("1,000")]]
    lines = printed(text_table(["name", "n"], rows, align="lr", title="[b]", caption="[c]"))
    assert lines[0].strip() == "[b]" and lines[-1].strip() == "[c]"
    assert any(line.split() == ["[red]a[/red]", "1"] for line in lines)
    assert len({len(line) for line in lines if line.endswith(("1", "1,000"))}) == 1


def test_numbers_are_not_broken_where_the_terminal_is_narrow() -> None:
    lines = printed(text_table(["name", "n"], [["many words in a row", "12 ± 3"]], align="lr"), width=20)
    assert sum("12 ± 3" in line for line in lines) == 1
    assert " ".join(line[:11].strip() for line in lines[2:]).split() == ["many", "words", "in", "a", "row"]
