"""Metrics of quality, calibration, OOD detection and diversity; statistics, cost and speed.

    classification_metrics, regression_metrics, diversity_metrics, detection    every metric of whole arrays, by name
    Accumulator                                                                 the same numbers, batch by batch
    per_class                                                                   the same class by class
    fit_temperature, fit_sets, fit_intervals, fit_abstention, fit_threshold     rules fitted on held-out examples
    Differences, over_seeds, paired_t                                           how sure the numbers are
    catalogue                                                                   what there is, as plain data

`multum.evaluate` and `multum.cost` measure an ensemble on a data set and count what it costs.
"""

from .aggregate import (
    Accumulator,
    classification_metrics,
    detection,
    diversity_metrics,
    per_member,
    regression_metrics,
)
from .calibration import ReliabilityCurve, Temperature, adaptive_ece, ece, fit_temperature, reliability_curve
from .classification import accuracy, brier, example_brier, example_correct, example_nll, nll
from .conformal import ConformalIntervals, ConformalSets, conformal_quantile, fit_intervals, fit_sets
from .differences import Difference, Differences
from .diversity import disagreement, disagreement_matrix
from .ood import SCORES, aupr, auroc, fpr95, fpr_at_recall, histogram, scores
from .per_class import PerClass, Threshold, confusion_matrix, fit_threshold, per_class
from .registry import METRICS, Metric, catalogue
from .regression import QuantileCurve, coverage, in_units, mean_width, pit, quantile_curve, rmse
from .selective import Abstention, RiskCoverage, aurc, fit_abstention, risk_coverage
from .speed import Speed, Speeds, compare_speed
from .statistics import Comparison, Seeds, over_seeds, paired_t
from .temperatures import held_out_nll

__all__ = [
    "METRICS",
    "SCORES",
    "Abstention",
    "Accumulator",
    "Comparison",
    "ConformalIntervals",
    "ConformalSets",
    "Difference",
    "Differences",
    "Metric",
    "PerClass",
    "QuantileCurve",
    "ReliabilityCurve",
    "RiskCoverage",
    "Seeds",
    "Speed",
    "Speeds",
    "Temperature",
    "Threshold",
    "accuracy",
    "adaptive_ece",
    "aupr",
    "aurc",
    "auroc",
    "brier",
    "catalogue",
    "classification_metrics",
    "compare_speed",
    "conformal_quantile",
    "confusion_matrix",
    "coverage",
    "detection",
    "disagreement",
    "disagreement_matrix",
    "diversity_metrics",
    "ece",
    "example_brier",
    "example_correct",
    "example_nll",
    "fit_abstention",
    "fit_intervals",
    "fit_sets",
    "fit_temperature",
    "fit_threshold",
    "fpr95",
    "fpr_at_recall",
    "held_out_nll",
    "histogram",
    "in_units",
    "mean_width",
    "nll",
    "over_seeds",
    "paired_t",
    "per_class",
    "per_member",
    "pit",
    "quantile_curve",
    "regression_metrics",
    "reliability_curve",
    "risk_coverage",
    "rmse",
    "scores",
]
