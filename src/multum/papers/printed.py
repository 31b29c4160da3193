"""Numbers as the papers print them, and where we depart from them: printed/PAPER.txt.

A table is `# name`, its columns apart by commas, and its rows, `row | number number ...`, with - where there is none. A
name that comes again adds rows with other columns. `! row | column | remark` says why a printed cell is off, and
`~ sentence` what is not done as in the paper, and why.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ..errors import ConfigError

__all__ = ["Printed", "Remarks", "Table", "read", "table"]

FOLDER = Path(__file__).with_name("printed")


@dataclass(frozen=True)
class Printed:
    """A number as a paper prints it, with its spread where it has one.

    >>> Printed("96.79±0.07").value, Printed("36.492").agrees(36.4928)
    (96.79, True)
    """

    text: str

    @property
    def value(self) -> float:
        return float(self.text.partition("±")[0])

    @property
    def spread(self) -> float | None:
        return float(self.text.partition("±")[2]) if "±" in self.text else None

    @property
    def digits(self) -> int:
        return len(self.text.partition("±")[0].partition(".")[2])

    def agrees(self, ours: float) -> bool:
        """Whether ours, rounded or cut off at the printed digits, is the printed number."""
        unit = 10.0**-self.digits
        return abs(round(ours, self.digits) - self.value) < unit / 4 or -1e-9 <= ours - self.value < unit


Table: TypeAlias = Mapping[str, Mapping[str, Printed]]  # by row, then by column
Remarks: TypeAlias = Mapping[tuple[str, str], str]  # (row, column): why the cell is off


def table(columns: str, lines: Iterable[str]) -> dict[str, dict[str, Printed]]:
    """Rows of a table.

    >>> table("Acc, NLL", ["MIMO | 96.4 0.123"])["MIMO"]["NLL"].value
    0.123
    """
    names = columns.split(", ")
    rows: dict[str, dict[str, Printed]] = {}
    for line in lines:
        label, _, rest = line.rpartition("|")
        numbers = rest.split()
        if len(numbers) != len(names) or not label:
            raise ConfigError(f"a row must have {len(names)} numbers; got {len(numbers)} in {line!r}")
        rows[label.strip()] = {n: Printed(x) for n, x in zip(names, numbers, strict=True) if x != "-"}
    return rows


def read(paper: str) -> tuple[dict[str, Table], dict[str, Remarks], dict[str, tuple[str, ...]]]:
    """The tables of a paper, remarks on their cells, and departures from them, all by the table's or figure's name.

    >>> read("mimo")[0]["Footnote 2"]["ResNet28-10"]["Params (M)"].text
    '36.479'
    """
    tables: dict[str, Table] = {}
    remarks: dict[str, Remarks] = {}
    departs: dict[str, tuple[str, ...]] = {}
    for section in f"\n{(FOLDER / f'{paper}.txt').read_text('utf-8')}".split("\n# ")[1:]:
        name, *lines = section.strip().splitlines()
        printed = [line for line in lines if line[0] not in "!~"]
        if printed:
            tables[name] = {**tables.get(name, {}), **table(printed[0], printed[1:])}
        about = [line[2:].split(" | ", 2) for line in lines if line[0] == "!"]
        remarks[name] = {**remarks.get(name, {}), **{(row, column): remark for row, column, remark in about}}
        departs[name] = (*departs.get(name, ()), *(line[2:] for line in lines if line[0] == "~"))
    return tables, remarks, departs
