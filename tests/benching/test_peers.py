"""Twins by other libraries: which there are, what they are built with, and what is said where one is missing."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

import multum
from multum.benching.bench import bench
from multum.benching.peers import PEERS, installed_versions
from multum.benching.setting import Setting
from multum.errors import ConfigError

R18 = Setting("resnet18", (3, 32, 32))
QUICK = {"executors": "loop", "backends": "none", "peers": True, "batch": (4,), "rounds": 1, "memory": False}


def test_which_methods_have_a_twin() -> None:
    theirs = PEERS["torch-uncertainty"]
    methods = {name: kind() for name, kind in multum.methods.METHODS.items()}
    assert {name for name, method in methods.items() if theirs.has(R18, method)} == {
        *("batchensemble", "masksembles", "mimo", "packed")
    }
    packed = multum.Packed(members=4, alpha=2, gamma=2)
    fields = {"arch": 18, "num_estimators": 4, "style": "cifar", "alpha": 2, "gamma": 2}
    assert theirs.fields(R18, packed) == fields
    large = Setting("resnet50:stem=imagenet", (3, 224, 224))
    assert theirs.fields(large, packed) == {**fields, "arch": 50, "style": "imagenet"}
    assert not theirs.has(Setting("small-cnn", (3, 32, 32)), packed)
    assert not theirs.has(Setting("resnet18:thin=0.5", (3, 32, 32)), packed)


def test_tabm_is_the_twin_of_batch_ensemble_on_equal_layers() -> None:
    tabm, method = PEERS["tabm"], multum.BatchEnsemble(members=8)
    fields = tabm.fields(Setting("mlp:hidden=64+64+64", (10,)), method)
    assert fields == {"k": 8, "n_blocks": 3, "d_block": 64, "dropout": 0.0}
    assert not tabm.has(Setting("mlp:hidden=64+32", (10,)), method) and not tabm.has(R18, method)
    assert not tabm.has(Setting("mlp:hidden=64+64", (10,)), multum.Deep())


def test_tabm_runs_beside_ours() -> None:
    pytest.importorskip("tabm")
    document = bench("mlp:hidden=8+8", methods="batchensemble:members=3", **QUICK)
    assert [(row["way"], row["library"]) for row in document["rows"] if row["mode"] == "training"] == [
        *(("", "multum"), ("loop", "multum"), ("tabm", "tabm"))
    ]
    assert document["left_out"] == [] and document["versions"]["tabm"] == installed_versions()["tabm"]


def test_every_member_sees_the_batch() -> None:
    x, y = torch.arange(6.0).reshape(2, 3), torch.tensor([0, 1])
    theirs, tabm = PEERS["torch-uncertainty"], PEERS["tabm"]
    assert theirs.batch(multum.Packed(members=2), x, y)[1].tolist() == [0, 1, 0, 1]
    assert theirs.batch(multum.Mimo(members=2), x, y)[0].shape == (4, 3)
    assert theirs.batch(multum.Masksembles(), x, y)[1] is y
    assert tabm.batch(multum.BatchEnsemble(members=2), x, y)[1].tolist() == [0, 0, 1, 1]


def test_a_library_that_is_not_there_is_left_out_with_the_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tabm", None)
    with pytest.raises(ConfigError, match="make bench"):
        PEERS["tabm"].load()
    document = bench("mlp:hidden=8+8", methods="batchensemble:members=2", **QUICK)
    assert len(document["rows"]) == 4 and all(part["way"] == "tabm" for part in document["left_out"])


def test_the_network_is_built_by_its_own_function(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("fake")
    module.packed_resnet = lambda **keywords: keywords  # type: ignore[attr-defined]
    theirs = PEERS["torch-uncertainty"]
    monkeypatch.setattr(type(theirs), "load", lambda self: module)
    built = theirs.build(R18, multum.Packed(members=4, alpha=2))
    assert built["in_channels"] == 3 and built["num_classes"] == 10 and built["conv_bias"] is False
    assert built["alpha"] == 2
