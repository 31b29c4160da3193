"""What items measure inside trained networks, beyond the numbers of a cell.

A function of `EXTRAS` takes what is trained of its item, and gives lines and pictures; rows and seeds that are not done
are left out. Shares are in percent, likelihoods in nats.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pandas as pd

from ..inside.conditional_variance import ConditionalVariances, conditional_variances
from ..inside.pictures import conditional_variance_plot, paths_plot
from ..inside.trajectories import Trajectories
from ..metrics.diversity import disagreement
from ..metrics.speed import compare_speed
from ..outputs.prediction import Prediction, predict
from ..training.checkpoint import states
from .basins import between, embeddings, subnetworks
from .bias import bias_and_variance
from .norms import each_with_its_own
from .results import DIGITS, Found, Line, Ordering, Picture, compared, line_over_seeds, ordered
from .sparsity import by_sparsity
from .trained import Trained

__all__ = ["EXTRAS", "Extra"]

Extra: TypeAlias = Callable[[Trained], Found]

PATH_ITEMS = 1000
SEPARATE = 0.9  # of a unit's variance
SEPARATE_UNITS = f"units with more than {SEPARATE} of one input (%)"
BINS = 25
ROUNDS = 10


def _paths(trained: Trained) -> Found:
    """MIMO, Figure 4, middle-right."""
    row = trained.run.rows[0]
    if not trained.seeds(row.label):
        return Found([], {})
    seed = trained.seeds(row.label)[0]
    ens, data = trained.open(row.label, seed)
    saved = states(trained.path(row.label, seed))
    x = data.prepare(data.test.x[:PATH_ITEMS])
    epochs, trial = sorted(saved), copy.deepcopy(ens)
    lines: list[Line] = []
    for when, epoch in (("at the beginning", epochs[0]), ("after the first epoch", 1), ("at the end", epochs[-1])):
        if epoch not in saved:
            continue
        trial.load_state_dict(saved[epoch])
        found = predict(trial, x, batch_size=512)
        assert isinstance(found, Prediction)
        lines.append(Line(row.label, f"disagreement {when} (%)", 100 * disagreement(found), seeds=1))
    recorder = Trajectories.from_states(ens, {float(epoch): state for epoch, state in saved.items()}, x)
    pictures = {}
    for name, projection, kept in (("", "tsne", "keeps neighbours"), ("pca", "pca", "keeps distances")):
        paths = recorder.project(projection, seed=0)
        pictures[name] = Picture(
            f"Paths of the subnetworks through function space, by {'PCA' if name else 't-SNE'}",
            f"Each dot is one member's predictions on {len(x):,} test items after an epoch, from the open circle to "
            f"the large dot. Members that end apart predict differently; the projection {kept}.",
            paths_plot(paths),
            paths.frame().round(DIGITS),
        )
    return Found(lines, pictures)


def _listening(trained: Trained) -> Found:
    """MIMO, Figure 4, left and middle-left; the pictures are of the first seed."""
    lines: list[Line] = []
    pictures: dict[str, Picture] = {}
    orderings: list[Ordering] = []
    for name, label in trained.named():
        every = {seed: conditional_variances(*trained.open(label, seed)) for seed in trained.seeds(label)}
        if not every:
            continue
        found = next(iter(every.values()))
        chance = f"{1 / len(found.inputs):.2f} where no input prevails"
        alone = {seed: _separate(one) for seed, one in every.items()}
        lines.append(line_over_seeds(label, "separation", [one.separation for one in every.values()], remark=chance))
        lines.append(line_over_seeds(label, SEPARATE_UNITS, [*alone.values()]))
        # "Almost all": more than half of them is the least that this can mean.
        orderings += compared(SEPARATE_UNITS, label, "half of the units", (alone, dict.fromkeys(every, 50.0)))
        pictures[name] = Picture(
            f"Which input each unit listens to: {label}",
            "Left, the share of the prevailing input in the variance of each unit's pre-activation: 1 where a unit "
            f"belongs to one subnetwork, {chance}. Right, every unit; its colour is the input that prevails.",
            conditional_variance_plot(found),
            _histogram(found),
        )
    return Found(lines, pictures, orderings)


def _separate(found: ConditionalVariances) -> float:
    """The share of units, in percent, that listen to one input alone."""
    shares = found.share[found.share.isfinite()]
    return 100 * float((shares > SEPARATE).double().mean())


def _histogram(found: ConditionalVariances) -> pd.DataFrame:
    """Units by the share of their prevailing input, as the picture counts them."""
    edges = np.linspace(1 / len(found.inputs), 1, BINS + 1)
    share, owner = found.share.numpy(), found.owner.numpy()
    counts = {
        f"input_{m}": np.histogram(share[(owner == m) & np.isfinite(share)], edges)[0] for m in range(len(found.inputs))
    }
    return pd.DataFrame({"from": edges[:-1], "to": edges[1:], **counts}).round(DIGITS)


def _speeds(trained: Trained) -> Found:
    """Packed-Ensembles, Table 8: relative to one network, which must be there."""
    single = "Single Model"
    labels = [row.label for row in trained.run.rows if trained.seeds(row.label)]
    if single not in labels:
        return Found([], {})
    labels = [single, *(label for label in labels if label != single)]
    opened = {label: trained.open(label) for label in labels}
    example = opened[single][1].example()
    found = compare_speed({label: ens for label, (ens, _) in opened.items()}, example, rounds=ROUNDS)
    epochs = {label: _seconds_per_epoch(trained, label) for label in labels}
    lines: list[Line] = []
    for label in labels:
        measured = {row.batch_size: 1 / row.ratio for row in found.rows if row.name == label}
        printed = _printed_ratio(trained, label, single, "Inference f32 (im/s)")
        lines.append(Line(label, "images/s relative", measured[128], printed, remark="batches of 128", seeds=1))
        lines.append(Line(label, "images/s relative, one at a time", measured[1], seeds=1))
        both = sorted(epochs[label].keys() & epochs[single].keys())
        if both:
            times = [epochs[label][seed] / epochs[single][seed] for seed in both]
            printed = _printed_ratio(trained, label, single, "Training f32 (s/epoch)")
            lines.append(line_over_seeds(label, "training time relative", times, printed))
    # Rounds stand for seeds: the interval is that of the measurement.
    seconds = {row.name: row.seconds for row in found.rows if row.batch_size == 128}
    speeds = {
        label: {i: one / own for i, (one, own) in enumerate(zip(seconds[single], seconds[label], strict=True))}
        for label in labels
    }
    orderings: list[Ordering] = []
    ratios = {label: _printed_ratio(trained, label, single, "Inference f32 (im/s)") for label in labels}
    for better, worse, paper in ordered({k: float(v) for k, v in ratios.items() if v is not None}, "images/s"):
        orderings += compared("images/s relative", better, worse, (speeds[better], speeds[worse]), paper)
    return Found(lines, {}, orderings)


def _seconds_per_epoch(trained: Trained, label: str) -> dict[int, float]:
    epochs = trained.run.row(label).epochs
    return trained.values(label, lambda result: result["seconds"]["training"] / epochs)


def _printed_ratio(trained: Trained, label: str, single: str, column: str) -> str | None:
    printed = trained.run.printed
    if column not in printed.get(label, {}) or column not in printed.get(single, {}):
        return None
    return str(round(printed[label][column].value / printed[single][column].value, 2))


EXTRAS: dict[str, Extra] = {
    "hypernet/figure3": embeddings,
    "hypernet/table3": each_with_its_own,
    "mimo/figure2": bias_and_variance,
    "mimo/figure3": subnetworks,
    "mimo/figure4-left": _listening,
    "mimo/figure4-trajectories": _paths,
    "mimo/figure7-9": by_sparsity,
    "mixture/figure4": between,
    "packed/table8": _speeds,
}
