"""What an exported file says of itself, and reading it again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..data.preparation import Preparation
from ..errors import FileError
from ..metrics.cost import cost
from ..optimizing.members import is_sampled
from ..runs.examples import takes_image_files
from ..runs.machine import versions
from . import torch_file
from .graph import Graph
from .onnx_file import OnnxModel
from .sources import Source

__all__ = ["described", "metadata", "public_name", "public_preparation", "reading", "summary"]

OF_THE_RUN = ("data", "fingerprint", "model", "recipe")


def described(source: Source, graph: Graph, x: Any, kind: str, sizes: bool) -> dict[str, Any]:
    """Everything that a reader of the file may ask, in plain values.

    Args:
        x: one raw example.
        sizes: whether images may have any size.
    """
    ensemble, meaning, data, cascade = source.ensemble, graph.meaning, source.preparation, source.cascade
    with torch.no_grad():
        counted = cost(ensemble, example=graph.prepared(x))
    about = {
        "format": kind,
        "task": ensemble.task,
        "method": ensemble.method.as_dict(),
        "members": len(graph.members.networks),  # type: ignore[arg-type]
        "versions": versions(),
        "cost": {"params": counted.params, "macs": counted.macs, "members": ensemble.members},
        "image_size": "any" if sizes else "as traced",
        "classes": list(data.class_names) if data is not None and data.task == "classification" else None,
        "rules": meaning.rules.described(),
        "level": meaning.level if ensemble.task == "regression" else None,
        "cascade": None if cascade is None else {"score": cascade.score, "threshold": cascade.threshold},
        "samples": "fixed masks, one for each member and dropout" if is_sampled(ensemble) else None,
        "reading": None if data is None else reading(data),
        "preparation": None if data is None else public_preparation(data),
    }
    run = {name: source.run[name] for name in OF_THE_RUN if name in source.run}
    return about | run | {name: public_name(run[name]) for name in ("data", "model") if name in run}


def reading(data: Preparation) -> str:
    """What whoever asks the model has to do with an example before; what comes after is inside the file."""
    if data.table is not None:
        return "a table's cells as they come: numbers, NaN where one is missing; text, empty where it is missing"
    kind = f"{str(data.dtype).removeprefix('torch.')} of shape [batch, {', '.join(map(str, data.shape))}]"
    if not takes_image_files(data):
        return f"{kind}, as the training data has them, without any scaling"
    channels, size, _ = data.shape
    grey = ", 0.299 red + 0.587 green + 0.114 blue, rounded" if channels == 1 else ""
    return (
        f"{kind}, 0 to 255, without any scaling. An image file of another size or kind: turned as its EXIF says, "
        f"converted to RGB, its shorter side scaled to {size} (Pillow, bilinear), the middle {size} x {size} cut "
        f"out{grey}"
    )


def public_preparation(data: Preparation) -> dict[str, Any]:
    """How examples are read, in plain values and without the folders of this machine."""
    return replace(data, name=public_name(data.name)).as_dict()


def public_name(name: str) -> str:
    """Data or a network by name, without the folders of this machine.

    >>> public_name("csv:/home/me/churn.csv#target=left,test=/home/me/t.csv"), public_name("digits")
    ('csv:churn.csv#target=left,test=t.csv', 'digits')
    """
    return re.sub(r"[^:#,=]*/", "", name)


def metadata(path: str | Path) -> dict[str, Any]:
    """What `multum.export` wrote into a file about itself."""
    path = Path(path)
    readers = {".onnx": lambda file: OnnxModel.open(file).metadata, ".pt2": torch_file.read_metadata}
    if path.suffix.lower() not in readers:
        raise FileError(f"an exported model must be a {' or '.join(readers)} file; got {path.name}. Check its name")
    return readers[path.suffix.lower()](path)


def summary(about: Mapping[str, Any], path: Path) -> str:
    """An exported file in one line."""
    parity = about["parity"]
    largest = max(parity["differences"].values())
    return (
        f"{about['method']['name']} with {about['members']} members: {path}, {path.stat().st_size / 2**20:.1f} MB; on "
        f"{parity['count']} {parity['examples']} it differs from multum by at most {largest:.1e}"
    )
