"""`multum reproduce headlines`: the regimes of regimes.py run, each claim tested, and one table of what to believe.

headlines.json keeps every value of every seed with the whole recipe, so that each interval can be computed again.
Values of cells that are not in the folder stay as they are, so that a run may go on elsewhere. A difference is the mean
over seeds with the interval of a paired t test, at a level that holds for all tests together (Sidak).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..figures.formats import markdown_table
from ..files import locked, plain, prepare_folder, read_json, write_json, write_text
from ..metrics.statistics import over_seeds, paired_t
from ..runs.machine import machine, versions
from ..runs.pool import Runner, run_cells
from .base import Row, Run
from .measured import COLUMNS, Trained
from .regimes import CLAIMS, REGIMES, Claim, Regime
from .results import FORMAT, LOWER

NAME = "headlines"
BEGIN, END = "<!-- headlines: written by `multum reproduce headlines` -->", "<!-- end of headlines -->"
KEPT = ("Accuracy", "NLL", "ECE (%)", "calibrated NLL", "calibrated ECE (%)", "AUC", "Disagreement", "Trained accuracy")
CALIBRATED = {"NLL": "calibrated NLL", "ECE (%)": "calibrated ECE (%)"}
LEVEL = 0.95
VERDICTS = {
    "confirmed": "the whole interval has the sign of the claim",
    "equivalent": "the whole interval lies within the margin",
    "open": "the interval holds both, or not all planned seeds were run",
    "contradicted": "the whole interval has the other sign or, of an `as good as`, is worse than the margin",
    "not run": "no seed of it was run",
}

Document = Mapping[str, Any]


def plan_page() -> str:
    """docs/results/plan.md: what is trained and tested, and by which rule it is judged."""
    parts = [
        "# The plan of the headline experiments",
        "Regimes, seeds, margins and tests, fixed before the runs. This page is written from "
        "src/multum/papers/regimes.py. Every planned cell is run or named as not run, and no seed is left out. A "
        "convolutional regime on CIFAR-10 is not in it yet.",
        "A regime can show what a paper says only if its network has capacity to spare. So each is checked first: one "
        "network reaches a training accuracy of 99 % and an ECE above 5 %, and a network of half its width is within 3 "
        "points of its accuracy. Where a check fails, the page says so beside the verdicts.",
        "A claim is tested as printed and, for NLL and ECE, again after temperature scaling (cross-validated on the "
        "test part, since nothing is held out). Differences are means over seeds with the interval of a paired t test "
        f"at {100 * LEVEL:g} % for all {_tests()} tests together (Sidak: {100 * _level():.2f} % each).",
        "\n".join(f"- **{verdict}**: {meaning}" for verdict, meaning in VERDICTS.items()),
        "## Claims",
        markdown_table(
            ["claim", "printed", "where", "regime", "row", "against", "column", "margin"],
            [
                [
                    c.says,
                    c.printed,
                    c.source,
                    c.regime,
                    c.method,
                    c.other,
                    c.column,
                    f"{c.margin:g}{' (as good as)' * c.equal}",
                ]
                for c in CLAIMS
            ],
        ),
    ]
    for regime in REGIMES.values():
        common = dict(set.intersection(*(set(_settings(row).items()) for row in regime.rows)))
        own = [name for name in _settings(regime.rows[0]) if name not in common]
        names = list(dict.fromkeys([*own, *(n for row in regime.rows for n in _settings(row) if n not in common)]))
        rows = [[row.label, *(_settings(row).get(name, "") for name in names)] for row in regime.rows]
        parts += [
            f"## {regime.name}: {regime.title}",
            "; ".join(f"{name} {value}" for name, value in sorted(common.items())),
            markdown_table(["row", *names], rows),
        ]
    return "\n\n".join(parts) + "\n"


def _settings(row: Row) -> dict[str, str]:
    """Everything about a row in words."""
    fields = ", ".join(f"{k}={v}" for k, v in row.method.as_dict().items() if k != "name")
    of_row = {"data": row.source, "OOD data": "+".join(row.ood), "seeds": f"{min(row.seeds)} to {max(row.seeds)}"}
    return {"method": f"{row.method.name}({fields})", "network": row.model, **of_row} | {
        name: str(value) for name, value in row.recipe.items()
    }


def headlines(
    out: Path, pages: Path, runner: Runner | None = None, threads: int = 1, progress: bool = False
) -> dict[str, Any]:
    """Run what is not done, where there is a runner, and write the document of all that is known, and its pages.

    Values that headlines.json has are taken where cells are not in the folder.
    """
    folder, file = out / "cells", pages / f"{NAME}.json"
    before = read_json(file) if file.is_file() else {"regimes": {}}
    prepare_folder(folder)
    regimes = {}
    for regime in REGIMES.values():
        run = Run(rows=regime.rows, item=f"{NAME}, {regime.name}")
        if runner is not None:
            epochs = max(row.epochs for row in regime.rows)
            titles = {cell.name: f"{regime.name}: {row.label}" for row in regime.rows for cell in row.cells()}
            with locked(out):
                run_cells(run.cells(), folder, epochs, runner=runner, threads=threads, progress=progress, titles=titles)
        known = before["regimes"].get(regime.name, {"rows": {}})["rows"]
        regimes[regime.name] = _measured(regime, Trained.read(run, folder), known)
    document = plain({"format": FORMAT, "versions": versions(), "machine": machine(), "regimes": regimes})
    _write(pages, document)
    return document


def _measured(regime: Regime, trained: Trained, known: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a regime's rows by column and seed; those that are known of the same settings stay."""
    rows = {}
    for row in regime.rows:
        settings = plain(_whole(row))
        earlier = known.get(row.label, {})
        values = earlier.get("values", {}) if earlier.get("settings") == settings else {}
        seconds = dict(earlier.get("seconds", {})) if values else {}
        seconds |= {str(seed): sum(result["seconds"].values()) for seed, result in trained.results[row.label].items()}
        columns = {}
        for column in KEPT:
            now = {str(seed): value for seed, value in trained.values(row.label, COLUMNS[column]).items()}
            columns[column] = dict(sorted({**values.get(column, {}), **now}.items(), key=lambda seed: int(seed[0])))
        rows[row.label] = {
            "settings": settings,
            "seeds": list(row.seeds),
            "values": columns,
            "seconds": seconds,
        }
    return {"title": regime.title, "rows": rows}


