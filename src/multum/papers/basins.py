"""Where members lie in weight space: on the plane through three of them, and on the line between two.

Shares are in percent, likelihoods in nats; the pictures are of the first seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import mean

import pandas as pd
import torch

from ..data import Data
from ..ensemble import Ensemble
from ..inside.between import choose_examples, corners_of, run_points
from ..inside.landscape import Plane, interpolation, plane
from ..inside.pictures import interpolation_plot, plane_plot
from .measured import Trained
from .results import DIGITS, Extra, Line, Picture, compared, line_over_seeds

PLANE_POINTS = 21  # a side
EMBEDDING_POINTS = 11  # a side: a point of this plane is a whole network with batch norm, and landscapes are flat
TEST_EXAMPLES, TRAINING_EXAMPLES = 2048, 512  # as hypernetworks' Figure S2
BATCH = 256  # as `plane` has by default: batch norm must see the same batches


@dataclass(frozen=True)
class _Corners:
    """Three members and their mean in weight space. Shape: [4], the mean last."""

    accuracy: list[float]  # percent
    loss: list[float]
    disagreement: float  # of the three, mean over pairs, percent


def _corners(ensemble: Ensemble, data: Data, part: str, examples: int) -> _Corners:
    corners = corners_of(ensemble, (0, 1, 2))
    mixes = torch.cat([torch.eye(3).double(), torch.full((1, 3), 1 / 3, dtype=torch.float64)])
    seen = choose_examples(ensemble, data, part, examples, BATCH, "batch", 0)
    points = run_points(corners, mixes, seen, None, lambda done: None)
    assert points.accuracy is not None and points.votes is not None
    differ = [float((points.votes[i] != points.votes[j]).double().mean()) for i, j in combinations(range(3), 2)]
    return _Corners((100 * points.accuracy).tolist(), points.loss.tolist(), 100 * sum(differ) / 3)


def common_limits(planes: Iterable[Plane]) -> dict[str, tuple[float, float]]:
    """The least and the largest accuracy and disagreement of all planes."""
    limits: dict[str, tuple[float, float]] = {}
    for surface in planes:
        for measure, values in (("accuracy", surface.accuracy), ("disagreement", surface.disagreement)):
            assert values is not None
            low, high = limits.get(measure, (math.inf, -math.inf))
            limits[measure] = min(low, float(values.min())), max(high, float(values.max()))
    return limits


def subnetworks(trained: Trained) -> Extra:
    """MIMO, Figure 3. The colours of all rows mean the same: a multihead's plane is flat beside MIMO's."""
    extra = Extra()
    done = [row for row in trained.run.rows if trained.seeds(row.label)]
    planes = {row.label: plane(*trained.open(row.label), points=PLANE_POINTS, examples=TEST_EXAMPLES) for row in done}
    limits = common_limits(planes.values())
    for row in done:
        ens, data = trained.open(row.label)
        multihead = row.method.name == "multihead"
        at = _corners(ens, data, "test", TEST_EXAMPLES)
        numbers = {f"accuracy of member {i} (%)": at.accuracy[i] for i in range(3)}
        numbers["accuracy at the mean of their weights (%)"] = at.accuracy[3]
        numbers["accuracy lost there (%)"] = mean(at.accuracy[:3]) - at.accuracy[3]
        numbers["disagreement of the members (%)"] = at.disagreement
        alone = "" if multihead else "each member run alone, the other inputs silent"
        extra.lines += [Line(row.label, column, ours, remark=alone, seeds=1) for column, ours in numbers.items()]
        in_use = trained.values(row.label, lambda result: 100 * result["numbers"]["member_accuracy"])
        remark = "all test examples" if multihead else "all test examples, every input the same"
        column = "accuracy of the members in use, mean (%)"
        extra.lines.append(line_over_seeds(row.label, column, [*in_use.values()], remark=remark))
        surface = planes[row.label]
        blocks = "members' parts of the first and the last layer, each run with the other inputs silent"
        extra.pictures["multihead" if multihead else ""] = Picture(
            f"Accuracy and disagreement on the plane through three subnetworks: {row.label}",
            f"Coordinates are distances between {'heads' if multihead else blocks}; all else is shared. Where ways "
            "between the marked members lead through low accuracy they are in basins of their own; the other panels "
            "say how often the class predicted at a point is another than one member's. Colours mean the same in the "
            "figures of MIMO and of the multihead.",
            plane_plot(surface, ("accuracy", "disagreement"), limits=limits),
            surface.frame().round(DIGITS),
        )
    return extra


LOST = "accuracy lost half way (%)"


def between(trained: Trained) -> Extra:
    """MixtureEnsembles, Figure 4. Its rows are from few parameters to many."""
    extra, drawn, lost = Extra(), {}, {}
    for row in trained.run.rows:
        ways = {
            seed: interpolation(*trained.open(row.label, seed), examples=TEST_EXAMPLES)
            for seed in trained.seeds(row.label)
        }
        if not ways:
            continue
        drawn[row.label] = next(iter(ways.values()))
        accuracies = {seed: 100 * way.accuracy for seed, way in ways.items() if way.accuracy is not None}
        ends = {seed: float((a[0] + a[-1]) / 2) for seed, a in accuracies.items()}
        middle = {seed: float(a[len(a) // 2]) for seed, a in accuracies.items()}
        lost[row.label] = {seed: ends[seed] - middle[seed] for seed in ends}
        columns = {
            "accuracy at the ends (%)": ends,
            "accuracy half way (%)": middle,
            LOST: lost[row.label],
            "barrier of the loss (nats)": {seed: way.barrier for seed, way in ways.items()},
        }
        extra.lines += [line_over_seeds(row.label, column, [*values.values()]) for column, values in columns.items()]
    if not drawn:
        return extra
    for label, values in lost.items():
        extra.orderings += compared(LOST, label, "no loss", (values, dict.fromkeys(values, 0.0)))
    for fewer, more in pairwise(lost):
        extra.orderings += compared(LOST, more, fewer, (lost[more], lost[fewer]))
    frames = [way.frame().round(DIGITS).assign(row=label) for label, way in drawn.items()]
    extra.pictures[""] = Picture(
        "Between two members",
        "Accuracy and loss along the straight line in parameter space from one member to another, of the first seed. A "
        "dip means that the members lie in basins of their own. Batch norm uses the statistics of its batches.",
        interpolation_plot(drawn),
        pd.concat(frames, ignore_index=True),
    )
    return extra


def embeddings(trained: Trained) -> Extra:
    """Hypernetworks, Figures 3 and S2."""
    extra = Extra()
    for name, label in trained.named():
        if trained.seeds(label):
            _add_embedding(extra, trained, label, name)
    return extra


def _add_embedding(extra: Extra, trained: Trained, label: str, name: str) -> None:
    corners = {}
    for seed in trained.seeds(label):
        ens, data = trained.open(label, seed)
        corners[seed] = _corners(ens, data, "test", TEST_EXAMPLES), _corners(ens, data, "train", TRAINING_EXAMPLES)
    columns = {
        "accuracy of three members, mean (%)": [mean(at.accuracy[:3]) for at, _ in corners.values()],
        "accuracy at the mean of their weights (%)": [at.accuracy[3] for at, _ in corners.values()],
        "NLL of three members, mean": [mean(at.loss[:3]) for at, _ in corners.values()],
        "NLL at the mean of their weights": [at.loss[3] for at, _ in corners.values()],
        "training NLL of three members, mean": [mean(learned.loss[:3]) for _, learned in corners.values()],
        "training NLL at the mean of their weights": [learned.loss[3] for _, learned in corners.values()],
    }
    extra.lines += [line_over_seeds(label, column, values) for column, values in columns.items()]
    by_seed = {column: dict(zip(corners, values, strict=True)) for column, values in columns.items()}
    pair = "the mean of three members' weights", "the three members"
    accuracy = "accuracy at the mean of their weights (%)", "accuracy of three members, mean (%)"
    loss = "NLL at the mean of their weights", "NLL of three members, mean"
    extra.orderings += [
        *compared(f"Accuracy, {label}", *pair, [by_seed[column] for column in accuracy]),
        *compared(f"NLL, {label}", *pair, [by_seed[column] for column in loss], lower=True),
    ]
    ens, data = trained.open(label)
    at, learned = next(iter(corners.values()))
    test = plane(ens, data, points=EMBEDDING_POINTS, examples=TEST_EXAMPLES)
    training = plane(ens, data, points=EMBEDDING_POINTS, part="train", examples=TRAINING_EXAMPLES)
    best = {
        "best accuracy on the plane (%)": max(100 * float(test.frame()["accuracy"].max()), *at.accuracy),
        "lowest NLL on the plane": min(float(test.loss.min()), *at.loss),
        "lowest training NLL on the plane": min(float(training.loss.min()), *learned.loss),
    }
    extra.lines += [Line(label, column, ours, seeds=1) for column, ours in best.items()]
    plain = "Affine combinations of all that three members have of their own; batch norm sees its batches."
    extra.pictures |= {
        name: Picture(
            f"Test accuracy and loss on the plane through three members: {label}",
            f"{plain} {test.examples:,} test examples.",
            plane_plot(test),
            test.frame().round(DIGITS),
        ),
        f"{name}-training".lstrip("-"): Picture(
            f"Training loss on the plane through three members: {label}",
            f"{plain} {training.examples:,} training examples.",
            plane_plot(training, ("loss",)),
            training.frame().round(DIGITS),
        ),
    }
