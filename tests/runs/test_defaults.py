"""The network and the recipe of data for which a user names none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import multum
from multum import models
from multum.data.parts import Data, Part
from multum.methods import METHODS, parse
from multum.runs.defaults import default_model, default_recipe
from multum.runs.folder import RunFolder
from multum.runs.networks import builder_for
from multum.runs.train import train


def data(*shape: int, rows: int = 20, task: str = "classification") -> Data:
    x = torch.zeros(1, *shape).expand(rows, *shape)
    y = torch.arange(rows) % 3 if task == "classification" else torch.zeros(rows, dtype=torch.float64)
    return Data("some", task, Part(x, y), Part(x[:2], y[:2]), 3 if task == "classification" else 2, mean=None, std=None)


BY_SIZE = [
    ((1, 4, 4), 20, "cnn"),
    ((3, 16, 16), 20, "cnn"),
    ((3, 17, 40), 20, "small-resnet"),
    ((1, 63, 63), 20, "small-resnet"),
    ((3, 64, 64), 20, "resnet18:stem=imagenet"),
    ((3, 2, 2), 20, "mlp"),
    ((6, 2), 5000, "mlp"),
    ((13,), 999, "mlp"),
    ((13,), 1000, "tabular-mlp"),
    ((13,), 100_001, "tabular-mlp:hidden=512+512+512"),
]


@pytest.mark.parametrize(("shape", "rows", "name"), BY_SIZE)
def test_a_network_by_kind_and_size_that_runs(shape: tuple[int, ...], rows: int, name: str) -> None:
    some = data(*shape, rows=rows)
    assert default_model(some) == name
    with torch.device("meta"):
        network = builder_for(None, some)().eval()
        assert network(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(("shape", "rows", "name"), BY_SIZE)
def test_a_recipe_that_every_method_can_follow(shape: tuple[int, ...], rows: int, name: str, task: str) -> None:
    recipe = multum.Recipe().with_overrides(default_recipe(data(*shape, rows=rows, task=task)))
    assert recipe.schedule == "cosine" and recipe.keep == "last"  # methods that gather weights of epochs need that
    for method in METHODS:
        parse(method).check_epochs(recipe.epochs)


def test_two_classes_of_a_table_are_trained_for_fewer_epochs() -> None:
    many = data(13, rows=2000)
    two = replace(many, outputs=2)
    numbers = data(13, rows=2000, task="regression")
    assert [default_recipe(each)["epochs"] for each in (many, two, numbers)] == [30, 10, 30]


def test_a_run_records_the_whole_recipe_and_a_user_overrides_it(tmp_path: Path) -> None:
    run = train("diabetes", None, "single", tmp_path / "run", {"epochs": 1, "lr": 0.5}, progress=False)
    expected = multum.Recipe().with_overrides({**default_recipe(multum.load_data("diabetes")), "epochs": 1, "lr": 0.5})
    recorded = RunFolder(tmp_path / "run").read()["recipe"]
    assert run["model"] == "mlp" and recorded["batch_size"] == 32 and recorded["lr"] == 0.5 and recorded["epochs"] == 1
    assert {name: recorded[name] for name in ("weight_decay", "schedule", "patience")} == {
        name: getattr(expected, name) for name in ("weight_decay", "schedule", "patience")
    }


def test_numbers_of_a_table_reach_its_network(tmp_path: Path) -> None:
    rows = ["a,b,y"] + [f"{i % 7},{'uvw'[i % 3]},{i % 2}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    table = multum.load_data(f"csv:{tmp_path / 't.csv'}#target=y")
    network = builder_for("tabular-mlp:hidden=4,bins=5", table)()
    assert network.encoding.numbers == (0,) and network.hidden[0].in_features == 4 + 5
    assert models.build(network.recipe["name"], **network.recipe["keywords"]).encoding.numbers == (0,)
