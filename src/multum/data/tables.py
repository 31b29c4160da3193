"""Tables of the user's own: `csv:FILE#target=COLUMN`, or parquet by the file's ending or as `parquet:FILE#...`.

    target=COLUMN      what is predicted; rows without it are left out. target=A+B: several numbers at once
    task=...           classification or regression, where the guess is wrong
    test=FILE          rows to test on, of the same columns; else a share of 0.2 is held out, class by class
    drop=A+B           columns to leave out
    sep=;              what separates cells (`tab` too); else whichever of , ; | and tab gives the most columns
    decimal=,          the decimal mark, if it is not a point

The first line holds the names, and columns without one are left out; an empty cell, NA, NaN, null, ? and the like are
missing. What becomes of a column is the rule of columns.py, fitted on the training part alone. A target is classes if
it is text, true/false, or whole numbers of at most 20 values that occur twice on average; else it is regression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..errors import DataError, check_known, did_you_mean
from .big_frames import encoded, ids_of, read_table
from .columns import Column, as_numbers, as_words, decimal_commas, fit_columns, in_order, is_category, point_out
from .frames import check_columns, read_frames
from .names import listed, place_and_fields
from .parts import Data, Part, assembled, split

_NAMELESS = re.compile(r"Unnamed: \d+|")  # as pandas calls them: numbers of rows, more often than not
FIELDS = ("target", "task", "test", "drop", "sep", "decimal")
TASKS = ("classification", "regression")
FEWEST_ROWS = 10
MOST_WHOLE_NUMBERS = 20


@dataclass(frozen=True)
class Table:
    """How rows become examples, fitted on a training part."""

    file: Path
    targets: tuple[str, ...]
    task: str
    why: str  # the task was taken for what it is
    classes: tuple[str, ...]
    columns: tuple[Column, ...]
    left_out: dict[str, str]  # columns, and why
    rows: tuple[int, int]  # for training and for testing
    untargeted: int = 0  # rows left out because their target is missing
    notes: tuple[str, ...] = ()  # what a person should look at
    sep: str | None = None
    decimal: str = "."

    @property
    def target(self) -> str:
        """The target's name; A+B of several."""
        return "+".join(self.targets)

    @property
    def names(self) -> tuple[str, ...]:
        """One name per number of an encoded row."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def indicators(self) -> tuple[bool, ...]:
        """Which of them are zeros and ones."""
        return tuple(flag for column in self.columns for flag in column.indicators)

    def frames(self, path: Path, rows: int | None = None, *, parquet: bool = False) -> Iterator[pd.DataFrame]:
        """A file of rows written as the training file is, so many at a time; what was text in training stays text."""
        text = [c.name for c in self.columns if c.categories is not None and not {*c.categories} <= {"True", "False"}]
        return read_frames(path, self.sep, self.decimal, parquet=parquet, rows=rows, text=text)

    def encode(self, frame: pd.DataFrame) -> Tensor:
        """Rows as examples; other columns, such as the target, are ignored. Shape: [rows, len(names)], float64."""
        absent = [column.name for column in self.columns if column.name not in frame.columns]
        if absent:
            raise DataError(
                f"rows must have the columns of {self.file.name}; they lack {listed(absent)}. "
                + did_you_mean(absent[0], map(str, frame.columns))
            )
        return torch.from_numpy(np.concatenate([c.encode(frame[c.name]) for c in self.columns], axis=1))

    def ids(self, frame: pd.DataFrame) -> Tensor:
        """What tells rows apart: the cells that are used, as the file has them. Shape: int64 [rows]."""
        cells = {name: frame[name] for name in (*(column.name for column in self.columns), *self.targets)}
        for name, column in cells.items():
            if pd.api.types.is_numeric_dtype(column.dtype):  # 1 and 1.0 are one number
                cells[name] = pd.Series(as_numbers(column).values, column.index)
        hashes = pd.util.hash_pandas_object(pd.DataFrame(cells), index=False)
        return torch.from_numpy(hashes.to_numpy().view(np.int64).copy())

    def labelled(self, name: str, *, whole: bool, without: Sequence[str] = ()) -> list[Part]:
        """The rows with a target of `csv:FILE#...`, in this table's terms: of its test file if it has one, else all.

        Args:
            whole: of all its files, without the rows of classes that this table does not know; else these are refused.
            without: classes to leave out.
        """
        kind, _, rest = name.partition(":")
        place, fields = place_and_fields(rest, "a table", FIELDS)
        files = [place, fields["test"]] if whole and "test" in fields else [fields.get("test", place)]
        written = replace(self, sep=fields.get("sep", self.sep), decimal=fields.get("decimal", self.decimal))
        frames = [next(written.frames(Path(file).expanduser(), parquet=kind == "parquet")) for file in files]
        target = fields.get("target", self.target)
        return [self._part(frame, _columns(target, frame, "target"), whole, without) for frame in frames]

    def _part(self, frame: pd.DataFrame, targets: list[str], skip_unknown: bool, without: Sequence[str]) -> Part:
        if len(targets) != len(self.targets):
            raise DataError(f"data must have the run's targets, {listed(self.targets)}; got {listed(targets)}")
        frame = frame[frame[targets].notna().all(axis=1)]
        frame = frame.rename(columns=dict(zip(targets, self.targets, strict=True)))
        if self.classes:
            codes, words = as_words(frame[self.target])
            stays = [word not in without and (word in self.classes or not skip_unknown) for word in words]
            frame = frame[np.array([*stays, False])[codes]]
        return Part(self.encode(frame), _all_targets(frame[[*self.targets]], self.classes), self.ids(frame))

    def as_dict(self) -> dict[str, Any]:
        """In plain values; of the file, its name alone, which is what a person knows it by."""
        return {**asdict(self), "file": self.file.name}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Table:
        """What `as_dict` gave."""
        read = {**values, "file": Path(values["file"]), "columns": tuple(map(Column.from_dict, values["columns"]))}
        return cls(**read | {name: tuple(read[name]) for name in ("targets", "classes", "rows", "notes")})

    def describe(self) -> str:
        """What the file holds and what was guessed, for a person."""
        numbers = [c.name for c in self.columns if c.categories is None]
        kinds = [f"{c.name} ({len(c.categories)})" for c in self.columns if c.categories is not None]
        gaps = [c.name for c in self.columns if c.missing]
        into = f" into {len(self.classes)} classes ({listed(self.classes)})" if self.classes else ""
        parts = [
            f"{self.file.name}: {self.task} of {self.target!r}{into}, {self.why}",
            f"{self.rows[0]} rows for training and {self.rows[1]} for testing",
            f"{self.untargeted} rows without a target are left out" if self.untargeted else "",
            f"numbers ({len(numbers)}): {listed(numbers)}" if numbers else "",
            f"categories ({len(kinds)}): {listed(kinds)}" if kinds else "",
            f"cells are missing in {listed(gaps)}" if gaps else "no cell is missing in training",
            "left out: " + listed([f"{n} ({why})" for n, why in self.left_out.items()]) if self.left_out else "",
            f"{len(self.names)} inputs in all",
        ]
        return "\n".join(
            ["; ".join(part for part in parts if part) + ".", *(f"  look at {note}" for note in self.notes)]
        )


def load(place: str, name: str, seed: int) -> Data:
    """The data set of a table, with the `Table` that encodes further rows."""
    where, fields = place_and_fields(place, "a table", FIELDS)
    path = Path(where).expanduser()
    parquet = name.startswith("parquet:")
    sep, decimal = fields.get("sep"), fields.get("decimal", ".")
    frame = read_table(path, sep, decimal, parquet=parquet)
    if "target" not in fields:
        raise DataError(
            f"a table must have a target; got {name}. Add '#target=COLUMN', one of: {', '.join(frame.columns)}"
        )
    targets = _columns(fields["target"], frame, "target")
    dropped = _columns(fields["drop"], frame, "drop") if "drop" in fields else []
    if len(set(targets)) < len(targets):
        raise DataError(f"every target must be named once; got target={fields['target']}")
    if {*targets} & {*dropped}:
        raise DataError(f"drop must leave the target; got drop={fields['drop']}")
    nameless = [column for column in frame.columns if _NAMELESS.fullmatch(column) and column not in targets]
    left_out = dict.fromkeys(dropped, "dropped") | dict.fromkeys(nameless, "it has no name")
    frame = frame.drop(columns=[*left_out])
    for target in targets:
        _check_copies(target, frame)
    total, frame = len(frame), frame[frame[targets].notna().all(axis=1)]
    if len(frame) < FEWEST_ROWS:
        raise DataError(
            f"a table must have at least {FEWEST_ROWS} rows with a target; got {len(frame)} (of {total}) in {path}"
        )
    wanted = fields.get("task", "regression" if len(targets) > 1 else None)
    if wanted == "classification" and len(targets) > 1:
        raise DataError("several targets must be numbers; got task=classification. Choose one target")
    task, why = _task(frame[targets[0]], wanted)
    classes = _classes(frame[targets[0]]) if task == "classification" else ()
    y = _all_targets(frame[targets], classes)
    if "test" in fields:
        test_path = Path(fields["test"]).expanduser()
        test_frame = read_table(test_path, sep, decimal, parquet=parquet).drop(columns=[*left_out], errors="ignore")
        check_columns(test_path, test_frame, frame)
        total, test_frame = total + len(test_frame), test_frame[test_frame[targets].notna().all(axis=1)]
        test_y = _all_targets(test_frame[targets], classes)
    else:
        train, test = split(Part(torch.arange(len(y)), y), 0.2, seed, task)
        frame, test_frame, y, test_y = frame.iloc[train.x.numpy()], frame.iloc[test.x.numpy()], train.y, test.y
    columns, empty = fit_columns(path, frame.drop(columns=targets))
    table = Table(
        file=path,
        targets=tuple(targets),
        task=task,
        why=why,
        classes=classes,
        columns=columns,
        left_out=empty | left_out,
        rows=(len(frame), len(test_frame)),
        untargeted=total - len(frame) - len(test_frame),
        notes=tuple(filter(None, (point_out(name, frame[name]) for name in frame.columns if name not in targets))),
        sep=sep,
        decimal=decimal,
    )
    train_part = Part(encoded(table, frame), y, ids_of(table, frame))
    test_part = Part(encoded(table, test_frame), test_y, ids_of(table, test_frame))
    more: dict[str, Any] = {"target_names": tuple(targets) if len(targets) > 1 else (), "drawn": "test" not in fields}
    return assembled(name, task, train_part, test_part, classes=classes, table=table, **more)


def _columns(text: str, frame: pd.DataFrame, field: str) -> list[str]:
    """The columns that a field names, joined by +."""
    names = [text] if text in frame.columns else text.split("+")
    for name in names:
        if name not in frame.columns:
            alike = [column for column in frame.columns if column.lower() == name.lower()]
            hint = f"Did you mean {alike[0]}?" if alike else did_you_mean(name, frame.columns)
            raise DataError(f"{field} must name a column of the table, as its first line does; got {name!r}. {hint}")
    return names


def _check_copies(target: str, frame: pd.DataFrame) -> None:
    """Refuse a second column of the target's name: whoever knows the answer learns nothing."""
    copy = re.compile(rf"{re.escape(target)}(\.\d+)?", re.IGNORECASE)  # as pandas numbers columns of one name
    copies = [column for column in frame.columns if column != target and copy.fullmatch(column)]
    if copies:
        raise DataError(
            f"the target must be one column; got {listed([target, *copies])}. Leave the others out, "
            f"drop={'+'.join(copies)}, or rename them"
        )


