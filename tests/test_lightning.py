"""multum.lightning: the training of `multum.fit` in Lightning's loop."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import multum
from grids import grid
from multum.data.parts import Data
from multum.errors import ConfigError

from multum.lightning import EnsembleCallback, EnsembleModule  # isort: skip
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

pytestmark = [  # of Lightning itself: what it asks of torch, and its advice about loaders and logging
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings(
        "ignore:.*(num_workers|log_every_n_steps|exists and is not empty|no `val_dataloader`|pre-optimization state)"
    ),
    pytest.mark.filterwarnings("ignore:.*this fit will run with no optimizer"),
]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    log = logging.getLogger("lightning.pytorch")
    before = log.level
    log.setLevel(logging.ERROR)
    yield
    log.setLevel(before)


def data(task: str = "classification") -> Data:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 4, generator=generator)
    return Data.given(x, (x[:, 0] > 0).long() if task == "classification" else x.sum(1), task)


def built(method: Any, task: str = "classification") -> multum.Ensemble:
    torch.manual_seed(0)
    net = multum.models.build("mlp", in_features=4, classes=2, hidden=(16, 16), dropout=0.1)
    return multum.ensemble(net, method, example=torch.zeros(2, 4), task=task, seed=0)


def trainer(epochs: int, folder: Path, *callbacks: Callback, **more: Any) -> Trainer:
    settings: dict[str, Any] = {"accelerator": "cpu", "devices": 1, "precision": "64-true", "logger": False}
    settings |= {"enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": folder}
    settings |= {"enable_checkpointing": any(isinstance(each, ModelCheckpoint) for each in callbacks)}
    return Trainer(max_epochs=epochs, callbacks=[*callbacks], **{**settings, **more})


class Losses(Callback):
    """The loss of every step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.values.append(float(outputs["loss"]))


def losses_of_fit(ens: multum.Ensemble, given: Data, recipe: multum.Recipe, monkeypatch: Any) -> list[float]:
    from multum.training import loop

    values: list[float] = []
    learn = loop.learn

    def noted(*args: Any) -> Any:
        value, outputs = learn(*args)
        values.append(float(value.detach()))
        return value, outputs

    with monkeypatch.context() as patch:
        patch.setattr(loop, "learn", noted)
        multum.fit(ens, given, recipe, accelerator="cpu", warn=False)
    return values


METHODS = {
    "deep": (multum.Deep(members=2), {}),
    "packed, clipped and accumulated": (multum.Packed(members=2, alpha=2), {"clip": 0.5, "accumulate": 2}),
    "batchensemble, averaged": (multum.BatchEnsemble(members=2), {"average_from": 0.5}),
    "mimo, best kept": (multum.Mimo(members=2), {"keep": "best", "validation": 0.2}),
    "mixture": (multum.Mixture(members=2), {}),
    "hypernet, born late and in turns": (multum.Hypernet(members=2, birth_epoch=2), {}),
    "snapshot, collected": (multum.Snapshot(members=2), {}),
    "swag, collected": (multum.Swag(members=2), {}),
    "lamb, one optimizer each, clipped": (multum.Deep(members=2), {"optimizer": "lamb", "clip": 0.1}),
    "own order, mixed": (multum.Deep(members=2), {"order": "own", "mixup": 0.3}),
    "own order, one by one": (multum.Deep(members=2), {"sequential": True, "order": "own"}),
}


TASKS = ("classification", "regression")
STEPPED = [(name, task) for name in METHODS for task in TASKS if not (task == TASKS[1] and "mixup" in METHODS[name][1])]
# A regression differs by its loss, which is the same function for every method.
TOLD = [(name, task) for name, task in STEPPED if task == "classification" or name == "deep"]


@pytest.mark.parametrize(("name", "task"), grid(STEPPED, always=TOLD))
def test_every_step_has_the_loss_of_fit(name: str, task: str, tmp_path, monkeypatch) -> None:
    method, fields = METHODS[name]
    recipe = multum.Recipe(epochs=4, batch_size=16, lr=0.02, precision="64-true", **fields)
    reference, ens, given = built(method, task), built(method, task), data(task)
    wanted = losses_of_fit(reference, given, recipe, monkeypatch)
    losses = Losses()
    module = EnsembleModule(ens, given, recipe)
    trainer(module.recipe.epochs * (2 if recipe.sequential else 1), tmp_path, losses).fit(module)
    assert losses.values == wanted and len(wanted) >= 12
    ours, theirs = ens.double().state_dict(), reference.double().state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
    x = torch.randn(5, 4, dtype=torch.float64)
    if ens.method.deterministic:
        assert torch.equal(ens.eval()(x), reference.eval()(x))
    assert [row["epoch"] for row in module.history] == [*range(1, len(module.history) + 1)]


