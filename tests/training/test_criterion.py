"""What a recipe says of the loss is what is trained: weights and focus by hand, network by network."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import multum
from multum.data import Data, Part
from multum.errors import TrainingError
from multum.training.criterion import weights_of_classes

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(40, 3, generator=GENERATOR)
Y = (torch.rand(40, generator=GENERATOR) < 0.2).long()
DATA = Data("own", "classification", Part(X, Y), Part(X, Y), 2, None, None)
SGD = {"optimizer": "sgd", "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "schedule": "constant", "lr": 0.3}


def ensemble(method: multum.methods.Method, executor: str | None = None) -> multum.Ensemble:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2))
    ens = multum.ensemble(net, method, example=X, seed=0)
    ens.executor = executor
    return ens


def trained(method: multum.methods.Method, executor: str | None = None, **recipe) -> multum.Ensemble:
    ens = ensemble(method, executor)
    multum.fit(ens, DATA, multum.Recipe(epochs=2, batch_size=10, **SGD, **recipe))
    return ens


def by_hand(net: nn.Module, weights: torch.Tensor, gamma: float, smoothing: float) -> nn.Module:
    """The same training of one network: batches in the run's order, plain formulas, torch's own SGD."""
    from multum.training.batches import stream

    optimizer = torch.optim.SGD(net.parameters(), lr=0.3)
    for epoch in range(2):
        for rows in torch.randperm(40, generator=stream(0, "order", epoch)).split(10):
            log_p = net(X[rows]).log_softmax(1)
            soft = F.one_hot(Y[rows], 2) * (1 - smoothing) + smoothing / 2
            value = -(soft * weights * (1 - log_p.exp()) ** gamma * log_p).sum(1).mean()
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    return net


@pytest.mark.parametrize("executor", ["loop", "vmap"])
@pytest.mark.parametrize(
    ("recipe", "weights", "gamma", "smoothing"),
    [
        ({"class_weights": "balanced"}, "balanced", 0.0, 0.0),
        ({"class_weights": (1, 4)}, (1, 4), 0.0, 0.0),
        ({"loss": "focal"}, (1, 1), 2.0, 0.0),
        ({"loss": "focal", "focal_gamma": 1.0, "class_weights": (1, 4)}, (1, 4), 1.0, 0.0),
        ({"class_weights": "balanced", "label_smoothing": 0.2}, "balanced", 0.0, 0.2),
        ({"loss": "focal", "label_smoothing": 0.2}, (1, 1), 2.0, 0.2),
    ],
)
def test_every_member_is_trained_as_if_alone(executor, recipe, weights, gamma, smoothing):
    method = multum.Deep(members=2)
    ens = trained(method, executor, reduction="sum", order="same", **recipe)
    scale = weights_of_classes(DATA, weights)
    for m in range(2):
        twin = by_hand(ensemble(method).member(m), scale, gamma, smoothing)
        for mine, expected in zip(ens.member(m).parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-6)


def test_weights_weigh_one_on_average_and_balance_the_classes():
    counts = Y.bincount().double()
    balanced = weights_of_classes(DATA, "balanced").double()
    assert float((balanced * counts).sum()) == pytest.approx(40)
    assert float(balanced[0] * counts[0]) == pytest.approx(float(balanced[1] * counts[1]))
    torch.testing.assert_close(weights_of_classes(DATA, (2, 8)), weights_of_classes(DATA, (1, 4)))


def test_a_mixup_of_classes_is_taken():
    ens = trained(multum.Deep(members=2), class_weights="balanced", loss="focal", mixup=0.3)
    before = ensemble(multum.Deep(members=2))
    assert all(bool(p.isfinite().all()) for p in ens.parameters())
    assert not any(torch.equal(p, q) for p, q in zip(ens.parameters(), before.parameters(), strict=True))


def test_accumulated_halves_move_like_the_whole_batch():
    nets = []
    for batch, accumulate in ((20, 1), (10, 2)):
        ens = ensemble(multum.Single())
        recipe = multum.Recipe(epochs=1, batch_size=batch, accumulate=accumulate, class_weights=(1, 9), **SGD)
        multum.fit(ens, DATA, recipe)
        nets.append(ens)
    for a, b in zip(*(net.parameters() for net in nets), strict=True):
        torch.testing.assert_close(a, b)


def test_rare_examples_count_more_and_are_found_more_often():
    plain, weighted = trained(multum.Single()), trained(multum.Single(), class_weights=(1, 50))
    found = [int(multum.predict(ens, X).labels.sum()) for ens in (plain, weighted)]
    assert found[0] < found[1]


@pytest.mark.parametrize(
    ("recipe", "task", "message"),
    [
        ({"class_weights": (1, 2, 3)}, "classification", "each of the 2 classes; got 3. The classes are 0, 1"),
        ({"loss": "mse"}, "classification", "must be for regression"),
        ({"loss": "focal"}, "regression", "must be for classification"),
        ({"class_weights": "balanced"}, "regression", "must be for classification"),
        ({"loss": "mse"}, "regression", "one output per target"),
    ],
)
def test_what_does_not_fit_the_task_is_refused(recipe, task, message):
    ens = multum.ensemble(nn.Linear(3, 2), multum.Single(), example=X, task=task)
    data = DATA if task == "classification" else (X, X[:, 0])
    with pytest.raises(TrainingError, match=message):
        multum.fit(ens, data, multum.Recipe(epochs=1, **recipe))


def test_a_recipe_survives_json_and_the_command_line():
    from multum.parsing import assignments

    recipe = multum.Recipe(class_weights=(1, 5), loss="focal")
    assert multum.Recipe(**json.loads(json.dumps(asdict(recipe)))) == recipe
    assert multum.Recipe().with_overrides(assignments(["class_weights=1+5", "loss=focal"])) == recipe
