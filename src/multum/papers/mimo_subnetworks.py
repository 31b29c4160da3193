"""MIMO, Figures 2 to 4: what its subnetworks are, and how far they are apart."""

from __future__ import annotations

from ..methods import Method, Mimo, Multihead
from .base import Row, Run, item
from .mimo import CPU_METHODS, OURS, WIDE, cifar_rows
from .settings import cpu_rows, rows

__all__ = ["ITEMS"]


@item(
    "mimo/figure2",
    "Figure 2",
    shows="Error, bias and variance of MIMO on a synthetic regression, by number of members",
    needs="nothing but its function",
    status="full",
)
def figure2(scale: str) -> Run:
    recipe = {"optimizer": "adam", "lr": 1e-2, "weight_decay": 0.0, "schedule": "cosine", "epochs": 500}
    methods: dict[str, Method] = {f"M = {m}": Mimo(members=m) for m in range(1, 6)}
    common = {"data": "sines", "model": "mlp:hidden=32+128", "seeds": tuple(range(20))}
    departs = (
        "function, noise and range are Blundell et al.'s: see `multum.data.sines`",
        "optimizer, epochs and the number of training sets are not stated: Adam, 500 epochs, 20 sets",
        "the squared error is of the mean; the network gives a variance too",
    )
    better = tuple(("RMSE", f"M = {m}", "M = 1") for m in (2, 3))  # "improved generalization performance"
    found = rows(methods, {**recipe, "batch_size": 64}, **common)
    return Run(rows=found, columns=("RMSE", "NLL"), claims=better, departs=departs)


_SMALL = {"optimizer": "sgd", "lr": 0.02, "warmup": 1, "weight_decay": 1e-4, "epochs": 20, "states": 1}


def _small_cnn() -> tuple[Row, ...]:
    methods: dict[str, Method] = {"MIMO (M = 3)": Mimo(members=3), "Naive multihead (M = 3)": Multihead(members=3)}
    return rows(methods, {**_SMALL, "batch_size": 128}, data="cifar10", model="small-cnn", seeds=(0,))


_SMALL_DEPARTS = (
    "epochs, rate and pooling of the SmallCNN are not stated: 20 epochs, 0.02 falling along a cosine, two max-poolings",
)


@item(
    "mimo/figure3",
    "Figure 3",
    shows="Accuracy and disagreement on the plane through three subnetworks: MIMO's are apart, a multihead's are not",
    needs="CIFAR-10",
    status="full",
)
def figure3(scale: str) -> Run:
    silent = "a subnetwork of MIMO on the plane is fed alone, its other inputs at 0: what they get is not stated"
    plane = "the plane goes through the three subnetworks; the origin, which the paper's figure has too, is not on it"
    return Run(rows=_small_cnn(), departs=(*_SMALL_DEPARTS, silent, plane))


@item(
    "mimo/figure4-left",
    "Figure 4, left and middle-left",
    shows="Variance of every pre-activation by each input: almost all depend on one input alone",
    needs="trained MIMO networks on CIFAR-10",
    status="reduced",
)
def figure4_left(scale: str) -> Run:
    if scale == "cpu":
        return Run(rows=cpu_rows({f"MIMO (M = {m})": Mimo(members=m) for m in (2, 3)}))
    methods: dict[str, Method] = {f"MIMO (M = {m})": Mimo(members=m, repeats=4) for m in (2, 3)}
    departs = ("the text's 8190 pre-activations are 8976: all outputs of the 3x3 convolutions",)
    return Run(rows=rows(methods, OURS, data="cifar10", model=WIDE, seeds=(0,)), departs=departs)


@item(
    "mimo/figure4-trajectories",
    "Figure 4, middle-right",
    shows="The paths of three subnetworks through function space while they train",
    needs="CIFAR-10",
    status="full",
)
def figure4_trajectories(scale: str) -> Run:
    return Run(rows=_small_cnn()[:1], departs=_SMALL_DEPARTS)


@item(
    "mimo/figure4-right",
    "Figure 4, right",
    shows="Diversity (disagreement, divergence) of multihead, TreeNet, BatchEnsemble, MIMO and Deep Ensembles",
    needs="the cells of Table 1",
    status="reduced",
)
def figure4_right(scale: str) -> Run:
    kept = ("Naive multihead (M = 3)", "TreeNet (M = 3)", "BatchEnsemble (M = 4)", "MIMO (M = 3)", "Ensemble (M = 4)")
    found = {row.label: row for row in (cifar_rows("cifar10") if scale == "paper" else cpu_rows(CPU_METHODS))}
    multihead, tree, batch, mimo, _ = kept
    words = [(multihead, tree), (multihead, batch), (multihead, mimo), (tree, mimo), (batch, mimo)]
    claims = tuple(("Disagreement", more, less) for less, more in words)
    unequal = "the measure is the share of unequal predictions; the text prints '=' and calls it similarity"
    measures = ("Disagreement", "KL", "Accuracy")
    return Run(rows=tuple(found[label] for label in kept), departs=(unequal,), columns=measures, claims=claims)


ITEMS = (figure2, figure3, figure4_left, figure4_trajectories, figure4_right)
