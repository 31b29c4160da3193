"""The papers' main claims, and the regimes in which each can hold: fixed here before anything is trained.

A regime is one data set, one network and one recipe at a size that two cores finish, in which a network has capacity to
spare: one network nearly interpolates its training set and is overconfident, and a network of half its width is almost
as accurate. Outside of that no method can show what the papers say of it. Members are trained as if alone (no
`reduction`), so that one learning rate means the same for one network and for four.

docs/results/plan.md is written from this file and from claims.py; headlines.py runs it and judges. A row's settings and
seeds are its cells' names: what was run stays valid as long as they stay, and rows are only ever added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..methods import (
    BatchEnsemble,
    Deep,
    Hypernet,
    Masksembles,
    McDropout,
    Method,
    Mimo,
    Mixture,
    Multihead,
    Packed,
    Single,
    TreeNet,
)
from .regime import CORRUPTED, Regime, again, rows_of
from .settings import CPU_EPOCHS, CPU_RECIPE, CPU_SEEDS

ADAM = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 1e-4, "schedule": "cosine", "epochs": 30, "batch_size": 128}
TEN, FIVE, THREE = (tuple(range(n)) for n in (10, 5, 3))
NEW = tuple(range(5, 15))  # of rows that were seen with FIVE
NASGD = "N = 10, nested averaged SGD"
L1 = (1e-6, 1e-5, 1e-4, 1e-3)


def _divided() -> Regime:
    """Methods that share or divide one network."""
    wide, half = "mlp:hidden=512+512", "mlp:hidden=256+256"
    methods: dict[str, Any] = {
        "one network": (Single(), wide),
        "half width": (Single(), half),
        "Packed-Ensembles": (Packed(members=4, alpha=2), wide),
        "thin ensemble": (Deep(members=4), half),
        "MIMO (M = 2)": (Mimo(members=2), wide),
        "Masksembles": (Masksembles(members=4), wide),
        "BatchEnsemble": (BatchEnsemble(members=4), wide),
        "MixtureEnsembles": (Mixture(members=4, budget=1.0), wide),
        "hypernetwork": (Hypernet(members=4), wide),
        "Deep Ensembles": (Deep(members=4), wide),
    }
    sweeps: dict[str, Any] = {
        **{
            f"Packed-Ensembles ({a}, {m}, {g})": (Packed(members=m, alpha=a, gamma=g, min_channels=least), wide)
            for a, m, g, least in ((1, 4, 1, 64), (3, 4, 1, 64), (2, 2, 1, 64), (2, 8, 1, 64), (2, 4, 2, 4))
        },
        "quarter width": (Single(), "mlp:hidden=128+128"),
        "thin ensemble, equal beginnings and batches": (Deep(members=4, init="pretrained"), half, {"order": "same"}),
        "thin ensemble, own beginnings": (Deep(members=4), half, {"order": "same"}),
        "thin ensemble, own batches": (Deep(members=4, init="pretrained"), half),
    }
    beside = {"MIMO (M = 4), rho 1": (Mimo(members=4, rho=1), wide)}  # as in the paper on Packed-Ensembles
    common: dict[str, Any] = {"data": "fashion_mnist", "examples": 10_000, "ood": ("mnist",)}
    return Regime(
        name="R1",
        title="Fashion-MNIST, 10,000 images, MLP of 512 + 512",
        why="A network that interpolates its training set and can be halved: here dividing it costs little.",
        rate=28.0,
        rows=rows_of(methods, ADAM, seeds=TEN, **common),
        sweeps=(
            *rows_of(sweeps, ADAM, seeds=THREE, **common),
            *rows_of(beside, ADAM, seeds=THREE, **common, **CORRUPTED),
        ),
        half="half width",
    )


def _several_inputs() -> Regime:
    """MIMO, with what a sceptic asks for: one network that is trained as long as four."""
    wide, half = "mlp:hidden=1024+1024", "mlp:hidden=512+512"
    methods: dict[str, Any] = {
        "one network": (Single(), wide),
        "half width": (Single(), half),
        "one network, 4 times the epochs": (Single(), wide, {"epochs": 120}),
        "multihead (M = 3)": (Multihead(members=3), wide),
        "MIMO (M = 3), no repetition": (Mimo(members=3), wide),
        "MIMO (M = 3)": (Mimo(members=3, repeats=4), wide),
    }
    sweeps: dict[str, Any] = {
        **{f"MIMO (M = {m})": (Mimo(members=m, repeats=4), wide) for m in (2, 4)},
        "MIMO (M = 3), rho 0.5": (Mimo(members=3, repeats=4, rho=0.5), wide),
        "MIMO (M = 3), rho 1": (Mimo(members=3, repeats=4, rho=1), wide),
        "MIMO (M = 3), 2 repetitions": (Mimo(members=3, repeats=2), wide),
        **{
            f"MIMO (M = {m}), L1 {l1:g}": (Mimo(members=m), wide, {"l1": l1, "weight_decay": 0.0})
            for m in (1, 3)
            for l1 in L1
        },
    }
    beside: dict[str, Any] = {
        "dropout": (McDropout(members=1, rate=0.1), wide),
        "TreeNet (M = 3)": (TreeNet(members=3), wide),
        "BatchEnsemble (M = 4)": (BatchEnsemble(members=4), wide),
        "thin ensemble (M = 4)": (Deep(members=4), half),
        "Deep Ensembles (M = 4)": (Deep(members=4), wide),
    }
    common: dict[str, Any] = {"data": "fashion_mnist", "examples": 5_000, "ood": ("mnist",)}
    return Regime(
        name="R2",
        title="Fashion-MNIST, 5,000 images, MLP of 1024 + 1024",
        why="MIMO asks one network to hold several: twice the width of R1, and half the images.",
        rate=28.0,
        rows=rows_of(methods, ADAM, seeds=TEN, **common),
        sweeps=(
            *rows_of(sweeps, ADAM, seeds=THREE, **common),
            *rows_of(beside, ADAM, seeds=THREE, **common, **CORRUPTED),
        ),
        half="half width",
    )


def _equal_layers() -> Regime:
    """MixtureEnsembles on a network whose hidden layers have one shape, so that they share templates."""
    deep, half = "mlp:hidden=256+256+256+256+256", "mlp:hidden=128+128+128+128+128"
    budgets = {f"MixtureEnsembles, {b:g}x": (Mixture(members=4, budget=b), deep) for b in (1.0, 2.0, 3.3)}
    methods: dict[str, Any] = {
        "one network": (Single(), deep),
        "half width": (Single(), half),
        "one network, 3 times the rate": (Single(), deep, {"lr": 3e-3}),
        "BatchEnsemble": (BatchEnsemble(members=4), deep),
        **budgets,
        "Deep Ensembles": (Deep(members=4), deep),
        "Deep Ensembles, 3 times the rate": (Deep(members=4), deep, {"lr": 3e-3}),
    }
    sweeps: dict[str, Any] = {f"MixtureEnsembles, 1x, M = {m}": (Mixture(members=m, budget=1.0), deep) for m in (2, 8)}
    beside: dict[str, Any] = {"MIMO (M = 3)": (Mimo(members=3, repeats=4), deep)}
    trials: dict[str, Any] = {
        "MixtureEnsembles, 1x, a third of the rate": (Mixture(members=4, budget=1.0), deep, {"lr": 1e-3 / 3}),
        "BatchEnsemble, 3 times the rate": (BatchEnsemble(members=4), deep, {"lr": 3e-3}),
    }
    common: dict[str, Any] = {"data": "fashion_mnist", "examples": 10_000, "ood": ("mnist",)}
    return Regime(
        name="R3",
        title="Fashion-MNIST, 10,000 images, MLP of five layers of 256",
        why="MixtureEnsembles mix layers of one shape: four of the five hidden layers share templates.",
        rate=28.0,
        rows=rows_of(methods, ADAM, seeds=FIVE, **common),
        sweeps=(
            *rows_of(sweeps, ADAM, seeds=THREE, **common),
            *rows_of(beside, ADAM, seeds=THREE, **common, **CORRUPTED),
        ),
        trials=rows_of(trials, ADAM, seeds=THREE, **common),
        half="half width",
    )


def _late_members() -> Regime:
    """Hypernetworks: ten late members against one, by SGD, averaged SGD and nested averaged SGD."""
    falling = {"schedule": "linear", "anneal_from": 0.4, "anneal_to": 0.8, "final": 0.5, "average_from": 0.8}
    constant = {"schedule": "constant", "average_from": 0.8, "states": 1}  # Figure 2 is drawn along the epochs
    ten = partial(Hypernet, members=10, heads="copy")  # a few epochs are too few for ten new heads
    nested: dict[str, Any] = {
        NASGD: (ten(), "wrn-10-1", falling),
        f"{NASGD}, constant rate": (ten(), "wrn-10-1", constant),
    }
    varied: dict[str, Any] = {
        "sigma 0": (ten(sigma=0), "wrn-10-1", falling),
        "sigma 1": (ten(sigma=1), "wrn-10-1", falling),
        "born after 0.8 of the epochs": (ten(birth_epoch=0.8), "wrn-10-1", falling),
        "N = 5": (ten(members=5), "wrn-10-1", falling),
        "compression 2": (ten(compression=2), "wrn-10-1", falling),
    }

    def averaged(rows: Mapping[str, Any]) -> dict[str, Any]:
        return {f"{label}, gradients averaged": chosen for label, chosen in rows.items()}

    def summed(rows: Mapping[str, Any]) -> dict[str, Any]:
        return {label: (*chosen, {**own, "reduction": "sum"}) for label, (*chosen, own) in rows.items()}

    methods: dict[str, Any] = {
        "one network": (Single(), "wrn-10-1", falling),
        "N = 1": (Hypernet(members=1, sigma=0, heads="copy", nested=False), "wrn-10-1", falling),
        "N = 10, SGD": (ten(nested=False), "wrn-10-1"),
        "N = 10, averaged SGD": (ten(nested=False), "wrn-10-1", falling),
        "N = 10, averaged SGD, constant rate": (ten(nested=False), "wrn-10-1", constant),
        **summed(nested),
    }
    common: dict[str, Any] = {"data": "fashion_mnist", "examples": 5_000, "ood": ("mnist#test=2000",)}
    recipe = {**CPU_RECIPE, "epochs": 10}
    return Regime(
        name="R4",
        title="Fashion-MNIST, 5,000 images, wrn-10-1",
        why="Hypernetworks generate convolutions. Norms are each member's own: shared statistics decide nothing. "
        "Nested steps move what members share by the sum of their gradients over a turn, as in the paper. They were "
        "first planned, and run, with multum's default, which averages them: then SGD moves what ten members share at "
        "a tenth of the rate. All of those runs are kept, as rows with gradients averaged; the claims were planned "
        "anew about rows that sum them, after three seeds of these, in Tables 1 and 2 of the paper, had been seen.",
        rate=20.0,
        rows=rows_of(methods, recipe, seeds=TEN, **common),
        sweeps=rows_of(summed(varied), recipe, seeds=THREE, **common),
        trials=(
            *rows_of(averaged(nested), recipe, seeds=TEN, **common),
            *rows_of(averaged(varied), recipe, seeds=THREE, **common),
        ),
        spare=False,
    )


def _first_grid() -> Regime:
    """The first grid, on CIFAR-10, whose losses were reduced as in each paper's code, with members as if alone."""
    wide, half = "wrn-10-1", "wrn-10-1:thin=0.5"
    methods: dict[str, Any] = {
        "one network": (Single(), wide),
        "Packed-Ensembles": (Packed(members=4, alpha=2), wide),
    }
    sweeps: dict[str, Any] = {
        "half width": (Single(), half),
        "thin ensemble": (Deep(members=4), half),
        "BatchEnsemble": (BatchEnsemble(members=4), wide),
        **{f"{label}, 2.5 times the rate": (*chosen, {"lr": 0.125}) for label, chosen in methods.items()},
        "Packed-Ensembles, losses averaged": (*methods["Packed-Ensembles"], {"reduction": "mean"}),
    }
    common: dict[str, Any] = {"data": "cifar10", "examples": 10_000, "ood": ("svhn",)}
    recipe = {**CPU_RECIPE, "epochs": CPU_EPOCHS["cifar10"]}
    return Regime(
        name="R0",
        title="CIFAR-10, 10,000 images, wrn-10-1, five epochs",
        why="The first grid of these tables, whose losses were averaged over members as in each paper's code, with "
        "members trained as if alone: what is left of its reversals. A narrow, barely trained network has nothing to "
        "spare. The rate is that grid's, 0.05; a second one tells whether it is unfair to either, and a row with "
        "its averaged losses what they cost.",
        rate=20.0,
        rows=rows_of(
            methods, recipe, seeds=TEN, **common
        ),  # three seeds could decide nothing at the level of all tests
        sweeps=rows_of(sweeps, recipe, seeds=CPU_SEEDS, **common),
        half="half width",
        spare=False,
    )


