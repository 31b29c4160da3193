"""What a report draws, as plain numbers: reliability, risk against coverage, scores, who disagrees with whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..outputs.prediction import RegressionPrediction
from .ood import histogram
from .regression import quantile_curve
from .selective import risk_coverage
from .streaming import Accumulator

__all__ = ["classification_curves", "regression_curves"]

POINTS = 101  # of a risk-coverage curve


def classification_curves(known: Accumulator, foreign: Mapping[str, Tensor], severity: Mapping[str, Any]) -> dict:
    """The curves of an ensemble on its test items.

    Args:
        known: the test items, with `keep=True`.
        foreign: the score "msp" of every foreign set's items.
        severity: accuracies by severity and by corruption; empty without shift.
    """
    curve = known.reliability()
    found: dict[str, Any] = {
        "reliability": {
            "edges": curve.edges.tolist(),
            "confidence": curve.confidence.tolist(),
            "accuracy": curve.accuracy.tolist(),
            "weight": curve.weight.tolist(),
        },
        "risk_coverage": _risk_coverage(*known.confidence_and_correct()),
    }
    if foreign:
        # The score "msp" is minus the confidence; shifted by 1 it is a share that a reader knows.
        drawn = histogram({name: 1 + score for name, score in {"test": known.scores()["msp"], **foreign}.items()})
        edges = drawn.edges.tolist()
        found["histograms"] = {
            name: {"edges": edges, "share": (counts / counts.sum()).tolist()} for name, counts in drawn.counts.items()
        }
    found |= severity
    differ = known.disagreement_matrix()
    return found | ({"disagreement": differ.tolist()} if len(differ) > 1 else {})


def regression_curves(prediction: RegressionPrediction, targets: Tensor) -> dict[str, Any]:
    """Quantile calibration; the prediction in the targets' units."""
    curve = quantile_curve(prediction, targets)
    return {"quantiles": {"expected": curve.expected.tolist(), "observed": curve.observed.tolist()}}


def _risk_coverage(confidence: Tensor, correct: Tensor) -> dict[str, list[float]]:
    curve = risk_coverage(confidence, correct)
    chosen = torch.linspace(0, len(curve.risk) - 1, min(POINTS, len(curve.risk))).round().long()
    return {"coverage": curve.coverage[chosen].tolist(), "risk": curve.risk[chosen].tolist()}
