"""Names of cells, lists of methods, budgets, and what they refuse."""

from __future__ import annotations

import dataclasses

import pytest
import torch

import multum
from multum.comparing.budget import Budget, cost_of_network, fit_to_budget
from multum.data.sources import load_data
from multum.errors import ConfigError
from multum.methods import parse
from multum.runs.cells import Cell, spec_of
from multum.runs.networks import builder_for

DIGITS = load_data("digits")


def cell(**changes: object) -> Cell:
    fields = {"label": "packed", "seed": 0, "data": "digits", "model": "small-cnn", "method": multum.Packed()}
    return Cell(**{**fields, "recipe": {"epochs": 3}, **changes})  # type: ignore[arg-type]


def test_a_name_is_the_whole_configuration() -> None:
    changes = [
        {"seed": 1},
        {"data": "mnist"},
        {"model": "lenet"},
        {"method": multum.Packed(alpha=3)},
        {"recipe": {"epochs": 4}},
        {"ood": ("mnist",)},
        {"shift": ("fog",)},
        {"shift_examples": 10},
        {"fingerprint": "2f0c"},
        {"split": 0},
        {"tuning": True},
    ]
    names = {cell(**change).name for change in changes}
    assert len(names) == len(changes) and cell().name not in names and cell().name == cell().name
    assert {f for change in changes for f in change} == {f.name for f in dataclasses.fields(Cell)} - {"label"}


@pytest.mark.parametrize("text", ["single", "packed:alpha=3", "batchensemble:plain=a.b+c", "hypernet:sigma=0.5"])
def test_a_spec_reads_back(text: str) -> None:
    assert parse(spec_of(parse(text))) == parse(text)


@pytest.mark.parametrize("text", ["x", "2", "0x", "-1x", "infx", "params=0", "params=many", "watts=3", ""])
def test_bad_budgets(text: str) -> None:
    with pytest.raises(ConfigError, match="`budget` must be"):
        Budget.parse(text, cost_of_network("small-cnn", DIGITS))


BUDGETS = ["1x", "2x", "params=9000", "macs=60000"]
SIZED = ["deep", "packed", "batchensemble", "mimo", "mixture:mode=blob"]
QUICK = {("deep", "macs=60000"), ("packed", "params=9000"), ("batchensemble", "2x"), ("mixture:mode=blob", "1x")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param(name, text, marks=[] if (name, text) in QUICK else pytest.mark.slow)
        for name in SIZED
        for text in BUDGETS
    ],
)
def test_methods_are_as_large_as_the_budget_allows(name: str, text: str) -> None:
    budget = Budget.parse(text, cost_of_network("small-cnn", DIGITS))
    method, model = fit_to_budget(parse(name), "small-cnn", DIGITS, budget)
    ens = multum.ensemble(builder_for(model, DIGITS), method, example=DIGITS.example(), seed=0)
    found = multum.cost(ens, example=DIGITS.example())
    assert budget.allows(found.params, found.macs)
    assert budget.params is None or found.params <= 1.01 * budget.params
    # A step more would not fit, or there is none.
    used = max(v / limit for v, limit in ((found.params, budget.params), (found.macs, budget.macs)) if limit)
    assert used > 0.6 or (method, model) == (parse(name), "small-cnn")


def test_what_fits_no_budget_is_refused() -> None:
    budget = Budget.parse("params=20", cost_of_network("small-cnn", DIGITS))
    with pytest.raises(ConfigError, match="Use fewer members or a larger budget"):
        fit_to_budget(multum.Deep(), "small-cnn", DIGITS, budget)


def test_members_of_a_thinner_model_differ() -> None:
    build = builder_for("small-cnn:thin=0.5", DIGITS)
    ens = multum.ensemble(build, multum.Deep(members=2), example=DIGITS.example(), seed=0)
    again = multum.ensemble(build, multum.Deep(members=2), example=DIGITS.example(), seed=0)
    x = DIGITS.example()
    assert not torch.allclose(ens(x)[0], ens(x)[1]) and torch.equal(ens(x), again(x))
