"""The report as Markdown and on the terminal."""

from __future__ import annotations

import copy
import io
import itertools
import re

import pytest
from rich.console import Console

from multum import reports
from multum.figures.formats import shown, sized
from multum.reports.markdown import markdown
from multum.reports.summary import tiles
from reports import documents


def printed(document: dict, width: int, *, terminal: bool = False) -> str:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, color_system="standard" if terminal else None
    )
    console.print(reports.terminal(document))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [400, 100, 80, 60])
def test_main_columns_fit_the_terminal(document: dict, width: int) -> None:
    text = printed(document, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    assert (len(re.findall(r"^method .*", text, re.M)) == 1) == (width >= 100)
    columns = sized(document)
    for row in document["rows"]:
        for column in (c for c in columns if c["main"] and c["key"] in row["values"] and c["key"] != "equivalent"):
            errors = width == 400 or column["key"] == "calibrated_nll"
            value = row["values"][column["key"]]
            assert shown(value if errors else {**value, "error": None}, column, unit=False) in text
    assert "Brier" not in text and f"{len(columns) - 7} more columns" in text
    assert all(name in text for name in ("control", "some seeds failed", "standard error over seeds"))


def test_long_labels_leave_a_hundred_columns_one_table(document: dict) -> None:
    document = copy.deepcopy(document)
    document["rows"][2]["label"] = "packed:members=4,alpha=2.5,gamma=2"
    text = printed(document, 100)
    assert max(len(line) for line in text.splitlines()) <= 100
    assert len(re.findall(r"^method .*", text, re.M)) == 1
    assert "packed:members=4," in text and " alpha=2.5," in text


def test_the_answer_on_a_terminal(document: dict) -> None:
    lines = [line.plain for line in reports.advice_lines(document)]
    advice = document["advice"]
    assert lines[0] == advice["sentence"]
    assert f"sure: {advice['sure'][0]}" in lines and f"not sure: {advice['unsure'][0]}" in lines
    assert lines[-len(advice["notes"]) :] == advice["notes"]


def test_numbers_stand_beside_those_of_one_network_not_of_a_control(document: dict) -> None:
    turned = {**document, "rows": document["rows"][::-1]}
    assert any(row["label"].startswith("single@") for row in turned["rows"])
    assert tiles(turned) == tiles(document)
    assert {tile["other"].partition(":")[0] for tile in tiles(turned) if tile["key"] != "equivalent"} == {"single"}


def test_a_document_without_main_columns_has_a_table_too() -> None:
    text = printed(documents.classification(seeds=2, names=["single", "packed"]), 100)
    assert "accuracy" in text and "mult-adds" in text and "AURC" not in text


def test_failures_have_their_reasons(document: dict) -> None:
    text = " ".join(printed(document, 100).split())
    for row in document["rows"]:
        if row["status"] != "done":
            assert f"{row['label']} failed" in text
            assert row["reason"] in text


def test_best_is_bold_on_a_terminal_and_a_star_in_a_file(document: dict) -> None:
    main = {column["key"] for column in document["columns"] if column["main"]}
    best = sum(v["best"] for row in document["rows"] for key, v in row["values"].items() if key in main)
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
    main, differences, *groups, tuning, models = [table.splitlines() for table in tables]
    assert len(differences) == 2 + sum(bool(row["against"]["single"]) for row in document["rows"])
    groups.append(main)
    assert len(groups) == 1 + len(list(itertools.groupby(column["group"] for column in document["columns"])))
    for lines in (*groups, differences, tuning, models):
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


def test_markdown_has_intervals_the_test_and_what_was_tuned(document: dict) -> None:
    text = markdown(document, [])
    [column] = [c for c in sized(document) if c["key"] == "calibrated_nll"]
    value = document["rows"][2]["values"]["calibrated_nll"]
    low, high = (shown({"mean": value[end]}, column) for end in ("low", "high"))
    assert f"({low} to {high})" in text.partition("## All columns")[0]
    assert document["test"] in text and document["advice"]["unsure"][0] in text
    assert re.search(r"\| packed +\| \*\*lr 0.006, alpha 3\*\* +\| \*\*0.2700 \(8 epochs\), 0.2400 \(20 epochs\)", text)
    assert "deep: the chosen learning rate is the lowest or the highest" in text
    assert "deep@1x (control)" in text


def test_markdown_of_odd_labels_keeps_its_columns() -> None:
    document = documents.minimal()
    document["rows"][0]["label"] = "a|b\nc <b>*x*</b>"
    document["command"] = "multum ```"
    text = markdown(document, [])
    assert "| a\\|b c \\<b\\>\\*x\\*\\</b\\> |" in text
    assert "````sh\nmultum ```\n````" in text
