"""As ddp_job.py, under Lightning's Trainer: python lightning_job.py FOLDER [NAME ...]

A name that begins with "own" has a LightningModule of its own and the callback; one that ends with "killed" is stopped
on the way and goes on from its checkpoint; "ddp_job" takes all of that file's.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import multum

from multum.lightning import EnsembleCallback, EnsembleModule  # isort: skip
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from training.ddp_job import JOBS, RECIPE, Net, data

BORN_LATE = "hypernet"
MORE: dict[str, tuple[multum.methods.Method, dict]] = {
    "single": (multum.Single(), {}),
    "tabm": (multum.TabM(members=2, form="mini"), {"order": "own"}),
    "masksembles": (multum.Masksembles(members=2, scale=2.0), {"optimizer": "adamw", "lr": 0.01}),
    "mixture": (multum.Mixture(members=2), {}),
    "multihead": (multum.Multihead(members=2), {"accumulate": 2}),
    "treenet": (multum.TreeNet(members=2, at="conv2"), {}),
    "snapshot": (multum.Snapshot(members=2), {}),
    "fastgeometric": (multum.FastGeometric(members=2), {}),
    "swag": (multum.Swag(members=2), {}),
    "sequential": (multum.Deep(members=2), {"sequential": True, "optimizer": "lamb"}),
}
EVERY = {**JOBS, **MORE}


def made(name: str) -> multum.Ensemble:
    torch.manual_seed(0)
    net = Net(name == "batch norm", width=12 if name == "masksembles" else 6)  # a mask must have ten channels
    return multum.ensemble(net, EVERY[name][0], example=data().example(4), seed=1)


class Own(LightningModule):
    """A module of somebody's own: an ensemble, a loss and an optimizer."""

    def __init__(self, ens: multum.Ensemble):
        super().__init__()
        self.ens = ens

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return multum.loss(self.ens(batch[0]), batch[1], reduction="sum")

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.ens.method.parameter_groups(self.ens, 1e-3), lr=0.1)

    def train_dataloader(self) -> Any:
        """As many rows in a step, in the same order, whatever the number of processes."""
        given, world = TensorDataset(data().prepare(data().train.x).double(), data().train.y), self.trainer.world_size
        sampler = DistributedSampler(given, world, self.trainer.global_rank, shuffle=False)
        return DataLoader(given, batch_size=16 // world, sampler=sampler)


class Losses(Callback):
    """Of every step, over all processes."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, *_: Any) -> None:
        self.values.append(float(trainer.strategy.reduce(outputs["loss"].detach().clone(), reduce_op="mean")))


class Kill(Callback):
    def __init__(self, step: int, really: bool):
        self.step, self.really = step, really

    def on_train_batch_end(self, trainer: Trainer, module: Any, *_: Any) -> None:
        if module.run.step == self.step:
            if self.really:
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("killed")


def trained(module: LightningModule, devices: int, epochs: int, *callbacks: Callback, **more: Any) -> int:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"enable_checkpointing": any(isinstance(each, ModelCheckpoint) for each in callbacks)}
    where = {"accelerator": "cpu", "devices": devices, "precision": "64-true"}
    where |= {"strategy": "ddp"} if devices > 1 else {}
    trainer = Trainer(max_epochs=epochs, callbacks=[*callbacks], **quiet, **where)
    trainer.fit(module, **more)
    return trainer.global_rank


def main(folder: Path, devices: int, names: list[str]) -> None:
    for name in names:
        job = name.removeprefix("own ").removesuffix(" by force").removesuffix(" killed")
        ens, losses = made(job), Losses()
        if name.startswith("own "):
            rank = trained(Own(ens), devices, RECIPE.epochs, losses, EnsembleCallback())
            rows = []
        else:
            module = EnsembleModule(ens, data(), replace(RECIPE, **EVERY[job][1]))
            epochs = RECIPE.epochs * (ens.members if module.recipe.sequential else 1)
            last = folder / f"{name}.ckpt"
            if "killed" in name and not last.is_file():
                kept = ModelCheckpoint(folder, name, every_n_train_steps=1)
                try:
                    trained(module, devices, epochs, kept, Kill(13, really="by force" in name))
                except RuntimeError as error:
                    assert "killed" in str(error)
                ens = made(job)
                module = EnsembleModule(ens, data(), module.recipe)
            again = {"ckpt_path": last} if last.is_file() else {}
            rank = trained(module, devices, epochs, losses, **again)
            rows = [{k: v for k, v in row.items() if k not in ("seconds", "waiting")} for row in module.history]
        about = {"log": json.dumps(rows), "losses": json.dumps(losses.values)}
        save_file(ens.double().state_dict(), folder / f"{name}-{rank}.safetensors", metadata=about)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    if "TO_THE_END" not in os.environ:  # all is written; gloo's threads now and then abort a process while Python ends
        os._exit(0)
