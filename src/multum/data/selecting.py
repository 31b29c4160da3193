"""Data with some of its classes or examples: what `#hold_out=`, `#only=`, `#first=` and `#test=` choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..errors import DataError, did_you_mean
from .names import with_selection
from .parts import Data, Part
from .standards import standards

__all__ = ["first_examples", "number_of", "selected"]

MOST_DIGITS = 18  # of a number of examples: Python refuses to read thousands of digits


def selected(data: Data, choice: str, classes: Sequence[str]) -> Data:
    """The data with `only` these classes, or with all but them ("hold_out"), labels numbered anew; classes by name."""
    if data.task != "classification":
        raise DataError(f"{choice} must be used on data with classes; got {data.name}, which is regression")
    known = data.class_names
    for name in classes:
        if name not in known:
            raise DataError(f"{choice} must name classes of {data.name}; got {name!r}. {did_you_mean(name, known)}")
    chosen = [k for k in range(data.outputs) if (known[k] in classes) == (choice == "only")]
    renumbered = torch.full((data.outputs,), -1)
    renumbered[chosen] = torch.arange(len(chosen))

    def of(part: Part) -> Part:
        rows = part.rows(renumbered[part.y] >= 0)
        return replace(rows, y=renumbered[rows.y])

    train, test = of(data.train), of(data.test)
    if len(train) == 0:
        raise DataError(
            f"{choice} must leave examples to train on; got {choice}={'+'.join(classes)}, which leaves none"
        )
    names = tuple(known[k] for k in chosen)
    changes = {"outputs": len(chosen), "classes": names, "validation": data.validation and of(data.validation)}
    return _with_parts(data, with_selection(data.name, choice, classes), train, test, **changes)


def first_examples(data: Data, choice: str, number: str) -> Data:
    """The data with its "first" training examples alone, standardised by them; or with its first "test" examples."""
    chosen = data.test if choice == "test" else data.train
    part = chosen.rows(torch.arange(min(number_of(choice, number), len(chosen))))
    name = with_selection(data.name, choice, [number])
    if choice == "test":
        return _with_parts(data, name, data.train, part)
    lost = {*data.train.y.tolist()} - {*part.y.tolist()} if data.task == "classification" else ()
    if lost:
        words = ", ".join(data.class_names[k] for k in sorted(lost)[:3])
        raise DataError(
            f"the first examples must have all classes; got first={number} of {data.name}, which has none of {words}. "
            "Take more, or shuffle the file"
        )
    return _with_parts(data, name, part, data.test)


def number_of(choice: str, number: str) -> int:
    """How many examples a name asks for."""
    if not number.isdecimal() or len(number) > MOST_DIGITS or int(number) < 1:
        raise DataError(f"{choice}=N must be a number of examples, 1 or more; got {choice}={number[:40]}")
    return int(number)


def _with_parts(data: Data, name: str, train: Part, test: Part, **changes: Any) -> Data:
    """The data with other parts, standardised by its training part if that is another one."""
    if data.mean is not None and train is not data.train:
        changes |= standards(train, data.task, data.table)
    if data.table is not None:
        classes = changes.get("classes", data.table.classes)
        changes["table"] = replace(data.table, classes=classes, rows=(len(train), len(test)))
    return replace(data, name=name, train=train, test=test, **changes)
