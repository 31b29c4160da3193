"""Run exported files in a process that can import neither multum nor what it leaves out, as a server would.

MULTUM_ALONE names the Python of an environment that holds onnxruntime and numpy alone, to ask ONNX files there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
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

LOOP = """
import json, numpy
for line in sys.stdin:
    model, source, target = json.loads(line)
    numpy.savez(target, **answers(model, source))
    print("done", flush=True)
"""

ONNX = """
import csv, numpy, onnxruntime
def answers(model, source):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
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
    return dict(zip(names, session.run(names, inputs)))
"""

TORCH = """
import numpy, torch
def answers(model, source):
    answers = torch.export.load(model).module()(torch.from_numpy(numpy.load(source)))
    return {name: value.detach().numpy() for name, value in answers.items()}
"""


class Reader:
    """A process without multum that answers for one file after another; of ONNX without torch and pandas too."""

    def __init__(self, process: subprocess.Popen[str]):
        self.process = process

    def __call__(self, model: Path, source: Path) -> dict[str, np.ndarray]:
        """What a file says of a csv or npy file."""
        target = source.with_suffix(".npz")
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps([str(model), str(source), str(target)]) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n", "the process without multum ended"
        with np.load(target) as file:
            return dict(file)


@contextmanager
def reader(suffix: str) -> Iterator[Reader]:
    """A process for files of this kind, .onnx or .pt2."""
    names, code = (("multum",), TORCH) if suffix == ".pt2" else (("multum", "torch", "pandas", "onnx"), ONNX)
    python = os.environ.get("MULTUM_ALONE", sys.executable) if suffix == ".onnx" else sys.executable
    program = [python, "-W", "ignore", "-c", BLOCK.format(names=names) + code + LOOP]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": ""}, cwd="/"
    ) as process:
        yield Reader(process)


def answers_alone(model: Path, source: Path) -> dict[str, np.ndarray]:
    """What a file says of a csv or npy file, without multum."""
    with reader(model.suffix) as ask:
        return ask(model, source)
