"""Train several ensembles in one process or in many, and write each process's weights.

python ddp_job.py FOLDER DEVICES [NAME ...]        or under torchrun, which brings its own processes
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import multum

RECIPE = multum.Recipe(
    epochs=4, batch_size=16, optimizer="sgd", lr=0.1, weight_decay=1e-3, precision="64-true", seed=3, clip=2.0
)  # 80 rows: 5 steps an epoch

JOBS: dict[str, tuple[multum.methods.Method, dict]] = {
    "deep": (multum.Deep(members=2), {"order": "own", "accumulate": 2, "crop": 1, "flip": True}),
    "mixed": (multum.Deep(members=2), {"order": "own", "crop": 1, "mixup": 0.3, "cutmix": 0.5}),
    "packed": (
        multum.Packed(members=2, alpha=1),
        {"optimizer": "adamw", "lr": 0.01, "average_from": 0.5, "crop": 2, "flip": True},
    ),
    "batchensemble": (
        multum.BatchEnsemble(members=2),
        {"label_smoothing": 0.1, "l1": 1e-3, "keep": "best", "validation": 0.2},
    ),
    "mimo": (multum.Mimo(members=2, rho=0.5, repeats=2), {}),
    "hypernet": (multum.Hypernet(members=3, birth_epoch=2), {"accumulate": 2}),
    "specialists": (multum.Hypernet(members=3, birth_epoch=2, nested=False), {"average_from": 0.5}),
    "batch norm": (multum.Hypernet(members=2, birth_epoch=2), {"ghost": 4}),
    "dropout": (multum.McDropout(members=2), {}),
}
APART = ("batch norm", "dropout")  # statistics and masks are those of each process's rows


class Net(nn.Module):
    def __init__(self, norm: bool, width: int = 6) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, width, 3), nn.Conv2d(width, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width) if norm else nn.GroupNorm(1, width)
        self.fc = nn.Linear(width, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.norm(self.conv1(x)))
        return self.fc(torch.tanh(self.conv2(x)).mean((-2, -1)))


def data() -> multum.Data:
    g = torch.Generator().manual_seed(0)
    y = torch.randint(3, (100,), generator=g)
    x = (torch.rand(100, 1, 7, 7, generator=g) * 100).to(torch.uint8) + (y * 50).to(torch.uint8).view(-1, 1, 1, 1)
    part = multum.data.Part(x, y)
    mean, std = torch.tensor(0.4).view(1, 1, 1), torch.tensor(0.3).view(1, 1, 1)
    train, test = part.rows(torch.arange(80)), part.rows(torch.arange(80, 100))
    return multum.Data("made", "classification", train, test, 3, mean, std)


def main(folder: Path, devices: int, names: list[str]) -> None:
    from multum.training.devices import is_first

    for name in names or JOBS:
        method, fields = JOBS[name]
        torch.manual_seed(0)
        ens = multum.ensemble(Net(name == "batch norm"), method, example=data().example(4), seed=1)
        history = multum.fit(ens, data(), replace(RECIPE, **fields), devices=devices, accelerator="cpu")
        rows = [{k: v for k, v in row.items() if k not in ("seconds", "waiting")} for row in history]
        rank = 0 if is_first() else 1
        save_file(ens.state_dict(), folder / f"{name}-{rank}.safetensors", metadata={"log": json.dumps(rows)})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
    if "TO_THE_END" not in os.environ:  # all is written; gloo's threads now and then abort a process while Python ends
        os._exit(0)
