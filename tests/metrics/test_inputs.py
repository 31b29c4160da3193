"""What metrics refuse, each in words: the rule, the value, the item, the fix."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from multum.errors import MetricError, MultumError
from multum.metrics.aggregate import classification_metrics
from multum.metrics.classification import accuracy, brier, nll
from multum.metrics.inputs import check_labels, check_log_probs, check_probs, check_scores, check_share
from multum.outputs.prediction import Prediction

PROBS, LABELS = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.5, 0.5]]), torch.tensor([0, 1, 1])
NAN = torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.5, math.nan]])


def test_the_error_is_one_of_multums_and_a_value_error():
    assert issubclass(MetricError, MultumError) and issubclass(MetricError, ValueError)


@pytest.mark.parametrize(
    ("metric", "predicted", "message"),
    [
        (
            brier,
            PROBS + torch.tensor([[0.0], [0.1], [0.0]]),
            "probs must sum to one over axis 1; got 1.2 for example 1",
        ),
        (brier, PROBS.log(), "probs must be at least 0"),
        (brier, torch.tensor([[1.2, -0.2]] * 3), "probs must be at least 0; got -0.2"),
        (nll, PROBS, r"exp\(log_probs\) must sum to one over axis 1; got .* for example 0"),
        (nll, PROBS.log() - 1, "sum to one"),
        (brier, NAN, "got NaN for example 2"),
        (nll, NAN.log(), "got NaN for example 2"),
        (accuracy, NAN, "got nan for example 5"),
        (brier, torch.ones(3, 1), "at least 2 classes on axis 1"),
        (nll, torch.zeros(3, 1), "at least 2 classes on axis 1"),
        (brier, torch.ones(3), r"floating point \[batch, classes"),
        (brier, torch.ones(3, 2, dtype=torch.long), "int64"),
        (accuracy, torch.ones(3), r"\[batch, classes"),
        (brier, torch.ones(0, 2), "at least one example"),
        (nll, torch.ones(0, 2), "at least one example"),
    ],
)
def test_predictions_that_are_refused(metric, predicted: Tensor, message: str):
    with pytest.raises(MetricError, match=message):
        metric(predicted, LABELS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 2, 1]), "labels of 2 classes must be 0 to 1; got 2 for example 1"),
        (torch.tensor([0, 1, -100]), "got -100 for example 2"),
        (torch.tensor([0, 1]), r"have shape \[3\]; got \[2\]"),
        (torch.tensor([[0], [1], [1]]), r"have shape \[3\]; got \[3, 1\]"),
        (torch.tensor([0.0, 1.0, 1.0]), r"labels must be integers; got torch.float32. Use labels.long\(\)"),
    ],
)
@pytest.mark.parametrize(
    "metric", [lambda p, y: accuracy(p, y), lambda p, y: brier(p, y), lambda p, y: nll(p.log(), y)]
)
def test_labels_that_are_refused(metric, labels: Tensor, message: str):
    with pytest.raises(MetricError, match=message):
        metric(PROBS, labels)


@pytest.mark.parametrize(
    ("logits", "message"),
    [
        (NAN.unsqueeze(0), "got NaN for member 0, example 2"),
        (torch.tensor([[[0.0, math.inf]]]), r"got \+inf, or nothing but -inf, for member 0, example 0"),
        (torch.full((1, 3, 2), -math.inf), "nothing but -inf"),
        (torch.zeros(2, 0, 3), "at least one example"),
    ],
)
def test_outputs_that_are_refused(logits: Tensor, message: str):
    with pytest.raises(MetricError, match=message):
        classification_metrics(Prediction.from_logits(logits), torch.zeros(logits.shape[1], dtype=torch.long))


def test_labels_of_every_integer_kind_are_taken():
    for dtype in (torch.uint8, torch.int32, torch.bool):
        assert accuracy(PROBS, LABELS.to(dtype)) == accuracy(PROBS, LABELS)
    assert check_labels(LABELS.int(), PROBS).dtype == torch.int64


def test_rounding_is_not_an_error():
    many = torch.rand(50, 1000, generator=torch.Generator().manual_seed(0)).softmax(1)
    assert check_probs(many).dtype == torch.float32
    for dtype in (torch.float16, torch.bfloat16):
        assert check_probs(PROBS.to(dtype)).dtype == torch.float32
    check_log_probs((many + 1e-9).log())
    check_probs(torch.tensor([[1.0 + 1e-7, -1e-7]]))


def test_labels_of_one_class_only_are_fine_for_what_does_not_rank():
    found = classification_metrics(Prediction.from_logits(PROBS.log().unsqueeze(0)), torch.zeros(3, dtype=torch.long))
    ranked = [name for name, value in found.items() if not math.isfinite(value)]
    assert ranked == ["class_auroc", "class_auprc"]


def test_scores_become_flat_numbers():
    assert check_scores(torch.tensor([[1, 2], [3, 4]])).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert check_scores(torch.tensor([math.inf])).item() == math.inf
    with pytest.raises(MetricError, match=r"finite; got -inf for example 1 \(1 of 2\)"):
        check_scores(torch.tensor([0.0, -math.inf]), finite=True)


@pytest.mark.parametrize(("share", "fix"), [(95, ". For 95 % write 0.95"), (0, "$"), (1, "$"), (-2, "$")])
def test_shares_that_are_refused(share: float, fix: str):
    with pytest.raises(MetricError, match=f"0 < level < 1; got level={share}{fix}"):
        check_share(share, "level")
