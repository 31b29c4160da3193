"""Compilers for a graph of all members: torch's own, ONNX Runtime and OpenVINO."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn

from ..errors import ConfigError, ExecutorError, first_line

__all__ = ["BACKENDS", "compiled"]


def compiled(backend: str, module: fx.GraphModule, inputs: list[Tensor]) -> nn.Module:
    """A module that computes the same by this backend, for any batch."""
    return BACKENDS[backend](module, inputs)


def _missing(backend: str, error: ImportError) -> ConfigError:
    extra = "onnx" if backend == "onnxruntime" else backend
    return ConfigError(
        f"backend={backend!r} must find its packages; got {first_line(error)}. Run pip install 'multum[{extra}]'"
    )


# -- torch's own -------------------------------------------------------------------------------------------------------


def _inductor(module: fx.GraphModule, inputs: list[Tensor]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own use of what it has deprecated
        from torch._inductor import cpp_builder, exc

        try:
            cpp_builder.get_cpp_compiler()
        except exc.InvalidCxxCompiler as error:
            raise ConfigError(
                f"backend='inductor' must find a C++ compiler; got {first_line(error)}. Install g++, or name one in "
                "the environment variable CXX"
            ) from error
        compiled = _Inductor(module)
        with torch.no_grad():
            compiled(*inputs)
    return compiled


class _Inductor(nn.Module):
    def __init__(self, module: fx.GraphModule):
        super().__init__()
        self.module = module
        self.call = torch.compile(module, options={"freezing": True})

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.call(*inputs)


# -- by way of ONNX ----------------------------------------------------------------------------------------------------


def _written(module: fx.GraphModule, inputs: list[Tensor], folder: str, backend: str) -> str:
    """The graph as an ONNX file for any batch; its path."""
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise _missing("onnxruntime", error) from error
    path = str(Path(folder) / "model.onnx")
    rows = tuple({0: torch.export.Dim.DYNAMIC} for _ in inputs)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module, tuple(inputs), dynamo=True, dynamic_shapes=rows, verbose=False, optimize=True
            )
        program.save(path)  # type: ignore[union-attr]
    except Exception as error:  # an operator that ONNX does not have
        raise ExecutorError(
            f"backend={backend!r} must have a network that ONNX can express; got {first_line(error)}. Use "
            "backend=None or 'inductor'"
        ) from error
    return path


class _Session(nn.Module):
    """A compiled model. Shape: as the module that it was made of."""

    def __init__(self, run: Callable[[list[Any]], Any]):
        super().__init__()
        self.run = run

    def forward(self, *inputs: Tensor) -> Tensor:
        return torch.from_numpy(self.run([x.numpy() for x in inputs]))


def _onnxruntime(module: fx.GraphModule, inputs: list[Tensor]) -> nn.Module:
    try:
        import onnxruntime
    except ImportError as error:
        raise _missing("onnxruntime", error) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Threads that wait for the next call in a busy loop would slow torch's own down.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with tempfile.TemporaryDirectory() as folder:
        path = _written(module, inputs, folder, "onnxruntime")
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    return _Session(lambda arrays: session.run(None, dict(zip(names, arrays, strict=True)))[0])


def _openvino(module: fx.GraphModule, inputs: list[Tensor]) -> nn.Module:
    try:
        import openvino
    except ImportError as error:
        raise _missing("openvino", error) from error
    core = openvino.Core()
    settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
    with tempfile.TemporaryDirectory() as folder:
        model = core.read_model(_written(module, inputs, folder, "openvino"))
        model = core.compile_model(model, "CPU", settings)
    return _Session(lambda arrays: model(arrays)[0])


BACKENDS: dict[str, Callable[[fx.GraphModule, list[Tensor]], nn.Module]] = {
    "inductor": _inductor,
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
