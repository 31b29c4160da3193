"""Which methods a comparison runs, at which size, and its controls."""

from __future__ import annotations

import dataclasses

import pytest

import multum
from multum.comparing.budget import Budget, cost_of, cost_of_network
from multum.comparing.planning import CONTROLS, Entry, Setting, chosen_methods, entries_of
from multum.data.sources import load_data
from multum.errors import ConfigError
from multum.methods import METHODS

DIGITS = load_data("digits")
SETTING = Setting("digits", "f", 0, (), (), None, {"epochs": 3, "lr": 0.1})


def test_all_methods_come_with_their_controls() -> None:
    labels = [wanted.label for wanted in chosen_methods("all")]
    assert set(labels) == {*METHODS, *CONTROLS} and labels[:2] == ["single", "deep"]
    assert {wanted.label for wanted in chosen_methods("all", controls=False)} == set(METHODS)


def test_lists_of_methods() -> None:
    chosen = {w.label: w for w in chosen_methods("single, packed:members=2,alpha=1.5 ,deep:members=3@1x")}
    assert chosen["packed:members=2,alpha=1.5"].method == multum.Packed(members=2, alpha=1.5)
    assert chosen["deep:members=3@1x"].method == multum.Deep(members=3) and len(chosen) == 3
    assert [w.cost for w in chosen.values()] == [None, None, "1x"]
    assert [w.label for w in chosen_methods([multum.Deep(members=2), "mimo"])] == ["deep:members=2", "mimo"]


@pytest.mark.parametrize(
    ("text", "message"), [("", "got none"), ("deep,deep", "named twice"), ("singel", "Did you mean single")]
)
def test_bad_lists(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        chosen_methods(text)


def test_controls_cost_what_they_say() -> None:
    network = cost_of_network("small-cnn", DIGITS)
    wanted = chosen_methods("single,deep,deep@1x,single@cost")
    single, deep, thin, wide = entries_of(wanted, "small-cnn", DIGITS, None)
    assert (single.control, deep.control, thin.control, wide.control) == (False, False, True, True)
    assert thin.label == "deep@1x" and thin.method == multum.Deep() and "thin=" in thin.model
    assert 0.6 < cost_of(thin.method, thin.model, DIGITS).macs / network.macs <= 1.01
    assert wide.label == "single@4x" and wide.method == multum.Single() and "wide=" in wide.model
    assert 3.5 < cost_of(wide.method, wide.model, DIGITS).macs / network.macs <= 4.04


def test_a_control_without_a_size_has_its_reason_and_stops_no_other() -> None:
    wanted = chosen_methods("single,deep@params=20")
    single, control = entries_of(wanted, "small-cnn", DIGITS, None)
    assert single.reason is None and control.reason is not None and "Use fewer members" in control.reason


def test_what_a_text_or_a_budget_sets_is_not_tuned() -> None:
    budget = Budget.parse("1x", cost_of_network("small-cnn", DIGITS))
    (packed,) = entries_of(chosen_methods("packed:gamma=2"), "small-cnn", DIGITS, None)
    assert packed.fixed == {"gamma"}
    (sized,) = entries_of(chosen_methods("packed:alpha=3"), "small-cnn", DIGITS, budget)
    assert sized.fixed == {"alpha"} and sized.method != multum.Packed(alpha=3)
    (control,) = entries_of(chosen_methods("packed@1x"), "small-cnn", DIGITS, None)
    assert control.fixed == {field.name for field in dataclasses.fields(multum.Packed)}


def test_cells_have_one_split_and_their_own_seed() -> None:
    entry = Entry("packed", multum.Packed(), "small-cnn").with_tuned(0.3, {"alpha": 3})
    cells = [entry.cell(seed, SETTING) for seed in (0, 1)]
    assert [cell.seed for cell in cells] == [0, 1] and {cell.parts_seed for cell in cells} == {0}
    assert cells[0].recipe == {"epochs": 3, "lr": 0.3} and cells[0].method == multum.Packed(alpha=3)
    trial = entry.trial(1, SETTING, lr=0.5, fields={"alpha": 1.5}, epochs=1)
    assert trial.tuning and trial.recipe == {"epochs": 1, "lr": 0.5} and trial.method == multum.Packed(alpha=1.5)
    assert trial.name not in {cell.name for cell in cells}
