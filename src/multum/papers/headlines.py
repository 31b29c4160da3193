"""`multum reproduce headlines`: the regimes of regimes.py run, each claim tested, and one table of what to believe.

headlines.json keeps every value of every seed with the whole recipe, so that each interval can be computed again.
Values that it has of the same settings are taken and not run again, so that a run may go on elsewhere, and the table of
a finished plan comes from the committed file alone. A difference is the mean
over seeds with the interval of a paired t test, at a level that holds for all tests together (Sidak).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..figures.formats import markdown_table
from ..files import locked, plain, prepare_folder, read_json, write_json, write_text
from ..metrics.statistics import over_seeds, paired_t
from ..runs.cells import Cell
from ..runs.machine import machine, versions
from ..runs.pool import Runner, run_cells
from .base import Row, Run
from .claims import CALIBRATED, CLAIMS, Claim, level, tests
from .measured import COLUMNS, Trained, settings_of
from .plan import hours, plan_page
from .regime import Regime
from .regimes import REGIMES
from .repeating import CELLS, repeated, told
from .results import FORMAT, LOWER

NAME = "headlines"
BEGIN, END = "<!-- headlines: written by `multum reproduce headlines` -->", "<!-- end of headlines -->"
KEPT = (
    *("Accuracy", "NLL", "ECE (%)", "calibrated NLL", "calibrated ECE (%)"),
    *("AUC", "Disagreement", "Trained accuracy", "RMSE"),
)
SHARES = ("Accuracy", "ECE (%)", "AUC")  # in percent, two digits are enough
Document = Mapping[str, Any]


def headlines(
    out: Path, pages: Path, runner: Runner | None = None, threads: int = 1, progress: bool = False, repeat: int = 0
) -> dict[str, Any]:
    """Run what is not done, where there is a runner, and write the document of all that is known, and its pages.

    Values that headlines.json has are taken where cells are not in the folder. With `repeat` nothing new is run, but so
    many of the cells in the folder once more; the document keeps whether they gave the same bits.
    """
    folder, file = out / CELLS, pages / f"{NAME}.json"
    before: Document = read_json(file) if file.is_file() else {"regimes": {}}
    prepare_folder(folder)
    known = {name: before["regimes"].get(name, {"rows": {}})["rows"] for name in REGIMES}
    if runner is not None and not repeat:
        waiting = _waiting(known)
        if waiting:
            cells, titles = [cell for cell, _ in waiting], {cell.name: title for cell, title in waiting}
            epochs = max(row.epochs for regime in REGIMES.values() for row in regime.every)
            with locked(out):
                run_cells(cells, folder, epochs, runner=runner, threads=threads, progress=progress, titles=titles)
    regimes = {}
    for name, regime in REGIMES.items():
        run = Run(rows=regime.every, item=f"{NAME}, {name}")
        regimes[name] = _measured(regime, Trained.read(run, folder), known[name])
    document = plain({"format": FORMAT, "versions": versions(), "machine": machine(), "regimes": regimes})
    if all(before.get(name) == document[name] for name in ("format", "regimes")):
        document = dict(before)  # nothing was run: the file says where its numbers come from
    again = before.get("repeated", [])
    if runner is not None and repeat:
        how: dict[str, Any] = {"runner": runner, "threads": threads, "progress": progress}
        every = {f"{name}: {row.label}": row.cells() for name, regime in REGIMES.items() for row in regime.every}
        with locked(out):
            again = plain(repeated(every, out, repeat, again, **how))
    if again:
        document["repeated"] = again
    _write(pages, document)
    return document


def _waiting(known: Mapping[str, Mapping[str, Any]]) -> list[tuple[Cell, str]]:
    """The cells that are not known, with their titles, so that a stopped run has decided as much as it can.

    First the rows that claims are about, most claims an hour first; then the others, the cheapest regime first.
    """
    asked = {(claim.regime, label) for claim in CLAIMS for label in (claim.method, claim.other)}
    claims = Counter(claim.regime for claim in CLAIMS)
    waiting: dict[str, tuple[Cell, str]] = {}
    for first in (True, False):
        rows = {
            name: [row for row in regime.every if ((name, row.label) in asked) == first]
            for name, regime in REGIMES.items()
        }
        price = {name: hours(REGIMES[name], own) / (claims[name] if first else 1) for name, own in rows.items() if own}
        for name in sorted(price, key=price.__getitem__):
            for cell in Run(rows=tuple(rows[name])).cells():
                row = next(row for row in rows[name] if cell in row.cells())
                if str(cell.seed) not in _known(row, known[name])["seconds"]:
                    waiting.setdefault(cell.name, (cell, f"{name}: {row.label}"))
    return list(waiting.values())


def _known(row: Row, known: Mapping[str, Any]) -> dict[str, Any]:
    """What is known of a row by column and seed, if it was run with the same settings."""
    earlier = known.get(row.label, {})
    return dict(earlier) if earlier.get("settings") == plain(settings_of(row)) else {"values": {}, "seconds": {}}


def _measured(regime: Regime, trained: Trained, known: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a regime's rows by column and seed; those that are known of the same settings stay."""
    rows = {}
    for row in regime.every:
        earlier = _known(row, known)
        seconds: dict[str, Any] = {
            str(seed): sum(result["seconds"].values()) for seed, result in trained.results[row.label].items()
        }
        columns = {}
        for column in KEPT:
            now = {str(seed): value for seed, value in trained.values(row.label, COLUMNS[column]).items()}
            values = {**earlier["values"].get(column, {}), **now}
            columns[column] = dict(sorted(values.items(), key=lambda seed: int(seed[0])))
        rows[row.label] = {
            "settings": settings_of(row),
            "seeds": list(row.seeds),
            "values": columns,
            "seconds": earlier["seconds"] | seconds,
        }
    return {"title": regime.title, "rows": rows}


