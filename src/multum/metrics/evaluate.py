"""`multum.evaluate`: what a trained ensemble is worth on held-out data, on OOD data, and under distribution shift.

Examples stream through in batches; outputs are not kept, only sums and, where a metric ranks all examples, one number
per example and score. Which metrics there are says registry.py; what calibration keeps, calibrated.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import repeat
from typing import Any

import torch
from torch import Tensor

from ..data.given import as_test_data
from ..data.sources import Data, Part
from ..ensemble import Ensemble
from ..errors import DataError, MetricError
from ..outputs.prediction import Prediction, RegressionPrediction
from .aggregate import Accumulator, detection, regression_metrics
from .calibrated import CalibratedStream, calibrated_regression, curve_of_sizes
from .computations import Mean
from .details import by_class, chance, known, means, severities, shifted, thresholds
from .one_model import own_noise
from .ood import histogram
from .per_class import MOST_CLASSES
from .registry import NUMBERS, computed
from .regression import quantile_curve
from .selective import risk_coverage
from .streams import all_outputs_of, held_out_of, logits_of

CURVE_POINTS = 101  # of a risk-coverage curve


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything measured: numbers by name, curves as a report draws them, and what each example contributes.

    Shape: `examples` has a tensor ``[examples]`` for each metric that is kept per example, in the test part's order,
    and what `own_noise` measures on a sample of them.
    """

    numbers: dict[str, Any]
    curves: dict[str, Any] = field(default_factory=dict)
    examples: dict[str, Tensor] = field(default_factory=dict)


def evaluate(ensemble: Ensemble, data: Any, **options: Any) -> dict[str, Any]:
    """Every metric of an ensemble on the test set, by name; the options are those of `measure`.

    The data may also be a user's own examples, all of which are measured on: (x, y) of tensors, arrays or a frame and a
    series, inputs as the network takes them; a Dataset or a DataLoader.

    >>> import multum
    >>> data = multum.load_data("digits")
    >>> net = multum.models.build("small-cnn", classes=10, in_channels=1)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=data.example(), seed=0)
    >>> numbers = evaluate(ens, data)
    >>> numbers["examples"], numbers["nll"] < numbers["member_nll"]
    (539, True)
    """
    return measure(ensemble, as_test_data(data, ensemble.task), **options).numbers


