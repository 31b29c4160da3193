"""What items measure inside trained networks, beyond the numbers of a cell.

Each function takes what is trained of its item, and gives lines, pictures and orderings; rows and seeds that are not
done are left out. Shares are in percent, likelihoods in nats.
"""

from __future__ import annotations

import copy

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure as Drawing

from ..building import ensemble
from ..data import Data
from ..data.sources import ood_sets
from ..ensemble import Ensemble
from ..inside.conditional_variance import ConditionalVariances, conditional_variances
from ..inside.pictures import conditional_variance_plot, paths_plot
from ..inside.trajectories import Trajectories
from ..methods import Deep
from ..metrics.diversity import disagreement
from ..metrics.evaluate import measure
from ..outputs.prediction import Prediction, predict
from ..training.averaging import refresh_norms
from ..training.checkpoint import states
from .charts.items import by_data, named, picture
from .charts.panels import BARS, MEASURES, Panel, Point, curves, gathered
from .measured import COLUMNS, Trained, columns_of
from .results import DIGITS, Extra, Line, Picture, compared, line_over_seeds, ordered
from .speed import BATCH, RELATIVE, ROUNDS, SINGLE, relative_rates

PATH_EXAMPLES = 1000
SEPARATE = 0.9  # of a unit's variance
SEPARATE_UNITS = f"units with more than {SEPARATE} of one input (%)"
BINS = 25
ZERO = 1e-4  # MIMO's footnote 6: a weight of at most this size is zero
ZEROS = "zero weights (%)"
NORM_BATCH = 250


def paths(trained: Trained) -> Extra:
    """MIMO, Figure 4, middle-right."""
    row = trained.run.rows[0]
    if not trained.seeds(row.label):
        return Extra()
    seed = trained.seeds(row.label)[0]
    ens, data = trained.open(row.label, seed)
    saved = states(trained.path(row.label, seed))
    x = data.prepare(data.test.x[:PATH_EXAMPLES])
    epochs, trial, extra = sorted(saved), copy.deepcopy(ens), Extra()
    for when, epoch in (("at the beginning", epochs[0]), ("after the first epoch", 1), ("at the end", epochs[-1])):
        if epoch not in saved:
            continue
        trial.load_state_dict(saved[epoch])
        prediction = predict(trial, x, batch_size=512)
        assert isinstance(prediction, Prediction)
        extra.lines.append(Line(row.label, f"disagreement {when} (%)", 100 * disagreement(prediction), seeds=1))
    recorder = Trajectories.from_states(ens, {float(epoch): state for epoch, state in saved.items()}, x)
    for name, projection, merit in (("", "tsne", "keeps neighbours"), ("pca", "pca", "keeps distances")):
        projected = recorder.project(projection, seed=0)
        extra.pictures[name] = Picture(
            f"Paths of the subnetworks through function space, by {'PCA' if name else 't-SNE'}",
            f"Each dot is one member's predictions on {len(x):,} test examples after an epoch, from the open circle to "
            f"the large dot. Members that end apart predict differently; the projection {merit}.",
            paths_plot(projected),
            projected.frame().round(DIGITS),
        )
    return extra


def listening(trained: Trained) -> Extra:
    """MIMO, Figure 4, left and middle-left; the pictures are of the first seed."""
    extra = Extra()
    for name, label in trained.named():
        every = {seed: conditional_variances(*trained.open(label, seed)) for seed in trained.seeds(label)}
        if not every:
            continue
        first = next(iter(every.values()))
        chance = f"{1 / len(first.inputs):.2f} where no input prevails"
        alone = {seed: _separate(variances) for seed, variances in every.items()}
        separations = [variances.separation for variances in every.values()]
        extra.lines.append(line_over_seeds(label, "separation", separations, remark=chance))
        extra.lines.append(line_over_seeds(label, SEPARATE_UNITS, [*alone.values()]))
        # "Almost all": more than half of them is the least that this can mean.
        extra.orderings += compared(SEPARATE_UNITS, label, "half of the units", (alone, dict.fromkeys(every, 50.0)))
        extra.pictures[name] = Picture(
            f"Which input each unit listens to: {label}",
            "Left, the share of the prevailing input in the variance of each unit's pre-activation: 1 where a unit "
            f"belongs to one subnetwork, {chance}. Right, every unit; its colour is the input that prevails.",
            conditional_variance_plot(first),
            _histogram(first),
        )
    return extra


def _separate(variances: ConditionalVariances) -> float:
    """The share of units, in percent, that listen to one input alone."""
    shares = variances.share[variances.share.isfinite()]
    return 100 * float((shares > SEPARATE).double().mean())


def _histogram(variances: ConditionalVariances) -> pd.DataFrame:
    """Units by the share of their prevailing input, as the picture counts them."""
    members = range(len(variances.inputs))
    edges = np.linspace(1 / len(members), 1, BINS + 1)
    share, owner = variances.share.numpy(), variances.owner.numpy()
    counts = {f"input_{m}": np.histogram(share[(owner == m) & np.isfinite(share)], edges)[0] for m in members}
    return pd.DataFrame({"from": edges[:-1], "to": edges[1:], **counts}).round(DIGITS)


