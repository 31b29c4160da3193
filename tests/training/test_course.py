"""multum.Course: a loop of one's own trains every method as `multum.fit` does, step by step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multum
from multum.data.parts import Data
from multum.errors import ConfigError, TrainingError
from multum.methods import METHODS
from multum.training import loop

EXACT = {"rtol": 0, "atol": 1e-12}


def built(method: Any, task: str = "classification") -> multum.Ensemble:
    torch.manual_seed(0)
    body = [nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 12), nn.ReLU()]
    net = nn.Sequential(*body, nn.Linear(12, 2)).double()
    return multum.ensemble(net, method, example=torch.zeros(2, 4, dtype=torch.float64), task=task, seed=0)


def data(task: str) -> Data:
    x = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Data.given(x, (x[:, 0] > 0).long() if task == "classification" else x.sum(1), task)


def fitted(ens: multum.Ensemble, given: Data, recipe: multum.Recipe, monkeypatch: Any) -> list[tuple[Tensor, float]]:
    """The rows of every step of `multum.fit`, and its loss."""
    steps: list[tuple[Tensor, float]] = []
    learn = loop.learn

    def noted(run: Any, step: Any, member: Any) -> Any:
        value, outputs = learn(run, step, member)
        steps.append((step.rows, float(value.detach())))
        return value, outputs

    with monkeypatch.context() as patch:
        patch.setattr(loop, "learn", noted)
        multum.fit(ens, given, recipe, accelerator="cpu", warn=False)
    return steps


CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    **{name: (kind(members=2), {}) for name, kind in METHODS.items() if name != "single"},
    "single": (multum.Single(), {}),
    "hypernet": (multum.Hypernet(members=2, birth_epoch=2), {"accumulate": 2}),
    "hypernet, any member": (multum.Hypernet(members=2, birth_epoch=2, nested=False), {"average_from": 0.5}),
    "packed, clipped": (multum.Packed(members=2, alpha=2), {"clip": 0.5, "accumulate": 3, "l1": 1e-3}),
    "deep, averaged": (multum.Deep(members=2), {"average_from": 0.5, "optimizer": "sgd", "schedule": "constant"}),
    "mimo, repeated": (multum.Mimo(members=2, rho=0.5, repeats=2), {"reduction": "mean"}),
    "masksembles": (multum.Masksembles(members=2), {"weight_decay": 0.1}),
    "snapshot, averaged": (multum.Snapshot(members=2, cycles=False, start=0.5), {"average_from": 0.25}),
}


@pytest.mark.parametrize("case", CASES)
def test_every_step_is_that_of_fit(case: str, monkeypatch: Any) -> None:
    method, given_fields = CASES[case]
    task = "regression" if case in ("deep", "hypernet", "swag") else "classification"
    reference, ens, given = built(method, task), built(method, task), data(task)
    fields: dict[str, Any] = {"epochs": 4, "lr": 0.02, **given_fields}
    steps = fitted(reference, given, multum.Recipe(**fields, batch_size=16, precision="64-true"), monkeypatch)
    course = multum.Course(ens, multum.Recipe(**fields), per_epoch=len(steps) // 4)
    for rows, wanted in steps:
        x, y = given.prepare(given.train.x[rows]), given.targets(given.train.y[rows])
        value = course.step(x, y, per_member=rows.ndim > 1)  # Deep's members have orders of their own
        torch.testing.assert_close(float(value), wanted, rtol=1e-12, atol=1e-12)
    assert course.over
    course.conclude([given.prepare(given.train.x)])
    ours, theirs = ens.state_dict(), reference.double().state_dict()
    assert ours.keys() == theirs.keys() and ens.members == reference.members == method.members
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, **EXACT, msg=lambda m, n=name: f"{n}: {m}")


def test_the_loss_may_be_ones_own() -> None:
    ens = built(multum.Deep(members=2), "regression")
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    course = multum.Course(ens, multum.Recipe(epochs=40, lr=0.01), per_epoch=1)
    values = []
    while not course.over:
        values.append(course.step(x, x[:, 0], lambda outputs, y: nn.functional.huber_loss(outputs[:, 0], y)))
        ens.eval()  # looked at in between: the next step trains again
    course.conclude()
    assert values[-1] < values[0] / 3


def test_what_does_not_fit_is_refused() -> None:
    ens, x = built(multum.Snapshot(members=2)), torch.zeros(8, 4, dtype=torch.float64)
    with pytest.raises(ConfigError, match="must leave data, devices and files to the loop; got flip, keep, patience"):
        multum.Course(ens, multum.Recipe(patience=3, flip=True), per_epoch=1)
    with pytest.raises(ConfigError, match="every snapshot must have an epoch of its own"):
        multum.Course(ens, multum.Recipe(epochs=1), per_epoch=5)
    course = multum.Course(ens, multum.Recipe(epochs=2, average_from=0.5), per_epoch=1)
    course.step(x, torch.zeros(8, dtype=torch.long))
    with pytest.raises(TrainingError, match="must be over before its conclusion; got 1 steps left"):
        course.conclude()
    course.step(x, torch.zeros(8, dtype=torch.long))
    with pytest.raises(TrainingError, match="must have steps left; got one more than 2"):
        course.step(x, torch.zeros(8, dtype=torch.long))
    with pytest.raises(TrainingError, match="batch norms of averaged weights must see data anew"):
        course.conclude()


BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "training.md").read_text(), re.S)


@pytest.mark.parametrize("index", range(len(BLOCKS)))
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore:.*num_workers")
@pytest.mark.filterwarnings("ignore:.*(log_every_n_steps|no optimizer)")
def test_the_examples_of_the_page_run(index: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    exec(compile(BLOCKS[index], f"docs/training.md, block {index + 1}", "exec"), {})