class Killed(Exception):
    pass


class Kill(Callback):
    def __init__(self, step: int):
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if module.run.step == self.step:
            raise Killed


LATE = ("hypernet, born late and in turns", "swag, collected")
KILLED = [(name, step) for name in ("deep", *LATE) for step in (4, 5, 10)]  # after 3, 4 (an epoch) and 9 of 16 batches


@pytest.mark.parametrize(("name", "step"), grid(KILLED, always=[("deep", 5), (LATE[0], 10), (LATE[1], 4)]))
def test_a_run_that_was_killed_ends_as_if_it_had_not(name: str, step: int, tmp_path, monkeypatch) -> None:
    method, fields = METHODS[name]
    recipe = multum.Recipe(epochs=4, batch_size=16, lr=0.02, precision="64-true", **fields)
    reference = built(method)
    wanted = losses_of_fit(reference, data(), recipe, monkeypatch)

    def kept() -> ModelCheckpoint:
        return ModelCheckpoint(tmp_path, save_last=True, every_n_train_steps=1, save_on_train_epoch_end=True)

    with pytest.raises(Killed):
        trainer(4, tmp_path, kept(), Kill(step)).fit(EnsembleModule(built(method), data(), recipe))
    losses, ens = Losses(), built(method)
    module = EnsembleModule(ens, data(), recipe)
    trainer(4, tmp_path, losses, kept()).fit(module, ckpt_path=tmp_path / "last.ckpt")
    assert 0 < len(losses.values) < len(wanted) and losses.values == wanted[-len(losses.values) :]
    ours, theirs = ens.double().state_dict(), reference.double().state_dict()
    assert all(torch.equal(ours[n], theirs[n]) for n in theirs)


def test_validation_logging_and_prediction(tmp_path) -> None:
    given = data()
    module = EnsembleModule(built(multum.Deep(members=2)), given, multum.Recipe(epochs=2))
    loader = DataLoader(TensorDataset(given.train.x, given.train.y), batch_size=25)
    fitted = trainer(2, tmp_path, precision="32-true")
    fitted.fit(module, val_dataloaders=loader)
    assert {"train_loss", "epoch_loss", "epoch_accuracy", "val_nll"} <= fitted.callback_metrics.keys()
    prediction = multum.predict(module.ensemble, given.train.x)
    nll = -prediction.log_probs.gather(1, given.train.y[:, None]).mean()
    assert float(fitted.callback_metrics["val_nll"]) == pytest.approx(float(nll), rel=1e-5)
    batches = fitted.predict(module, loader)
    assert sum(map(len, batches)) == 50 and fitted.global_step == 2


def test_patience_stops_a_trainer(tmp_path) -> None:
    recipe = multum.Recipe(epochs=30, lr=0.5, batch_size=16, patience=2, validation=0.2)
    module = EnsembleModule(built(multum.Single()), data(), recipe)
    trainer(30, tmp_path, precision="32-true").fit(module)
    assert len(module.history) < 30


def test_what_does_not_fit_is_refused(tmp_path) -> None:
    module = EnsembleModule(built(multum.Single()), data(), multum.Recipe(epochs=2))
    with pytest.raises(ConfigError, match=r"max_epochs=3 for 2. Use Trainer\(max_epochs=2\)"):
        trainer(3, tmp_path).fit(module)
    loader = DataLoader(TensorDataset(data().train.x, data().train.y), batch_size=25)
    with pytest.raises(ConfigError, match="must have its training data itself"):
        trainer(2, tmp_path, precision="32-true").fit(module, loader)


class Own(LightningModule):
    """A module of somebody's own: an ensemble, a loss and an optimizer."""

    def __init__(self, ens: multum.Ensemble):
        super().__init__()
        self.ens = ens

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        seen = self.ens.method.batch(*batch, torch.Generator().manual_seed(index))
        return multum.loss(self.ens(seen.x, per_member=seen.per_member), seen.y, reduction="sum")

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.ens.method.parameter_groups(self.ens, 1e-4), lr=0.02)