def speeds(trained: Trained) -> Extra:
    """Packed-Ensembles, Table 8: relative to one network, which must be there. Rounds stand for seeds."""
    done = [row.label for row in trained.run.rows if trained.seeds(row.label)]
    labels = sorted(done, key=lambda name: name != SINGLE)  # the one network first
    rates = relative_rates(trained, labels)
    if not rates:
        return Extra()
    epochs = {label: _seconds_per_epoch(trained, label) for label in labels}
    ratios = {label: _printed_ratio(trained, label, "Inference f32 (im/s)") for label in labels}
    extra = Extra()
    for label in labels:
        remark = f"batches of {BATCH}, mean over {ROUNDS} rounds"
        extra.lines.append(line_over_seeds(label, RELATIVE, rates[BATCH][label], ratios[label], remark))
        extra.lines.append(line_over_seeds(label, f"{RELATIVE}, one at a time", rates[1][label]))
        both = sorted(epochs[label].keys() & epochs[SINGLE].keys())
        if both:
            times = [epochs[label][seed] / epochs[SINGLE][seed] for seed in both]
            printed = _printed_ratio(trained, label, "Training f32 (s/epoch)")
            extra.lines.append(line_over_seeds(label, "training time relative", times, printed))
    by_round = {label: dict(enumerate(every)) for label, every in rates[BATCH].items()}
    for better, worse, paper in ordered({k: float(v) for k, v in ratios.items() if v is not None}):
        extra.orderings += compared(RELATIVE, better, worse, (by_round[better], by_round[worse]), paper)
    return extra


def _seconds_per_epoch(trained: Trained, label: str) -> dict[int, float]:
    epochs = trained.run.row(label).epochs
    return trained.values(label, lambda result: result["seconds"]["training"] / epochs)


def _printed_ratio(trained: Trained, label: str, column: str) -> str | None:
    printed = trained.run.printed
    if column not in printed.get(label, {}) or column not in printed.get(SINGLE, {}):
        return None
    return f"{printed[label][column].value / printed[SINGLE][column].value:.2f}"


def sparsity(ensemble: Ensemble) -> float:
    """The share of zeros among the weights of layers; biases and norms are not counted."""
    weights = [weight for weight in ensemble.network.parameters() if weight.dim() > 1]
    zeros = sum(int((weight.abs() <= ZERO).sum()) for weight in weights)
    return zeros / sum(weight.numel() for weight in weights)


def by_sparsity(trained: Trained) -> Extra:
    """MIMO, Figure 9: accuracy and likelihood by the share of weights that L1 regularisation has made zero."""
    zeros = {
        row.label: [100 * sparsity(trained.open(row.label, seed)[0]) for seed in trained.seeds(row.label)]
        for row in trained.run.rows
        if "L1" in row.varied
    }
    lines = {label: line_over_seeds(label, ZEROS, shares) for label, shares in zeros.items() if shares}
    measures = {key: MEASURES[key] for key in ("accuracy", "nll")}
    every: dict[str, Picture] = {}
    for data, rows in by_data(trained.run.rows).items():
        points = [
            Point(row.label, f"M = {row.method.members}", lines[row.label].ours, measures)
            for row in rows
            if row.label in lines
        ]
        numbers = gathered(trained, ZEROS, points)

        def draw(numbers: pd.DataFrame) -> Drawing | None:
            return curves([Panel(numbers, ZEROS, key, ZEROS, counts=True) for key in ("accuracy", "nll")])

        caption = f"Along a curve L1 regularisation grows; a weight of at most {ZERO:g} is zero. {BARS}"
        title, name = named("MIMO by sparsity", data), named("sparsity", data, by="-")
        every |= picture(trained, title, caption, draw, numbers, name)
    return Extra([*lines.values()], every)


def _with_own_statistics(shared: Ensemble, data: Data) -> Ensemble:
    """The members as networks of their own, with the statistics of the training part in every batch norm."""
    networks = [shared.member(i) for i in range(shared.members)]
    every = [network.state_dict() for network in networks]
    deep = ensemble(networks[0], Deep(members=shared.members, init="pretrained"), example=data.example())
    deep.load_state_dict({name: torch.stack([state[name] for state in every]) for name in every[0]})
    refresh_norms(deep, data.prepare(data.train.x).split(NORM_BATCH))
    return deep.eval()


def own_statistics(trained: Trained) -> Extra:
    """What it costs that members share batch norm statistics: the same members again, each with its own.

    Members of a hypernetwork are trained one at a time, each normalised by its own batches; the running statistics
    that they share in evaluation are nobody's.
    """
    extra = Extra()
    for row in trained.run.rows:
        if row.method.name != "hypernet" or row.method.as_dict()["norm"] != "shared" or row.method.members == 1:
            continue
        results = []
        for seed in trained.seeds(row.label):
            ens, data = trained.open(row.label, seed)
            metrics = measure(_with_own_statistics(ens, data), data, ood=ood_sets(row.ood, data), seed=seed)
            results.append({"numbers": metrics.numbers})
        for column in columns_of(trained.run):
            values = [value for result in results if (value := COLUMNS[column](result)) is not None]
            if values:  # not such as OOD data of the paper's that the rows do not have
                extra.lines.append(line_over_seeds(f"{row.label}, own statistics", column, values))
    return extra
