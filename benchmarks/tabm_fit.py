"""Seconds of a fit on adult: multum.TabM beside the package tabm and pytabkit's TabM, interleaved in one run.

    OMP_NUM_THREADS=1 python benchmarks/tabm_fit.py --rows 8192 --epochs 2 --rounds 3

For an environment with tabm, pytabkit and multum. All have the same members, width, depth, dropout, batch size, number
of epochs and training rows, AdamW at 2e-3 with decay 3e-4, categories as ones and zeros, numbers without an embedding,
the same batches for all members, and no early stopping. The time is that of training alone for tabm's own loop (as its
authors' example is), and of `multum.fit` and pytabkit's `fit` as a whole, which also scales and validates; the accuracy
on test rows says that all of them train. adult.npz is in $MULTUM_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import multum
from multum.operators import define_missing

LR, DECAY, BATCH, DROPOUT, BLOCKS = 2e-3, 3e-4, 256, 0.1, 3


def read(rows: int) -> dict[str, Any]:
    """Training and test rows: numbers by their mean and spread, codes, and targets."""
    arrays = np.load(Path(os.environ["MULTUM_DATA"]) / "adult.npz")
    train, test = (np.flatnonzero(arrays["part"] == k) for k in (0, 2))
    train = np.random.default_rng(0).permutation(train)[:rows]
    numbers = arrays["x_num"].astype(np.float32)
    numbers = (numbers - numbers[train].mean(0)) / numbers[train].std(0)
    codes = arrays["x_cat"].astype(np.int64)
    cardinalities = (codes.max(0) + 1).tolist()
    parts = {"train": train, "test": test}
    named = {"numbers": numbers, "codes": codes, "y": arrays["y"].astype(np.int64)}
    held = {part: {name: values[rows] for name, values in named.items()} for part, rows in parts.items()}
    return {**held, "cardinalities": cardinalities}


def encoded(part: dict[str, np.ndarray], cardinalities: list[int]) -> Tensor:
    """Numbers, and ones and zeros for categories. Shape: [rows, columns]."""
    codes = torch.from_numpy(part["codes"])
    columns = [F.one_hot(codes[:, k], size) for k, size in enumerate(cardinalities)]
    return torch.cat([torch.from_numpy(part["numbers"]), *columns], 1).float()


def ours(data: dict[str, Any], options: argparse.Namespace, form: str) -> tuple[float, float]:
    x, y = encoded(data["train"], data["cardinalities"]), torch.from_numpy(data["train"]["y"])
    hidden = (options.width,) * BLOCKS
    began = time.perf_counter()
    net = multum.models.build("mlp", in_features=x.shape[1], classes=2, hidden=hidden, dropout=DROPOUT)
    ens = multum.ensemble(net, multum.TabM(members=options.members, form=form), example=x[:2], seed=0)
    recipe = {"lr": LR, "weight_decay": DECAY, "batch_size": BATCH, "schedule": "constant"}
    multum.fit(ens, (x, y), multum.Recipe(epochs=options.epochs, **recipe), warn=False)
    seconds = time.perf_counter() - began
    labels = multum.predict(ens, encoded(data["test"], data["cardinalities"])).labels
    return seconds, float((labels.numpy() == data["test"]["y"]).mean())


def package(data: dict[str, Any], options: argparse.Namespace, form: str) -> tuple[float, float]:
    import tabm

    tensors = {part: {k: torch.from_numpy(v) for k, v in data[part].items()} for part in ("train", "test")}
    numbers, codes, y = (tensors["train"][k] for k in ("numbers", "codes", "y"))
    began = time.perf_counter()
    torch.manual_seed(0)
    model = tabm.TabM.make(
        n_num_features=numbers.shape[1],
        cat_cardinalities=data["cardinalities"],
        d_out=2,
        n_blocks=BLOCKS,
        d_block=options.width,
        k=options.members,
        dropout=DROPOUT,
        arch_type="tabm" if form == "full" else "tabm-mini",
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY)
    for _ in range(options.epochs):
        for rows in torch.randperm(len(y)).split(BATCH):
            outputs = model(numbers[rows], codes[rows])
            value = F.cross_entropy(outputs.flatten(0, 1), y[rows].repeat_interleave(options.members))
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    seconds = time.perf_counter() - began
    model.eval()
    with torch.no_grad():
        probs = model(tensors["test"]["numbers"], tensors["test"]["codes"]).softmax(-1).mean(1)
    return seconds, float((probs.argmax(1) == tensors["test"]["y"]).float().mean())


def pytabkit(data: dict[str, Any], options: argparse.Namespace, form: str) -> tuple[float, float]:
    define_missing()
    import pandas as pd
    from pytabkit import TabM_D_Classifier

    def frame(part: dict[str, np.ndarray]) -> pd.DataFrame:
        codes = {f"c{k}": pd.Categorical(part["codes"][:, k]) for k in range(part["codes"].shape[1])}
        return pd.DataFrame(part["numbers"]).add_prefix("n").assign(**codes)

    X, y = frame(data["train"]), data["train"]["y"]
    began = time.perf_counter()
    model = TabM_D_Classifier(
        arch_type="tabm" if form == "full" else "tabm-mini",
        num_emb_type="none",
        n_blocks=BLOCKS,
        d_block=options.width,
        dropout=DROPOUT,
        tabm_k=options.members,
        n_epochs=options.epochs,
        patience=options.epochs + 1,
        batch_size=BATCH,
        lr=LR,
        weight_decay=DECAY,
        allow_amp=False,
        share_training_batches=True,
        val_fraction=0.0625,
        random_state=0,
        n_threads=1,
        device="cpu",
        verbosity=0,
    ).fit(X, y)
    seconds = time.perf_counter() - began
    return seconds, float((model.predict(frame(data["test"])) == data["test"]["y"]).mean())


SUBJECTS = {"multum": ours, "tabm": package, "pytabkit": pytabkit}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--members", type=int, default=32)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--forms", nargs="*", default=["full", "mini"])
    parser.add_argument("--subjects", nargs="*", default=[*SUBJECTS])
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    multum.keep_memory()
    data, seconds, accuracies = read(options.rows), {}, {}
    for _ in range(options.rounds):
        for form in options.forms:
            for name in options.subjects:
                took, accuracy = SUBJECTS[name](data, options, form)
                seconds.setdefault((name, form), []).append(took)
                accuracies[name, form] = accuracy
                print(json.dumps({"name": name, "form": form, "seconds": took, "accuracy": accuracy}), flush=True)
    for (name, form), values in seconds.items():
        median, accuracy = statistics.median(values), accuracies[name, form]
        print(f"{name:>8} {form}: {median:6.1f} s ({min(values):.1f} to {max(values):.1f}), accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
