"""A new executor is one file and one entry in the registry: `ens.executor`, the checker and the contract know it."""

from __future__ import annotations

import copy
import importlib
import sys

import pytest
import torch

import multum
from contract import test_contract as contract
from multum.errors import CheckError, ExecutorError
from multum.executors import EXECUTORS, REFERENCE, default

TOY = '''
"""Members in reverse order."""

import torch

from multum.executors.base import Executor
from multum.executors.call import call, take


class Toy(Executor):
    name = "toy"
    scale = 1.0  # 1 is right
    calls = 0

    def run(self, network, stacked, moving, x, members, per_member, randomness):
        self.calls += 1
        out = {}
        for i in reversed(range(members)):
            own = {name: tensor[i] for name, tensor in stacked.items()}
            out[i] = call(network, own, take(x, i) if per_member else x)
        return self.scale * torch.stack([out[i] for i in range(members)])
'''
X = contract.NETWORKS["wrn-10-1"].example()


@pytest.fixture
def toy(tmp_path, monkeypatch):
    (tmp_path / "toy_executor.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("toy_executor")
    monkeypatch.delitem(sys.modules, "toy_executor")
    monkeypatch.setitem(EXECUTORS, "toy", module.Toy())
    return EXECUTORS["toy"]


@pytest.fixture
def ens(toy) -> multum.Ensemble:
    return contract.make("deep", "wrn-10-1", 5)


def test_it_can_be_chosen(toy, ens):
    assert toy.calls == 0  # no default: tried when somebody asks
    assert ens.executors == tuple(EXECUTORS) and EXECUTORS["toy"] is toy
    assert toy.calls == 2  # in training and in eval mode, once
    assert "toy" in ens.executors and toy.calls == 2
    ens.eval().executor = "toy"
    assert ens.executor == "toy"
    torch.testing.assert_close(ens(X), torch.stack([ens.member(i)(X) for i in range(3)]))
    assert toy.calls == 3
    ens.executor = None
    assert ens.executor != "toy"  # no default until it says where it suits


def test_it_may_be_a_default(toy, monkeypatch):
    monkeypatch.setattr(toy, "suits", lambda device, training, trunk: device == "cpu" and trunk)
    monkeypatch.setattr(EXECUTORS["vmap"], "suits", lambda *_: False)
    assert default("cpu", False, True) == "toy" and default("cpu", True, False) == REFERENCE
    assert default("cpu", False, True, refused={"toy"}) == REFERENCE


def test_the_checker_holds_it_to_the_reference(toy, ens):
    promises = {f.promise for f in multum.check(ens, X, verbose=False)}
    assert {"members are independent (toy)", "gradients stay with their member (toy)"} <= promises
    toy.scale = 1.001
    with pytest.raises(CheckError, match=r"executors agree, eval: .*\(toy, "):
        multum.check(ens, X, verbose=False)


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_the_contract_holds_it_to_the_reference(toy, ens, training):
    arguments = (X, contract.METHODS["deep"], "wrn-10-1", training)
    contract.test_executors_agree(copy.deepcopy(ens), *arguments)
    toy.scale = 1.001
    with pytest.raises(AssertionError, match="toy"):
        contract.test_executors_agree(ens, *arguments)


def test_what_it_cannot_run_falls_back(toy, caplog):
    def run(network, *_):
        raise RuntimeError("no toy for this network")

    toy.run = run
    ens = contract.make("deep", "mlp", 5)
    assert "toy" not in ens.executors and ens.refusals == {"toy": "RuntimeError: no toy for this network"}
    assert not caplog.records  # nobody would have got it by default
    with pytest.raises(ExecutorError, match=r"no toy for this network\. Use 'loop' or 'vmap'"):
        ens.executor = "toy"
    multum.check(ens, contract.NETWORKS["mlp"].example(), verbose=False)


def test_an_executor_that_does_not_pool_says_so(toy, caplog):
    ens = contract.make("batch-ensemble", "wrn-10-1", 5)
    ens.executor = "toy"
    ens.train()(X)
    (record,) = caplog.records
    assert (
        "executor 'toy' trains norms" in record.getMessage()
        and "where 'vmap' or 'grouped' pools" in record.getMessage()
    )
    assert not EXECUTORS["loop"].pools and EXECUTORS["vmap"].pools
