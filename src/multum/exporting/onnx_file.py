"""A program as an ONNX file, and ONNX Runtime to run it. Metadata stand in the file as JSON under "multum"."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.utils._pytree import tree_flatten

from ..checks import needed
from ..data.tables import Table
from ..errors import ExportError, FileError, first_line
from ..files import atomic, explained
from .columns import codes_of_words, words_of_cells
from .program import quiet

__all__ = ["OnnxModel", "translated"]

LARGEST = 2**31 - 2**16  # bytes that a protocol buffer holds
KEY = "multum"  # of the metadata in the file
INSIDE = "graph/"  # before names of the network's own values, which a column may have too


def _onnx_package(name: str) -> ModuleType:
    """A package of the extra that ONNX files take."""
    fix = "Install it: pip install 'multum[onnx]', or use format='torch'"
    return needed(name, f"ONNX files must be written and run by {name}", fix, ExportError)


def translated(
    program: ExportedProgram, inputs: Sequence[str], outputs: Sequence[str], table: Table | None
) -> OnnxModel:
    """A program in ONNX, its inputs and outputs by these names; of a table, every column is an input."""
    onnx, runtime, _ = map(_onnx_package, ("onnx", "onnxruntime", "onnxscript"))
    with quiet(), _silent():
        try:
            model: Any = torch.onnx.export(program, dynamo=True, verbose=False).model  # type: ignore[union-attr]
        except Exception as error:  # torch raises its own kinds, which differ from version to version
            raise ExportError(f"a network must be of operations that ONNX has; got {_reason(error)}") from error
    import onnx_ir
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    _rename(model, inputs, outputs, INSIDE if table is not None else "")
    ClearMetadataAndDocStringPass()(model)  # lines of source and places on this machine
    proto = onnx_ir.serde.serialize_model(model)
    _name_sizes(proto)
    if table is not None:
        _put_columns_first(onnx, proto, INSIDE + inputs[0], table)
    if proto.ByteSize() >= LARGEST:
        raise ExportError(
            f"an ONNX file must be below 2 GB; got {proto.ByteSize() / 2**30:.1f} GB. Use fewer members, or "
            "format='torch'"
        )
    return OnnxModel(proto.SerializeToString(), "the ONNX graph", runtime)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Neither prints nor logs: torch tells of every package that it looks for and does not find."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _reason(error: BaseException) -> str:
    """The operation that has no counterpart, where the error or one of its causes names it; else the first cause."""
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    operations = re.findall(r"OpOverload\(op='([\w.]+)'", "\n".join(map(str, causes)))
    return f"{operations[0]}, which torch.onnx cannot translate" if operations else first_line(causes[-1])


def _rename(model: Any, inputs: Sequence[str], outputs: Sequence[str], inside: str) -> None:
    """Names that a user reads, at both ends; the values between them get out of their way."""
    ends = {id(value) for value in (*model.graph.inputs, *model.graph.outputs)}
    taken = {*inputs, *outputs}
    values = [*model.graph.initializers.values(), *(v for node in model.graph for v in node.outputs)]
    for value in values:
        if id(value) not in ends and (inside or value.name in taken):
            value.name = f"{inside or INSIDE}{value.name}"
    for value, name in zip(model.graph.inputs, inputs, strict=True):
        value.name = inside + name
    for value, name in zip(model.graph.outputs, outputs, strict=True):
        value.name = name


def _name_sizes(proto: Any) -> None:
    """What may have any size is called by what it is; sizes between the ends are found by whoever runs the file."""
    words: dict[str, str] = {}
    for value in proto.graph.input:
        sizes = value.type.tensor_type.shape.dim
        words |= dict(zip((size.dim_param for size in sizes), ("batch", "", "height", "width"), strict=False))
    for value in (*proto.graph.input, *proto.graph.output):
        for size in value.type.tensor_type.shape.dim:
            if size.dim_param and words.get(size.dim_param):  # a size that is fixed has none
                size.dim_param = words[size.dim_param]
    proto.graph.ClearField("value_info")


def _put_columns_first(onnx: ModuleType, proto: Any, cells: str, table: Table) -> None:
    """One input for each column, text where it is a category; together they are the cells of the graph."""
    helper, kinds = onnx.helper, onnx.TensorProto
    clash = {output.name for output in proto.graph.output} & {column.name for column in table.columns}
    if clash:
        raise ExportError(
            f"a column must not be called like an output; got {', '.join(sorted(clash))}. Rename it and train again"
        )
    batch = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    nodes, parts, inputs = [], [], []
    for i, column in enumerate(table.columns):
        kind = kinds.DOUBLE if column.categories is None else kinds.STRING
        inputs.append(helper.make_tensor_value_info(column.name, kind, [batch]))
        numbers = column.name
        if column.categories is not None:
            codes, numbers = codes_of_words(column), f"columns/{i}/numbers"
            keys = {"keys_strings": [*codes], "values_int64s": [*codes.values()], "default_int64": -1}
            places = f"columns/{i}/places"
            nodes.append(helper.make_node("LabelEncoder", [column.name], [places], domain="ai.onnx.ml", **keys))
            nodes.append(helper.make_node("Cast", [places], [numbers], to=kinds.DOUBLE))
        parts.append(f"columns/{i}")
        nodes.append(helper.make_node("Unsqueeze", [numbers, "columns/axis"], [parts[-1]]))
    nodes.append(helper.make_node("Concat", parts, [cells], axis=1))
    proto.graph.initializer.append(helper.make_tensor("columns/axis", kinds.INT64, [1], [1]))
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    later = [*proto.graph.node]
    for field, values in (("input", inputs), ("node", [*nodes, *later])):
        proto.graph.ClearField(field)
        getattr(proto.graph, field).extend(values)


class OnnxModel:
    """A graph in ONNX Runtime."""

    def __init__(self, content: bytes, name: str, runtime: ModuleType):
        self.content, self.name = content, name
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        try:
            self.session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's errors have no common class
            raise ExportError(f"{name} must be one that ONNX Runtime runs; got {first_line(error)}") from error

    @classmethod
    def open(cls, path: Path) -> OnnxModel:
        """A file that is there."""
        runtime = _onnx_package("onnxruntime")
        with explained(f"{path} must be readable"):
            content = path.read_bytes()
        return cls(content, str(path), runtime)

    @property
    def inputs(self) -> list[str]:
        """Their names."""
        return [value.name for value in self.session.get_inputs()]

    @property
    def outputs(self) -> list[str]:
        """Their names."""
        return [value.name for value in self.session.get_outputs()]

    @property
    def metadata(self) -> dict[str, Any]:
        """What `multum.export` wrote; a FileError where the file is not of multum."""
        text = self.session.get_modelmeta().custom_metadata_map.get(KEY)
        if text is None:
            raise FileError(f"{self.name} must be written by multum.export; got an ONNX file without its metadata")
        return json.loads(text)

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(zip(self.outputs, self.session.run(self.outputs, dict(inputs)), strict=True))

    def feeds(self, x: Any, table: Table | None) -> dict[str, np.ndarray]:
        """Inputs as they are called, of what `Graph` takes."""
        if table is not None:
            return words_of_cells(table, x)
        return dict(zip(self.inputs, (t.numpy() for t in tree_flatten(x)[0]), strict=True))

    def answers(self, x: Any, table: Table | None) -> dict[str, Tensor]:
        """What the graph says of what `Graph` takes."""
        return {name: torch.from_numpy(np.asarray(value)) for name, value in self(self.feeds(x, table)).items()}

    def save(self, path: Path, metadata: Mapping[str, Any]) -> None:
        """Write the file, with its metadata."""
        onnx = _onnx_package("onnx")
        proto = onnx.load_from_string(self.content)
        onnx.helper.set_model_props(proto, {KEY: json.dumps(metadata)})
        with atomic(path) as temporary:
            temporary.write_bytes(proto.SerializeToString())
