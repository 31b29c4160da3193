"""The papers' main claims, and the regimes in which each can hold: fixed here before anything is trained.

A regime is one data set, one network and one recipe at a size that two cores finish, in which a network has capacity to
spare: one network nearly interpolates its training set and is overconfident, and a network of half its width is almost
as accurate. Outside of that no method can show what the papers say of it. Members are trained as if alone (no
`reduction`), so that one learning rate means the same for one network and for four.

docs/results/plan.md is written from this file; headlines.py runs it and judges.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..methods import BatchEnsemble, Deep, Hypernet, Masksembles, Method, Mimo, Mixture, Multihead, Packed, Single
from .base import Row
from .settings import CPU_RECIPE

ADAM = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 1e-4, "schedule": "cosine", "epochs": 30, "batch_size": 128}
TEN, FIVE = tuple(range(10)), tuple(range(5))
NASGD = "N = 10, nested averaged SGD"


@dataclass(frozen=True, kw_only=True)
class Regime:
    """One data set, one network, one recipe; `single` and `half` are the rows that tell whether it has capacity."""

    name: str
    title: str
    rows: tuple[Row, ...]
    single: str
    half: str = ""


@dataclass(frozen=True)
class Claim:
    """What a paper says of two methods, and how it is tested.

    A claim that one is better is confirmed where the whole interval of the difference has its sign. "As good as" is an
    equivalence: the whole interval must lie within the margin. The margin is also what counts as no difference.
    """

    says: str
    source: str
    printed: str
    regime: str
    method: str  # the row that the claim is about
    other: str  # the row that it is compared with
    column: str
    margin: float  # in the column's unit
    equal: bool = False  # "as good as"


def _rows(
    methods: Mapping[str, tuple[Method, str] | tuple[Method, str, Mapping[str, Any]]],
    recipe: Mapping[str, Any],
    **common: Any,
) -> tuple[Row, ...]:
    """One row a method: (method, network) or (method, network, what its recipe has of its own)."""
    return tuple(
        Row(label=label, method=method, model=model, recipe={**recipe, **(own[0] if own else {})}, **common)
        for label, (method, model, *own) in methods.items()
    )


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
    common: dict[str, Any] = {"data": "fashion_mnist", "examples": 10_000, "ood": ("mnist",), "seeds": TEN}
    title = "Fashion-MNIST, 10,000 images, MLP of 512 + 512"
    rows = _rows(methods, ADAM, **common)
    return Regime(name="R1", title=title, rows=rows, single="one network", half="half width")


def _several_inputs() -> Regime:
    """MIMO, with what a sceptic asks for: one network that is trained as long as four."""
    wide, half = "mlp:hidden=1024+1024", "mlp:hidden=512+512"
    often = {f"MIMO (M = {m})": (Mimo(members=m, repeats=4), wide) for m in (2, 3, 4)}
    methods: dict[str, Any] = {
        "one network": (Single(), wide),
        "half width": (Single(), half),
        "one network, 4 times the epochs": (Single(), wide, {"epochs": 120}),
        "multihead (M = 3)": (Multihead(members=3), wide),
        "MIMO (M = 3), no repetition": (Mimo(members=3), wide),
        **often,
        "MIMO (M = 3), rho 0.5": (Mimo(members=3, repeats=4, rho=0.5), wide),
    }
    common: dict[str, Any] = {"data": "fashion_mnist", "examples": 5_000, "ood": ("mnist",), "seeds": TEN}
    title = "Fashion-MNIST, 5,000 images, MLP of 1024 + 1024"
    rows = _rows(methods, ADAM, **common)
    return Regime(name="R2", title=title, rows=rows, single="one network", half="half width")


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
    common: dict[str, Any] = {"data": "fashion_mnist", "examples": 10_000, "ood": ("mnist",), "seeds": FIVE}
    title = "Fashion-MNIST, 10,000 images, MLP of five layers of 256"
    rows = _rows(methods, ADAM, **common)
    return Regime(name="R3", title=title, rows=rows, single="one network", half="half width")


def _late_members() -> Regime:
    """Hypernetworks: ten late members against one, by SGD, averaged SGD and nested averaged SGD."""
    falling = {"schedule": "linear", "anneal_from": 0.4, "anneal_to": 0.8, "final": 0.5, "average_from": 0.8}
    ten = partial(Hypernet, members=10, heads="copy")  # a few epochs are too few for ten new heads
    methods: dict[str, Any] = {
        "one network": (Single(), "wrn-10-1", falling),
        "N = 1": (Hypernet(members=1, sigma=0, heads="copy", nested=False), "wrn-10-1", falling),
        "N = 10, SGD": (ten(nested=False), "wrn-10-1"),
        "N = 10, averaged SGD": (ten(nested=False), "wrn-10-1", falling),
        NASGD: (ten(), "wrn-10-1", falling),
    }
    common: dict[str, Any] = {"data": "fashion_mnist", "examples": 5_000, "ood": ("mnist#test=2000",), "seeds": TEN}
    title = "Fashion-MNIST, 5,000 images, wrn-10-1"
    rows = _rows(methods, {**CPU_RECIPE, "epochs": 10}, **common)
    return Regime(name="R4", title=title, rows=rows, single="one network")


REGIMES = {regime.name: regime for regime in (_divided(), _several_inputs(), _equal_layers(), _late_members())}

PACKED = "Packed-Ensembles, Table 1 (ResNet-18, CIFAR-10)"
MIMO = "MIMO, Table 1 (WRN-28-10, CIFAR-10)"
MIXTURE = "MixtureEnsembles, Table 1 (WRN-28-10, CIFAR-10)"

CLAIMS = tuple(
    Claim(*claim)
    for claim in (
        (
            *("Packed-Ensembles are better than one network", PACKED, "NLL 0.178 against 0.238"),
            *("R1", "Packed-Ensembles", "one network", "NLL", 0.01),
        ),
        (
            *("Packed-Ensembles are better calibrated than one network", PACKED, "ECE 0.7 % against 3.5 %"),
            *("R1", "Packed-Ensembles", "one network", "ECE (%)", 0.5),
        ),
        (
            *("Packed-Ensembles detect OOD data better than one network", PACKED, "AUROC 91.3 % against 89.7 %"),
            *("R1", "Packed-Ensembles", "one network", "AUC", 1.0),
        ),
        (
            *("Packed-Ensembles are as accurate as Deep Ensembles", PACKED, "94.3 % against 95.1 %"),
            *("R1", "Packed-Ensembles", "Deep Ensembles", "Accuracy", 1.0, True),
        ),
        (
            *("Packed-Ensembles equal the same thin networks trained alone", "Packed-Ensembles, Figure 3", "in words"),
            *("R1", "Packed-Ensembles", "thin ensemble", "NLL", 0.01, True),
        ),
        (
            *("BatchEnsemble is better than one network", MIMO, "NLL 0.143 against 0.159"),
            *("R1", "BatchEnsemble", "one network", "NLL", 0.01),
        ),
        (
            *("Masksembles are better than one network", PACKED, "NLL 0.188 against 0.238"),
            *("R1", "Masksembles", "one network", "NLL", 0.01),
        ),
        (
            *("MIMO is better than one network", MIMO, "NLL 0.123 against 0.159"),
            *("R2", "MIMO (M = 3)", "one network", "NLL", 0.01),
        ),
        (
            *("MIMO is better than one network trained for as many steps", MIMO, "not printed"),
            *("R2", "MIMO (M = 3)", "one network, 4 times the epochs", "NLL", 0.01),
        ),
        (
            *("MIMO's subnetworks disagree more than heads on one body", "MIMO, Figure 4, right", "drawn"),
            *("R2", "MIMO (M = 3)", "multihead (M = 3)", "Disagreement", 0.01),
        ),
        (
            *("Batch repetition helps MIMO", "MIMO, Figure 6", "drawn"),
            *("R2", "MIMO (M = 3)", "MIMO (M = 3), no repetition", "Accuracy", 0.5),
        ),
        (
            "MixtureEnsembles with one network's parameters are better than BatchEnsemble",
            *(MIXTURE, "NLL 0.120 against 0.143"),
            *("R3", "MixtureEnsembles, 1x", "BatchEnsemble", "NLL", 0.01),
        ),
        (
            "MixtureEnsembles with three networks' parameters are as accurate as Deep Ensembles",
            *(MIXTURE, "96.6 % against 96.6 %"),
            *("R3", "MixtureEnsembles, 3.3x", "Deep Ensembles", "Accuracy", 1.0, True),
        ),
        (
            "Ten members of a hypernetwork are more accurate than one",
            *("Hypernetworks, Table 1 (WRN-28-10, Fashion-MNIST)", "95.80 % against 95.56 %"),
            *("R4", NASGD, "N = 1", "Accuracy", 0.5),
        ),
        (
            "Nested steps are better than plain ones",
            *("Hypernetworks, Table 2 (constant rate, Fashion-MNIST)", "94.87 % against 91.12 %"),
            *("R4", NASGD, "N = 10, averaged SGD", "Accuracy", 0.5),
        ),
    )
)
