"""Data as people have it: tensors, arrays, frames, data sets and loaders of torch, streams and generators."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

import multum
from multum.data.given import as_data
from multum.data.rows import Rows
from multum.errors import DataError, TrainingError
from multum.training.optimizers import Optimizers


def pair(n: int = 60) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long()


def made(task: str = "classification", seed: int = 0) -> multum.Ensemble:
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    torch.manual_seed(1)
    for layer in net[::2]:
        layer.reset_parameters()
    return multum.ensemble(net, multum.Deep(members=2), example=pair()[0][:4], seed=seed, task=task)


class Items(Dataset):
    """Pairs that are made when they are asked for; with noise of torch's, numpy's and Python's own generators."""

    def __init__(self, noise: float = 0.0, listed: bool = False, n: int = 60):
        self.x, self.y = pair(n)
        self.noise, self.read = noise, 0
        if listed:
            self.targets = self.y.tolist()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        self.read += 1
        noise = torch.randn(4) + float(np.random.randn()) + random.gauss(0, 1)
        return self.x[i] + self.noise * noise, int(self.y[i])


class Rain(IterableDataset):
    def __init__(self, n: int = 60, length: bool = True):
        self.x, self.y = pair(n)
        if length:
            self.__class__ = Measured

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(zip(self.x, self.y, strict=True))


class Measured(Rain):
    def __len__(self) -> int:
        return len(self.x)


RECIPE = multum.Recipe(epochs=2, batch_size=16, lr=0.01, seed=3)


def weights(ens: multum.Ensemble) -> list[Tensor]:
    return [p.detach().clone() for p in ens.parameters()]


def frames() -> tuple[pd.DataFrame, pd.Series]:
    x, y = pair()
    return pd.DataFrame(x.double().numpy(), columns=list("abcd")), pd.Series(y.numpy(), name="y")


