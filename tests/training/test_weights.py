"""Weights of examples: what they do to the loss, to a whole training, to the held-out score and to a temperature."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import multum
from multum.data.parts import Data, Part
from multum.errors import ConfigError, TrainingError
from multum.metrics.temperatures import Temperatures
from multum.outputs.loss import ClassLoss
from multum.training.averaging import held_out_score
from multum.training.batches import batches_of
from multum.training.devices import Place, open_fabric

WEIGHTS = torch.tensor([2.0, 1.0, 0.0, 3.0, 1.0, 1.0])


def rows(seed: int = 0, n: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator, dtype=torch.float64), torch.randint(3, (n,), generator=generator)


def weighted(x: Tensor, y: Tensor, weights: Tensor | None, task: str = "classification") -> Data:
    data = Data.given(x, y, task)
    return replace(data, train=Part(x, y, weights=weights))


@pytest.mark.parametrize("criterion", ["cross_entropy", "gaussian_nll", "mse", ClassLoss(gamma=1.0), "callable"])
def test_a_weight_scales_the_loss_of_its_example(criterion) -> None:
    x, y = rows()
    outputs = torch.stack([x[:, :2], 2 * x[:, 2:]])
    targets = (
        (y > 0).long() if criterion not in ("gaussian_nll", "mse") else x[:, 0] if criterion != "mse" else x[:, 1:3]
    )
    criterion = nn.CrossEntropyLoss(reduction="none") if criterion == "callable" else criterion
    each = [multum.loss(outputs[:, i : i + 1], targets[i : i + 1], criterion=criterion) for i in range(6)]
    wanted = (torch.stack(each) * WEIGHTS.double()).mean()
    torch.testing.assert_close(multum.loss(outputs, targets, criterion=criterion, weights=WEIGHTS), wanted)
    own = WEIGHTS.expand(2, 6)
    torch.testing.assert_close(multum.loss(outputs, targets, criterion=criterion, weights=own), wanted)


def test_what_weights_do_not_fit_is_refused() -> None:
    outputs, labels = torch.zeros(2, 6, 3), torch.zeros(6, dtype=torch.long)
    with pytest.raises(ConfigError, match=r"weights must be one for each example, \[6\] or \[2, 6\]; got \[5\]"):
        multum.loss(outputs, labels, weights=WEIGHTS[:5])
    with pytest.raises(ConfigError, match="a loss per example where examples have weights"):
        multum.loss(outputs, labels, criterion=nn.CrossEntropyLoss(), weights=WEIGHTS)
    ens = multum.ensemble(nn.Linear(4, 3), multum.Deep(members=2), example=torch.zeros(2, 4), seed=0)
    x, y = rows()
    with pytest.raises(TrainingError, match="mixup and cutmix must be 0 where examples have weights"):
        multum.fit(ens, weighted(x.float(), y, WEIGHTS), multum.Recipe(epochs=1, mixup=0.2))


@pytest.mark.parametrize("method", [multum.Deep(members=2), multum.BatchEnsemble(members=2), multum.Single()])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_weights_train_as_repeated_rows_do(method, task: str) -> None:
    """Whole batches in float64: a weight of 0 leaves a row out, a weight of 3 counts it three times."""
    x, y = rows()
    y = y if task == "classification" else x.sum(1)
    again = WEIGHTS.long()
    repeated = (x.repeat_interleave(again, 0), y.repeat_interleave(again, 0))
    recipe = multum.Recipe(epochs=5, batch_size=64, lr=0.05, precision="64-true", optimizer="sgd", order="same")
    trained = []
    for data in (weighted(x, y, WEIGHTS.double() / WEIGHTS.double().mean(), task), weighted(*repeated, None, task)):
        width = 3 if task == "classification" else 2
        net = multum.models.build("mlp", in_features=4, classes=width, hidden=8).double()
        ens = multum.ensemble(net, method, example=x[:2], task=task, seed=0)
        ens.load_state_dict(trained[0][0]) if trained else None
        start = {name: t.clone() for name, t in ens.state_dict().items()}
        multum.fit(ens, data, recipe, accelerator="cpu", warn=False)
        trained.append((start, ens.state_dict()))
    for name, t in trained[0][1].items():
        torch.testing.assert_close(t, trained[1][1][name], rtol=1e-10, atol=1e-12)
        assert t.numel() == 1 or not torch.equal(t, trained[0][0][name])


@pytest.mark.parametrize(
    "method", [multum.Deep(members=2), multum.Mimo(members=2), multum.Masksembles(members=2, feed="split")]
)
@pytest.mark.parametrize("order", ["same", "own"])
def test_weights_stay_with_their_examples(method, order: str) -> None:
    if order == "own" and method.arranges_batches:
        return
    x, y = rows(n=12)
    y = torch.arange(12)
    net = multum.models.build("mlp", in_features=4, classes=12, hidden=64)
    ens = multum.ensemble(net, method, example=torch.zeros(2, 4), seed=0)
    data, recipe = weighted(x.float(), y, y * 10.0), multum.Recipe(batch_size=5, order=order)
    steps = [*batches_of(data, recipe, ens, open_fabric(Place("cpu"), "32-true")).epoch(0)]
    assert len(steps) == 3
    for step in steps:
        assert step.weights is not None and torch.equal(step.weights, step.y * 10.0)


def test_the_held_out_score_and_a_temperature_go_by_weights() -> None:
    x, y = rows(1, 8)
    x = x.float()
    ens = multum.ensemble(nn.Linear(4, 3), multum.Deep(members=2), example=x[:2], seed=0)
    counts = torch.tensor([1, 2, 0, 1, 4, 1, 1, 1])
    plain = Part(x.repeat_interleave(counts, 0), y.repeat_interleave(counts))
    scores = {}
    for by in ("nll", "accuracy"):
        for name, part in {"weighted": Part(x, y, weights=counts.double()), "repeated": plain}.items():
            data = replace(Data.given(x, y, "classification"), validation=part)
            scores[by, name] = held_out_score(ens, data, by, lambda t: t, size=3)
        assert scores[by, "weighted"] == pytest.approx(scores[by, "repeated"], rel=1e-6)
    outputs = ens(x).detach() * 4
    factors = [
        Temperatures.on_held_out(outputs, y, "classification", [2], counts.double()).temperature,
        Temperatures.on_held_out(outputs.repeat_interleave(counts, 1), plain.y, "classification", [2]).temperature,
    ]
    assert factors[0] == pytest.approx(factors[1], rel=1e-9)
    assert factors[0] != pytest.approx(Temperatures.on_held_out(outputs, y, "classification", [2]).temperature)


def test_resume_looks_at_weights(tmp_path) -> None:
    x, y = rows(n=8)
    ens = multum.ensemble(nn.Linear(4, 3), multum.Single(), example=torch.zeros(2, 4), seed=0)
    recipe = multum.Recipe(epochs=1)
    multum.fit(ens, weighted(x.float(), y, torch.ones(8)), recipe, out=tmp_path, warn=False)
    with pytest.raises(TrainingError, match="data"):
        multum.fit(ens, weighted(x.float(), y, torch.arange(8.0)), recipe, out=tmp_path, warn=False)