def tested(document: Document) -> Iterator[dict[str, Any]]:
    """Every claim, as printed and calibrated: the means of both rows, the difference, its interval and the verdict."""
    for claim in CLAIMS:
        for column in filter(None, (claim.column, CALIBRATED.get(claim.column))):
            yield {"claim": claim, "column": column, **_test(document, claim, column)}


def _test(document: Document, claim: Claim, column: str) -> dict[str, Any]:
    rows = document["regimes"][claim.regime]["rows"]
    values = [rows[label]["values"].get(column, {}) for label in (claim.method, claim.other)]
    seeds = sorted(values[0].keys() & values[1].keys(), key=int)
    if not seeds:
        return {"seeds": 0, "verdict": "not run"}
    a, b = (torch.tensor([own[seed] for seed in seeds], dtype=torch.float64) for own in values)
    numbers = {"seeds": len(seeds), "means": (float(a.mean()), float(b.mean())), "difference": float((a - b).mean())}
    if len(seeds) < 2:
        return {**numbers, "verdict": "open"}
    test = paired_t(a, b, level=level())
    whole = len(seeds) == len(rows[claim.method]["seeds"])  # a verdict before the last planned seed is one too many
    verdict = _verdict(claim, column, test.low, test.high) if whole else "open"
    return {**numbers, "low": test.low, "high": test.high, "verdict": verdict}


def _verdict(claim: Claim, column: str, low: float, high: float) -> str:
    """
    >>> claim = next(c for c in CLAIMS if c.column == "NLL" and not c.equal)
    >>> [_verdict(claim, "NLL", *interval) for interval in ((-0.2, -0.1), (-0.005, 0.005), (-0.1, 0.1), (0.1, 0.2))]
    ['confirmed', 'equivalent', 'open', 'contradicted']
    """
    worst, best = (-high, -low) if column in LOWER else (low, high)  # of an advantage
    if -claim.margin < worst and best < claim.margin and (claim.equal or worst <= 0 <= best):
        return "equivalent"
    if worst > 0:
        return "confirmed"
    return "contradicted" if best < (-claim.margin if claim.equal else 0) else "open"


def checks(document: Document) -> Iterator[tuple[str, str, bool]]:
    """Whether each regime has capacity to spare: the regime, what was found, and whether it is as it must be."""
    for regime in (regime for regime in REGIMES.values() if regime.spare):
        rows = document["regimes"][regime.name]["rows"]

        def mean(label: str, column: str, rows: Mapping[str, Any] = rows) -> float | None:
            values = rows[label]["values"].get(column, {}).values()
            return over_seeds(list(values)).mean if values else None

        trained, ece = mean(regime.single, "Trained accuracy"), mean(regime.single, "ECE (%)")
        if trained is not None and ece is not None:
            yield (
                regime.name,
                f"one network's training accuracy {trained:.1f} %, ECE {ece:.1f} %",
                trained > 99 and ece > 5,
            )
        wide, half = mean(regime.single, "Accuracy"), mean(regime.half, "Accuracy") if regime.half else None
        if wide is not None and half is not None:
            yield regime.name, f"accuracy {wide:.1f} %, of half the width {half:.1f} %", wide - half < 3


