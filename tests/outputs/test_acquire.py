"""Which examples are labelled next."""

from __future__ import annotations

import pytest
import torch

import multum
from multum.errors import ConfigError
from multum.outputs.prediction import Prediction, RegressionPrediction


def pool() -> Prediction:
    """Three members on four examples: sure, torn alike, in disagreement, and a little of both."""
    sure, torn, a, b = (torch.tensor([p, 1 - p]) for p in (0.99, 0.5, 0.95, 0.05))
    each = [[sure, sure, sure], [torn, torn, torn], [a, b, b], [torn, torn, a]]
    return Prediction.from_logits(torch.stack([torch.stack(members) for members in each]).log().transpose(0, 1))


@pytest.mark.parametrize(
    ("by", "order"),
    [
        (None, [2, 3, 0, 1]),
        ("mutual_information", [2, 3, 0, 1]),
        ("entropy", [1, 2, 3, 0]),
        ("variation_ratio", [2, 0, 1, 3]),
        ("confidence", [1, 2, 3, 0]),
        ("margin", [1, 2, 3, 0]),
    ],
)
def test_the_most_informative_come_first(by: str | None, order: list[int]) -> None:
    assert multum.acquire(pool(), 4, by=by).tolist() == order
    assert multum.acquire(pool(), 2, by=by).tolist() == order[:2]


def test_ties_go_by_their_order() -> None:
    ties = Prediction.from_logits(torch.zeros(2, 50, 3))
    for by in ("entropy", "mutual_information", "margin"):
        assert multum.acquire(ties, 50, by=by).tolist() == list(range(50))


def test_pixels_count_by_their_mean() -> None:
    logits = torch.zeros(2, 3, 4, 5, 5)
    logits[:, 0] = 0.1 * torch.arange(4.0).view(4, 1, 1)
    logits[0, 2, 0, :2], logits[1, 2, 1, :2] = 9.0, 9.0
    assert multum.acquire(Prediction.from_logits(logits), 1).tolist() == [2]


def test_regression_goes_by_disagreement_or_by_all_variance() -> None:
    members = torch.tensor([[[0.0, 9.0], [0.0, 1.0]], [[0.0, 9.0], [2.0, 1.0]]])
    prediction = RegressionPrediction(members)
    assert multum.acquire(prediction, 1).tolist() == multum.acquire(prediction, 1, by="epistemic").tolist() == [1]
    assert multum.acquire(prediction, 1, by="variance").tolist() == [0]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="k must be at most the 4 examples"):
        multum.acquire(pool(), 5)
    with pytest.raises(ConfigError, match="by must be one of"):
        multum.acquire(pool(), 1, by="epistemic")
    with pytest.raises(ConfigError, match="by must be one of"):
        multum.acquire(RegressionPrediction(torch.ones(1, 2, 2)), 1, by="entropy")
    with pytest.raises(ConfigError, match="several targets"):
        multum.acquire(RegressionPrediction(torch.ones(2, 5, 2, 3)), 1)
    with pytest.raises(ConfigError, match="must be finite"):
        multum.acquire(Prediction.from_logits(torch.full((1, 2, 2), torch.nan)), 1, by="entropy")
