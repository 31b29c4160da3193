"""The rows of a table inside a graph: cells as they come, to the numbers that a network was trained on.

number      its value, NaN where it is missing
category    text in ONNX, "" where it is missing; torch has no tensors of text and takes its place among the
            categories, len(categories) where it is missing, -1 where it is unknown
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.columns import Column
from ..data.tables import Table

__all__ = ["NOT_THERE", "TableCells", "cells_of", "codes_of_words", "words_of_cells"]

# What `pandas.read_csv` takes for a missing cell, and the question mark that multum adds.
NOT_THERE = ["", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A"]
NOT_THERE += ["NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?"]


class TableCells(nn.Module):
    """Cells to encoded rows, as `Table.encode` gives them. Shape: [batch, columns] -> [batch, len(names)], float64."""

    def __init__(self, table: Table):
        super().__init__()
        self.columns = table.columns

    def forward(self, cells: Tensor) -> Tensor:
        return torch.cat([_encoded(column, cells[:, i]) for i, column in enumerate(self.columns)], 1)


def _encoded(column: Column, cells: Tensor) -> Tensor:
    """Shape: [batch] -> [batch, len(names)]."""
    if column.categories is not None:
        places = torch.arange(len(column.names), dtype=cells.dtype, device=cells.device)
        return (cells.unsqueeze(1) == places).to(cells.dtype)
    missing = cells.isnan()
    values = torch.where(missing, column.median, cells)
    return torch.stack([values, missing.to(cells.dtype)] if column.missing else [values], 1)


def cells_of(table: Table, encoded: Tensor) -> Tensor:
    """The cells that encoded rows come from. Shape: [rows, len(names)] -> [rows, columns], float64."""
    cells, start = [], 0
    for column in table.columns:
        part = encoded[:, start : start + len(column.names)].double()
        start += len(column.names)
        if column.categories is not None:
            cells.append(torch.where(part.sum(1) > 0, part.argmax(1), -1).double())
        else:
            cells.append(torch.where(part[:, 1] > 0, torch.nan, part[:, 0]) if column.missing else part[:, 0])
    return torch.stack(cells, 1)


def codes_of_words(column: Column) -> dict[str, int]:
    """What each text of a category is for a graph; all others are -1, unknown."""
    categories = column.categories or ()
    missing = dict.fromkeys(NOT_THERE, len(categories)) if column.missing else {}
    spellings: dict[str, tuple[str, ...]] = {word: (word,) for word in categories}
    if {*categories} <= {"True", "False"}:  # pandas reads these however they are written
        spellings = {word: (word, word.lower(), word.upper()) for word in categories}
    return missing | {text: i for i, word in enumerate(categories) for text in spellings[word]}


def words_of_cells(table: Table, cells: Tensor) -> dict[str, np.ndarray]:
    """The inputs of an ONNX file, by column: numbers, or text."""
    inputs: dict[str, Any] = {}
    for i, column in enumerate(table.columns):
        values = cells[:, i].numpy()
        if column.categories is None:
            inputs[column.name] = values.astype(np.float64)
        else:
            words = [*column.categories, *([""] if column.missing else []), "(a text that training never saw)"]
            inputs[column.name] = np.array(words, dtype=object)[values.astype(np.int64)]
    return inputs
