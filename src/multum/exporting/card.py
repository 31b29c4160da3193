"""A model card: what a trained run is, what it was trained on, what it is worth and where it ends, in one README.md.

The layout is the Hugging Face hub's: YAML before the text, so that the folder can be pushed as it is. Numbers come from
the run's own test part; each with its 95 % interval over test examples where it is a mean over them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.preparation import Preparation
from ..data.sources import Data
from ..ensemble import Ensemble
from ..errors import MultumError, first_line
from ..figures.figure import svg
from ..figures.formats import markdown_table, shown
from ..files import write_text
from ..metrics.cost import Cost, cost
from ..metrics.evaluate import Measured, measure
from ..metrics.registry import METRICS, Metric
from ..metrics.statistics import over_seeds
from ..reports.charts import CHARTS
from ..reports.view import View
from ..runs.folder import RunFolder, open_run
from ..runs.recorded import own_test_part
from ..version import __version__
from .describing import public_name, reading

__all__ = ["write_card"]

FIGURES = {"classification": "reliability", "regression": "quantiles"}


@dataclass(frozen=True, eq=False)
class _Subject:
    """What a card is about."""

    ensemble: Ensemble
    data: Preparation
    run: Mapping[str, Any]
    spent: Cost
    measured: Measured | None  # None: the data is not there
    why: str  # it is not

    @property
    def title(self) -> str:
        return f"{self.ensemble.method.name} on {public_name(self.run['data'])}"


def write_card(folder: str | Path, to: str | Path | None = None) -> Path:
    """Write README.md and its figure; the path of the former.

    Args:
        folder: of the run.
        to: the folder to write to, or a Markdown file; None: the run's own.
    """
    place = Path(folder) if to is None else Path(to)
    page = place if place.suffix == ".md" else place / "README.md"
    subject = _subject(Path(folder))
    figure = _figure(subject)
    picture = page.with_name(f"{'' if page.name == 'README.md' else page.stem + '-'}{FIGURES[subject.data.task]}.svg")
    if figure is not None:
        write_text(picture, figure)
    parts = [_front_matter(subject), *_text(subject, picture.name if figure is not None else None)]
    write_text(page, "\n\n".join(parts) + "\n")
    return page


def _subject(folder: Path) -> _Subject:
    ensemble, data, run = open_run(folder)
    spent = cost(ensemble, example=data.example())
    try:
        part = own_test_part(RunFolder(folder), run, data)
    except MultumError as error:
        return _Subject(ensemble, data, run, spent, None, first_line(error))
    held_out = RunFolder(folder).validation()
    return _Subject(ensemble, data, run, spent, measure(ensemble, Data.of(data, part), held_out=held_out), "")


def _figure(subject: _Subject) -> str | None:
    """The reliability diagram, or a regression's quantiles."""
    if subject.measured is None:
        return None
    label = subject.ensemble.method.name
    row = {"label": label, "status": "done", "values": {}}
    cell = {"label": label, "status": "done", "curves": subject.measured.curves}
    document = {"task": subject.data.task, "columns": [], "rows": [row], "cells": [cell]}
    figure = CHARTS[FIGURES[subject.data.task]](View(document))
    return None if figure is None else svg(figure.plot(width=560))


def _front_matter(subject: _Subject) -> str:
    task = "regression" if subject.data.task == "regression" else "classification"
    kind = f"{'image' if subject.data.is_image else 'tabular'}-{task}"
    lines = ["library_name: multum", f"pipeline_tag: {kind}", "tags:"]
    lines += [f"- {tag}" for tag in ("multum", "ensemble", "uncertainty", subject.ensemble.method.name)]
    if subject.measured is not None:
        lines += ["model-index:", f"- name: {json.dumps(subject.title)}", "  results:"]
        lines += ["  - task:", f"      type: {kind}"]
        name = json.dumps(public_name(subject.run["data"]))
        lines += ["    dataset:", f"      name: {name}", f"      type: {name}", "      split: test", "    metrics:"]
        for metric, value, _ in (each for each in _numbers(subject) if each[0].better is not None):
            lines += [f"    - type: {metric.key}", f"      value: {value:.6g}"]
    return "\n".join(["---", *lines, "---"])


