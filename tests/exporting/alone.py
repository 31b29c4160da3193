"""Run exported files in a process that can import neither multum nor what it leaves out, as a server would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ImportError(name + " is not there")
sys.meta_path.insert(0, Blocked())
"""

ONNX = """
import csv, numpy, onnxruntime
model, source, target = sys.argv[1:]
session = onnxruntime.InferenceSession(model)
inputs = {}
if source.endswith(".npy"):
    inputs[session.get_inputs()[0].name] = numpy.load(source)
else:
    with open(source, newline="") as file:
        rows = list(csv.DictReader(file))
    for column in session.get_inputs():
        cells = [row[column.name] for row in rows]
        if column.type == "tensor(string)":
            inputs[column.name] = numpy.array(cells, dtype=object)
        else:
            inputs[column.name] = numpy.array([float(cell or "nan") for cell in cells])
names = [output.name for output in session.get_outputs()]
numpy.savez(target, **dict(zip(names, session.run(names, inputs))))
"""

TORCH = """
import numpy, torch
model, source, target = sys.argv[1:]
answers = torch.export.load(model).module()(torch.from_numpy(numpy.load(source)))
numpy.savez(target, **{name: value.numpy() for name, value in answers.items()})
"""


def answers_alone(model: Path, source: Path) -> dict[str, np.ndarray]:
    """What a file says of a csv or npy file, without multum; of ONNX without torch and pandas too."""
    names, code = (("multum",), TORCH) if model.suffix == ".pt2" else (("multum", "torch", "pandas", "onnx"), ONNX)
    target = source.with_suffix(".npz")
    program = [sys.executable, "-W", "ignore", "-c", BLOCK.format(names=names) + code]
    subprocess.run([*program, model, source, target], check=True, env={"PATH": ""}, cwd=source.parent, timeout=120)
    with np.load(target) as file:
        return dict(file)
