"""What tells examples and data sets apart, and what is held out of them."""

from __future__ import annotations

import pytest
import torch

import multum
from multum.data.identity import example_ids, positions
from multum.data.parts import Part, default_share
from multum.runs.train import held_out_by_default
from multum.training.devices import Place
from multum.training.run import Run


def test_positions_are_those_of_a_slow_search() -> None:
    draw = torch.Generator().manual_seed(0)
    for wanted, ids in ((30, 50), (50, 30), (0, 5), (5, 0)):
        a, b = (torch.randint(0, 12, (n,), generator=draw) for n in (wanted, ids))
        left: list[int | None] = b.tolist()
        expected = []
        for value in a.tolist():
            place = left.index(value) if value in left else -1
            expected.append(place)
            if place >= 0:
                left[place] = None  # taken
        assert positions(a, b).tolist() == expected


def test_a_fingerprint_is_of_the_content() -> None:
    data = multum.load_data("digits")
    assert data.fingerprint == multum.load_data("digits", seed=3).fingerprint  # another split of the same examples
    assert data.fingerprint == data.with_validation(0.1, seed=0).fingerprint
    others = [multum.load_data("digits#hold_out=9"), multum.load_data("digits#first=1000")]
    changed = data.train.x.clone()
    changed[-1, 0, 7, 7] += 1
    others.append(multum.Data(**{**vars_of(data), "train": Part(changed, data.train.y)}))
    labels = data.train.y.clone()
    labels[0] = (labels[0] + 1) % 10
    others.append(multum.Data(**{**vars_of(data), "train": Part(data.train.x, labels)}))
    others.append(multum.Data(**{**vars_of(data), "classes": tuple("abcdefghij")}))
    assert len({data.fingerprint, *(other.fingerprint for other in others)}) == 6


def vars_of(data: multum.Data) -> dict:
    return {name: getattr(data, name) for name in data.__dataclass_fields__}


def test_examples_keep_their_numbers_where_classes_are_held_out() -> None:
    data, known = multum.load_data("digits"), multum.load_data("digits#hold_out=0")
    assert torch.isin(known.ids["test"], data.ids["test"]).all() and len(known.ids["test"]) < len(data.ids["test"])


def test_equal_rows_with_other_targets_are_others() -> None:
    x = torch.zeros(4, 3)
    classes = example_ids(Part(x, torch.tensor([0, 0, 1, 2])), ("a", "b", "c"))
    numbers = example_ids(Part(x, torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [2.0, 0.0]])), ())
    for ids in (classes, numbers):
        assert ids.dtype == torch.int64 and ids[0] == ids[1] and len(ids.unique()) == 3


@pytest.mark.parametrize(
    ("examples", "classes", "share"), [(99, 2, 0.0), (100, 2, 0.1), (50_000, 10, 0.02), (200, 100, 0.0), (200, 0, 0.1)]
)
def test_a_run_holds_out_a_tenth_but_not_much(examples: int, classes: int, share: float) -> None:
    y = torch.arange(examples) % classes if classes else torch.arange(examples).double()
    task = "classification" if classes else "regression"
    assert default_share(Part(torch.zeros(examples, 1), y), task) == pytest.approx(share)


def test_what_is_held_out_unless_asked() -> None:
    data = multum.load_data("digits")
    assert held_out_by_default(multum.Recipe(), data) == {"validation": pytest.approx(0.1)}
    for recipe in (multum.Recipe(validation=0), multum.Recipe(validation=0.3), multum.Recipe(keep="best")):
        assert held_out_by_default(recipe, data) == {}
    assert [multum.Recipe(**fields).held_out for fields in ({}, {"keep": "best"}, {"validation": 0.3})] == [0, 0.1, 0.3]


def test_fit_holds_out_what_it_is_asked_to() -> None:
    x, y = torch.zeros(100, 2), torch.arange(100) % 2
    net = multum.models.build("mlp", in_features=2, classes=2)
    steps = []
    for recipe in (multum.Recipe(epochs=1, batch_size=10), multum.Recipe(epochs=1, batch_size=10, validation=0.3)):
        ens = multum.ensemble(net, multum.Single(), example=x[:2], seed=0)
        run = Run(ens, (x, y), recipe, Place("cpu", 1, 1), None, True, False, False, 60.0)
        steps.append((run.batches.per_epoch, len(run.data.train)))
    assert steps == [(10, 100), (7, 70)]
