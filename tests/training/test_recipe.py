"""Recipes refuse what makes no sense, and rates are those of METHODS 2.6 at the listed epochs."""

from __future__ import annotations

import math

import pytest

import multum
from multum.errors import ConfigError


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number >= 1"),
        ({"epochs": 3.0}, "epochs must be a whole number"),
        ({"epochs": True}, "epochs must be a whole number"),
        ({"epochs": "many"}, "epochs must be a whole number"),
        ({"batch_size": -1}, "batch_size"),
        ({"lr": -0.1}, "lr must be a number from 0"),
        ({"lr": "fast"}, "lr must be a number"),
        ({"lr": math.nan}, "lr must be a number"),
        ({"momentum": 1.5}, "momentum must be a number from 0 to 1"),
        ({"optimizer": "adamx"}, "Did you mean adam"),
        ({"schedule": "cosin"}, "Did you mean cosine"),
        ({"precision": "8-bit"}, "precision must be one of"),
        ({"flip": 1}, "flip must be one of True, False"),
        ({"keep": "first"}, "keep must be one of"),
        ({"milestones": ("a",)}, "milestones must be epochs"),
        ({"milestones": "abc"}, "milestones must be epochs"),
        ({"average_from": 1.0}, "average_from must be a share"),
        ({"average_from": "late"}, "average_from must be a share"),
        ({"validation": 1.0}, "0 <= validation < 1"),
        ({"validation": 0, "keep": "best"}, "must have examples to choose by; got validation=0"),
        ({"anneal_from": 0.9, "anneal_to": 0.1}, "anneal_from must be at most"),
        ({"keep": "best", "average_from": 0.5}, "got both"),
        ({"seed": -1}, "seed"),
        ({"magnitude": 11}, "magnitude must be a number from 0 to 10"),
        ({"reduction": "max"}, "reduction must be one of"),
        ({"loss": "focl"}, "Did you mean focal"),
        ({"focal_gamma": -1}, "focal_gamma must be a number from 0"),
        ({"class_weights": "balance"}, "class_weights must be 'balanced', or a number >= 0 for each class"),
        ({"class_weights": (1, -1)}, "class_weights"),
        ({"class_weights": (0, 0)}, "class_weights"),
        ({"class_weights": 3}, "class_weights"),
    ],
)
def test_a_field_that_breaks_its_rule_says_so(fields: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        multum.Recipe(**fields)


def test_overrides_take_fields_and_suggest_the_closest() -> None:
    recipe = multum.Recipe().with_overrides({"epochs": 3, "milestones": 2})
    assert recipe.epochs == 3 and recipe.milestones == (2,)
    with pytest.raises(ConfigError, match=r"got 'epoch'\. Did you mean epochs"):
        multum.Recipe().with_overrides({"epoch": 3})


def rates(recipe: multum.Recipe, epochs: tuple[float, ...], per_epoch: int = 100) -> list[float]:
    return [round(recipe.rate(round(e * per_epoch), per_epoch), 6) for e in epochs]


def test_rates_of_the_hypernetwork_paper() -> None:
    recipe = multum.Recipe(epochs=200, lr=0.1, schedule="linear", anneal_from=0.4, anneal_to=0.8, final=0.5)
    assert rates(recipe, (0, 80, 100, 120, 160, 161)) == [0.1, 0.1, 0.0875, 0.075, 0.05, 0.05]


def test_rates_of_swag_as_a_recipe_and_as_the_method() -> None:
    """swa_gaussian anneals from 80.5 to 144.9 of 161 epochs."""
    wanted = [0.1, 0.099612, 0.08486, 0.069332, 0.050699, 0.05]
    epochs = (80, 81, 100, 120, 144, 145)
    share = {"anneal_from": 80.5 / 200, "anneal_to": 144.9 / 200}
    assert rates(multum.Recipe(epochs=200, lr=0.1, schedule="linear", final=0.5, **share), epochs) == wanted
    swag = multum.Swag()
    assert [round(swag.learning_rate(0.0, e * 10, 2000, 10, 0.1), 6) for e in epochs] == wanted
    assert multum.Swag(final=None).learning_rate(0.03, 5, 2000, 10, 0.1) == 0.03


def test_rates_of_snapshots() -> None:
    snapshot = multum.Snapshot(members=5)
    found = [round(snapshot.learning_rate(9.9, t - 1, 200, 10, 0.2), 6) for t in (1, 11, 21, 40, 41)]
    assert found == [0.2, 0.170711, 0.1, 0.000308, 0.2]
    # Uneven: 2 members in 3 epochs of 10 steps; each cycle ends, and is lowest, where its snapshot is taken.
    uneven = multum.Snapshot(members=2)
    assert [e for e in (1, 2, 3) if uneven.collects(e, 3)] == [2, 3]
    curve = [uneven.learning_rate(9.9, t, 30, 10, 1.0) for t in range(30)]
    assert curve[0] == curve[20] == 1.0 and curve[19] == min(curve[:20]) and curve[29] == min(curve[20:])
    assert multum.Snapshot(members=2, cycles=False).learning_rate(0.03, 5, 30, 10, 1.0) == 0.03


def test_rates_of_fast_geometric_ensembling() -> None:
    method = multum.FastGeometric(members=1, cycle=4, high=0.5, low=0.001, start=0.5)
    first, per_epoch, steps = 4, 100, 800
    found = []
    for epoch, fraction in ((0, 0), (0, 0.5), (1, 0), (2, 0), (3, 0.5)):
        step = round((first + epoch + fraction) * per_epoch)
        found.append(round(method.learning_rate(0.7, step, steps, per_epoch, 0.1), 6))
    assert found == [0.05, 0.037525, 0.02505, 0.0001, 0.037525]
    assert method.learning_rate(0.7, 399, steps, per_epoch, 0.1) == 0.7


def test_milestones_warm_up_and_cosine() -> None:
    steps = multum.Recipe(epochs=75, lr=0.05, schedule="multistep", milestones=(25, 50), factor=0.1)
    assert rates(steps, (0, 24.99, 25, 49.99, 50, 74)) == [0.05, 0.05, 0.005, 0.005, 0.0005, 0.0005]
    warm = multum.Recipe(epochs=10, lr=1.0, schedule="constant", warmup=2)
    assert [warm.rate(s, 4) for s in (0, 3, 7, 8)] == [0.125, 0.5, 1.0, 1.0]
    cosine = multum.Recipe(epochs=10, lr=1.0, final=0.1)
    assert rates(cosine, (0, 5, 10)) == [1.0, 0.55, 0.1]
    assert rates(multum.Recipe(lr=0.3, schedule="constant"), (0, 3, 30)) == [0.3, 0.3, 0.3]


def test_averages_begin_behind_their_share() -> None:
    recipe = multum.Recipe(epochs=200, average_from=0.8)
    assert [e for e in range(1, 201) if recipe.averages(e)] == list(range(161, 201))
    # 0.29 * 100 is a little less than 29.
    assert not multum.Recipe(epochs=100, average_from=0.29).averages(29)


@pytest.mark.parametrize(
    ("method", "epochs", "fits"),
    [
        (multum.Snapshot(members=5), 4, False),
        (multum.Snapshot(members=5), 5, True),
        (multum.Snapshot(members=5, cycles=False), 20, False),
        (multum.Snapshot(members=5, cycles=False), 25, True),
        (multum.FastGeometric(members=4, cycle=2), 6, False),
        (multum.FastGeometric(members=4, cycle=2), 7, True),
        (multum.FastGeometric(members=3, cycle=6), 14, False),
        (multum.FastGeometric(members=3, cycle=6), 15, True),
        (multum.Swag(), 1, True),
    ],
)
def test_methods_that_gather_say_beforehand_whether_the_epochs_hold_them(method, epochs: int, fits: bool) -> None:
    if not fits:
        with pytest.raises(ConfigError, match="must have"):
            method.check_epochs(epochs)
        return
    method.check_epochs(epochs)
    collected = [e for e in range(1, epochs + 1) if method.collects(e, epochs)]
    assert len(collected) >= (1 if isinstance(method, multum.Swag) else method.members)


def test_fast_geometric_begins_earlier_where_its_members_would_not_fit() -> None:
    method = multum.FastGeometric(members=4, cycle=2, start=0.8)
    assert method.first(100) == 80
    assert method.first(10) == 3 and [e for e in range(1, 11) if method.collects(e, 10)] == [4, 6, 8, 10]
