"""Predict what is in a file with a trained run: one row per example, with its uncertainty and whether to abstain.

    classification   label, confidence, entropy and mutual_information in nats
    regression       mean, std, aleatoric and epistemic (variances: they add up to std^2), low, high; of several targets
                     mean_A, std_A, ... for each, without abstention
    abstain          with a coverage or a risk
    set, set_size    with a conformal level: classes that hold the true one with that probability, joined by |
    conformal_low, conformal_high     the same of a regression
    p_CLASS          the probability of every class
    member0_...      what each member says: p_CLASS, or mean and variance

The run folder is all that is needed. Which files can be predicted: examples.py; what is fitted on what: held_out.py.
Frames of rows come one after another, so that a file of any length takes the memory of a few thousand examples.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO, TypeAlias

import pandas as pd
from rich.progress import Progress
from rich.table import Table

from ..checks import needed
from ..errors import DataError, TrainingError
from ..figures.formats import text_table
from ..files import atomic, plain
from ..metrics.streams import all_outputs_of
from .answers import answers, columns
from .examples import read_examples
from .folder import RunFolder, open_model
from .held_out import fit_rules, held_out

AT_ONCE = 8  # batches of a frame

Frames: TypeAlias = pd.DataFrame | Iterable[pd.DataFrame]


def predict_run(folder: str | Path, file: str | Path, **options: Any) -> pd.DataFrame:
    """One row per example of a file, predicted by a finished run, in one frame; options as of `predict_frames`."""
    frames = list(predict_frames(folder, file, **options))
    whole = pd.concat(frames, ignore_index=True)
    whole.attrs = frames[0].attrs
    return whole


def predict_frames(
    folder: str | Path,
    file: str | Path,
    *,
    coverage: float | None = None,
    risk: float | None = None,
    delta: float | None = None,
    temperature: bool = False,
    conformal: float | None = None,
    threshold: str | None = None,
    level: float = 0.95,
    probabilities: bool = False,
    members: bool = False,
    batch_size: int = 512,
    progress: bool = True,
) -> Iterator[pd.DataFrame]:
    """The predictions of a file, frame after frame, each made when it is asked for.

    Args:
        coverage: the share of examples to answer; the others, the least certain ones, get abstain=True.
        risk: the share of wrong answers to stay below; as many examples as that allows are answered.
        delta: the probability with which the risk may be missed on new examples; None: it holds on those fitted to.
        temperature: whether classifiers are calibrated first.
        conformal: the probability with which sets or intervals hold the truth, for examples like the held-out ones.
        threshold: of two classes, what labels are best for: f1, balanced_accuracy, or cost=20 where a missed positive
            costs as much as 20 false alarms; fitted on the validation part. None: the likelier class.
        level: of the intervals (low, high) that a regression itself gives.
        probabilities: whether the probability of every class has a column.
        members: whether every member's outputs have columns.

    `folder` may also be a saved model, which has no held-out examples to fit anything on.
    `frame.attrs` holds the rules of "abstention", "conformal" and "threshold" and the "temperature", where they are.
    """
    folder = Path(folder)
    if folder.is_file() and (folder.parent / "run.json").is_file():
        folder = folder.parent
    ens, preparation, run = open_model(folder)
    asked = {"coverage": coverage, "risk": risk, "conformal": conformal, "threshold": threshold}
    asked["temperature"] = temperature or None
    for name in (n for n, value in asked.items() if value is not None and not run):
        raise TrainingError(
            f"`{name}` must be fitted on what a run held out; got a model file alone, {folder}. Give the run folder"
        )
    for name, asked_for in {"coverage": coverage, "conformal": conformal}.items():
        if (preparation.targets_count or 1) > 1 and asked_for is not None:
            raise TrainingError(f"`{name}` must be for one target; got {preparation.targets_count}. Leave it out")
    examples = read_examples(Path(file), preparation, AT_ONCE * batch_size)
    rules = fit_rules(
        partial(held_out, RunFolder(folder), run, preparation, ens),
        preparation,
        coverage=coverage,
        risk=risk,
        delta=delta,
        temperature=temperature or "temperature" in run,  # trained with one
        conformal=conformal,
        threshold=threshold,
    )
    with Progress(disable=not progress) as bar:
        task = bar.add_task("predicting", total=examples.count)
        advance = partial(bar.advance, task)
        for names, x in examples.pieces:
            prediction = rules.read(all_outputs_of(ens, preparation, x, batch_size, advance), preparation.task)
            values = answers(prediction, rules, positive=preparation.positive, level=level, members=members)
            table = columns(values, preparation, probabilities=probabilities)
            frame = pd.DataFrame({"example": names, **table})
            frame.attrs = rules.described()
            yield frame


def summary(frame: pd.DataFrame) -> str:
    """What was predicted, in one line."""
    return _summary(len(frame), _answered(frame), frame.attrs)


def _answered(frame: pd.DataFrame) -> int:
    return int((~frame["abstain"]).sum()) if "abstain" in frame else 0


def _summary(count: int, answered: int, rules: Mapping[Any, Any]) -> str:
    text = f"{count} example{'s' * (count != 1)}"
    if "temperature" in rules:
        text += f", temperature {rules['temperature']:.3g}"
    if "threshold" in rules:
        rule = rules["threshold"]
        text += f", threshold {rule['threshold']:.4g} for the best {rule['by']}, fitted on {rule['fitted_on']}"
    if "conformal" in rules:
        rule = rules["conformal"]
        text += f", conformal at {1 - rule['alpha']:.4g}, fitted on {rule['fitted_on']}"
    if "abstention" not in rules:
        return text
    rule = rules["abstention"]
    fitted = f"coverage {rule['coverage']:.1%}" + ("" if math.isnan(rule["risk"]) else f", risk {rule['risk']:.1%}")
    return f"{text}, {answered} answered; threshold {rule['threshold']:.4g} fitted on {rule['fitted_on']}: {fitted}"


def table(frames: Frames, rows: int = 50) -> Table:
    """The first predictions for a terminal, and the summary below them."""
    first, count, answered = pd.DataFrame(), 0, 0
    for frame in _each(frames):
        first = frame.head(rows) if count == 0 else pd.concat([first, frame.head(rows - len(first))])
        first.attrs = frame.attrs
        count, answered = count + len(frame), answered + _answered(frame)
    align = ["l" if name in ("example", "label", "set") else "r" for name in first.columns]
    shown = text_table(list(first.columns), align=align, caption=_summary(count, answered, first.attrs))
    for row in first.itertuples(index=False):
        shown.add_row(
            *(f"{v:.4g}" if isinstance(v, float) else "yes" if v is True else "" if v is False else str(v) for v in row)
        )
    if count > rows:
        shown.add_row(f"and {count - rows} more", *("" for _ in first.columns[1:]))
    return shown


def write(frames: Frames, path: str | Path) -> str:
    """Write predictions to a .csv, .json (a list of rows) or .parquet file, whole or not at all; the summary."""
    path = Path(path)
    if path.suffix.lower() not in WRITERS:
        raise DataError(f"predictions must be written as .parquet, .csv or .json; got {path.name}. Rename the file")
    if not path.parent.is_dir():
        raise DataError(f"predictions must be written to a folder that exists; got {path.parent}. Make it first")
    count, answered, rules = 0, 0, {}

    def counted() -> Iterator[pd.DataFrame]:
        nonlocal count, answered, rules
        for frame in _each(frames):
            count, answered, rules = count + len(frame), answered + _answered(frame), frame.attrs
            yield frame

    with atomic(path) as temporary:
        WRITERS[path.suffix.lower()](counted(), temporary)
    return _summary(count, answered, rules)


def print_rows(frames: Frames, file: TextIO) -> None:
    """Write a JSON list of rows to a stream, each as it is predicted."""
    between = "[\n  "  # written with the first row, so that what fails before prints nothing
    for frame in _each(frames):
        for row in frame.to_dict("records"):
            file.write(between + json.dumps(plain(row), ensure_ascii=False))
            between = ",\n  "
    file.write("\n]\n")


def _each(frames: Frames) -> Iterable[pd.DataFrame]:
    return [frames] if isinstance(frames, pd.DataFrame) else frames


def _write_csv(frames: Iterable[pd.DataFrame], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        for i, frame in enumerate(frames):
            frame.to_csv(file, index=False, header=i == 0)


def _write_json(frames: Iterable[pd.DataFrame], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        print_rows(frames, file)


def _write_parquet(frames: Iterable[pd.DataFrame], path: Path) -> None:
    fix = "Install it: pip install 'multum[parquet]', or write .csv"
    pyarrow = needed("pyarrow", "parquet files must be written by pyarrow", fix, DataError)
    from pyarrow import parquet

    writer = None
    for frame in frames:
        rows = pyarrow.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
        writer = writer or parquet.ParquetWriter(path, rows.schema)
        writer.write_table(rows)
    if writer is not None:
        writer.close()


WRITERS: dict[str, Callable[[Iterable[pd.DataFrame], Path], None]] = {
    ".csv": _write_csv,
    ".json": _write_json,
    ".parquet": _write_parquet,
}