def _whole(row: Row) -> dict[str, Any]:
    """The settings of a row's cells, without the seed."""
    return {name: value for name, value in row.cells()[0].settings().items() if name != "seed"}


def _tests() -> int:
    return sum(1 + (claim.column in CALIBRATED) for claim in CLAIMS)


def _level() -> float:
    """Of each test, so that all of them together have LEVEL."""
    return LEVEL ** (1 / _tests())


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
    test = paired_t(a, b, level=_level())
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
    for regime in REGIMES.values():
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


def table_rows(document: Document, why: Mapping[str, str] | None = None) -> list[dict[str, str]]:
    """A row a claim: in words, what is printed, ours as printed and calibrated with intervals, verdicts, and why."""
    rows: dict[str, dict[str, str]] = {}
    for test in tested(document):
        claim: Claim = test["claim"]
        verdict = test["verdict"] + f" within {claim.margin:g}" * (test["verdict"] == "equivalent")
        change = f"{test['difference']:+.3g} ({test['low']:+.3g} to {test['high']:+.3g})" if "low" in test else ""
        if test["column"] != claim.column:
            rows[claim.says]["calibrated"] = f"{change}, {verdict}" if change else ""
            continue
        means = f"{claim.column} {' against '.join(map(_shown, test['means']))}" if test["seeds"] else ""
        planned = len(document["regimes"][claim.regime]["rows"][claim.method]["seeds"])
        rows[claim.says] = {
            "claim": claim.says,
            "printed": f"{claim.printed} ({claim.source})",
            "ours": "; ".join(filter(None, (means, change))),
            "verdict": verdict,
            "calibrated": "",
            "why": (why or {}).get(claim.says, ""),
            "seeds": f"{test['seeds']} of {planned}, {claim.regime}",
        }
    return list(rows.values())


def _shown(value: float) -> str:
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


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
    rows = table_rows(document, _reasons(pages))
    head = [name for name in rows[0] if any(row[name] for row in rows)]
    marks = {True: "as it must be", False: "**not** as it must be"}
    found = [f"- {regime}: {what} ({marks[right]})" for regime, what, right in checks(document)]
    planned = sum(len(row.seeds) for regime in REGIMES.values() for row in regime.rows)
    done = sum(len(row["seconds"]) for regime in document["regimes"].values() for row in regime["rows"].values())
    return "\n\n".join(
        [
            markdown_table(head, [[row[name] for name in head] for row in rows]),
            "Ours: the means of both, then their difference with its interval; calibrated: the same difference after "
            f"temperature scaling. Intervals hold for all {_tests()} tests together; verdicts, regimes and margins are "
            f"those of [plan.md](plan.md), which was fixed before the runs. {done} of {planned} planned cells are run.",
            "Has the network capacity to spare?",
            "\n".join(found) or "- not run yet",
        ]
    )


def _reasons(pages: Path) -> dict[str, str]:
    """Why a verdict is what it is, written by a person: `claim | why`, a line each."""
    file = pages / f"{NAME}.why.txt"
    lines: Sequence[str] = file.read_text("utf-8").splitlines() if file.is_file() else ()
    return {claim.strip(): why.strip() for claim, _, why in (line.partition("|") for line in lines if line.strip())}
