"""The advice: on rows made by hand, with differences that are as sure or as unsure as each test needs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from multum.comparing.advice import advise
from multum.comparing.budget import Budget
from multum.comparing.versus import Versus, explained, margin_of
from multum.metrics.differences import Differences

EXAMPLES = 500


def row(label: str, nll: float, macs: float, **more: Any) -> dict[str, Any]:
    numbers = {"calibrated_nll": nll, "nll": nll, "accuracy": 0.9, "params": macs / 10, "macs": macs}
    values = {key: {"mean": value} for key, value in (numbers | more.pop("numbers", {})).items()}
    name = label.partition("@")[0].partition(":")[0]
    default = {"status": "done", "reason": None, "converged": True, "control": "@" in label, "learned": 1.0}
    return {"label": label, "name": name, "members": 1, **default, "values": values, "chance": None, **more}


def versus_of(
    rows: list[dict[str, Any]], *, seeds: int = 3, of_seeds: float = 0.0, of_examples: float = 0.01
) -> Versus:
    """Differences with the rows' means, and these standard deviations of trainings and of examples."""
    draw = torch.Generator().manual_seed(0)
    table: dict[str, dict[int, torch.Tensor]] = {}
    measured = [each for each in rows if "calibrated_nll" in each["values"]]
    for each in measured:
        own = of_examples * torch.randn(EXAMPLES, generator=draw, dtype=torch.float64)
        shifts = torch.randn(seeds, generator=draw, dtype=torch.float64)
        shifts = of_seeds * (shifts - shifts.mean()) / (shifts.std() if seeds > 1 else 1)
        mean = each["values"]["calibrated_nll"]["mean"]
        table[each["label"]] = {s: mean + own - own.mean() + float(shifts[s]) for s in range(seeds)}
    return Versus("calibrated_nll", Differences(table), list(table), seeds)


def advised(rows: list[dict[str, Any]], budget: Budget | None = None, **how: Any) -> dict[str, Any]:
    return advise(rows, budget, versus_of(rows, **how), margin_of(rows, "classification"), epochs=20)


def test_the_cheapest_of_those_that_are_not_worse() -> None:
    rows = [row("single", 0.5, 100), row("deep", 0.40, 400), row("packed", 0.402, 110)]
    advice = advised(rows)
    assert advice["label"] == "packed"
    assert advice["sentence"].startswith("Take packed: it is better than one network (calibrated NLL")
    assert advice["notes"][0].startswith("The price of packed, beside one network: 1.10x the mult-adds and ")
    assert "1.10x the mult-adds" in advice["sentence"] and "deep is not shown to be better" in advice["sentence"]
    assert advice["sure"][0].startswith("packed is better than one network: its NLL is lower by 0.09")
    assert "Better than one network, too: deep." in advice["sure"]


def test_what_is_equal_within_the_margin_gives_way_to_the_cheaper() -> None:
    rows = [row("single", 0.4, 100), row("deep", 0.397, 400), row("packed", 0.398, 105)]  # the margin is 0.004
    advice = advised(rows, of_examples=0.001)
    assert advice["label"] == "single"
    assert "no ensemble is better by more than the margin of 0.004" in advice["sentence"]
    assert "Better than one network: deep, packed." in advice["sure"]
    unclear = advised([row("single", 0.4, 100), row("deep", 0.397, 400)], of_examples=0.02)
    assert "no ensemble is shown to be better by more than the margin" in unclear["sentence"]
    assert "deep is by" in unclear["sentence"] and "at 4.00x the mult-adds" in unclear["sentence"]
    worse = advised([row("single", 0.4, 100), row("deep", 0.403, 400)], of_examples=0.001)
    assert "an ensemble does not help here" in worse["sentence"]
    cheaper = [row("single", 0.6, 100), row("a", 0.397, 120), row("b", 0.399, 115)]
    assert advised(cheaper, of_examples=0.001)["label"] == "b"
    assert advised([row("single", 0.6, 100), row("a", 0.30, 120), row("b", 0.36, 115)])["label"] == "a"


def test_worse_is_only_what_the_interval_says() -> None:
    rows = [row("single", 0.40, 100), row("deep", 0.38, 400), row("mimo", 0.43, 100)]
    sure, unsure = advised(rows, of_examples=0.01), advised(rows, of_examples=0.6)
    assert "Worse than one network: mimo." in sure["sure"]
    assert not unsure["sure"] and unsure["label"] == "single"
    assert "no ensemble was shown to be better" in unsure["sentence"] and "does not help" not in unsure["sentence"]
    assert unsure["unsure"][0].startswith("Whether deep is better than single")


def test_seeds_that_disagree_ask_for_more_seeds_and_examples_for_more_examples() -> None:
    rows = [row("single", 0.40, 100), row("deep", 0.36, 400)]
    seeds = advised(rows, of_seeds=0.03)["unsure"][0]
    assert "run --seeds" in seeds and int(seeds.rpartition(" ")[2].rstrip(".")) > 3
    examples = advised(rows, of_seeds=0.0, of_examples=0.6)["unsure"][0]
    assert "times as many test examples would tell" in examples
    one = advised(rows, seeds=1, of_examples=1.5)["unsure"]
    assert one[0].startswith("With one seed, another training could") and "run --seeds 5" in one[1]
    two = advised([row("single", 0.5, 100), row("deep", 0.499, 90)], seeds=2, of_seeds=0.2)["unsure"]
    assert two[0].endswith("run --seeds 5.")  # two trainings say little about a third


