"""`multum predict` with what has been trained, in any of its forms: a run folder, a saved model, or an ONNX file.

An ONNX file needs neither the run nor its data: what was fitted is inside, and so is how raw examples are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.progress import Progress
from torch import Tensor

from ..data.preparation import Preparation
from ..errors import ConfigError, FileError
from ..runs import predict as of_runs
from ..runs.answers import columns
from ..runs.examples import read_examples
from .columns import cells_of, words_of_cells
from .onnx_file import OnnxModel

__all__ = ["predict_frames"]

SETTLED = ("coverage", "risk", "delta", "conformal", "threshold", "temperature", "level")


def predict_frames(model: str | Path, file: str | Path, **options: Any) -> Iterator[pd.DataFrame]:
    """The predictions of a file, frame after frame; options as of `runs.predict.predict_frames`."""
    model = Path(model)
    if model.suffix.lower() != ".onnx":
        return of_runs.predict_frames(model, file, **options)
    for name in SETTLED:
        if options.pop(name, None):
            raise ConfigError(
                f"`{name}` must be chosen when a model is exported; got it for {model.name}. Export again with it, or "
                "give the run folder"
            )
    return _frames(OnnxModel.open(model), Path(file), **options)


def _frames(
    model: OnnxModel,
    file: Path,
    *,
    probabilities: bool = False,
    members: bool = False,
    batch_size: int = 512,
    progress: bool = True,
) -> Iterator[pd.DataFrame]:
    about = model.metadata
    data = _preparation(model, about)
    if members and "members" not in model.outputs:
        raise ConfigError("`members` must be in the file; got one without. Export it with --each-member")
    examples = read_examples(file, data, batch_size)
    rules = {name: _read_rule(rule) for name, rule in about["rules"].items() if rule is not None}
    with Progress(disable=not progress) as bar:
        task = bar.add_task("predicting", total=examples.count)
        for names, x in examples.pieces:
            values = {name: torch.from_numpy(value) for name, value in model(_inputs(model, x, data)).items()}
            if not members:
                values.pop("members", None)
            frame = pd.DataFrame({"example": names, **columns(values, data, probabilities=probabilities)})
            frame.attrs = rules
            bar.advance(task, len(names))
            yield frame


def _read_rule(rule: Any) -> Any:
    """A fitted rule of the metadata; JSON has null for numbers that are not finite: no risk, no threshold that holds.

    >>> _read_rule({"risk": None, "threshold": 0.5, "coverage": 0.9})
    {'risk': nan, 'threshold': 0.5, 'coverage': 0.9}
    """
    unsaid = {"risk": math.nan, "threshold": math.inf}
    return {k: unsaid.get(k) if v is None else v for k, v in rule.items()} if isinstance(rule, dict) else rule


def _preparation(model: OnnxModel, about: dict[str, Any]) -> Preparation:
    """How raw examples are read; of an ensemble without data, as the file's input is declared."""
    if about["preparation"] is not None:
        return Preparation.from_dict(about["preparation"])
    (declared, *more) = model.session.get_inputs()
    if more:
        raise FileError(f"{model.name} must have one input to read examples for it; got {len(more) + 1}")
    kind = {"tensor(float)": torch.float32, "tensor(double)": torch.float64, "tensor(uint8)": torch.uint8}
    shape = tuple(declared.shape[1:])
    if declared.type not in kind or not all(isinstance(size, int) for size in shape):
        raise FileError(
            f"{model.name} must take numbers of one shape to read examples for it; got {declared.type} "
            f"{declared.shape}. Export a run folder, which knows its data"
        )
    outputs = {value.name: value.shape for value in model.session.get_outputs()}
    width = outputs["probs"][1] if "probs" in outputs else 2
    return Preparation(model.name, about["task"], width, shape, kind[declared.type], None, None)


def _inputs(model: OnnxModel, x: Tensor, data: Preparation) -> dict[str, np.ndarray]:
    """What the file takes, of examples as `read_examples` gives them."""
    if data.table is not None:
        return words_of_cells(data.table, cells_of(data.table, x))
    return {model.inputs[0]: x.to(data.dtype).numpy()}