def measure(
    ensemble: Ensemble,
    data: Data,
    *,
    ood: Mapping[str, Tensor] | None = None,
    shift: Sequence[str] = (),
    shift_examples: int | None = None,
    cost_ratio: float | None = None,
    held_out: Mapping[str, Tensor] | None = None,
    batch_size: int = 512,
    seed: int = 0,
    advance: Callable[[int], None] = lambda examples: None,
) -> Measured:
    """All that `evaluate` gives, with the curves and the values of every example.

    Args:
        ood: OOD sets by name, raw examples as the data set's own; `numbers["ood"][set][score]` has auroc, aupr, fpr95;
            `numbers["ood_mutual_information"][set]` is the mean over its examples.
        shift: corruptions by name; `numbers["shift"][name][severity]` has accuracy, nll and ece, and `numbers["cacc"]`,
            `["cnll"]`, `["cece"]` are the plain means over all of them.
        shift_examples: how many test examples are corrupted, chosen by the seed; None for all.
        cost_ratio: of two classes, what a missed positive costs in false alarms: the threshold of the least cost is
            among those that are chosen on the validation part, where the data has one.
        held_out: the members' `outputs` on a validation part that is not here, and its `targets`. On it, or on the
            data's own validation part, the temperature of the calibrated metrics is fitted; without any, by
            cross-validation on the test part.
        advance: called with the number of examples after every batch, for a progress bar.
    """
    _check(ensemble, data, batch_size, shift_examples)
    unheld = data.validation is None and held_out is None
    if cost_ratio is not None and (data.task != "classification" or data.outputs != 2 or unheld):
        what = f"{data.task} of {data.outputs} outputs, {'no' if unheld else 'a'} validation part"
        raise MetricError(
            f"cost_ratio must be for two classes, with a validation part to choose a threshold on; got {what}. "
            "Train with validation=0.1, or leave it out"
        )
    if data.task == "regression":
        if ood or shift:
            raise MetricError("OOD sets and corruptions need task classification; got regression")
        return _regression(ensemble, data, held_out, batch_size, seed, advance)
    run = partial(_accumulated, ensemble, data, batch_size=batch_size, advance=advance)
    held = held_out_of(ensemble, data, held_out, batch_size, advance)
    calibrated = CalibratedStream(ensemble.members, len(data.test), held, seed)
    test = run(data.test, keep=True, rank_classes=data.outputs <= MOST_CLASSES, watch=calibrated.add)
    calibrated.finish(lambda: logits_of(ensemble, data, data.test, batch_size))
    numbers: dict[str, Any] = {"examples": test.count, "members": ensemble.members, **test.compute()}
    numbers |= calibrated.numbers() | chance(data.test.y, data.task)
    numbers["by_class"] = by_class(test, data)
    if numbers["by_class"].get("positive") and held is not None:
        validation = Accumulator(keep=False, rank_classes=True, positive=data.positive)
        validation.add(*held)
        numbers["by_class"]["thresholds"] = thresholds(test, validation, data.positive, cost_ratio)
    outside = {}
    for name, x in (ood or {}).items():
        if x.shape[1:] != data.test.x.shape[1:]:
            raise DataError(
                f"examples of an OOD set must have the test examples' shape {tuple(data.test.x.shape[1:])}; got "
                f"{tuple(x.shape[1:])} for {name}. Resize it first"
            )
        if len(x) == 0:
            raise DataError(f"an OOD set must have examples; got none for {name}")
        outside[name] = run(Part(x, x), keep=True, labelled=False).scores()
    if outside:
        numbers["ood"] = detection(test.scores(), outside)
        numbers["ood_mutual_information"] = {
            name: float(scores["mutual_information"].double().mean()) for name, scores in outside.items()
        }
    severity: dict[str, Any] = {}
    if shift:
        table = shifted(run, data.test.drawn(shift_examples, seed), known(shift, data), seed)
        numbers |= {"shift": table, **means(table)}
        severity = severities(numbers["accuracy"], table)
    msp = {name: scores["msp"] for name, scores in outside.items()}
    curves = _classification_curves(test, msp, severity) | {"by_class": numbers["by_class"]} | calibrated.by_members()
    measured = Measured(numbers, curves, test.example_values() | calibrated.example_values())
    return _with_own_noise(measured, ensemble, data, batch_size)


def _with_own_noise(measured: Measured, ensemble: Ensemble, data: Data, batch_size: int) -> Measured:
    """With what tells whether the members are one model, where that can be asked."""
    own = own_noise(ensemble, data, batch_size)
    if own is not None:
        measured.numbers.update(own.numbers)
        measured.examples.update(own.examples)
    return measured


def _check(ensemble: Ensemble, data: Data, batch_size: int, shift_examples: int | None) -> None:
    """Refuse, before anything runs, what would end in a wrong number or in torch's own words."""
    if batch_size < 1:
        raise MetricError(f"batch_size must be at least 1; got batch_size={batch_size}")
    if shift_examples is not None and shift_examples < 1:
        raise MetricError(f"shift_examples must be at least 1, or None; got shift_examples={shift_examples}")
    if ensemble.task != data.task:
        raise MetricError(f"data and ensemble must have the same task; got {data.task} and {ensemble.task}")
    x, y, shape = data.test.x, data.test.y, data.train.x.shape[1:]
    if len(x) != len(y):
        raise DataError(f"{data.name} must have as many test examples as targets; got {len(x)} and {len(y)}")
    if len(x) == 0:
        raise DataError(f"the test part of {data.name} must have examples; got none")
    if x.shape[1:] != shape:
        raise DataError(
            f"test examples must have the training examples' shape {tuple(shape)}; got {tuple(x.shape[1:])}"
        )


def _accumulated(
    ensemble: Ensemble,
    data: Data,
    part: Part,
    *,
    batch_size: int,
    advance: Callable[[int], None],
    keep: bool,
    rank_classes: bool = False,
    labelled: bool = True,
    change: Callable[[Tensor], Tensor] = lambda x: x,
    watch: Callable[[slice, Tensor, Tensor], None] = lambda rows, logits, labels: None,
) -> Accumulator:
    sums = Accumulator(keep=keep, rank_classes=rank_classes, positive=data.positive)
    for rows, logits, labels in logits_of(ensemble, data, part, batch_size, change):
        sums.add(Prediction(logits), labels if labelled else None)
        watch(rows, logits, labels)
        advance(rows.stop - rows.start)
    return sums