def _convolutions() -> tuple[Regime, Regime]:
    """Methods that share or divide one convolutional network, on images that ask for all of it and on easier ones."""
    wide, half = "small-resnet", "small-resnet:thin=0.5"
    methods: dict[str, Any] = {
        "one network": (Single(), wide),
        "half width": (Single(), half),
        "Packed-Ensembles": (Packed(members=4, alpha=2), wide),
        "thin ensemble": (Deep(members=4), half),
        "BatchEnsemble": (BatchEnsemble(members=4), wide),
        "Deep Ensembles": (Deep(members=4), wide),
    }
    asked = {label: methods[label] for label in ("one network", "half width", "Packed-Ensembles", "Deep Ensembles")}
    open_after_five = ("Packed-Ensembles", "Deep Ensembles")
    late = {
        "N = 1": (Hypernet(members=1, sigma=0, heads="copy", nested=False), wide),
        "N = 10": (Hypernet(members=10, heads="copy"), wide),
    }
    recipe = {**ADAM, "lr": 2e-3, "batch_size": 64, "flip": True}
    common: dict[str, Any] = {"data": "cifar10", "ood": ("svhn#test=5000",)}
    clothes: dict[str, Any] = {"data": "fashion_mnist", "ood": ("mnist#test=5000",), "examples": 5_000}
    cifar = Regime(
        name="R5",
        title="CIFAR-10, 5,000 images, small-resnet",
        why="R1 with convolutions and batch norms. small-resnet has the parameters of wrn-10-2 (309,000 and 304,000) "
        "at a fourteenth of its mult-adds; with wrn-10-2 and 10,000 images these rows would take 29 hours of one core. "
        "Flips are the only augmentation, so that thirty epochs nearly interpolate. Masksembles are in R1, "
        "MixtureEnsembles in R3. Two rows, planned after the check of small-resnet had failed, ask whether wrn-10-2 "
        "with 10,000 images would pass it.",
        rate=22.0,
        rows=rows_of(methods, recipe, examples=5_000, seeds=FIVE, **common),
        trials=rows_of(
            {"wrn-10-2": (Single(), "wrn-10-2"), "wrn-10-2, half width": (Single(), "wrn-10-2:thin=0.5")},
            recipe,
            examples=10_000,
            seeds=(0, 1),
            **common,
        ),
        half="half width",
    )
    fashion = Regime(
        name="R8",
        title="Fashion-MNIST, 5,000 images, small-resnet",
        why="Planned after R5 had been seen, whose network has nothing to spare: its half is 4.6 points less accurate. "
        "The same network and recipe on images that ask less of it, so that the claims about Packed-Ensembles of "
        "convolutions are tested where they can hold. Two rows of hypernetworks, planned after R4 had been seen, ask "
        "whether ten members still trail one embedding where the network fits its images; five seeds are too few to "
        "confirm a difference as small as the printed one, 0.24 points. After they had been seen, ten new seeds of "
        "both were planned, and a claim about these alone; and so were ten of Packed-Ensembles and Deep Ensembles, as "
        "five had left their claim open.",
        rate=22.0,
        rows=(
            *rows_of(asked, recipe, seeds=FIVE, **clothes),
            *rows_of(again(late | {label: asked[label] for label in open_after_five}), recipe, seeds=NEW, **clothes),
        ),
        trials=rows_of(late, recipe, seeds=FIVE, **clothes),
        half="half width",
    )
    return cifar, fashion


