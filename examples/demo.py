"""Train Single, Deep and Packed on the digits that ship with scikit-learn, and print what each is worth and costs.

make demo
"""

from __future__ import annotations

import time

import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import multum

EPOCHS, BATCH = 30, 64
METHODS = [multum.Single(init="fresh"), multum.Deep(members=4), multum.Packed(members=4, alpha=2)]


def digits() -> list[torch.Tensor]:
    """Training images, test images, training labels, test labels. Shape: images [n, 1, 8, 8] in [0, 1]."""
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16
    return train_test_split(images, torch.tensor(labels), test_size=0.3, random_state=0, stratify=labels)


def train(ens: multum.Ensemble, x: torch.Tensor, y: torch.Tensor, progress: Progress) -> float:
    """Train all members at once; the seconds it took."""
    started = time.perf_counter()
    optimizer = torch.optim.AdamW(ens.parameters(), lr=3e-3)
    bar = progress.add_task(type(ens.method).__name__, total=EPOCHS)
    order = torch.Generator().manual_seed(0)
    ens.train()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x), generator=order).split(BATCH):
            optimizer.zero_grad()
            multum.loss(ens(x[rows]), y[rows], reduction="sum").backward()
            optimizer.step()
        progress.advance(bar)
    return time.perf_counter() - started


def main() -> None:
    torch.manual_seed(0)
    train_x, test_x, train_y, test_y = digits()
    net = multum.models.build("small-cnn", classes=10, in_channels=1)
    table = Table(title=f"digits, small-cnn, {EPOCHS} epochs, one seed", title_justify="left")
    columns = ("method", "accuracy %", "NLL", "members' mean NLL", "parameters", "mult-adds", "training s")
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i == 0 else "right")
    console = Console()
    with Progress(console=console) as progress:
        for method in METHODS:
            ens = multum.ensemble(net, method, example=train_x[:2], seed=0)
            seconds = train(ens, train_x, train_y, progress)
            found = multum.predict(ens, test_x)
            cost = multum.cost(ens, example=test_x)
            rows = torch.arange(len(test_y))
            table.add_row(
                type(method).__name__,
                f"{100 * (found.labels == test_y).double().mean():.2f}",
                f"{-found.log_probs[rows, test_y].mean():.4f}",
                f"{-found.members[:, rows, test_y].log().mean():.4f}",
                f"{cost.params:,}",
                f"{cost.macs:,}",
                f"{seconds:.1f}",
            )
    console.print(table)


if __name__ == "__main__":
    main()