def table_rows(document: Document) -> list[dict[str, str]]:
    """A row a claim: in words, what is printed, ours as printed and calibrated with intervals, and verdicts."""
    rows: dict[str, dict[str, str]] = {}
    for test in tested(document):
        claim: Claim = test["claim"]
        verdict = test["verdict"] + f" within {claim.margin:g}" * (test["verdict"] == "equivalent")
        digits = 2 if claim.column in SHARES else 4
        change = "{difference:+.{0}f} ({low:+.{0}f} to {high:+.{0}f})".format(digits, **test) if "low" in test else ""
        if test["column"] != claim.column:
            rows[claim.says]["calibrated"] = f"{change}\n{verdict}" if change else ""
            continue
        means = " against ".join(f"{mean:.{digits - 1}f}" for mean in test["means"]) if test["seeds"] else ""
        planned = len(document["regimes"][claim.regime]["rows"][claim.method]["seeds"])
        rows[claim.says] = {
            "claim": claim.says,
            "printed": claim.printed,
            "of": claim.column,
            "ours": means,
            "difference": change,
            "verdict": verdict,
            "calibrated": "",
            "seeds": f"{claim.regime}, {test['seeds']}/{planned}",
        }
    return list(rows.values())


def _write(pages: Path, document: Document) -> None:
    """headlines.json, plan.md, and the table in README.md, where it has its place."""
    prepare_folder(pages)
    write_json(pages / f"{NAME}.json", dict(document))
    write_text(pages / "plan.md", plan_page())
    readme = pages / "README.md"
    if readme.is_file() and BEGIN in readme.read_text("utf-8"):
        before, _, rest = readme.read_text("utf-8").partition(BEGIN)
        write_text(readme, f"{before}{BEGIN}\n\n{section(document, pages)}\n\n{END}{rest.partition(END)[2]}")


def section(document: Document, pages: Path) -> str:
    """The table with what a reader needs beside it; why a verdict is what it is comes from headlines.why.txt."""
    reasons = _reasons(pages)
    found = [f"- {regime}: {what} ({'passes' if right else '**fails**'})" for regime, what, right in checks(document)]
    planned = sum(len(row.seeds) for regime in REGIMES.values() for row in regime.every)
    done = sum(len(row["seconds"]) for regime in document["regimes"].values() for row in regime["rows"].values())
    more = [f"- *{c.says}*: {reasons[c.says][1]}" for c in CLAIMS if c.says in reasons and reasons[c.says][1]]
    return "\n\n".join(
        [
            _table(document, reasons, main=True),
            "Ours: both means, then their difference with its interval; calibrated: the same difference after "
            f"temperature scaling. Intervals hold for all {tests()} tests together. Verdicts, regimes and margins are "
            f"those of [the plan](plan.md), fixed before the runs. {done} of {planned} planned cells are run.",
            "Does each network have capacity to spare? Its training accuracy must be above 99 %, its ECE above 5 %, "
            "and a network of half its width less than 3 points behind:",
            "\n".join(found) or "- not run yet",
            *([told(document["repeated"])] if "repeated" in document else ()),
            *(_fold("More on these verdicts", "\n".join(more)) if more else ()),
            *_fold(f"{sum(not c.main for c in CLAIMS)} further claims", _table(document, reasons, main=False)),
        ]
    )


def _table(document: Document, reasons: Mapping[str, tuple[str, str]], main: bool) -> str:
    """Claims with verdicts and reasons; where a claim is printed, and what ours is made of, stand below it."""
    cells = []
    for claim, row in zip(CLAIMS, table_rows(document), strict=True):
        if claim.main == main:
            below = f"<br>{claim.link}; {row['seeds']} seeds"
            why = reasons.get(claim.says, ("", ""))[0]
            ours = f"{claim.column} {row['ours']}<br>{row['difference']}" if row["ours"] else ""
            calibrated = row["calibrated"].replace("\n", "<br>")
            cells.append([f"**{claim.says}**{below}", row["printed"], ours, row["verdict"], calibrated, why])
    return markdown_table(
        ["claim, where it is printed, and our seeds", "printed", "ours", "verdict", "calibrated", "why"], cells
    )


def _fold(summary: str, text: str) -> tuple[str, ...]:
    return f'<details markdown="1">\n<summary>{summary}</summary>', text, "</details>"


def _reasons(pages: Path) -> dict[str, tuple[str, str]]:
    """Why a verdict is what it is, written by a person: `claim | why | more`, a line each; `more` may be left out."""
    file = pages / f"{NAME}.why.txt"
    lines: Sequence[str] = file.read_text("utf-8").splitlines() if file.is_file() else ()
    fields = [[field.strip() for field in f"{line}||".split("|")] for line in lines if line.strip()]
    return {claim: (why, more) for claim, why, more, *_ in fields}