# As TabM's example: rate 2e-3, decay 3e-4, batches of 256, gradients clipped at 1, an end after 16 epochs without gain.
TABM = {**ADAM, "lr": 2e-3, "weight_decay": 3e-4, "batch_size": 256, "schedule": "constant", "clip": 1.0}
TABM |= {"epochs": 50, "patience": 16}


def _table(
    name: str, data: str, title: str, rate: float, rows: int, seeds: tuple[int, ...], anew: Sequence[str] = ()
) -> Regime:
    """TabM's protocol on one table; its package's own numbers stand beside, in compare.json.

    Args:
        rows: how many of the methods are run.
        anew: rows that are run with ten new seeds too, for a claim about these alone.
    """
    methods: dict[str, Method] = {
        "one network": Single(),
        "Packed-Ensembles": Packed(members=4, alpha=2),
        "BatchEnsemble": BatchEnsemble(members=4),
        "Deep Ensembles": Deep(members=4),
    }
    chosen: dict[str, Any] = {label: (method, "tabular-mlp") for label, method in [*methods.items()][:rows]}
    why = (
        "TabM's optimizer, batches and early stopping (a tenth of the training part is held out for it), multum's "
        "network for tables: three layers of 256, numbers encoded piecewise linearly. BatchEnsemble is TabM but for "
        "its members, 4 instead of 32, and for its initialisation; the `tabm` package with layers of 256 stands beside "
        "(compare.json, peers)."
        + " Two rows got ten new seeds, and a claim about these alone, after five had been seen."
        * bool(anew)
    )
    every = (
        *rows_of(chosen, TABM, data=data, seeds=seeds),
        *rows_of(again({label: chosen[label] for label in anew}), TABM, data=data, seeds=NEW),
    )
    return Regime(name=name, title=title, why=why, rate=rate, rows=every, spare=False)


REGIMES = {
    regime.name: regime
    for regime in (
        _divided(),
        _several_inputs(),
        _equal_layers(),
        _late_members(),
        _first_grid(),
        *_convolutions(),
        _table("R6", "adult", "adult, 32,561 rows", 22.0, 3, THREE),
        _table(
            *("R7", "california_housing", "california_housing, 16,512 rows", 6.0, 4, FIVE),
            anew=("one network", "BatchEnsemble"),
        ),
    )
}
