"""The table that one watches while cells run."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

import multum
from multum.runs.cells import Cell, Outcome
from multum.runs.watch import Watch


def cells(seeds: int, *data: str) -> list[Cell]:
    return [Cell("single", seed, name, "mlp", multum.Single(), {}) for name in data for seed in range(seeds)]


def text(watch: Watch) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=100)
    console.print(watch.drawn())
    return [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def test_few_seeds_have_a_column_each(tmp_path: Path) -> None:
    one, two, three = found = cells(3, "digits")
    watch = Watch(found, tmp_path, epochs=4, shown=False)
    watch.begin(one)
    watch.begin(two)
    (tmp_path / two.name).mkdir()
    (tmp_path / two.name / "log.jsonl").write_text("{}\n{}\n")
    watch.end(Outcome(one.name, "it broke"))
    lines = text(watch)
    assert lines[0] == ["method", "seed", "0", "seed", "1", "seed", "2"]
    assert lines[1] == ["single", "failed", "48", "%", "waiting"]
    assert "1/3 cells" in " ".join(lines[2])
    watch.end(Outcome(three.name))
    assert text(watch)[1][-1] == "done"


def test_many_seeds_are_counted_by_row(tmp_path: Path) -> None:
    found = cells(20, "uci_boston", "uci_yacht", "uci_naval")
    watch = Watch(found, tmp_path, 1, shown=False, titles={cell.name: f"one on {cell.data[4:]}" for cell in found})
    for cell in found[:22]:
        watch.begin(cell)
        watch.end(Outcome(cell.name, "it broke" if cell.seed == 3 else None))
    watch.begin(found[22])
    lines = text(watch)
    assert lines[1:3] == [["one", "on", "boston", "19/20", "1"], ["one", "on", "yacht", "2/20"]]
    assert not any("naval" in line for line in lines)  # not begun
    assert "22/60 cells" in " ".join(lines[3])
