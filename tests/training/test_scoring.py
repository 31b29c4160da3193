"""A step computed otherwise, to the same numbers: members computed again in backward, and torch.compile."""

from __future__ import annotations

import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import multum
from multum.errors import ConfigError, TrainingError
from multum.executors.loop import recomputing
from multum.training import scoring

G = torch.Generator().manual_seed(0)
X = torch.randn(20, 3, 6, 6, generator=G)
DATA = (X, torch.randint(4, (20,), generator=G))
# A norm takes a layer's bias away: what remains of its gradient is rounding, which Adam would make a step of.
RECIPE = multum.Recipe(epochs=2, batch_size=8, optimizer="sgd", lr=0.05, precision="64-true")


def network(dropout: float = 0.3) -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(dropout), nn.Flatten(), nn.Linear(128, 4)]
    return nn.Sequential(*layers)


def ensemble(method: multum.methods.Method | None = None) -> multum.Ensemble:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = network()
    return multum.ensemble(net, method or multum.Deep(members=3), example=X[:2], seed=0)


def assert_same(a: multum.Ensemble, b: multum.Ensemble, **tolerance) -> None:
    for (name, value), other in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        torch.testing.assert_close(value, other, msg=lambda text, name=name: f"{name}: {text}", **tolerance)
    assert torch.equal(a.randomness.state()["cpu"], b.randomness.state()["cpu"])


EXACT = {"rtol": 0.0, "atol": 0.0}


@pytest.mark.parametrize(
    "method",
    [multum.Deep(members=3), multum.Packed(members=2, alpha=2), multum.Multihead(members=2)],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("per_member", [False, True])
def test_members_computed_again_in_backward_are_the_same_to_the_bit(method, per_member: bool) -> None:
    x = X[:18].double()
    x = x.unflatten(0, (method.members, 18 // method.members)) if per_member else x
    plain = ensemble(method).double().train()
    plain.executor = "loop"
    again = copy.deepcopy(plain)
    outputs = []
    for ens in (plain, again):
        with recomputing() if ens is again else torch.enable_grad():
            outs = [ens(x, per_member=per_member) for _ in range(2)]  # buffers and generators move between the two
        (outs[0].square().sum() + outs[1].pow(3).sum()).backward()
        outputs.append(torch.stack(outs))
    assert torch.equal(*outputs)
    assert_same(plain, again, **EXACT)
    for (name, p), other in zip(plain.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(p.grad, other.grad), name


class Kept:
    """The most bytes that autograd keeps for backward at once, of what has more than a thousand values."""

    def __init__(self) -> None:
        self.now = self.most = 0

    def pack(self, t: torch.Tensor) -> torch.Tensor:
        if t.numel() > 1000:
            self.now += t.nbytes
            self.most = max(self.most, self.now)
        return t


def test_backward_keeps_nothing_of_any_member_but_its_input() -> None:
    ens = ensemble(multum.Deep(members=3)).train()
    ens.executor = "loop"
    x = X.repeat(4, 1, 1, 1)
    sizes = []
    for again in (False, True):
        kept = Kept()
        hooks = torch.autograd.graph.saved_tensors_hooks(kept.pack, lambda t: t)
        with hooks, recomputing() if again else torch.enable_grad():
            ens(x)
        sizes.append(kept.most)
    assert sizes[1] <= 3 * x.nbytes < sizes[0] / 3


@pytest.mark.parametrize("recipe", [{}, {"order": "own"}, {"ghost": 4}], ids=str)
def test_a_run_that_recomputes_is_the_run_of_the_loop(recipe: dict) -> None:
    plain, again = ensemble(), ensemble()
    plain.executor = "loop"
    multum.fit(plain, DATA, RECIPE.with_overrides(recipe))
    multum.fit(again, DATA, RECIPE.with_overrides({**recipe, "recompute": True}))
    assert_same(plain, again, **EXACT)
    assert again.latest == {"training": "loop"}


def test_recomputing_is_refused_where_it_would_change_the_numbers() -> None:
    recipe = RECIPE.with_overrides({"recompute": True})
    ens = ensemble()
    ens.executor = "vmap"
    with pytest.raises(TrainingError, match="one after another; got executor='vmap'"):
        multum.fit(ens, DATA, recipe)
    with pytest.raises(TrainingError, match="norms that see one member at a time; got one that members share, 1,"):
        multum.fit(ensemble(multum.BatchEnsemble(members=2)), DATA, recipe)
    with pytest.raises(ConfigError, match="got both"):
        multum.Recipe(recompute=True, compile=True)


@pytest.mark.slow  # torch.compile; one fast test of it is in tests/test_ensemble.py
def test_a_compiled_step_is_one_program_for_each_size_with_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring.torch, "compile", partial(torch.compile, backend="aot_eager"))
    torch.compiler.reset()
    counters.clear()
    plain, compiled = ensemble(), ensemble()
    multum.fit(plain, DATA, RECIPE)
    multum.fit(compiled, DATA, RECIPE.with_overrides({"compile": True}))
    assert_same(plain, compiled, rtol=1e-10, atol=1e-12)
    assert not counters["graph_break"] and counters["stats"]["unique_graphs"] <= 3  # the proof, batches of 8 and of 4


def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function, **options):
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr(scoring.torch, "compile", refuse)
    scoring._prove_compiler.cache_clear()
    with pytest.raises(TrainingError, match=r"got RuntimeError: No working C\+\+ compiler found\. Install one"):
        multum.fit(ensemble(), DATA, RECIPE.with_overrides({"compile": True}))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # torch's own compiler still uses it
def test_a_compiled_run_is_resumed_to_the_bit(tmp_path: Path) -> None:
    recipe = multum.Recipe(epochs=2, batch_size=8, compile=True)
    whole, resumed = ensemble(), ensemble()
    multum.fit(whole, DATA, recipe)

    class Stop(Exception):
        pass

    def stop(epoch: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        multum.fit(ensemble(), DATA, recipe, out=tmp_path / "run", checkpoint_seconds=0, after_epoch=stop)
    torch.compiler.reset()
    multum.fit(resumed, DATA, recipe, out=tmp_path / "run")
    assert_same(whole, resumed, **EXACT)