class Simple(LightningModule):
    """Ten lines for every method, with Lightning's loop and neither of multum's classes for it."""

    def __init__(self, ens: multum.Ensemble, course: multum.Course):
        super().__init__()
        self.ens, self.course, self.automatic_optimization = ens, course, False

    def training_step(self, batch: Any, index: int) -> None:
        self.log("loss", self.course.step(*batch))

    def on_train_end(self) -> None:
        self.course.conclude(batch[0].double() for batch in self.trainer.train_dataloader)

    def configure_optimizers(self) -> None:
        pass


def normed(method: Any) -> multum.Ensemble:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    return multum.ensemble(net.double(), method, example=torch.zeros(2, 4, dtype=torch.float64), seed=0)


GATHERED = [multum.Snapshot(members=2), multum.FastGeometric(members=2), multum.Swag(members=2)]
TOGETHER = [multum.Deep(members=2), multum.BatchEnsemble(members=2), multum.TabM(members=2, form="mini")]


@pytest.mark.parametrize("method", [*TOGETHER, *GATHERED], ids=lambda m: m.name)
def test_a_module_of_ones_own_trains_as_a_course(method: Any, tmp_path) -> None:
    given = data()
    loader = DataLoader(TensorDataset(given.train.x, given.train.y), batch_size=25)
    reference, ens = normed(method), normed(method)
    course = multum.Course(reference, multum.Recipe(epochs=4, lr=0.02, schedule="constant"), per_epoch=2)
    for _ in range(4):
        for x, y in loader:
            course.step(x.double(), y)
    course.conclude(x.double() for x, _ in loader)
    trainer(4, tmp_path, EnsembleCallback()).fit(Own(ens), loader)
    ours, theirs = ens.state_dict(), reference.state_dict()
    assert ours.keys() == theirs.keys() and ens.members == 2
    assert all(torch.allclose(ours[n], theirs[n], rtol=0, atol=1e-12) for n in theirs)


def test_what_is_gathered_survives_in_checkpoints(tmp_path) -> None:
    given = data()
    loader = DataLoader(TensorDataset(given.train.x, given.train.y), batch_size=25)
    whole, ens = normed(multum.Snapshot(members=2)), normed(multum.Snapshot(members=2))
    trainer(4, tmp_path, EnsembleCallback()).fit(Own(whole), loader)

    class Stop(Callback):
        def on_train_epoch_start(self, trainer: Trainer, module: Any) -> None:
            if trainer.current_epoch == 3:
                raise Killed

    kept = ModelCheckpoint(tmp_path, save_last=True)
    with pytest.raises(Killed):
        trainer(4, tmp_path, EnsembleCallback(), kept, Stop()).fit(Own(ens), loader)
    again = normed(multum.Snapshot(members=2))
    resumed = trainer(4, tmp_path, EnsembleCallback(), ModelCheckpoint(tmp_path, save_last=True))
    resumed.fit(Own(again), loader, ckpt_path=tmp_path / "last.ckpt")
    assert again.members == 2 and all(torch.equal(t, whole.state_dict()[n]) for n, t in again.state_dict().items())


@pytest.mark.parametrize("method", [multum.Hypernet(members=2, birth_epoch=2), multum.Swag(members=2)])
def test_ten_lines_of_lightning_serve_every_method(method: Any, tmp_path) -> None:
    given, ens, reference = data(), normed(method), normed(method)
    loader = DataLoader(TensorDataset(given.train.x, given.train.y), batch_size=25)
    recipe = multum.Recipe(epochs=4, lr=0.02)
    trainer(4, tmp_path).fit(Simple(ens, multum.Course(ens, recipe, per_epoch=2)), loader)
    course = multum.Course(reference, recipe, per_epoch=2)
    for _ in range(4):
        for x, y in loader:
            course.step(x.double(), y)
    course.conclude(x.double() for x, _ in loader)
    assert all(torch.equal(t, reference.state_dict()[n]) for n, t in ens.state_dict().items())


def test_what_a_callback_cannot_serve_is_refused(tmp_path) -> None:
    loader = DataLoader(TensorDataset(data().train.x, data().train.y), batch_size=25)
    with pytest.raises(ConfigError, match="members that take turns must have optimizers of their own; got Hypernet"):
        trainer(4, tmp_path, EnsembleCallback()).fit(Own(normed(multum.Hypernet(members=2))), loader)
    two = Own(normed(multum.Deep(members=2)))
    two.other = normed(multum.Deep(members=2))
    with pytest.raises(ConfigError, match=r"must hold one ensemble; got 2. Use EnsembleCallback\(name="):
        trainer(1, tmp_path, EnsembleCallback()).fit(two, loader)
