"""No Python loop over images, members or parameters in a step: the operations that it calls do not grow with them.

What does grow, and may: layers make operations of forward and backward, and `loop` runs the members one by one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import multum
from grids import grid
from multum.data import augment
from multum.data.augment import randaugment
from multum.methods import METHODS, Method
from multum.training.optimizers import Optimizers
from multum.training.run import Run

RECIPE = multum.Recipe(epochs=1, batch_size=16, optimizer="sgd", lr=0.01, crop=1, flip=True, cutout=2)


class Calls(TorchDispatchMode):
    """Counts operations by name."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen[str(func)] += 1
        return func(*args, **(kwargs or {}))


def net(depth: int = 1) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    for _ in range(depth):
        layers += [nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


def pictures(rows: int) -> multum.Data:
    g = torch.Generator().manual_seed(0)
    x = torch.randint(256, (rows, 1, 8, 8), dtype=torch.uint8, generator=g)
    part = multum.data.Part(x, torch.randint(10, (rows,), generator=g))
    return multum.Data("noise", "classification", part, part, 10, torch.zeros(1, 1, 1), torch.ones(1, 1, 1))


def calls_of(method: Method, recipe: multum.Recipe, depth: int = 1) -> tuple[Counter[str], Counter[str]]:
    """What the last of a fit's steps calls, its batch included, and what the optimizers call in it."""
    data = pictures(3 * recipe.batch_size)
    ens = multum.ensemble(net(depth), method, example=data.example(), seed=0)
    marks: list[Counter[str]] = []
    moving: list[Counter[str]] = []
    note, step = Run.note, Optimizers.step
    with Calls() as calls, pytest.MonkeyPatch.context() as patch:

        def noted(self: Run, *args: Any) -> None:
            note(self, *args)
            marks.append(calls.seen.copy())

        def moved(self: Optimizers, *args: Any, **kwargs: Any) -> None:
            before = calls.seen.copy()
            step(self, *args, **kwargs)
            moving.append(calls.seen - before)

        patch.setattr(Run, "note", noted)
        patch.setattr(Optimizers, "step", moved)
        multum.fit(ens, data, recipe)
    whole = marks[-1] - marks[-2]
    assert whole.total() > moving[-1].total() > 0
    return whole, moving[-1]


@pytest.mark.parametrize(
    "fields",
    [
        {"mixup": 0.2},
        {"order": "own", "cutmix": 0.5, "label_smoothing": 0.1},
        {"clip": 0.1, "l1": 1e-5},
        {"optimizer": "adamw", "ghost": 8},
    ],
    ids=lambda fields: ", ".join(fields),
)
def test_a_step_calls_as_much_for_more_images_and_members(fields: dict[str, Any]) -> None:
    recipe = replace(RECIPE, **fields)
    more = replace(recipe, batch_size=48, ghost=3 * recipe.ghost)
    assert calls_of(multum.Deep(members=4), more)[0] == calls_of(multum.Deep(members=2), recipe)[0]


# How members come to be that are whole networks changes no step of them.
ALIKE = ("single", "snapshot", "fastgeometric", "swag")


@pytest.mark.parametrize("name", grid([name for name in METHODS if name != "single"], always=set(METHODS) - set(ALIKE)))
def test_every_method_steps_without_a_loop_over_members(name: str) -> None:
    fields = {"masksembles": {"scale": 2.0}}.get(name, {})
    epochs = {"fastgeometric": 9, "hypernet": 5, "snapshot": 4, "swag": 5}.get(name, 1)
    few, many = (METHODS[name](**{"members": members, **fields}) for members in (2, 4))
    recipe = replace(RECIPE, epochs=epochs)
    more = calls_of(many, recipe)[0] - calls_of(few, recipe)[0]
    assert not more, more


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_optimizers_call_as_much_for_more_parameters(optimizer: str) -> None:
    recipe = replace(RECIPE, optimizer=optimizer)
    few, many = (calls_of(multum.Deep(members=2), recipe, depth)[1] for depth in (1, 4))
    for found in (few, many):  # torch's Adam looks at the step number of every parameter, in Python
        found.pop("aten._local_scalar_dense.default", None)
    assert many == few and "aten._foreach_mul_.Scalar" in few


def test_operations_of_randaugment_do_not_grow_with_the_images() -> None:
    """At most one call of each operation and sign, so that many images call no more than a few times as many."""
    counts = []
    for rows in (400, 4000):
        x = torch.zeros(rows, 1, 4, 4, dtype=torch.uint8)
        with Calls() as calls:
            randaugment(x, 1, 5, augment.Draw(torch.Generator().manual_seed(0)))
        counts.append(calls.seen.total())
    assert counts[0] == counts[1]  # all 23 have some image in either
