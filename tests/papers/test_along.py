"""Test accuracy along the epochs: after each it is what a run that ends there has."""

from pathlib import Path
from typing import Any

import pytest

from multum.methods import Hypernet, Single
from multum.papers.along import TESTED, along_epochs
from multum.papers.base import Row, Run
from multum.papers.charts.nested import constant_rate
from multum.papers.measured import Trained
from multum.runs.cells import work

METHODS = {"plain": Hypernet(members=3, birth_epoch=2, heads="copy", nested=False), "one": Single()}


def trained(folder: Path, epochs: int, averaged: int, **recipe: Any) -> Trained:
    """Runs of so many epochs, whose weights are averaged after so many."""
    rows = tuple(
        Row(
            label=label,
            data="digits",
            examples=500,
            model="small-cnn",
            method=method,
            recipe={"epochs": epochs, "schedule": "constant", "lr": 0.05, "average_from": averaged / epochs, **recipe},
            seeds=(0,),
        )
        for label, method in METHODS.items()
    )
    run = Run(rows=rows)
    for cell in run.cells():
        assert work(cell, folder / cell.name, 1).done
    return Trained.read(run, folder)


def test_after_an_epoch_is_what_a_run_that_ends_there_has(tmp_path: Path) -> None:
    along = along_epochs(trained(tmp_path, 6, 3, states=1))
    for epochs in (4, 5, 6):  # before the birth of members schedules of shorter runs differ; of these they do not
        whole = trained(tmp_path, epochs, 3)
        for label in METHODS:
            curve = {x["epoch"]: x.get(TESTED) for x in along.results[label][0]["curves"]["training"]}
            assert [*curve] == [1, 2, 3, 4, 5, 6] and None not in curve.values()
            assert curve[epochs] == pytest.approx(whole.results[label][0]["numbers"]["accuracy"], abs=1e-9)


def test_the_figure_has_every_seed_and_a_run_without_states_only_its_training(tmp_path: Path) -> None:
    (picture,) = constant_rate(trained(tmp_path, 4, 3, states=1)).values()
    numbers = picture.numbers
    assert (
        numbers["test accuracy"].notna().all() and (numbers["test accuracy, seed 0"] == numbers["test accuracy"]).all()
    )
    assert len(picture.drawing.axes) == 2
    (picture,) = constant_rate(trained(tmp_path, 4, 3)).values()
    assert picture.numbers[TESTED].isna().all() and len(picture.drawing.axes) == 1