def _classification_curves(test: Accumulator, msp: Mapping[str, Tensor], severity: Mapping[str, Any]) -> dict[str, Any]:
    """What a report draws; `msp` is that score of every OOD set, `severity` empty without shift."""
    curve = test.reliability()
    curves: dict[str, Any] = {
        "reliability": {name: getattr(curve, name).tolist() for name in ("edges", "confidence", "accuracy", "weight")},
        "risk_coverage": _risk_coverage(*test.confidence_and_correct()),
    }
    if msp:
        # The score "msp" is minus the confidence; shifted by 1 it is a share that a reader knows.
        drawn = histogram({name: 1 + score for name, score in {"test": test.scores()["msp"], **msp}.items()})
        edges = drawn.edges.tolist()
        curves["histograms"] = {
            name: {"edges": edges, "share": (counts / counts.sum()).tolist()} for name, counts in drawn.counts.items()
        }
    curves |= severity
    differ = test.disagreement_matrix()
    return curves | ({"disagreement": differ.tolist()} if len(differ) > 1 else {})


def _risk_coverage(confidence: Tensor, correct: Tensor) -> dict[str, list[float]]:
    curve = risk_coverage(confidence, correct)
    chosen = torch.linspace(0, len(curve.risk) - 1, min(CURVE_POINTS, len(curve.risk))).round().long()
    return {"coverage": curve.coverage[chosen].tolist(), "risk": curve.risk[chosen].tolist()}


def _regression(
    ensemble: Ensemble,
    data: Data,
    stored: Mapping[str, Tensor] | None,
    batch_size: int,
    seed: int,
    advance: Callable[[int], None],
) -> Measured:
    held = held_out_of(ensemble, data, stored, batch_size, advance)
    members, targets = all_outputs_of(ensemble, data, data.test.x, batch_size, advance), data.test.y
    every = [(RegressionPrediction(own), y) for own, y in _by_target(members, targets)]
    held_out = repeat(None) if held is None else _by_target(*held)
    calibrated = [calibrated_regression(p.members, y, h, seed) for (p, y), h in zip(every, held_out, strict=False)]
    tables = [regression_metrics(*target) | own[0] for target, own in zip(every, calibrated, strict=True)]
    curves = [quantile_curve(*target) for target in every]
    values = {m.key: how.values for m, how in computed(NUMBERS, Mean) if m.per_example}
    calibrated_by = {"calibrated_by": [table.pop("calibrated_by") for table in tables].pop()}
    numbers: dict[str, Any] = {key: sum(table[key] for table in tables) / len(tables) for key in tables[0]}
    numbers |= calibrated_by | chance(targets, data.task)
    if len(every) > 1:
        names = zip(data.named_targets, tables, strict=True)
        numbers["by_target"] = [{"target": name, **table} for name, table in names]
    observed = torch.stack([curve.observed for curve in curves]).mean(0)
    examples = {key: torch.stack([of(*target) for target in every]).mean(0) for key, of in values.items()}
    for key in calibrated[0][1]:
        examples[key] = torch.stack([own[key] for _, own, _ in calibrated]).mean(0)
    measured = Measured(
        {"examples": len(targets), "members": ensemble.members, **numbers},
        {"quantiles": {"expected": curves[0].expected.tolist(), "observed": observed.tolist()}}
        | ({"by_target": numbers["by_target"]} if len(every) > 1 else {})
        | curve_of_sizes(range(1, ensemble.members + 1), torch.stack([nll for *_, nll in calibrated]).mean(0)),
        examples,
    )
    return _with_own_noise(measured, ensemble, data, batch_size)


def _by_target(members: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Means and variances ``[members, examples, 2]`` of each target, and the target itself."""
    if targets.ndim == 1:
        return [(members, targets)]
    return list(zip(members.unbind(3), targets.unbind(1), strict=True))
