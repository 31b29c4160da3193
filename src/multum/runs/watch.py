"""The table that one watches while cells run: a row per method, a mark per seed, and the time left."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .cells import Cell, Outcome, is_done

MOST_SEEDS = 6  # columns of the table


class Watch:
    """What is waiting, running, done and failed: a live table on a terminal, a line per cell elsewhere."""

    def __init__(
        self,
        cells: Sequence[Cell],
        out: Path,
        epochs: int,
        shown: bool,
        titles: Mapping[str, str] | None = None,
        heading: str = "",
    ):
        self.cells, self.out, self.epochs, self.shown, self.heading = list(cells), out, epochs, shown, heading
        self.titles = {cell.name: (titles or {}).get(cell.name, cell.label) for cell in cells}
        self.console = Console(stderr=True)
        self.begun_at: dict[str, float] = {}
        self.ended: dict[str, Outcome] = {c.name: Outcome(c.name) for c in cells if is_done(c, out)}
        self.before = len(self.ended)
        self.started = time.monotonic()
        self.live: Live | None = None

    def __enter__(self) -> Watch:
        if self.shown and self.console.is_terminal:
            self.live = Live(get_renderable=self.drawn, console=self.console, refresh_per_second=2, transient=True)
            self.live.__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        if self.live is not None:
            self.live.__exit__(*exc)

    def begin(self, cell: Cell) -> None:
        """A cell has been begun."""
        self.begun_at[cell.name] = time.monotonic()

    def end(self, outcome: Outcome) -> None:
        """A cell has ended."""
        self.ended[outcome.name] = outcome
        if self.shown and self.live is None:
            cell = next(c for c in self.cells if c.name == outcome.name)
            seconds = time.monotonic() - self.begun_at.get(outcome.name, self.started)
            end = f"{seconds:.1f} s" if outcome.done else f"failed: {outcome.reason}"
            what = f"{self.heading}  " if self.heading else ""
            line = f"{what}{len(self.ended)}/{len(self.cells)}  {self.titles[cell.name]}, seed {cell.seed}: {end}"
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def progress(self, cell: Cell) -> float:
        """The share of a cell that is done, by the epochs in its log: it may run in another process."""
        if cell.name in self.ended:
            return 1.0
        if cell.name not in self.begun_at:
            return 0.0
        try:
            lines = (self.out / cell.name / "log.jsonl").read_bytes().count(b"\n")
        except OSError:
            lines = 0
        return min(0.95, 0.95 * lines / self.epochs)  # measuring comes after the last epoch

    def seconds_left(self) -> float | None:
        """By what the cells of this run took so far, and how much is left of all."""
        share = sum(map(self.progress, self.cells)) - self.before
        left = len(self.cells) - self.before - share
        return (time.monotonic() - self.started) * left / share if share > 0.02 else None

    def drawn(self) -> Group:
        """The table now."""
        share = sum(map(self.progress, self.cells)) / max(1, len(self.cells))
        left = self.seconds_left()
        line = Table.grid(padding=(0, 2))
        line.add_row(
            ProgressBar(total=1.0, completed=share, width=40),
            f"{len(self.ended)}/{len(self.cells)} cells",
            f"{timedelta(seconds=int(time.monotonic() - self.started))} elapsed",
            "" if left is None else f"about {timedelta(seconds=int(left))} left",
        )
        return Group(self._table(), line)

    def _table(self) -> Table:
        """A column a seed; with too many seeds, how many are done, where rows that have not begun wait unseen."""
        seeds = sorted({c.seed for c in self.cells})
        places = {(self.titles[c.name], c.seed) for c in self.cells}
        few = len(seeds) <= MOST_SEEDS and len(places) == len(self.cells)
        head = [f"seed {s}" for s in seeds] if few else ["done", "failed"]
        table = Table("method", *head, box=None, padding=(0, 2), header_style="dim", title=self.heading or None)
        for title in dict.fromkeys(self.titles.values()):
            cells = [c for c in self.cells if self.titles[c.name] == title]
            ended = [self.ended[c.name] for c in cells if c.name in self.ended]
            failed = sum(not outcome.done for outcome in ended)
            if few:
                marks = {c.seed: self._mark(c) for c in cells}
                table.add_row(title, *(marks.get(s, "") for s in seeds))
            elif ended or any(c.name in self.begun_at for c in cells):
                table.add_row(title, f"{len(ended) - failed}/{len(cells)}", Text(str(failed or ""), "red"))
        return table

    def _mark(self, cell: Cell) -> Text:
        if cell.name in self.ended:
            return Text("done", "green") if self.ended[cell.name].done else Text("failed", "red")
        if cell.name in self.begun_at:
            return Text(f"{100 * self.progress(cell):.0f} %", "yellow")
        return Text("waiting", "dim")
