"""How the cost of Packed-Ensembles grows, at the parameters of one network: with members, batch and image.

    python benchmarks/growth.py                     every point that is not measured yet, then the figure
    python benchmarks/growth.py --only members      one axis alone; --minutes 2 begins no point after two

ResNet-18 for CIFAR with alpha = sqrt(M), in units of one network of the same round: time of an optimized pass and of a
training step, peak memory of the latter, and what a plain pass spends on convolutions, on norms and on the rest
(torch.profiler), which says why a curve bends. Points are kept in docs/growth.json as they come; docs/growth.svg and
the table of docs/benchmarks.md come from it.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from bars import write_page
from torch.profiler import ProfilerActivity, profile

import multum
from multum.benching.bench import bench
from multum.benching.peers import installed_versions
from multum.benching.setting import Setting
from multum.benching.subjects import AUTO, INFERENCE, NETWORK, OPTIMIZED, TRAINING, Subject, Workshop
from multum.figures.figure import svg
from multum.figures.formats import markdown_table
from multum.figures.palette import HUES, MUTED, drawing
from multum.figures.panels import log_axis, multiples
from multum.files import read_json, write_json, write_text
from multum.runs.machine import machine, versions

ROOT = Path(__file__).parents[1]
RESULTS, PICTURE = ROOT / "docs" / "growth.json", ROOT / "docs" / "growth.svg"
BEGIN, END = "<!-- growth: written by benchmarks/growth.py -->", "<!-- end of growth -->"
ROUNDS, BATCH = 5, 16
AXES = {"members": "members M, alpha = sqrt(M)", "batch": "batch", "image": "pixels of a side"}
VALUES = {"members": (1, 2, 4, 8, 16, 32), "batch": (1, 16, 64, 256, 512), "image": (32, 96, 224)}
MODES = (INFERENCE, TRAINING)
KINDS = {"convolution": ("conv", "mkldnn"), "norm": ("batch_norm",)}  # parts of the names of torch's operators


class Point(NamedTuple):
    """One measurement: an axis, its value, and the settings that it stands for."""

    axis: str
    value: int

    @property
    def method(self) -> multum.Packed:
        members = self.value if self.axis == "members" else 4
        return multum.Packed(members=members, alpha=math.sqrt(members))

    @property
    def batch(self) -> int:
        return self.value if self.axis == "batch" else 2 if self.axis == "image" else BATCH

    @property
    def side(self) -> int:
        return self.value if self.axis == "image" else 32

    @property
    def name(self) -> str:
        return f"{self.axis} {self.value}"


def points(axes: list[str]) -> Iterator[Point]:
    """The points of these axes."""
    return itertools.chain.from_iterable((Point(axis, value) for value in VALUES[axis]) for axis in axes)


def measured(point: Point, threads: int) -> dict[str, Any]:
    """Time and memory of each mode in units of one network, and the shares of a pass."""
    shape = (3, point.side, point.side)
    options: dict[str, Any] = {"shape": shape, "batch": (point.batch,), "rounds": ROUNDS, "threads": threads}
    found = {}
    for mode in MODES:
        training = mode == TRAINING  # at inference it is the optimized ensemble that is shipped
        document = bench("resnet18", methods=[point.method], executors=AUTO, mode=(mode,), memory=training, **options)
        (row,) = (row for row in document["rows"] if row["name"] != NETWORK and (training or row["way"] == OPTIMIZED))
        found[mode] = {key: row[key] for key in ("seconds", "ratio", "memory", "memory_ratio") if key in row}
    return {**found, "shares": shares(Setting("resnet18", shape), point)}


def shares(setting: Setting, point: Point) -> dict[str, dict[str, float]]:
    """Milliseconds of a pass by kind of operator, of one network and of the ensemble."""
    workshop, spent = Workshop(setting), {}
    for subject in (Subject(NETWORK), Subject("packed", AUTO, point.method)):
        call = workshop.call(subject, INFERENCE, point.batch)
        call.prepare()
        call.run()
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            call.run()
        spent[subject.name] = dict.fromkeys([*KINDS, "the rest"], 0.0)
        for event in seen.key_averages():
            kind = next((k for k, words in KINDS.items() if any(word in event.key for word in words)), "the rest")
            spent[subject.name][kind] += event.self_cpu_time_total / 1000
    return spent


def figure(found: Mapping[str, Any]) -> str:
    """A panel for each axis that has points: time of a pass and of a step, and memory of a step, by one network's."""
    shown = [axis for axis in AXES if any(f"{axis} {value}" in found for value in VALUES[axis])]
    with drawing():
        canvas, panels = multiples(
            [AXES[axis] for axis in shown],
            [""] * len(shown),
            360 * len(shown),
            x="",
            y="in units of one network",
            shared=False,
            most=330,
        )
        lines = (
            ("optimized inference, time", INFERENCE, lambda row: row["ratio"]["median"], HUES[0], "-"),
            ("training step, time", TRAINING, lambda row: row["ratio"]["median"], HUES[1], "-"),
            ("training step, peak memory", TRAINING, lambda row: row["memory_ratio"], HUES[2], (0, (3, 2))),
        )
        for axis, axes in zip(shown, panels, strict=True):
            own = {value: found[f"{axis} {value}"] for value in VALUES[axis] if f"{axis} {value}" in found}
            for label, mode, number, colour, style in lines:
                at = [(value, number(row[mode])) for value, row in own.items()]
                axes.plot(*zip(*at, strict=True), color=colour, ls=style, marker="o", ms=4, label=label)
            axes.axhline(1, color=MUTED, lw=1, ls=(0, (1, 2)))
            log_axis(axes, "x", min(VALUES[axis]) / 1.1, max(VALUES[axis]) * 1.1)
            axes.xaxis.set_ticks(VALUES[axis], [str(value) for value in VALUES[axis]])
            axes.set_ylim(0, None)
            axes.tick_params(labelleft=True)
        panels[0].legend(frameon=False, fontsize=10)
        return svg(canvas)