FORMS = {
    "tensors": pair,
    "a list of two": lambda: list(pair()),
    "arrays": lambda: tuple(t.numpy() for t in pair()),
    "float64 arrays": lambda: (pair()[0].double().numpy(), pair()[1].numpy().astype(np.int32)),
    "big-endian arrays": lambda: (pair()[0].numpy().astype(">f4"), pair()[1].numpy().astype(">i8")),
    "a frame and a series": frames,
    "a frame of pandas' own types": lambda: (frames()[0].astype("Float64"), frames()[1].astype("Int64")),
    "a frame and an array": lambda: (frames()[0], frames()[1].to_numpy()),
    "a TensorDataset": lambda: TensorDataset(*pair()),
    "a subset of one": lambda: Subset(TensorDataset(*(torch.cat([t, t]) for t in pair())), list(range(60))),
    "a Dataset": Items,
    "a Dataset with targets": lambda: Items(listed=True),
    "a loader of tensors": lambda: DataLoader(TensorDataset(*pair()), batch_size=5, shuffle=True),
    "a loader": lambda: DataLoader(Items(), batch_size=5),
    "a loader with workers": lambda: DataLoader(Items(), batch_size=16, num_workers=2),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_trains_measures_and_predicts_the_same(form: str) -> None:
    wanted, ens = made(), made()
    multum.fit(wanted, pair(), RECIPE, warn=False)
    multum.fit(ens, FORMS[form](), RECIPE, warn=False)
    assert all(torch.equal(a, b) for a, b in zip(weights(ens), weights(wanted), strict=True))
    numbers, expected = multum.evaluate(ens, FORMS[form]()), multum.evaluate(wanted, pair())
    assert numbers.pop("by_class")["confusion"] == expected.pop("by_class")["confusion"]
    assert numbers == pytest.approx(expected, nan_ok=True)
    data = FORMS[form]()
    alone = data[0] if isinstance(data, (tuple, list)) else data
    torch.testing.assert_close(multum.predict(ens, alone).logits, multum.predict(wanted, pair()[0]).logits)
    assert len(multum.predict(ens, alone, batch_size=7)) == 60


def test_a_loader_brings_its_batch_size_unless_the_recipe_has_one() -> None:
    steps: list[int] = []
    loader = DataLoader(Items(), batch_size=30)
    for recipe in (multum.Recipe(epochs=1), multum.Recipe(epochs=1, batch_size=20)):
        ens = made()
        hook = ens.register_forward_hook(lambda m, args, out: steps.append(out.shape[1]))
        multum.fit(ens, loader, recipe, warn=False)
        hook.remove()
    assert steps == [30, 30, 20, 20, 20]


def test_targets_are_read_once_or_taken_as_listed_and_never_trusted_blindly() -> None:
    listed, unlisted, wrong = Items(listed=True), Items(), Items(listed=True)
    wrong.targets = [0] * 60
    for dataset, most in ((listed, 10), (unlisted, 70), (wrong, 70)):
        data = as_data(dataset, "classification").data
        assert torch.equal(data.train.y, pair()[1]) and dataset.read <= most
        assert isinstance(data.train.x, Rows) and data.train.x.shape == (60, 4)


def test_random_transforms_are_those_of_seed_epoch_and_row() -> None:
    """With any number of workers, and without a trace in the generators that training draws from."""
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    index = [torch.tensor([3, 1]), torch.tensor([5])]
    drawn = {}
    for workers in (0, 1, 2):
        rows = as_data(DataLoader(Items(noise=1.0), num_workers=workers), "classification").data.train.x
        drawn[workers] = torch.cat(list(rows.batches(index, seed=7, epoch=2)))
    assert torch.equal(drawn[0], drawn[1]) and torch.equal(drawn[0], drawn[2])
    rows = as_data(Items(noise=1.0), "classification").data.train.x
    again, later, other = (torch.cat(list(rows.batches(index[::-1], *where))) for where in ((7, 2), (7, 3), (8, 2)))
    assert torch.equal(again[1:], drawn[0][:2]) and torch.equal(again[:1], drawn[0][2:])
    assert not torch.equal(later, again) and not torch.equal(other, again)
    assert torch.equal(torch.get_rng_state(), states[0]) and (np.random.get_state()[1] == states[1]).all()
    assert random.getstate() == states[2]


class Crash(Exception):
    pass


def crash_at(move: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, at this move of the optimizers from now on."""
    step, left = Optimizers.step, {"moves": move}

    def crashing(self: Optimizers, *args: Any, **kwargs: Any) -> None:
        left["moves"] -= 1
        if left["moves"] == 0:
            raise Crash
        step(self, *args, **kwargs)

    monkeypatch.setattr(Optimizers, "step", crashing)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_on_a_loader_resumes_to_the_bit(workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fit(out: str) -> list[Tensor]:
        ens = made()
        loader = DataLoader(Items(noise=0.5), batch_size=16, num_workers=workers)
        multum.fit(ens, loader, RECIPE, out=tmp_path / out, checkpoint_seconds=0, warn=False)
        return weights(ens)

    whole = fit("whole")
    crash_at(6, monkeypatch)  # in the second epoch, of four steps each
    with pytest.raises(Crash):
        fit("crashed")
    assert all(torch.equal(a, b) for a, b in zip(fit("crashed"), whole, strict=True))


def test_a_pair_of_data_sets_is_for_training_and_validation() -> None:
    dataset = Items()
    parts = Subset(dataset, range(40)), Subset(dataset, range(40, 60))
    history = multum.fit(made(), parts, multum.Recipe(epochs=2, keep="best"), warn=False)
    assert "validation_nll" in history[0]
    data = as_data(parts, "classification").data
    assert len(data.train) == 40 and len(data.validation) == 20
    torch.testing.assert_close(data.validation.x[:], pair()[0][40:])


def test_a_stream_trains_by_its_own_order_and_says_what_resume_means(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    loader = DataLoader(Rain(), batch_size=16)
    ens, seen = made(), []
    ens.register_forward_pre_hook(lambda m, args: seen.append(args[0]))
    with caplog.at_level(logging.WARNING, "multum"):
        history = multum.fit(ens, loader, RECIPE, out=tmp_path / "whole", warn=False)
    assert "a run that is interrupted starts its epoch again" in caplog.text and len(history) == 2
    assert [len(x) for x in seen[:4]] == [16, 16, 16, 12] and torch.equal(torch.cat(seen[:4]), pair()[0])
    # An epoch that was interrupted starts again; this stream gives the same then, and so the run ends the same.
    crash_at(7, monkeypatch)
    again = made()
    with pytest.raises(Crash):
        multum.fit(again, loader, RECIPE, out=tmp_path / "crashed", checkpoint_seconds=0, warn=False)
    names = [p.name for p in (tmp_path / "crashed" / "checkpoints").iterdir()]
    assert sorted(names) == ["step-000000000.safetensors", "step-000000004.safetensors"]
    again = made()
    multum.fit(again, loader, RECIPE, out=tmp_path / "crashed", warn=False)
    assert all(torch.equal(a, b) for a, b in zip(weights(again), weights(ens), strict=True))
    assert multum.evaluate(ens, loader) == multum.evaluate(ens, pair())
    assert len(multum.predict(ens, loader).labels) == 60
    swag = multum.ensemble(nn.Linear(4, 2), multum.Swag(members=2, start=0.0), example=pair()[0][:4])
    multum.fit(swag, loader, RECIPE, warn=False)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"keep": "best"}, r"a stream, which cannot be split\. Give \(training, validation\)"),
        ({"patience": 2}, "a stream, which cannot be split"),
        ({"order": "own"}, "a stream, which has one order"),
        ({"mixup": 0.2}, "must know the number of classes; got a stream"),
    ],
)
def test_what_needs_rows_is_refused_of_a_stream(fields: dict, message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        multum.fit(made(), DataLoader(Rain(), batch_size=16), multum.Recipe(**fields))


def test_a_stream_has_a_length_and_keeps_it() -> None:
    with pytest.raises(DataError, match="a stream must say how many batches an epoch has"):
        multum.fit(made(), DataLoader(Rain(length=False), batch_size=16), RECIPE)
    loader = DataLoader(Rain(), batch_size=16)
    Measured.__len__, before = lambda self: 100, Measured.__len__
    try:
        with pytest.raises(DataError, match="must have the 7 batches that len"):
            multum.fit(made(), loader, RECIPE)
    finally:
        Measured.__len__ = before


def test_a_generator_gives_predictions_one_by_one() -> None:
    ens, taken = made(), []

    def batches() -> Iterator[Any]:
        for part in pair()[0].split(25):
            taken.append(len(part))
            yield part.numpy()

    predictions = multum.predict(ens, batches())
    assert taken == []
    first = next(predictions)
    assert taken == [25] and len(first) == 25
    whole = torch.cat([first.probs, *(p.probs for p in predictions)])
    torch.testing.assert_close(whole, multum.predict(ens, pair()[0]).probs)
    assert ens.training  # as it was


def test_predictions_keep_the_order_of_a_shuffled_loader_and_take_examples_alone() -> None:
    ens, x = made(), pair()[0]
    wanted = multum.predict(ens, x).logits
    loaders = [
        DataLoader(TensorDataset(x), batch_size=7, shuffle=True),
        DataLoader(TensorDataset(*pair()), batch_size=7, shuffle=True),
        DataLoader(list(x), batch_size=7),  # type: ignore[arg-type]
    ]
    for loader in loaders:
        torch.testing.assert_close(multum.predict(ens, loader).logits, wanted)
    torch.testing.assert_close(multum.predict(ens, frames()[0]).logits, wanted)


def test_examples_are_predicted_in_the_precision_of_the_ensemble() -> None:
    ens, x = made().double(), pair()[0]
    wanted = multum.predict(ens, x.double()).logits
    for given in (x.numpy(), frames()[0], DataLoader(TensorDataset(*pair()), batch_size=60)):
        torch.testing.assert_close(multum.predict(ens, given).logits, wanted, rtol=1e-6, atol=1e-6)
        assert multum.predict(ens, given).logits.dtype == torch.float64


def test_numbers_are_the_targets_of_a_regression() -> None:
    frame, _ = frames()
    for y in (frame["a"], frame[["a"]], frame["a"].to_numpy(), (frame["a"] * 10).astype(int)):
        ens = made("regression")
        multum.fit(ens, (frame, y), RECIPE, warn=False)
        assert multum.evaluate(ens, (frame, y))["rmse"] > 0


def bad_frame(**columns: Any) -> tuple[pd.DataFrame, pd.Series]:
    frame, y = frames()
    return frame.assign(**columns), y


REFUSED = {
    "words": (lambda: bad_frame(a="red", d="x"), "columns of numbers; got a, d, which are not. Encode them"),
    "categories": (lambda: bad_frame(a=pd.Categorical(["u"] * 60)), "columns of numbers; got a, which are not"),
    "dates": (lambda: bad_frame(a=pd.Timestamp("2024-01-01")), "columns of numbers; got a"),
    "missing": (lambda: bad_frame(b=np.nan), "missing ones in b. Fill them"),
    "words as classes": (lambda: (frames()[0], frames()[1].map({0: "n", 1: "y"})), r"astype\('category'\).cat.codes"),
    "another index": (lambda: (frames()[0], frames()[1].sample(frac=1, random_state=0)), r"y = y.loc\[x.index\]"),
    "a frame alone": (lambda: frames()[0], "Give its target too"),
    "numbers as classes": (lambda: (pair()[0], torch.rand(60)), r"Is it task='regression'\?"),
    "whole floats as classes": (lambda: (pair()[0].numpy(), pair()[1].double().numpy()), r"y.long\(\)"),
    "objects": (lambda: (np.array([{}], dtype=object), pair()[1]), "array of numbers, a row per example; got object"),
    "lists": (lambda: (pair()[0].tolist(), pair()[1]), r"got list. Make an array of it: numpy.asarray"),
    "three": (lambda: (*pair(), 1), "data must be .* got tuple"),
    "a name": (lambda: "digits", r"multum.load_data\('digits'\)"),
    "nothing": (lambda: None, "got NoneType"),
    "unequal": (lambda: (pair()[0], pair()[1][:5]), "the same length; got 60 examples and 5 targets"),
    "no pairs": (lambda: DataLoader(TensorDataset(pair()[0])), "must hold x and y; got 1 tensors"),
    "three tensors": (lambda: Triples(), r"as \(x, y\); got a list of 3"),
    "dicts": (lambda: Dicts(), r"as \(x, y\); got a dict with image, label"),
    "pictures": (lambda: Pictures(), "must give tensors, arrays or numbers; got others"),
    "an empty set": (lambda: Subset(Items(), []), "must have examples; got none"),
    "a sampler of rows": (
        lambda: DataLoader(Items(), sampler=SubsetRandomSampler([1, 2])),
        "must leave the order to multum; got one with a SubsetRandomSampler",
    ),
    "weights": (lambda: DataLoader(Items(), sampler=WeightedRandomSampler([1.0] * 60, 60)), "WeightedRandomSampler"),
}


class Triples(Items):
    def __getitem__(self, i: int) -> Any:
        return (*super().__getitem__(i), 1)


class Dicts(Items):
    def __getitem__(self, i: int) -> Any:
        return dict(zip(("image", "label"), super().__getitem__(i), strict=True))


class Pictures(Items):
    def __getitem__(self, i: int) -> Any:
        from PIL import Image

        return Image.new("L", (2, 2)), 0


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("use", [multum.fit, multum.evaluate])
def test_everything_else_is_refused_with_its_fix(what: str, use: Any) -> None:
    given, message = REFUSED[what]
    with pytest.raises(DataError, match=message):
        use(made(), given())


def test_dicts_of_a_data_set_train_with_a_collate_function() -> None:
    def collate(items: list[dict]) -> tuple[Tensor, Tensor]:
        return torch.stack([i["image"] for i in items]), torch.tensor([i["label"] for i in items])

    ens, wanted = made(), made()
    multum.fit(ens, DataLoader(Dicts(), collate_fn=collate), RECIPE, warn=False)
    multum.fit(wanted, pair(), RECIPE, warn=False)
    assert all(torch.equal(a, b) for a, b in zip(weights(ens), weights(wanted), strict=True))
