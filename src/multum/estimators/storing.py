"""A fitted estimator as one file: the ensemble in multum's own format, and all else as JSON beside it. No pickle."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from ..data.preparation import Preparation
from ..ensemble import Ensemble
from ..errors import FileError
from ..files import plain, signature, write_tensors
from ..methods import Method
from ..saving import load, save
from ..saving.header import method_of
from .calibration import Calibration

__all__ = ["from_bytes", "load_estimator", "save_estimator", "to_bytes"]

FORMAT = 1
FITTED = ("n_features_in_", "n_iter_", "history_", "_seed")  # plain values of a fitted estimator


def to_bytes(ensemble: Ensemble) -> bytes:
    """An ensemble as the bytes of the file that `multum.save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save(ensemble, path)
        return path.read_bytes()


def from_bytes(content: bytes, network: Any, device: str) -> Ensemble:
    """The ensemble of `to_bytes`, on its device where this machine has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        path.write_bytes(content)
        wanted = "cuda" if device == "auto" else device
        there = wanted.startswith("cuda") and torch.cuda.is_available()
        return load(path, network=network, device=wanted if there else "cpu").eval()


def save_estimator(estimator: Any, path: Path) -> None:
    """Write a fitted estimator."""
    calibration = estimator._calibration
    tensors = {"model": torch.frombuffer(bytearray(to_bytes(estimator.ensemble_)), dtype=torch.uint8)}
    tensors |= {"temperature": torch.as_tensor(calibration.temperature, dtype=torch.float64)}
    if calibration.outputs is not None:
        tensors |= {"outputs": calibration.outputs, "targets": calibration.targets}
    tensors |= {f"memory.{name}": t for name, t in estimator._memory.items()}
    header = {
        "estimator": type(estimator).__name__,
        "format": FORMAT,
        "parameters": {name: _plain_parameter(name, value) for name, value in estimator.get_params(deep=False).items()},
        "fitted": plain({name: getattr(estimator, name) for name in FITTED}),
        "feature_names": [*map(str, getattr(estimator, "feature_names_in_", ()))],
        "preparation": estimator.preparation_.as_dict(),
        "classes": _plain_classes(getattr(estimator, "classes_", None)),
    }
    write_tensors(path, tensors, json.loads(json.dumps(header)))


def load_estimator(cls: type, path: Path, network: Any, device: str) -> Any:
    """Read a fitted estimator of this class."""
    header, tensors = _read(path)
    if header.get("estimator") != cls.__name__ or header.get("format") != FORMAT:
        got = f"{header.get('estimator', 'an ensemble')} of format {header.get('format')}"
        raise FileError(f"{path} must hold an {cls.__name__} of format {FORMAT}; got {got}. Load it as what it is")
    parameters = {**header["parameters"], "device": device}
    parameters["method"] = _read_method(parameters["method"], path)
    if parameters["network"] == {"own": True}:
        if network is None:
            raise FileError(f"{path} must come with its network, which has no name; got none. Give load a network")
        parameters["network"] = network
    if isinstance(parameters.get("class_weight"), list):
        parameters["class_weight"] = dict(parameters["class_weight"])
    estimator = cls(**parameters)
    vars(estimator).update(header["fitted"])
    if header["feature_names"]:
        estimator.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    if header["classes"] is not None:
        estimator.classes_ = np.array(header["classes"]["values"], dtype=np.dtype(header["classes"]["dtype"]))
    estimator.preparation_ = Preparation.from_dict(header["preparation"])
    temperature = tensors["temperature"].numpy()
    estimator._calibration = Calibration(
        temperature if temperature.ndim else float(temperature), tensors.get("outputs"), tensors.get("targets")
    )
    memory = {name: t for name, t in tensors.items() if name.startswith("memory.")}
    estimator._memory = {name.removeprefix("memory."): t for name, t in memory.items()}
    estimator.ensemble_ = from_bytes(tensors["model"].numpy().tobytes(), estimator._rebuilder(), device)
    estimator._make_reader()
    return estimator


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        raise FileError(f"a saved estimator must be a file; there is none at {path}")
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("multum", "{}"))
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise FileError(f"{path} must be a whole file that `save` wrote; got {error}. Copy or save it again") from error
    if header.get("checksum") != signature(header, tensors):
        raise FileError(f"{path} must have the checksum that is written in it; got other bits. Copy or save it again")
    return header, tensors


def _plain_parameter(name: str, value: Any) -> Any:
    if isinstance(value, Method):
        return value.as_dict()
    if name == "network" and value is not None and not isinstance(value, str):
        return {"own": True}
    if name == "class_weight" and isinstance(value, dict):
        return [[_item(label), float(weight)] for label, weight in value.items()]
    if name == "random_state":
        return int(value) if isinstance(value, (int, np.integer)) else None  # a generator's state is no setting
    return _item(value)


def _item(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _read_method(value: Any, path: Path) -> Any:
    return method_of(value, path) if isinstance(value, dict) else value


def _plain_classes(classes: Any) -> dict[str, Any] | None:
    if classes is None:
        return None
    kinds = {type(value) for value in classes.tolist()}
    if not kinds <= {str, int, float, bool}:
        raise FileError(f"classes must be words or numbers to be saved; got {', '.join(k.__name__ for k in kinds)}")
    return {"values": classes.tolist(), "dtype": classes.dtype.str if classes.dtype != object else "object"}