def _task(target: pd.Series, wanted: str | None) -> tuple[str, str]:
    """The task, and why."""
    numbers = as_numbers(target)
    text = bool(numbers.text.any()) or is_category(target)
    if wanted is not None:
        check_known(wanted, TASKS, "task must be classification or regression", DataError)
        if wanted == "regression":
            numbers.check(str(target.name), target)
        return wanted, "as asked"
    if decimal_commas(target) and numbers.text.any():
        raise DataError(
            f"the target {target.name!r} must be classes or numbers; got text such as {target.iloc[0]}, which looks "
            "like numbers with decimal commas. Add decimal=, to the name, or task=classification"
        )
    if text:
        return "classification", "guessed because it is text or categories"
    numbers.check(str(target.name), target)
    different = np.unique(numbers.values)
    whole = bool((different == np.round(different)).all())
    if whole and len(different) <= min(MOST_WHOLE_NUMBERS, len(target) / 2):
        return "classification", f"guessed because it is whole numbers of {len(different)} values"
    return "regression", f"guessed because it is numbers of {len(different)} values"


def _classes(target: pd.Series) -> tuple[str, ...]:
    words = as_words(target)[1]
    if len(words) < 2:
        raise DataError(f"a target must have two classes; {target.name!r} is always {words[0]}. Choose another target")
    if len(words) > len(target) / 2:
        raise DataError(
            f"a class must occur twice on average; {target.name!r} has {len(words)} classes in {len(target)} rows. "
            "Choose another target, or task=regression where it is numbers"
        )
    return in_order(words)


def _all_targets(targets: pd.DataFrame, classes: tuple[str, ...]) -> Tensor:
    """Shape: [rows], or [rows, targets] of several."""
    each = [_targets(targets[name], classes) for name in targets.columns]
    return each[0] if len(each) == 1 else torch.stack(each, 1)


def _targets(target: pd.Series, classes: tuple[str, ...]) -> Tensor:
    """Shape: [rows], classes as int64, numbers as float64."""
    if not classes:
        numbers = as_numbers(target)
        numbers.check(str(target.name), target)
        return torch.tensor(numbers.values)
    codes, words = as_words(target)
    unseen = sorted(set(words) - set(classes))
    if unseen:
        raise DataError(
            f"every class must occur in the training part; {target.name!r} is {listed(unseen)} in the test file "
            "alone. Move some of these rows over, or leave them out"
        )
    place = np.array([classes.index(word) for word in words], dtype=np.int64)
    return torch.from_numpy(place[codes])
