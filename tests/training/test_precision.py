"""Training in mixed precision, and machines that announce bfloat16 and do not have it."""

from __future__ import annotations

import subprocess
from types import SimpleNamespace

import pytest
import torch

import multum
from multum.errors import TrainingError
from multum.training import devices

X, Y = torch.randn(16, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(16) % 3


@pytest.fixture
def unset(monkeypatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    devices._bfloat16_runs.cache_clear()
    yield monkeypatch
    devices._bfloat16_runs.cache_clear()


@pytest.mark.parametrize(
    "method",
    [multum.Packed(members=2), multum.Deep(members=2), multum.Mixture(members=2), multum.TreeNet(members=2)],
    ids=lambda m: m.name,
)
def test_methods_train_in_mixed_precision(method):
    network = multum.models.build("wrn-10-1", classes=3, variant="meliketoy")
    ens = multum.ensemble(network, method, example=X, seed=0)
    before = {name: p.detach().clone() for name, p in ens.named_parameters()}
    multum.fit(ens, (X, Y), multum.Recipe(epochs=1, batch_size=8, precision="bf16-mixed"))
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in ens.parameters())
    assert any(not torch.equal(p, before[name]) for name, p in ens.named_parameters())


def test_a_cpu_that_dies_of_bfloat16_is_refused_with_the_fix(unset):
    unset.setattr(subprocess, "run", lambda *args, **kwargs: SimpleNamespace(returncode=-4))
    network = multum.models.build("small-cnn", classes=3)
    ens = multum.ensemble(network, multum.Single(), example=X)
    with pytest.raises(TrainingError, match=r"got precision='bf16-mixed'.*Set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"):
        multum.fit(ens, (X, Y), multum.Recipe(epochs=1, precision="bf16-mixed"))


def test_a_process_tries_bfloat16_where_nobody_has_settled_it(unset):
    calls = []
    unset.setattr(subprocess, "run", lambda command, **kwargs: calls.append(command) or SimpleNamespace(returncode=0))
    assert devices._bfloat16_runs() and devices._bfloat16_runs() and len(calls) == 1
    compile(calls[0][-1], "trial", "exec")
    devices._bfloat16_runs.cache_clear()
    unset.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    assert devices._bfloat16_runs() and len(calls) == 1
