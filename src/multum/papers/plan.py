"""docs/results/plan.md: what is trained and tested, by which rule it is judged, and what it takes."""

from __future__ import annotations

from collections.abc import Sequence

from ..figures.formats import markdown_table
from .base import Row, Run
from .claims import CLAIMS, LEVEL, VERDICTS, level, tests
from .counting import plan
from .regime import Regime
from .regimes import REGIMES

SWEEPS = "For the papers' curves, beside these rows:"
TRIALS = "Planned after other rows had been seen, or kept from an earlier plan; no claim is about them:"


def plan_page() -> str:
    """The whole page, from regimes.py and claims.py."""
    parts = [
        "# The plan of the headline experiments",
        "Regimes, seeds, margins and tests, fixed before the runs. This page is written from "
        "src/multum/papers/regimes.py and claims.py. Every planned cell is run or named as not run, and no seed is "
        "left out.",
        f"A regime can show what a paper says only if its network has capacity to spare. So {_spare(True)} are checked "
        "first: one network reaches a training accuracy of 99 % and an ECE above 5 %, and a network of half its width "
        "is within 3 points of its accuracy. Where a check fails, the results say so beside the verdicts. "
        f"{_spare(False)} are other questions, and are not checked.",
        "A claim is tested as printed and, for NLL and ECE, again after temperature scaling (cross-validated on the "
        "test part where nothing is held out). Differences are means over seeds with the interval of a paired t test "
        f"at {100 * LEVEL:g} % for all {tests()} tests together (Sidak: {100 * level():.2f} % each).",
        "\n".join(f"- **{verdict}**: {meaning}" for verdict, meaning in VERDICTS.items()),
        "## Claims",
        markdown_table(
            ["claim", "printed", "where", "regime", "row", "against", "column", "margin"],
            [
                [c.says, c.printed, c.source, c.regime, c.method, c.other, c.column, _margin(c.margin, c.equal)]
                for c in CLAIMS
            ],
        ),
        "## What it takes",
        _price(),
        *(part for regime in REGIMES.values() for part in _regime(regime)),
    ]
    return "\n\n".join(parts) + "\n"


def _spare(spare: bool) -> str:
    return ", ".join(name for name, regime in REGIMES.items() if regime.spare == spare)


def _margin(margin: float, equal: bool) -> str:
    return f"{margin:g}{' (as good as)' * equal}"


def _price() -> str:
    rows = []
    for regime in REGIMES.values():
        for what, own in (("claims", regime.rows), ("sweeps", regime.sweeps), ("trials", regime.trials)):
            if own:
                planned = plan(Run(rows=own), rate=regime.rate)
                rows.append([regime.name, what, str(planned.cells), f"{regime.rate:g}", f"{planned.hours:.2f}"])
    total = sum(float(row[-1]) for row in rows)
    table = markdown_table(["regime", "for", "cells", "GMAC/s", "hours of one core"], rows)
    return (
        f"{table}\n\n{total:.1f} hours of one core in all. Hours are the mult-adds of training over a rate that a few "
        "epochs of one or two cells gave on one core; early stopping (R6, R7) makes them an upper bound."
    )


def hours(regime: Regime, rows: Sequence[Row]) -> float:
    """Of one core, for some of a regime's rows."""
    return plan(Run(rows=tuple(rows)), rate=regime.rate).hours


def _regime(regime: Regime) -> list[str]:
    common = dict(set.intersection(*(set(_settings(row).items()) for row in regime.every)))
    names = list(dict.fromkeys(name for row in regime.every for name in _settings(row) if name not in common))
    tables = [
        (
            title,
            markdown_table(["row", *names], [[r.label, *(_settings(r).get(name, "") for name in names)] for r in own]),
        )
        for title, own in zip(("", SWEEPS, TRIALS), (regime.rows, regime.sweeps, regime.trials), strict=True)
        if own
    ]
    return [
        f"## {regime.name}: {regime.title}",
        regime.why,
        "; ".join(f"{name} {value}" for name, value in sorted(common.items()) if value),
        *(part for titled in tables for part in titled if part),
    ]


def _settings(row: Row) -> dict[str, str]:
    """Everything about a row in words."""
    fields = ", ".join(f"{k}={v}" for k, v in row.method.as_dict().items() if k != "name")
    of_row = {
        "data": row.source,
        "OOD data": "+".join(row.ood),
        "corruptions": "+".join(row.shift),
        "seeds": f"{min(row.seeds)} to {max(row.seeds)}",
    }
    return {"method": f"{row.method.name}({fields})", "network": row.model, **of_row} | {
        name: str(value) for name, value in row.recipe.items()
    }