def test_no_advice_from_what_has_not_converged() -> None:
    rows = [row("single", 0.5, 100), row("deep", 0.4, 400, converged=False)]
    advice = advised(rows)
    assert advice["label"] is None
    assert advice["sentence"].startswith("No advice yet: deep looks best")
    assert "not converged; train longer: --epochs 40" in advice["sentence"]
    behind = [row("single", 0.4, 100), row("deep", 0.5, 400, converged=False), row("packed", 0.45, 100)]
    advice = advised(behind)
    assert advice["label"] == "single" and advice["sure"] == ["Worse than one network: packed."]
    assert advice["unsure"] == [
        "Had not converged, so that nothing is concluded from them: deep; train longer: --epochs 40."
    ]
    assert advised([row("single", 0.4, 100, converged=None), row("deep", 0.5, 400)])["unsure"] == [
        "Whether these had converged: single; train longer: --epochs 40."
    ]


def test_one_method_alone_says_nothing_about_others() -> None:
    advice = advised([row("single", 0.4, 100)])
    assert advice["label"] == "single" and "ensemble does not help" not in advice["sentence"]
    assert (
        advice["sentence"].startswith("Only one network was run")
        and "--methods single,packed,deep" in advice["sentence"]
    )


def test_without_one_network_nothing_is_said_about_it() -> None:
    advice = advised([row("packed", 0.4, 100), row("deep", 0.5, 400)])
    assert advice["label"] == "packed" and "one network" not in advice["sentence"]
    assert "add single to --methods" in advice["unsure"][0]


def test_a_wider_network_can_be_the_advice() -> None:
    rows = [row("single", 0.5, 100), row("deep", 0.4, 400), row("single@4x", 0.3, 390), row("deep@1x", 0.45, 100)]
    advice = advised(rows)
    assert advice["label"] == "single@4x"
    assert advice["sentence"].startswith("Take one wider network (single@4x): it is better than one network")
    assert "it is better than every ensemble here" in advice["sentence"]
    assert advised([*rows[:2], row("deep@1x", 0.4, 100)])["label"] == "deep@1x"


@pytest.mark.parametrize(
    ("learned", "nll", "note"),
    [
        (0.01, 2.29, "packed did not train: accuracy 10 % is chance (11 %;"),
        (0.3, 1.5, "packed trained badly: it learned"),
    ],
)
def test_a_method_that_did_not_train_is_named(learned: float, nll: float, note: str) -> None:
    bad = row("packed", nll, 100, learned=learned, chance={"nll": 2.3, "accuracy": 0.11}, numbers={"accuracy": 0.1})
    advice = advised([row("single", 0.4, 100), bad])
    assert advice["notes"][0].startswith(note) and advice["label"] == "single"


def test_a_method_without_a_finite_nll_is_named() -> None:
    bad = row("packed", 1.0, 100)
    bad["values"] = {"params": {"mean": 10}}
    assert advised([row("single", 0.4, 100), bad])["notes"] == ["packed did not train: its NLL is not a finite number."]


def test_a_yardstick_that_is_too_long_is_said() -> None:
    rows = [row("single", 0.5, 100), row("deep", 0.4, 400, one_model=None, coarse="deep")]
    notes = [note for note in advised(rows)["notes"] if "one model" in note]
    assert len(notes) == 1 and notes[0].startswith(
        "Whether members are one model cannot be told here: even those of deep"
    )


def test_one_model_is_named() -> None:
    notes = advised([row("single", 0.5, 100), row("batchensemble", 0.4, 400, one_model=True)])["notes"]
    assert notes[1].startswith("The members of batchensemble are one model") and "shaken by 5 %" in notes[1]


def test_the_budget_is_kept_to() -> None:
    rows = [row("single", 0.5, 100), row("deep", 0.4, 400), row("packed", 0.45, 110)]
    advice = advised(rows, Budget("1.2x", params=12, macs=120))
    assert advice["label"] == "packed"
    assert advice["notes"][1:] == ["deep has a lower NLL (0.4000) but is over the budget of 1.2x."]
    assert advised(rows, Budget("0.1x", params=1, macs=10))["sentence"] == "No advice: no method fits the budget."


def test_what_looks_worse_than_one_network_is_never_taken() -> None:
    rows = [row("single", 0.5, 300), row("deep", 0.4, 400), row("masksembles", 111.0, 100)]
    versus = versus_of(rows)
    noisy = {name: dict(versus._differences._values[name]) for name in versus.labels}
    noisy["masksembles"] = {s: torch.zeros(EXAMPLES).index_fill(0, torch.tensor(0), 111.0 * EXAMPLES) for s in range(3)}
    unsure = Versus("calibrated_nll", Differences(noisy), versus.labels, 3)
    assert not unsure.between("masksembles", "deep").low > 0  # one example makes the whole difference
    assert advise(rows, None, unsure, 0.005, 20)["label"] == "deep"


def test_no_advice_where_everything_failed() -> None:
    failed = {"label": "deep", "name": "deep", "status": "failed", "reason": "no", "values": {}}
    assert advise([failed]) == {
        "label": None,
        "sentence": "No advice: every method failed.",
        "sure": [],
        "unsure": [],
        "notes": ["deep failed: no"],
    }


def test_the_test_is_named() -> None:
    rows = [row("single", 0.5, 100), row("deep", 0.4, 400), row("packed", 0.4, 110)]
    text = explained(versus_of(rows), margin_of(rows, "classification"), "classification")
    assert "seeds and test examples together" in text and "all 3 pairs" in text and "0.005 nats" in text
    assert "as there is one seed" in explained(versus_of(rows, seeds=1), 0.005, "classification")
    assert margin_of(rows, "regression") == 0.01
