"""Averages, the best weights and fresh norms: whatever happens inside, the ensemble comes back as it was."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import multum
from multum.training.averaging import Average, held_out_score, refresh_norms
from multum.training.batches import stream


class Interrupt(Exception):
    pass


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


def rows(n: int = 48) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def state_of(ens: multum.Ensemble) -> dict:
    """All that a context might leave behind."""
    return {
        "tensors": {name: t.clone() for name, t in ens.state_dict().items()},
        "modes": [m.training for m in ens.modules()],
        "momenta": [m.momentum for m in ens.modules() if isinstance(m, nn.BatchNorm1d)],
        "hooks": [len(m._forward_pre_hooks) for m in ens.modules()],
        "executor": ens.chosen,
    }


def assert_as_before(ens: multum.Ensemble, before: dict) -> None:
    after = state_of(ens)
    tensors, wanted = after.pop("tensors"), before.pop("tensors")
    assert all(torch.equal(tensors[name], t) for name, t in wanted.items())
    assert after == before


def test_an_average_that_is_interrupted_gives_the_weights_back() -> None:
    ens = multum.ensemble(net(), multum.Deep(members=2), example=rows()[0], seed=0)
    weights, before = dict(ens.named_parameters()), state_of(ens)
    average = Average(1, {name: torch.zeros_like(p) for name, p in weights.items()})
    with pytest.raises(Interrupt), average.installed(weights):
        assert not any(p.any() for p in weights.values())
        raise Interrupt
    assert_as_before(ens, before)


@pytest.mark.parametrize("method", [multum.Deep(members=2), multum.BatchEnsemble(members=2)])
def test_norms_that_are_interrupted_stay_as_they_were(method: multum.methods.Method) -> None:
    ens = multum.ensemble(net(), method, example=rows()[0], seed=0).train()
    ens.executor = "loop"
    ens.network[1].eval()  # a mode of its own, which must come back too
    before = state_of(ens)

    def batches():
        yield rows()[0]
        raise Interrupt

    with pytest.raises(Interrupt):
        refresh_norms(ens, batches())
    assert_as_before(ens, before)


def test_a_score_that_is_interrupted_leaves_the_modes_alone() -> None:
    data = multum.Data.given(*rows(), "classification").with_validation(0.5, seed=0)
    ens = multum.ensemble(net(), multum.Deep(members=2), example=rows()[0], seed=0).train()
    ens.network[1].eval()
    before = state_of(ens)

    def place(x: Tensor) -> Tensor:
        raise Interrupt

    modes = before["modes"]
    with pytest.raises(Interrupt):
        held_out_score(ens, data, "nll", place)
    assert_as_before(ens, before)
    held_out_score(ens, data, "nll", lambda x: x)
    assert [m.training for m in ens.modules()] == modes


def test_norms_of_members_that_see_mixed_rows_are_those_of_mixed_rows() -> None:
    """The first norm of a MIMO network sees sums over the members' inputs: of other rows each, as in training."""
    x = rows(64)[0].double()
    ens = multum.ensemble(net().double(), multum.Mimo(members=2), example=x[:4], seed=0)
    refresh_norms(ens, [x], seed=7)
    mixed = ens.method.batch(x, torch.arange(64), stream(7, "norms", 0))
    seen: list[Tensor] = []
    hook = ens.network[1].register_forward_pre_hook(lambda m, inputs: seen.append(inputs[0].detach()))
    ens.eval()(mixed.x, per_member=True)
    ens(x)
    hook.remove()
    torch.testing.assert_close(ens.network[1].running_mean, seen[0].mean(0), rtol=0, atol=1e-12)
    torch.testing.assert_close(ens.network[1].running_var, seen[0].var(0), rtol=0, atol=1e-12)
    assert (ens.network[1].running_var - seen[1].var(0)).abs().max() > 1e-2  # tiled rows have another spread


def test_the_best_epoch_by_accuracy_or_by_nll(monkeypatch: pytest.MonkeyPatch) -> None:
    from multum.training import run as run_module

    scores = {"nll": [3.0, 1.0, 2.0], "accuracy": [0.5, 0.7, 0.9]}
    for by, best in (("nll", 1), ("accuracy", 2)):
        seen: list[dict] = []

        def scored(ens: multum.Ensemble, data: multum.Data, asked: str, *_: object, seen: list = seen) -> float:
            seen.append({name: t.clone() for name, t in ens.state_dict().items()})
            return scores[asked][len(seen) - 1]

        monkeypatch.setattr(run_module, "held_out_score", scored)
        ens = multum.ensemble(net(), multum.Deep(members=2), example=rows()[0], seed=0)
        recipe = multum.Recipe(epochs=3, batch_size=16, keep="best", best_by=by)
        history = multum.fit(ens, rows(), recipe)
        assert [row[f"validation_{by}"] for row in history] == scores[by]
        assert all(torch.equal(t, seen[best][name]) for name, t in ens.state_dict().items())
    two = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    regression = multum.ensemble(two, multum.Deep(members=2), example=rows()[0], task="regression")
    with pytest.raises(multum.errors.TrainingError, match="best_by='accuracy' is for classification"):
        multum.fit(regression, (rows()[0], rows()[0][:, 0]), replace(recipe, best_by="accuracy"))


def test_held_out_accuracy_is_that_of_the_mixture() -> None:
    data = multum.Data.given(*rows(), "classification").with_validation(0.5, seed=0)
    ens = multum.ensemble(net(), multum.Deep(members=3), example=rows()[0], seed=0)
    with torch.no_grad():
        outputs = ens.eval()(data.validation.x)
    for member, probabilities in ((None, outputs.softmax(2).mean(0)), (1, outputs[1].softmax(1))):
        wanted = (probabilities.argmax(1) == data.validation.y).double().mean()
        assert held_out_score(ens, data, "accuracy", lambda x: x, member, size=7) == pytest.approx(float(wanted))
