"""The report as Markdown and on the terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from multum import reports
from multum.figures.formats import heading, shown, sized
from multum.reports.markdown import markdown
from reports import documents


def printed(document: dict, width: int, *, terminal: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, color_system="standard" if terminal else None
    )
    console.print(reports.terminal(document))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [400, 120, 80, 60])
def test_tables_fit_the_terminal_and_leave_nothing_out(document: dict, width: int) -> None:
    text = printed(document, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    headings = re.findall(r"method .*", text)
    assert (len(headings) == 1) == (width == 400)
    columns = sized(document)
    for column in columns:
        assert heading(column) in text
    for row in document["rows"]:
        for column in columns:
            if column["key"] in row["values"]:
                assert shown(row["values"][column["key"]], column, unit=False) in text


def test_failures_have_their_reasons(document: dict) -> None:
    text = " ".join(printed(document, 100).split())
    for row in document["rows"]:
        if row["status"] != "done":
            assert f"{row['label']} failed" in text
            assert row["reason"] in text


def test_best_is_bold_on_a_terminal_and_a_star_in_a_file(document: dict) -> None:
    best = sum(v["best"] for row in document["rows"] for v in row["values"].values())
    plain, styled = printed(document, 300), printed(document, 300, terminal=True)
    assert plain.count(" *") == best
    assert "\x1b" not in plain
    assert len(re.findall(r"\x1b\[1m[^\x1b]*\*", styled)) == best


def test_labels_are_not_console_markup() -> None:
    document = documents.minimal()
    document["rows"][0]["label"] = "[red]single[/red]"
    assert "[red]single[/red]" in printed(document, 80)


def test_markdown_tables_are_aligned(document: dict) -> None:
    text = markdown(document, reports.figures(document))
    tables = re.findall(r"(?:^\|.*\n?)+", text, re.M)
    *groups, models = [table.splitlines() for table in tables]
    assert len(groups) == 5
    for lines in (*groups, models):
        assert len({len(line) for line in lines}) == 1
        assert len({line.count("|") for line in lines}) == 1
    for lines in groups:
        assert len(lines) == 2 + len(document["rows"])
        assert re.fullmatch(r"\| -+ (\| -+: )+\|", lines[1])
    assert len(models) == 2 + sum(row["folder"] is not None for row in document["rows"])


def test_markdown_says_it_all(document: dict) -> None:
    figures = reports.figures(document)
    text = markdown(document, figures)
    assert text.startswith(f"# {document['title']}\n")
    assert document["command"] in text
    for figure in figures:
        assert f"](figures/{figure.name}.png)" in text
    plain = text.replace("\\", "")
    assert f"**{document['advice']['sentence']}**" in plain
    for row in document["rows"]:
        if row["status"] != "done":
            assert f"**{row['label']}** ({row['status']}): {row['reason']}" in plain
    column = sized(document)[0]
    best = next(v for row in document["rows"] if (v := row["values"].get("accuracy")) and v["best"])
    assert f"**{shown(best, column, unit=False)}**" in text


def test_markdown_of_odd_labels_keeps_its_columns() -> None:
    document = documents.minimal()
    document["rows"][0]["label"] = "a|b\nc <b>*x*</b>"
    document["command"] = "multum ```"
    text = markdown(document, [])
    assert "| a\\|b c \\<b\\>\\*x\\*\\</b\\> |" in text
    assert "````sh\nmultum ```\n````" in text
