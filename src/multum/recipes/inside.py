"""What items measure inside trained networks, beyond the numbers of a cell.

A function of `EXTRAS` takes what is trained of its item, and gives lines and pictures; rows and seeds that are not done
are left out. Shares are in percent, likelihoods in nats.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
import pandas as pd
import torch

from ..data import Data
from ..ensemble import Ensemble
from ..evaluation.between import choose_items, corners_of, run_points
from ..evaluation.conditional_variance import ConditionalVariances, conditional_variances
from ..evaluation.diversity import disagreement
from ..evaluation.landscape import interpolation, plane
from ..evaluation.predict import Prediction, predict
from ..evaluation.speed import compare_speed
from ..evaluation.trajectories import Trajectories
from ..methods import Multihead
from ..reports.inside import conditional_variance_plot, interpolation_plot, paths_plot, plane_plot
from ..training.checkpoint import states
from .bias import bias_and_variance
from .norms import each_with_its_own
from .results import Line, Picture, line_over_seeds
from .sparsity import by_sparsity
from .trained import Trained

__all__ = ["EXTRAS", "Extra"]

Extra: TypeAlias = Callable[[Trained], tuple[list[Line], dict[str, Picture]]]

PLANE_POINTS = 21  # a side
EMBEDDING_POINTS = 11  # a side: a point of this plane is a whole network with batch norm, and landscapes are flat
TEST_ITEMS, TRAINING_ITEMS = 2048, 512  # as hypernetworks' Figure S2
BATCH = 256  # as `plane` has by default: batch norm must see the same batches
PATH_ITEMS = 1000
SEPARATE = 0.9  # of a unit's variance
BINS = 25
ROUNDS = 10
DIGITS = 5  # of a picture's numbers


@dataclass(frozen=True)
class _Corners:
    """Three members and their mean in weight space. Shape: [4], the mean last."""

    accuracy: list[float]  # percent
    loss: list[float]
    disagreement: float  # of the three, mean over pairs, percent


def _corners(ensemble: Ensemble, data: Data, part: str, items: int) -> _Corners:
    corners = corners_of(ensemble, (0, 1, 2))
    mixes = torch.cat([torch.eye(3).double(), torch.full((1, 3), 1 / 3, dtype=torch.float64)])
    seen = choose_items(ensemble, data, part, items, BATCH, "batch", 0)
    found = run_points(corners, mixes, seen, None, lambda points: None)
    assert found.accuracy is not None and found.votes is not None
    differ = [float((found.votes[i] != found.votes[j]).double().mean()) for i, j in combinations(range(3), 2)]
    return _Corners((100 * found.accuracy).tolist(), found.loss.tolist(), 100 * sum(differ) / 3)


def _subnetworks(trained: Trained) -> tuple[list[Line], dict[str, Picture]]:
    """MIMO, Figure 3."""
    lines: list[Line] = []
    pictures: dict[str, Picture] = {}
    for row in trained.run.rows:
        if not trained.seeds(row.label):
            continue
        ens, data = trained.open(row.label)
        multihead = isinstance(row.method, Multihead)
        at = _corners(ens, data, "test", TEST_ITEMS)
        numbers = {f"accuracy of member {i} (%)": at.accuracy[i] for i in range(3)}
        numbers["accuracy at the mean of their weights (%)"] = at.accuracy[3]
        numbers["accuracy lost there (%)"] = sum(at.accuracy[:3]) / 3 - at.accuracy[3]
        numbers["disagreement of the members (%)"] = at.disagreement
        alone = "" if multihead else "each member run alone, the other inputs silent"
        lines += [Line(row.label, column, ours, remark=alone, seeds=1) for column, ours in numbers.items()]
        in_use = trained.values(row.label, lambda result: 100 * result["numbers"]["member_accuracy"])
        remark = "all test items" if multihead else "all test items, every input the same"
        lines.append(
            line_over_seeds(row.label, "accuracy of the members in use, mean (%)", [*in_use.values()], remark=remark)
        )
        found = plane(ens, data, points=PLANE_POINTS, items=TEST_ITEMS)
        blocks = "members' parts of the first and the last layer, each run with the other inputs silent"
        pictures["multihead" if multihead else ""] = Picture(
            f"Accuracy and disagreement on the plane through three subnetworks: {row.label}",
            f"Coordinates are distances between {'heads' if multihead else blocks}; all else is shared. Where ways "
            "between the marked members lead through low accuracy they are in basins of their own; the other panels "
            "say how often the class predicted at a point is another than one member's.",
            plane_plot(found, ("accuracy", "disagreement")),
            found.frame().round(DIGITS),
        )
    return lines, pictures


def _paths(trained: Trained) -> tuple[list[Line], dict[str, Picture]]:
    """MIMO, Figure 4, middle-right."""
    row = trained.run.rows[0]
    if not trained.seeds(row.label):
        return [], {}
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
    return lines, pictures


def _listening(trained: Trained) -> tuple[list[Line], dict[str, Picture]]:
    """MIMO, Figure 4, left and middle-left; the pictures are of the first seed."""
    lines: list[Line] = []
    pictures: dict[str, Picture] = {}
    for name, label in _named(trained):
        every = [conditional_variances(*trained.open(label, seed)) for seed in trained.seeds(label)]
        if not every:
            continue
        found = every[0]
        chance = f"{1 / len(found.inputs):.2f} where no input prevails"
        shares = [one.share[one.share.isfinite()] for one in every]
        alone = [100 * float((share > SEPARATE).double().mean()) for share in shares]
        lines.append(line_over_seeds(label, "separation", [one.separation for one in every], remark=chance))
        lines.append(line_over_seeds(label, f"units with more than {SEPARATE} of one input (%)", alone))
        pictures[name] = Picture(
            f"Which input each unit listens to: {label}",
            "Left, the share of the prevailing input in the variance of each unit's pre-activation: 1 where a unit "
            f"belongs to one subnetwork, {chance}. Right, every unit; its colour is the input that prevails.",
            conditional_variance_plot(found),
            _histogram(found),
        )
    return lines, pictures


def _histogram(found: ConditionalVariances) -> pd.DataFrame:
    """Units by the share of their prevailing input, as the picture counts them."""
    edges = np.linspace(1 / len(found.inputs), 1, BINS + 1)
    share, owner = found.share.numpy(), found.owner.numpy()
    counts = {
        f"input_{m}": np.histogram(share[(owner == m) & np.isfinite(share)], edges)[0] for m in range(len(found.inputs))
    }
    return pd.DataFrame({"from": edges[:-1], "to": edges[1:], **counts}).round(DIGITS)


def _between(trained: Trained) -> tuple[list[Line], dict[str, Picture]]:
    """MixtureEnsembles, Figure 4."""
    lines: list[Line] = []
    drawn = {}
    for row in trained.run.rows:
        seeds = trained.seeds(row.label)
        ways = []
        for seed in seeds:
            ens, data = trained.open(row.label, seed)
            ways.append(interpolation(ens, data, items=TEST_ITEMS))
        if not ways:
            continue
        drawn[row.label] = ways[0]
        accuracies = [100 * way.accuracy for way in ways if way.accuracy is not None]
        ends = [float((a[0] + a[-1]) / 2) for a in accuracies]
        middle = [float(a[len(a) // 2]) for a in accuracies]
        columns = {
            "accuracy at the ends (%)": ends,
            "accuracy half way (%)": middle,
            "accuracy lost half way (%)": [end - half for end, half in zip(ends, middle, strict=True)],
            "barrier of the loss (nats)": [way.barrier for way in ways],
        }
        lines += [line_over_seeds(row.label, column, values) for column, values in columns.items()]
    if not drawn:
        return [], {}
    frames = [way.frame().round(DIGITS).assign(row=label) for label, way in drawn.items()]
    picture = Picture(
        "Between two members",
        "Accuracy and loss along the straight line in parameter space from one member to another, of the first seed. A "
        "dip means that the members lie in basins of their own. Batch norm uses the statistics of its batches.",
        interpolation_plot(drawn),
        pd.concat(frames, ignore_index=True),
    )
    return lines, {"": picture}


def _embeddings(trained: Trained) -> tuple[list[Line], dict[str, Picture]]:
    """Hypernetworks, Figures 3 and S2."""
    lines: list[Line] = []
    pictures: dict[str, Picture] = {}
    for name, label in _named(trained):
        if not trained.seeds(label):
            continue
        ens, data = trained.open(label)
        at, learned = _corners(ens, data, "test", TEST_ITEMS), _corners(ens, data, "train", TRAINING_ITEMS)
        test = plane(ens, data, points=EMBEDDING_POINTS, items=TEST_ITEMS)
        training = plane(ens, data, points=EMBEDDING_POINTS, part="train", items=TRAINING_ITEMS)
        numbers = {f"accuracy of member {i} (%)": at.accuracy[i] for i in range(3)}
        numbers |= {f"NLL of member {i}": at.loss[i] for i in range(3)}
        numbers["accuracy at the mean of their weights (%)"] = at.accuracy[3]
        numbers["NLL at the mean of their weights"] = at.loss[3]
        numbers["best accuracy on the plane (%)"] = max(100 * float(test.frame()["accuracy"].max()), *at.accuracy)
        numbers["lowest NLL on the plane"] = min(float(test.loss.min()), *at.loss)
        numbers["training NLL of the members, mean"] = sum(learned.loss[:3]) / 3
        numbers["training NLL at the mean of their weights"] = learned.loss[3]
        numbers["lowest training NLL on the plane"] = min(float(training.loss.min()), *learned.loss)
        lines += [Line(label, column, ours, seeds=1) for column, ours in numbers.items()]
        plain = "Affine combinations of all that three members have of their own; batch norm sees its batches."
        pictures[name] = Picture(
            f"Test accuracy and loss on the plane through three members: {label}",
            f"{plain} {test.items:,} test items.",
            plane_plot(test),
            test.frame().round(DIGITS),
        )
        pictures[f"{name}-training".lstrip("-")] = Picture(
            f"Training loss on the plane through three members: {label}",
            f"{plain} {training.items:,} training items.",
            plane_plot(training, ("loss",)),
            training.frame().round(DIGITS),
        )
    return lines, pictures


def _speeds(trained: Trained) -> tuple[list[Line], dict[str, Picture]]:
    """Packed-Ensembles, Table 8: relative to one network, which must be there."""
    single = "Single Model"
    labels = [row.label for row in trained.run.rows if trained.seeds(row.label)]
    if single not in labels:
        return [], {}
    labels = [single, *(label for label in labels if label != single)]
    opened = {label: trained.open(label) for label in labels}
    example = opened[single][1].example()
    found = compare_speed({label: ens for label, (ens, _) in opened.items()}, example, rounds=ROUNDS)
    epochs = {label: _seconds_per_epoch(trained, label) for label in labels}
    lines: list[Line] = []
    for label in labels:
        ratios = {row.batch_size: 1 / row.ratio for row in found.rows if row.name == label}
        printed = _printed_ratio(trained, label, single, "Inference f32 (im/s)")
        lines.append(Line(label, "images/s relative", ratios[128], printed, remark="batches of 128", seeds=1))
        lines.append(Line(label, "images/s relative, one at a time", ratios[1], seeds=1))
        both = sorted(epochs[label].keys() & epochs[single].keys())
        if both:
            times = [epochs[label][seed] / epochs[single][seed] for seed in both]
            printed = _printed_ratio(trained, label, single, "Training f32 (s/epoch)")
            lines.append(line_over_seeds(label, "training time relative", times, printed))
    return lines, {}


def _seconds_per_epoch(trained: Trained, label: str) -> dict[int, float]:
    epochs = trained.run.row(label).epochs
    return trained.values(label, lambda result: result["seconds"]["training"] / epochs)


def _printed_ratio(trained: Trained, label: str, single: str, column: str) -> str | None:
    printed = trained.run.printed
    if column not in printed.get(label, {}) or column not in printed.get(single, {}):
        return None
    return str(round(printed[label][column].value / printed[single][column].value, 2))


def _named(trained: Trained) -> list[tuple[str, str]]:
    """Names of pictures, "" for the first row, and the rows' labels."""
    labels = [row.label for row in trained.run.rows]
    return [
        (re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") if i else "", label) for i, label in enumerate(labels)
    ]


EXTRAS: dict[str, Extra] = {
    "hypernet/figure3": _embeddings,
    "hypernet/table3": each_with_its_own,
    "mimo/figure2": bias_and_variance,
    "mimo/figure3": _subnetworks,
    "mimo/figure4-left": _listening,
    "mimo/figure4-trajectories": _paths,
    "mimo/figure7-9": by_sparsity,
    "mixture/figure4": _between,
    "packed/table8": _speeds,
}
