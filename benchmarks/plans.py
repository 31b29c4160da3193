"""Budgets that force each method in turn: docs/results/plans.md, from plans.json beside it.

Run: `python benchmarks/plans.py`. Nothing is timed or trained: for each method, of its configs with 4 members the one
with the fewest mult-adds; the limits are what it costs, as a user would write them; and every candidate of the plan is
held to them as `multum.plan` holds it. With --page, the page again from the JSON.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import multum
from multum.figures.formats import markdown_table
from multum.files import read_json, write_json, write_text
from multum.plans.limits import Limits
from multum.plans.plan import Plan

OUT = Path("docs/results/plans.json")
MEMBERS = 4
COSTS = ("params", "macs", "memory")
NETWORKS: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "resnet18": ({"classes": 10}, (1, 3, 32, 32)),
    "mlp": ({"in_features": 32, "classes": 10, "hidden": [256, 256, 256]}, (1, 32)),
}
ABOUT = """# Budgets that force each method

For each method, the limits that its cheapest ensemble of 4 members just keeps, in units of one network, as
`multum plan --params --macs --memory` takes them; and which methods a plan with these limits has left. *Largest* is
what costs the most mult-adds of those: the method itself, or one of the same cost. Where methods cost the same (those
whose members are whole networks), no budget can tell them apart: a [comparison](compare.md) does.
`python benchmarks/plans.py` counts it; nothing is timed.
"""


def costs_of(candidate: Any) -> dict[str, float]:
    return {name: float(getattr(candidate.counts, name)) for name in COSTS}


def as_written(value: float, single: float) -> str:
    """A limit of so many times one network, rounded up."""
    return f"{math.ceil(1000 * value / single) / 1000:g}x"


def rows_of(planned: Plan) -> list[dict[str, Any]]:
    single = costs_of(planned.single)
    counted = [c for c in planned if c.counts is not None and c.width == 1]
    rows = []
    for name in multum.methods.METHODS:
        own = [c for c in counted if c.method.name == name]
        if not own:
            continue
        mine = min(own, key=lambda c: c.counts.macs)
        texts = {cost: as_written(value, single[cost]) for cost, value in costs_of(mine).items()}
        limits = Limits.parse(single, **texts)
        left = [c for c in counted if limits.broken(**costs_of(c)) is None]
        most = max(c.counts.macs for c in left)
        largest = sorted({c.method.name for c in left if c.counts.macs >= 0.99 * most})
        row = {"method": name, "config": mine.label, "limits": texts}
        rows.append(row | {"left": sorted({c.method.name for c in left}), "largest": largest})
    return rows


def page_of(results: Mapping[str, Any]) -> str:
    """The page, from what plans.json holds."""
    parts = [ABOUT]
    for network, rows in results.items():
        head = ["to get", "parameters", "mult-adds", "memory", "largest", "also left"]
        lines = [
            [
                *(f"`{row['config']}`", *row["limits"].values(), ", ".join(row["largest"])),
                ", ".join(name for name in row["left"] if name not in row["largest"]),
            ]
            for row in rows
        ]
        parts += [f"## {network}\n", markdown_table(head, lines, align="lrrrll") + "\n"]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--page", action="store_true", help="write the page again, and count nothing")
    options = parser.parse_args()
    if not options.page:
        results = {}
        for name, (keywords, shape) in NETWORKS.items():
            network = multum.models.build(name, **keywords)
            planned = multum.plan(network, example=torch.zeros(shape), members=(MEMBERS,), seconds=0)
            results[name] = rows_of(planned)
        write_json(options.out, results)
    write_text(options.out.with_suffix(".md"), page_of(read_json(options.out)))


if __name__ == "__main__":
    main()
