"""Every method on every network of the contract, as ONNX and as torch.export: parity with multum.

Files are read again in a process without multum, of ONNX without torch too, and asked for a batch of another size than
they were traced with. With MULTUM_EXPORTS=FILE every outcome is also written there, a line of JSON each:
`docs/exports.py FILE` makes docs/exports.json and the table of docs/exports.md from it.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import Tensor

import multum
from contract import test_contract as contract
from exporting.alone import Reader, reader
from multum.errors import RewriteError
from multum.exporting.members import members_of
from multum.exporting.parity import TOLERANCE, differences
from multum.optimizing.members import is_sampled
from multum.outputs.prediction import RegressionPrediction
from multum.runs.held_out import Rules

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}
ROWS = 17
DOCS = Path(__file__).parents[2] / "docs"

# A diagonal that meets every method, most networks and both formats.
FAST = {
    ("deep", "token", "onnx"),
    ("packed", "tabular-mlp", "onnx"),
    ("batch-ensemble", "token", "torch"),
    ("masksembles", "mlp", "torch"),
    ("mimo", "small-cnn", "torch"),
    ("mc-dropout", "mlp", "onnx"),
    ("hypernet", "token", "torch"),
    ("tree-net", "mlp", "torch"),
    ("mixture", "mlp", "torch"),
    ("swag", "mlp", "torch"),
    ("tabm", "mlp", "onnx"),
    ("multihead", "regression", "torch"),
}


def networks_of(method: str) -> tuple[str, ...]:
    """All of them for the first row of a method, and a few for its variants."""
    rows = contract.METHODS
    first = next(name for name, row in rows.items() if type(row.config) is type(rows[method].config))
    return tuple(contract.NETWORKS) if method == first else rows[method].only or tuple(contract.NETWORKS)


CASES = [
    pytest.param(method, network, kind, marks=() if (method, network, kind) in FAST else pytest.mark.slow)
    for method in contract.METHODS
    for network in networks_of(method)
    for kind in FORMATS
]


@pytest.fixture(scope="module")
def alone() -> Iterator[Callable[[str], Reader]]:
    """Processes without multum, by the files that they read."""
    readers: dict[str, Reader] = {}
    with ExitStack() as stack:

        def of(suffix: str) -> Reader:
            if suffix not in readers:
                readers[suffix] = stack.enter_context(reader(suffix))
            return readers[suffix]

        yield of


def note(**outcome) -> None:
    file = os.environ.get("MULTUM_EXPORTS")
    if file:
        with Path(file).open("a") as lines:
            lines.write(json.dumps(outcome) + "\n")


def reason_of(error: RewriteError) -> str:
    """Place, reason and fix, in one line."""
    _, *lines = str(error).splitlines()
    return ". ".join(line.strip(" -") for line in lines).replace(". fix: ", ". Fix: ")


def inputs_for(network: str) -> Tensor:
    example, generator = contract.NETWORKS[network].example(), torch.Generator().manual_seed(7)
    shape = (ROWS, *example.shape[1:])
    if example.is_floating_point():
        return torch.randn(shape, generator=generator)
    return torch.randint(int(example.max()) + 1, shape, generator=generator)


def expected_of(ens: multum.Ensemble, x: Tensor, names: list[str]) -> dict[str, Tensor]:
    """What `multum.predict` says; of samples, what it would say of those that the file holds."""
    if is_sampled(ens):
        with torch.no_grad():
            outputs = members_of(ens, None, x[:3])(x)
        of = RegressionPrediction.from_outputs if ens.task == "regression" else multum.Prediction.from_logits
        prediction = of(outputs)
    else:
        prediction = multum.predict(ens, x)
    ends = dict(zip(("low", "high"), prediction.interval(0.95), strict=True)) if ens.task == "regression" else {}
    return {name: ends[name] if name in ends else getattr(prediction, name) for name in names}


@pytest.mark.parametrize(("method", "network", "kind"), CASES)
def test_exported_or_refused(method, network, kind, tmp_path, alone):
    case = {"method": method, "network": network, "format": kind}
    row, path = contract.METHODS[method], tmp_path / f"model{FORMATS[kind]}"
    if network in row.refuses:
        with pytest.raises(RewriteError) as refusal:
            contract.make(method, network, seed=5)
        note(**case, refused=reason_of(refusal.value))
        return
    ens = contract.make(method, network, seed=5).eval()
    about = multum.export(ens, path)
    largest = max(about["parity"]["differences"].values())
    assert largest <= TOLERANCE and about["parity"]["count"] == 64
    x = inputs_for(network)
    np.save(tmp_path / "x.npy", x.numpy())
    answers = {name: torch.from_numpy(value) for name, value in alone(path.suffix)(path, tmp_path / "x.npy").items()}
    outside = differences(answers, expected_of(ens, x, list(answers)), Rules(), f"the {kind} file alone")
    note(**case, difference=max(largest, *outside.values()), image_size=about["image_size"])


def test_the_diagonal_meets_every_method():
    rows = contract.METHODS
    assert {type(rows[method].config) for method, _, _ in FAST} >= {
        type(row.config) for row in rows.values() if not row.only
    } - {multum.Single}


def page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("exports", DOCS / "exports.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_every_case_as_it_was_measured():
    lines = json.loads((DOCS / "exports.json").read_text())
    assert {(line["method"], line["network"], line["format"]) for line in lines} == {case.values for case in CASES}
    assert {contract.METHODS[line["method"]].config.name for line in lines} == {*multum.methods.METHODS}
    assert page().table(lines) in (DOCS / "exports.md").read_text()