def table(found: Mapping[str, Any]) -> str:
    """The points as Markdown."""
    rows = []
    for point in points(list(AXES)):
        row = found.get(point.name)
        if row is None:
            continue
        times = [row[mode]["ratio"] for mode in MODES]
        cells = [f"{t['median']:.2f} ({t['lower']:.2f}-{t['upper']:.2f})" for t in times]
        cells.append(f"{row[TRAINING]['memory_ratio']:.2f}")
        one, packed = row["shares"].values()
        cells += [f"{one[kind]:.1f} / {packed[kind]:.1f}" for kind in packed]
        rows.append([point.axis, str(point.value), *cells])
    head = ["axis", "value", "inference, optimized", "training", "memory, training"]
    return markdown_table([*head, "convolution ms", "norm ms", "rest ms"], rows, "lr")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no point after so many")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    about = {"machine": machine(), "versions": {**versions(), **installed_versions()}, "threads": options.threads}
    before = read_json(RESULTS) if RESULTS.is_file() else {}
    same = all(before.get(name) == value for name, value in about.items())
    results = {**about, "points": before["points"] if same else {}}
    multum.keep_memory()
    torch.set_num_threads(options.threads)
    waiting = [point for point in points(options.only) if point.name not in results["points"]]
    began = time.monotonic()
    for point in waiting:
        if time.monotonic() - began > 60 * options.minutes:
            break
        results["points"][point.name] = measured(point, options.threads)
        write_json(RESULTS, results)
        print(
            point.name, {m: row["ratio"]["median"] for m, row in results["points"][point.name].items() if m != "shares"}
        )
    if results["points"]:
        write_text(PICTURE, figure(results["points"]))
        write_page(table(results["points"]), BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
