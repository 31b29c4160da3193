"""What latency is measured with: torch as it is, or the runtimes that exported files are for.

A backend makes of an ensemble and a batch a call that runs it once and says how many seconds that took.
"""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ..checks import needed
from ..ensemble import Ensemble
from ..errors import check_known
from ..exporting.export import TRACED_ON, export
from ..metrics.speed import repeated, time_once

Backend = Callable[[Ensemble, Any], Callable[[], float]]


def _eager(ensemble: Ensemble, x: Any) -> Callable[[], float]:
    return partial(time_once, ensemble, x)


def _onnxruntime(ensemble: Ensemble, x: Any) -> Callable[[], float]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, torch.get_num_threads()
    session = onnxruntime.InferenceSession(_file(ensemble, x), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs()]
    fed = dict(zip(names, _arrays(x), strict=True))
    return lambda: _seconds(partial(session.run, None, fed))


def _openvino(ensemble: Ensemble, x: Any) -> Callable[[], float]:
    import openvino

    settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "PERFORMANCE_HINT": "LATENCY"}
    settings["INFERENCE_PRECISION_HINT"] = "f32"  # bfloat16 is its choice where a processor has it
    core = openvino.Core()
    compiled = core.compile_model(core.read_model(io.BytesIO(_file(ensemble, x))), "CPU", settings)
    fed = _arrays(x)
    return lambda: _seconds(partial(compiled, fed))


def _file(ensemble: Ensemble, x: Any) -> bytes:
    """An ONNX file of the ensemble, with what a prediction means inside."""
    with tempfile.TemporaryDirectory(prefix="multum-") as folder:
        path = Path(folder) / "model.onnx"
        export(ensemble, path, example=repeated(x, TRACED_ON, ensemble.device))
        return path.read_bytes()


def _arrays(x: Any) -> list[Any]:
    return [t.cpu().numpy() for t in tree_leaves(x) if isinstance(t, Tensor)]


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


BACKENDS: Mapping[str, Backend] = {"eager": _eager, "onnxruntime": _onnxruntime, "openvino": _openvino}
NEEDS = {"onnxruntime": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("onnx", "onnxscript", "openvino")}


def backend_of(backend: str | Backend) -> Backend:
    """A backend by name, or one's own; refused where its packages are not installed."""
    if not isinstance(backend, str):
        return backend
    check_known(backend, BACKENDS, f"`backend` must be one of {', '.join(BACKENDS)}")
    for name in NEEDS.get(backend, ()):
        needed(name, f"backend={backend!r} must have {name}", f"Use pip install {name}")
    return BACKENDS[backend]
