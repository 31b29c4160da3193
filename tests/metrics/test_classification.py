"""What classification metrics promise: METHODS 3.9, plain-Python twins, scikit-learn, and the gain of an ensemble."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, log_loss
from torch import Tensor

from multum.metrics.aggregate import classification_metrics, per_member
from multum.metrics.calibration import adaptive_ece, ece
from multum.metrics.classification import accuracy, brier, example_brier, example_correct, example_nll, nll
from multum.metrics.selective import aurc
from multum.outputs.prediction import Prediction

FOUR_MEMBERS = torch.tensor([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1], [0.5, 0.4, 0.1]], dtype=torch.float64)

UNDEFINED = ("f1", "member_f1", "gain_f1", "class_auroc", "class_auprc")
METRICS = ("accuracy", "nll", "ece", "brier", "adaptive_ece", "aurc")
properties = settings(max_examples=60, deadline=None, database=None, derandomize=True)


def random_case(
    seed: int, members: int = 3, examples: int = 40, classes: int = 5, scale: float = 2.0
) -> tuple[Prediction, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(members, examples, classes, generator=generator, dtype=torch.float64)
    return Prediction.from_logits(logits), torch.randint(classes, (examples,), generator=generator)


cases = st.builds(
    random_case,
    seed=st.integers(0, 2**31),
    members=st.integers(1, 5),
    examples=st.integers(1, 30),
    classes=st.integers(2, 6),
    scale=st.sampled_from([0.0, 0.3, 2.0, 30.0]),
)


def test_hand_computed_values():
    prediction, label = Prediction.from_logits(FOUR_MEMBERS.log().unsqueeze(1)), torch.tensor([0])
    found = classification_metrics(prediction, label)
    assert found["nll"] == pytest.approx(0.744440, abs=5e-7)
    assert found["member_nll"] == pytest.approx(0.965808, abs=5e-7)
    assert found["brier"] == pytest.approx(0.525**2 + 0.425**2 + 0.1**2, abs=1e-12)
    assert found["member_brier"] == pytest.approx((0.14 + 0.26 + 1.46 + 0.42) / 4, abs=1e-12)
    assert (found["accuracy"], found["member_accuracy"], found["gain_accuracy"]) == (1.0, 0.75, 0.25)
    assert found["ece"] == pytest.approx(1 - 0.475, abs=1e-12)
    assert found["gain_nll"] == pytest.approx(0.744440 - 0.965808, abs=1e-6)


def test_plain_python_twins():
    prediction, labels = random_case(0)
    probs, rows = prediction.probs, range(len(labels))
    truth = labels.tolist()
    hits = [probs[i].tolist().index(max(probs[i].tolist())) == truth[i] for i in rows]
    squares = [sum((float(probs[i, c]) - (c == truth[i])) ** 2 for c in range(5)) for i in rows]
    assert accuracy(probs, labels) == sum(hits) / len(hits)
    assert brier(probs, labels) == pytest.approx(sum(squares) / len(squares), abs=1e-14)
    assert nll(probs.log(), labels) == pytest.approx(-sum(math.log(probs[i, truth[i]]) for i in rows) / 40, abs=1e-14)


@pytest.mark.parametrize("seed", range(3))
def test_scikit_learn_agrees(seed: int):
    prediction, labels = random_case(seed, examples=500)
    probs = prediction.probs
    assert nll(prediction.log_probs, labels) == pytest.approx(log_loss(labels, probs.numpy(), labels=range(5)))
    assert accuracy(probs, labels) == accuracy_score(labels, probs.argmax(1))


def test_torchmetrics_agrees(torchmetrics):
    prediction, labels = random_case(3, examples=500)
    found = torchmetrics.multiclass_accuracy(prediction.probs, labels, num_classes=5, average="micro")
    assert accuracy(prediction.probs, labels) == pytest.approx(found.item())


def test_two_classes_double_scikit_learns_brier():
    from sklearn.metrics import brier_score_loss

    prediction, labels = random_case(4, examples=200, classes=2)
    assert brier(prediction.probs, labels) == pytest.approx(2 * brier_score_loss(labels, prediction.probs[:, 1]))


def test_the_table_is_made_of_the_single_functions():
    prediction, labels = random_case(5)
    found = classification_metrics(prediction, labels, bins=7)
    names = [*METRICS, "balanced_accuracy", "f1"]
    ranked = ["class_auroc", "class_auprc"]  # of the ensemble alone
    assert list(found) == [*names, *ranked, *(f"member_{n}" for n in names), *(f"gain_{n}" for n in names)]
    correct = example_correct(prediction.probs, labels)
    assert found["ece"] == ece(prediction.confidence, correct, bins=7)
    assert found["adaptive_ece"] == adaptive_ece(prediction.confidence, correct, bins=7)
    assert found["aurc"] == aurc(prediction.confidence, correct)
    alone = [classification_metrics(Prediction.from_logits(z.unsqueeze(0)), labels, bins=7) for z in prediction.logits]
    members = per_member(prediction, labels, bins=7)
    for name in names:
        assert members[name].tolist() == pytest.approx([one[name] for one in alone], abs=1e-12)
        assert found[f"member_{name}"] == pytest.approx(sum(one[name] for one in alone) / 3, abs=1e-12)
        assert found[f"gain_{name}"] == pytest.approx(found[name] - found[f"member_{name}"], abs=1e-12)


def test_one_member_gains_nothing():
    found = classification_metrics(*random_case(6, members=1))
    assert all(found[f"gain_{name}"] == pytest.approx(0, abs=1e-14) for name in METRICS)


@properties
@given(cases)
def test_pooling_never_hurts_convex_scores(case: tuple[Prediction, Tensor]):
    found = classification_metrics(*case)
    assert found["gain_nll"] <= 1e-12 * max(1, found["member_nll"])
    assert found["gain_brier"] <= 1e-12
    assert 0 <= found["ece"] <= 1 and 0 <= found["adaptive_ece"] <= 1 and 0 <= found["aurc"] <= 1
    assert 0 <= found["brier"] <= 2


@properties
@given(cases, st.randoms(use_true_random=False))
def test_the_order_of_examples_and_members_does_not_matter(case: tuple[Prediction, Tensor], random):
    prediction, labels = case
    examples, members = list(range(len(labels))), list(range(len(prediction.logits)))
    random.shuffle(examples)
    random.shuffle(members)
    shuffled = classification_metrics(Prediction.from_logits(prediction.logits[members][:, examples]), labels[examples])
    for name, value in classification_metrics(prediction, labels).items():
        # No class has an AUROC where all examples are of one.
        assert shuffled[name] == pytest.approx(value, abs=1e-9, rel=1e-9, nan_ok=name in UNDEFINED), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_perfect_one_hot_prediction(dtype: torch.dtype):
    labels = torch.arange(6) % 3
    logits = torch.zeros(3, 6, 3, dtype=dtype).masked_fill(torch.nn.functional.one_hot(labels, 3) == 0, -math.inf)
    found = classification_metrics(Prediction.from_logits(logits), labels)
    for name in ("nll", "brier", "ece", "adaptive_ece", "aurc"):
        assert found[name] == pytest.approx(0, abs=1e-6 if dtype == torch.float32 else 1e-15), name
    assert found["accuracy"] == 1


def test_a_label_of_probability_zero_costs_everything():
    logits = torch.tensor([[[0.0, -math.inf]]])
    assert classification_metrics(Prediction.from_logits(logits), torch.tensor([1]))["nll"] == math.inf


def test_the_nll_does_not_underflow():
    logits = torch.tensor([[[1e4, -1e4]], [[2e4, 0.0]]])
    assert nll(Prediction.from_logits(logits).log_probs, torch.tensor([1])) == pytest.approx(
        2e4 + math.log(1), rel=1e-6
    )


def test_sums_are_in_float64():
    # Next to one loss of 1e8 float32 would forget three of .6931.
    log_probs = torch.tensor([[-1e8, 0.0]] + [[math.log(0.5), math.log(0.5)]] * 3)
    assert nll(log_probs, torch.zeros(4, dtype=torch.long)) == pytest.approx((1e8 + 3 * math.log(2)) / 4, abs=1e-6)


def test_a_segmentation_counts_every_pixel():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 2, 4, 5, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(4, (2, 5, 6), generator=generator)
    dense = classification_metrics(Prediction.from_logits(logits), labels)
    pixels = classification_metrics(Prediction.from_logits(logits.movedim(2, -1).reshape(3, -1, 4)), labels.flatten())
    assert dense == pytest.approx(pixels, abs=1e-12)


def test_values_per_example_average_to_the_metric():
    prediction, labels = random_case(7)
    log_probs, probs = prediction.log_probs, prediction.probs
    for examples, metric in [
        (example_correct(probs, labels), accuracy(probs, labels)),
        (example_nll(log_probs, labels), nll(log_probs, labels)),
        (example_brier(probs, labels), brier(probs, labels)),
    ]:
        assert examples.shape == (40,) and examples.double().mean().item() == metric


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_probabilities_are_measured_in_float32(dtype: torch.dtype):
    prediction, labels = random_case(8)
    assert example_brier(prediction.probs.to(dtype), labels).dtype == torch.float32
    assert brier(prediction.probs.to(dtype), labels) == pytest.approx(brier(prediction.probs, labels), abs=2e-2)
    assert classification_metrics(Prediction.from_logits(prediction.logits.to(dtype)), labels)["nll"] > 0


def test_metrics_leave_their_inputs_alone():
    prediction, labels = random_case(9)
    probs, log_probs = prediction.probs.clone(), prediction.log_probs.clone()
    classification_metrics(prediction, labels)
    brier(prediction.probs, labels)
    assert torch.equal(prediction.probs, probs) and torch.equal(prediction.log_probs, log_probs)