def _numbers(subject: _Subject) -> Iterator[tuple[Metric, float, float | None]]:
    """Every metric that was measured, its value, and half of its interval over test examples where it has one."""
    measured = subject.measured
    assert measured is not None
    for metric in METRICS:
        value = measured.numbers.get(metric.key)
        if not isinstance(value, float) or metric.task not in (None, subject.data.task):
            continue
        examples = measured.examples.get(metric.key)
        if examples is None or len(examples) < 2:
            yield metric, value, None
        else:
            low, high = over_seeds(examples.flatten()).interval()
            yield metric, value, (high - low) / 2


def _text(subject: _Subject, picture: str | None) -> Iterator[str]:
    ensemble, data = subject.ensemble, subject.data
    method = ", ".join(f"{name}={value}" for name, value in ensemble.method.as_dict().items() if name != "name")
    yield f"# {subject.title}"
    yield (
        f"An ensemble of {ensemble.members} members ({ensemble.method.name}: {method}) of "
        f"`{public_name(subject.run['model'])}`, trained by [multum](https://pypi.org/project/multum) {__version__}. "
        f"It gives {_given(data)}."
    )
    yield "## Data"
    yield _data(subject)
    yield "## Cost"
    yield markdown_table(
        ["parameters", "mult-adds of one prediction", "members"],
        [[f"{subject.spent.params:,}", f"{subject.spent.macs:,}", str(ensemble.members)]],
        "r",
    )
    yield "## What it is worth"
    yield from _worth(subject, picture)
    yield "## Intended use"
    yield _use(data)
    yield "## Limits"
    yield "\n".join(f"- {line}" for line in _limits(subject))


def _given(data: Preparation) -> str:
    if data.task == "regression":
        return "a mean, its aleatoric and epistemic variance, and an interval"
    return f"the probabilities of {data.outputs} classes, with the members' disagreement as its own uncertainty"


def _data(subject: _Subject) -> str:
    data, run = subject.data, subject.run
    lines = [f"`{public_name(run['data'])}`, fingerprint `{run.get('fingerprint', 'not recorded')}`."]
    if data.table is not None:
        lines.append(data.table.describe())
    lines.append(f"An exported file takes {reading(data)}.")
    if data.classes:
        counts = [f"{name} ({count:.0f})" for name, count in zip(data.classes, data.counts, strict=False)]
        lines.append(f"Classes, with their training examples: {', '.join(counts or data.classes)}.")
    return "\n\n".join(lines)


def _worth(subject: _Subject, picture: str | None) -> Iterator[str]:
    if subject.measured is None:
        yield f"Not measured here: {subject.why}."
        return
    rows = []
    for metric, value, half in _numbers(subject):
        text = shown({"mean": value, "error": half}, {"unit": metric.unit})
        rows.append([metric.title, text, f"{metric.better} is better" if metric.better else "", metric.help])
    examples = subject.measured.numbers["examples"]
    yield f"On {examples} test examples; ± is half of a 95 % interval over them, for what is a mean over examples."
    yield markdown_table(["metric", "value", "", "what it is"], rows, "lrll")
    if picture is not None:
        yield f"![{FIGURES[subject.data.task]}]({picture})"


def _use(data: Preparation) -> str:
    what = "images like those of its training part" if data.is_image else "rows like those of its training part"
    return (
        f"Predictions for {what}, together with their uncertainty: answer where it is low, and pass on to a person, or "
        "to a larger model, where it is not. Thresholds for that are fitted on held-out examples (`multum predict "
        "--coverage`, `--risk`, `--conformal`)."
    )


def _limits(subject: _Subject) -> Iterator[str]:
    yield "Every number above is of test examples drawn like the training part; on other data it says nothing."
    yield "Conformal sets and abstention keep their promise for examples exchangeable with the held-out ones alone."
    yield "Whether the model treats groups of people alike was not measured."
    if subject.data.table is not None:
        yield "Categories that training never saw are read as none of the known ones; their answers are extrapolations."
    if subject.run["recipe"]["epochs"] and subject.run.get("last") is not None:
        yield f"Trained once, with seed {subject.run['recipe']['seed']}; another seed gives another model."
