"""Every method on every network of the contract that it takes, as ONNX and as torch.export: parity with multum.

With MULTUM_EXPORTS=FILE every outcome is also written there, a line of JSON each: `docs/exports.py FILE` makes the
table of docs/exports.md from it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import multum
from contract import test_contract as contract
from multum.errors import RewriteError
from multum.exporting.parity import TOLERANCE

FORMATS = {"onnx": ".onnx", "torch": ".pt2"}

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
CASES = [
    pytest.param(method, network, kind, marks=() if (method, network, kind) in FAST else pytest.mark.slow)
    for method, row in contract.METHODS.items()
    for network in row.only or contract.NETWORKS
    for kind in FORMATS
]


def note(**outcome) -> None:
    file = os.environ.get("MULTUM_EXPORTS")
    if file:
        with Path(file).open("a") as lines:
            lines.write(json.dumps(outcome) + "\n")


@pytest.mark.parametrize(("method", "network", "kind"), CASES)
def test_exported_or_refused(method, network, kind, tmp_path):
    case = {"method": method, "network": network, "format": kind}
    path = tmp_path / f"model{FORMATS[kind]}"
    if network in contract.METHODS[method].refuses:
        with pytest.raises(RewriteError):
            contract.make(method, network, seed=5)
        note(**case, refused=f"{method} does not take this network")
        return
    ens = contract.make(method, network, seed=5).eval()
    about = multum.export(ens, path)
    largest = max(about["parity"]["differences"].values())
    assert largest <= TOLERANCE and about["parity"]["count"] == 64
    note(**case, difference=largest, image_size=about["image_size"])


def test_the_diagonal_meets_every_method():
    rows = contract.METHODS
    assert {type(rows[method].config) for method, _, _ in FAST} >= {
        type(row.config) for row in rows.values() if not row.only
    } - {multum.Single}
