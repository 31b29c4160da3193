"""The bars that multum's speed is held to: each is measured in one process, interleaved, beside what it is compared to.

    make bench                                                  sets up .venv-bench, where the peers live
    .venv-bench/bin/python benchmarks/bars.py                   all bars that are not measured yet, and the table
    .venv-bench/bin/python benchmarks/bars.py --only packed-peer-inference-16 --again
    .venv-bench/bin/python benchmarks/bars.py --list

Results are kept in docs/benchmarks.json after every bar, with the machine and the versions; the table of
docs/benchmarks.md is written from them. A value is the median over rounds of the ratio within a round, with quartiles.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import multum
from multum.benching.bench import Timed, shuffled
from multum.benching.memory import peak_memory
from multum.benching.peers import installed_versions
from multum.benching.setting import Setting
from multum.benching.subjects import INFERENCE, NETWORK, OPTIMIZED, RECOMPUTED, TRAINING, Subject, Workshop
from multum.errors import first_line
from multum.figures.formats import markdown_table
from multum.files import read_json, write_json, write_text
from multum.metrics.timing import in_turn, ratio, spread
from multum.optimizing.backends import BACKENDS
from multum.runs.machine import machine, versions

ROOT = Path(__file__).parents[1]
RESULTS, PAGE = ROOT / "docs" / "benchmarks.json", ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- bars: written by benchmarks/bars.py -->", "<!-- end of bars -->"
ROUNDS = 9

R18 = Setting("resnet18", (3, 32, 32))
HEAD_DROPOUT = Setting(f"{__file__}:dropout_before_head", (3, 32, 32))
MLP = Setting("mlp:hidden=256+256+256", (100,))
PACKED, DEEP = multum.Packed(members=4, alpha=2, gamma=1), multum.Deep(members=4)


def dropout_before_head(*, in_channels: int, classes: int) -> nn.Module:
    """ResNet-18 with dropout in one place, before its last layer."""
    network = multum.models.build("resnet18", in_channels=in_channels, classes=classes)
    network.fc = nn.Sequential(nn.Dropout(0.1), network.fc)
    return network


def ours(method: multum.methods.Method, way: str = "") -> Subject:
    return Subject(method.name, way, method)


@dataclass(frozen=True)
class Bar:
    """A ratio and its limit: the fastest of `above` over the fastest of `below`, which stand for what a user gets."""

    measure: str
    limit: float
    above: Sequence[Subject]
    below: Sequence[Subject] = (Subject(NETWORK),)
    setting: Setting = R18
    mode: str = INFERENCE
    batch: int = 16
    times: float = 1  # how many of `below`
    memory: bool = False


def bars() -> dict[str, Bar]:
    """Every bar by its name."""
    theirs = Subject("torch-uncertainty", "torch-uncertainty", PACKED, "torch-uncertainty")
    every: dict[str, Bar] = {}
    for mode in (INFERENCE, TRAINING):
        for batch in (1, 16, 64):
            what = f"Packed ResNet-18 / torch-uncertainty's, {mode}, batch {batch}"
            every[f"packed-peer-{mode}-{batch}"] = Bar(what, 1.0, [ours(PACKED)], [theirs], mode=mode, batch=batch)
    every["packed-inference"] = Bar("Packed ResNet-18 / one network, inference, eager", 1.10, [ours(PACKED)])
    for backend in BACKENDS:
        compiled = [ours(multum.Single(), backend)]
        what = f"Packed ResNet-18 / one network, inference, both by {backend}"
        every[f"packed-{backend}"] = Bar(what, 1.05, [ours(PACKED, backend)], compiled)
    every["packed-training"] = Bar("Packed ResNet-18 / one network, training step", 1.12, [ours(PACKED)], mode=TRAINING)
    every["deep"] = Bar("Deep(4) / 4 x one network, inference", 0.97, [ours(DEEP)], times=4)
    for method in (multum.BatchEnsemble(members=4), multum.Mixture(members=4), multum.Hypernet(members=4)):
        what = f"{type(method).__name__}(4) optimized / Deep(4), inference"
        every[f"{method.name}-optimized"] = Bar(what, 1.0, [ours(method, "optimized")], [ours(DEEP)])
    dropout = multum.McDropout(members=4)
    every["mcdropout"] = Bar("MC dropout, 4 samples, optimized / one network", 4.0, [ours(dropout, "optimized")])
    what = "MC dropout, 4 samples, dropout before the head alone, optimized / one network"
    every["mcdropout-head"] = Bar(what, 1.3, [ours(dropout, "optimized")], setting=HEAD_DROPOUT)
    every["mimo"] = Bar("Mimo(3) / one network, inference", 1.03, [ours(multum.Mimo(members=3))])
    every["multihead"] = Bar("Multihead(4) / one network, inference", 1.03, [ours(multum.Multihead(members=4))])
    tabular = multum.BatchEnsemble(members=32)
    what = "BatchEnsemble k=32 of an MLP 3x256 / tabm, training step, batch 256"
    tabm = Subject("tabm", "tabm", tabular, "tabm")
    every["tabm"] = Bar(what, 0.60, [ours(tabular)], [tabm], setting=MLP, mode=TRAINING, batch=256)
    ways = [ours(multum.Single(), way) for way in (OPTIMIZED, *BACKENDS)]
    every["one-network-optimized"] = Bar("One network by the fastest way of multum.optimize / torch eager", 0.7, ways)
    what = "Peak memory of a training step, Packed ResNet-18{} / one network, batch {}"
    for suffix, words, way in (("", "", ""), ("-recomputed", " with recompute=True", RECOMPUTED)):
        for batch in (16, 64):
            bar = Bar(what.format(words, batch), 1.2, [ours(PACKED, way)], mode=TRAINING, batch=batch, memory=True)
            every[f"packed-memory-{batch}{suffix}"] = bar
    return every


def measured(bar: Bar, rounds: int) -> dict[str, Any]:
    """The ratio with its spread, and the seconds (or bytes) of everything that was measured for it."""
    subjects = [*bar.above, *bar.below]
    if bar.memory:
        threads = torch.get_num_threads()
        peaks = [[peak_memory(bar.setting, s, bar.mode, bar.batch, threads) for s in subjects] for _ in range(3)]
        ratios = [above / below for above, below in peaks]  # type: ignore[operator]
        rows = {_label(s): list(values) for s, values in zip(subjects, zip(*peaks, strict=True), strict=True)}
        return {"value": dataclasses.asdict(spread(ratios)), "bytes": rows}
    workshop, timed, refused = Workshop(bar.setting), {}, {}
    for subject in subjects:
        try:
            timed[subject] = Timed(workshop.call(subject, bar.mode, bar.batch))
        except Exception as error:  # any library may fail in its own way: the bar says how
            refused[_label(subject)] = f"{type(error).__name__}: {first_line(error)}"
    times = in_turn(timed, rounds, shuffled(0))
    best = [
        min((s for s in part if s in times), key=lambda s: spread(times[s]).median, default=None)
        for part in (bar.above, bar.below)
    ]
    rows = {_label(s): dataclasses.asdict(spread(seconds)) for s, seconds in times.items()}
    if None in best:
        return {"value": None, "seconds": rows, "refused": refused}
    found = ratio(times[best[0]], [bar.times * seconds for seconds in times[best[1]]])
    return {"value": dataclasses.asdict(found), "of": _label(best[0]), "seconds": rows, "refused": refused}


def _label(subject: Subject) -> str:
    return f"{subject.name}, {subject.way}" if subject.way else subject.name


def table(results: Mapping[str, Any]) -> str:
    """The bars as Markdown."""
    rows = []
    for name, bar in bars().items():
        entry = results["bars"].get(name)
        value = (entry or {}).get("value")
        if value is None:
            reasons = "; ".join((entry or {}).get("refused", {}).values()) or "not measured yet"
            rows.append([bar.measure, f"<= {bar.limit:.2f}", "-", "-", reasons])
            continue
        verdict = (
            "yes" if value["median"] <= bar.limit else "within the spread" if value["lower"] <= bar.limit else "no"
        )
        spreads = f"{value['lower']:.2f}-{value['upper']:.2f}"
        rows.append([bar.measure, f"<= {bar.limit:.2f}", f"{value['median']:.2f}", spreads, verdict])
    where, numbers = results["machine"], results["versions"]
    rounds = {entry.get("rounds", ROUNDS) for entry in results["bars"].values()} or {ROUNDS}
    often = f"{min(rounds)} to {max(rounds)}" if len(rounds) > 1 else str(*rounds)
    stated = [
        f"{where['processor']}, {where['cores']} cores ({', '.join(where['flags'])}), {results['threads']} threads; "
        f"{often} rounds; {', '.join(f'{name} {version}' for name, version in numbers.items())}.",
    ]
    return "\n\n".join([markdown_table(["measure", "bar", "median", "quartiles", "met"], rows, "llrrl"), *stated])


def write_page(measured: str, begin: str = BEGIN, end: str = END) -> None:
    """Put what was measured where the page keeps it."""
    text = PAGE.read_text()
    before, after = text.partition(begin)[0], text.partition(end)[2]
    write_text(PAGE, f"{before}{begin}\n\n{measured}\n\n{end}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="BAR", help="these bars alone")
    parser.add_argument("--again", action="store_true", help="also those that are measured already")
    parser.add_argument("--list", action="store_true", help="the names of the bars, and whether each is measured")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no bar after so many")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    every = bars()
    about = {"machine": machine(), "versions": {**versions(), **installed_versions()}, "threads": options.threads}
    before = read_json(RESULTS) if RESULTS.is_file() else {}
    same = all(before.get(name) == value for name, value in about.items())
    results = {**about, "bars": before["bars"] if same else {}}
    if unknown := {*(options.only or ())} - every.keys():
        parser.error(f"--only must name bars of --list; got {', '.join(sorted(unknown))}")
    if options.list:
        for name in every:
            print(f"{name:<28} {'measured' if name in results['bars'] else '-'}")
        return 0
    multum.keep_memory()
    torch.set_num_threads(options.threads)
    began = time.monotonic()
    for name in options.only or every:
        if (name in results["bars"] and not options.again) or time.monotonic() - began > 60 * options.minutes:
            continue
        entry = measured(every[name], options.rounds)
        entry["rounds"] = options.rounds
        entry["created"] = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        results["bars"][name] = entry
        write_json(RESULTS, results)
        value = entry["value"]
        shown = f"{value['median']:.3f} ({value['lower']:.3f}-{value['upper']:.3f})" if value else entry["refused"]
        print(f"{name:<28} {shown}  bar {every[name].limit}", flush=True)
    write_page(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
