"""What metrics refuse, each in words: the rule, the value, the item, the fix."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from multum.errors import MetricError, MultumError
from multum.metrics.classification import accuracy, brier, classification, nll
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
            "probs sum to one over axis 1, however: item 1 sums to 1.2",
        ),
        (brier, PROBS.log(), "probs are at least 0"),
        (brier, torch.tensor([[1.2, -0.2]] * 3), "probs are at least 0, however: -0.2"),
        (nll, PROBS, r"exp\(log_probs\) sum to one over axis 1, however: item 0"),
        (nll, PROBS.log() - 1, "sum to one"),
        (brier, NAN, "item 2 holds NaN"),
        (nll, NAN.log(), "item 2 holds NaN"),
        (accuracy, NAN, "item 5 is nan"),
        (brier, torch.ones(3, 1), "at least 2 classes on axis 1"),
        (nll, torch.zeros(3, 1), "at least 2 classes on axis 1"),
        (brier, torch.ones(3), r"floating point \[batch, classes"),
        (brier, torch.ones(3, 2, dtype=torch.long), "int64"),
        (accuracy, torch.ones(3), r"\[batch, classes"),
        (brier, torch.ones(0, 2), "at least one item"),
        (nll, torch.ones(0, 2), "at least one item"),
    ],
)
def test_predictions_that_are_refused(metric, predicted: Tensor, message: str):
    with pytest.raises(MetricError, match=message):
        metric(predicted, LABELS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.tensor([0, 2, 1]), "labels of 2 classes are 0 to 1, however: item 1 is 2"),
        (torch.tensor([0, 1, -100]), "item 2 is -100"),
        (torch.tensor([0, 1]), r"have shape \[3\], however: \[2\]"),
        (torch.tensor([[0], [1], [1]]), r"have shape \[3\], however: \[3, 1\]"),
        (torch.tensor([0.0, 1.0, 1.0]), r"labels are integers, however: torch.float32. Use labels.long\(\)"),
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
        (NAN.unsqueeze(0), "member 0, item 2 holds NaN"),
        (torch.tensor([[[0.0, math.inf]]]), r"member 0, item 0 holds \+inf"),
        (torch.full((1, 3, 2), -math.inf), "nothing but -inf"),
        (torch.zeros(2, 0, 3), "at least one item"),
    ],
)
def test_outputs_that_are_refused(logits: Tensor, message: str):
    with pytest.raises(MetricError, match=message):
        classification(Prediction.from_logits(logits), torch.zeros(logits.shape[1], dtype=torch.long))


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
    found = classification(Prediction.from_logits(PROBS.log().unsqueeze(0)), torch.zeros(3, dtype=torch.long))
    assert all(math.isfinite(value) for value in found.values())


def test_scores_become_flat_numbers():
    assert check_scores(torch.tensor([[1, 2], [3, 4]])).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert check_scores(torch.tensor([math.inf])).item() == math.inf
    with pytest.raises(MetricError, match=r"finite, however: item 1 is -inf \(1 of 2\)"):
        check_scores(torch.tensor([0.0, -math.inf]), finite=True)


@pytest.mark.parametrize(
    ("share", "fix"), [(95, "For 95 % write 0.95"), (0, "Neither end"), (1, "Neither"), (-2, "Neither")]
)
def test_shares_that_are_refused(share: float, fix: str):
    with pytest.raises(MetricError, match=f"level={share}. {fix}"):
        check_share(share, "level")
