"""Economical ensembles with hypernetworks: the tables and figures of the main part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..methods import Deep, FastGeometric, Hypernet, Method, Single, Snapshot, Swag
from .base import Row, Run, item, table
from .settings import SGD, cpu_rows, rows

__all__ = [
    *("ASGD", "CPU_ASGD", "DATA", "FOREIGN", "ITEMS", "NOISE", "PLAIN_SGD", "SEEDS", "WIDE"),
    *("accurate", "cpu_hypernet", "foreign_rows", "one", "watchful"),
]

SEEDS = (0, 1, 2)
WIDE = "wrn-28-10"
STANDARD = "wrn-28-10:variant=meliketoy,dropout=0.0"  # of the comparators' code
DATA = {"FM": "fashion_mnist", "C10": "cifar10", "C100": "cifar100"}
FOREIGN = {
    "FM": ("mnist", "kmnist", "emnist_letters"),
    "C10": ("svhn", "lsun", "tiny_imagenet", "cifar100"),
    "C100": ("svhn", "lsun", "tiny_imagenet", "cifar10"),
}
_BASE = {**SGD, "epochs": 200, "batch_size": 128, "lr": 0.1, "weight_decay": 5e-4}
PLAIN_SGD = {**_BASE, "milestones": (60, 120, 160), "factor": 0.2}
ASGD = {**_BASE, "schedule": "linear", "anneal_from": 0.4, "anneal_to": 0.8, "final": 0.5, "average_from": 0.8}
CONSTANT = {**_BASE, "schedule": "constant", "average_from": 0.8}
CPU_ASGD = {k: ASGD[k] for k in ("schedule", "anneal_from", "anneal_to", "final", "average_from")}
CPU_CONSTANT = {"schedule": "constant", "average_from": 0.8}
_LATE_IE = "Late IE, a whole network copied at T0 and trained on N times, is no method here: its rows are left out"
NOISE = "noise at birth is sigma times the rms of all entries of an embedding, as in the code"
SHARED_NORMS = (
    "shared norms have the statistics of all members' rows together, where the code averages each member's own"
)


def one() -> Hypernet:
    """The hypernetwork with a single embedding: N = 1."""
    return Hypernet(members=1, sigma=0, heads="copy", nested=False)


def accurate(**changed: Any) -> Hypernet:
    """The setting of Tables 1 and 2: own norms, sigma 0.25, nested."""
    return Hypernet(**{"members": 10, "birth_epoch": 120, "sigma": 0.25, "heads": "reset", "nested": True, **changed})


def watchful(**changed: Any) -> Hypernet:
    """The setting of the OOD experiments: shared norms, sigma 0.5, not nested."""
    return accurate(**{"sigma": 0.5, "norm": "shared", "nested": False, **changed})


def cpu_hypernet(**changed: Any) -> Hypernet:
    """A few epochs are too few for ten new heads: members begin with the trained one."""
    return Hypernet(**{"members": 10, "heads": "copy", **changed})


CPU_HEADS = "heads at birth: copies of the trained head here, new ones in the paper"
CPU_OTHERS: dict[str, Method] = {
    "SWAG": Swag(members=10, start=0.5),
    "SE": Snapshot(members=4, cycles=False, start=0.6),
}

TABLE1 = table(
    "Accuracy",
    """
    WRN (N=1), FM  | 95.61±0.08
    Ours (N=1), FM | 95.56±0.08
    Ours, FM       | 95.80±0.03
    SWAG, FM       | 95.42±0.06
    SE, FM         | 95.62±0.09
    IE, FM         | 95.79
    WRN (N=1), C10 | 96.46±0.05
    Ours (N=1), C10 | 96.45±0.03
    Ours, C10      | 96.79±0.07
    SWAG, C10      | 96.17±0.09
    FGE, C10       | 96.35±0.1
    SE, C10        | 96.34±0.14
    IE, C10        | 96.70
    WRN (N=1), C100 | 82.58±0.08
    Ours (N=1), C100 | 82.51±0.03
    Ours, C100     | 83.03±0.33
    SWAG, C100     | 82.13±0.03
    FGE, C100      | 82.3±0.2
    SE, C100       | 82.56±0.47
    IE, C100       | 83.62
    ASGD (constant LR), FM    | 91.12±1.69
    NASGD (constant LR), FM   | 94.87±0.02
    ASGD, FM                  | 95.58±0.05
    ASGD (constant LR), C10   | 95.57±0.18
    NASGD (constant LR), C10  | 96.73±0.10
    ASGD, C10                 | 96.44±0.05
    ASGD (constant LR), C100  | 81.80±0.24
    NASGD (constant LR), C100 | 82.91±0.40
    ASGD, C100                | 82.76±0.24
    """,
)
_C10 = "Accuracy, SVHN, LSUN, TIN, CIFAR"
TABLE3 = {
    **table(
        _C10,
        """
        SGD WRN (N=1), C10       | 96.01±0.09 94.08±0.02 93.32±1.11 90.22±1.17 88.70±0.21
        SGD Ours (N=1), C10      | 96.08±0.16 93.30±1.59 91.68±0.25 87.85±2.09 87.70±0.57
        SGD Ours, C10            | 96.06±0.17 95.56±1.81 95.96±0.60 93.99±0.77 89.22±0.62
        SGD IE, C10              | 96.83 97.52 95.74 93.19 92.10
        ASGD WRN (N=1), C10      | 96.46±0.05 97.91±0.94 96.91±0.09 95.53±0.20 92.90±0.07
        ASGD Ours (N=1), C10     | 96.45±0.03 98.63±0.24 97.03±0.10 95.69±0.43 93.02±0.02
        ASGD Ours (scratch), C10 | 96.42±0.14 98.36±0.18 96.45±0.66 94.50±0.99 90.76±0.33
        ASGD SWAG, C10           | 96.17±0.09 98.25±0.15 97.48±0.23 95.77±0.43 92.86±0.09
        ASGD SE, C10             | 96.34±0.14 98.20±1.08 96.92±0.46 95.32±0.65 92.52±0.31
        ASGD Ours, C10           | 96.48±0.02 99.07±0.04 97.53±0.04 96.11±0.13 93.36±0.15
        ASGD IE, C10             | 96.70 98.45 97.60 98.26 93.43
        SGD WRN (N=1), C100      | 80.68±0.4 78.84±1.20 77.64±3.64 75.46±2.61 80.75±0.34
        SGD Ours (N=1), C100     | 80.54±0.45 79.43±5.31 81.19±2.37 79.71±2.45 80.74±0.42
        SGD Ours, C100           | 80.87±0.32 82.46±5.27 84.55±1.92 81.45±1.80 81.71±0.15
        SGD IE, C100             | 83.46 85.21 84.37 88.38 83.10
        ASGD WRN (N=1), C100     | 82.58±0.08 84.92±1.40 79.61±2.40 79.11±3.28 81.18±0.22
        ASGD Ours (N=1), C100    | 82.51±0.03 86.95±2.25 83.84±1.08 81.91±0.94 81.69±0.25
        ASGD Ours (scratch), C100 | 81.97±0.11 84.69±2.97 78.92±4.10 75.97±3.55 79.60±1.02
        ASGD SWAG, C100          | 82.12±0.03 82.37±1.24 83.85±5.40 83.51±4.12 81.58±0.37
        ASGD SE, C100            | 82.56±0.47 84.79±3.44 76.98±7.17 78.31±4.90 81.26±0.38
        ASGD Ours, C100          | 82.55±0.13 86.67±1.28 86.58±2.96 85.54±3.01 81.71±0.23
        ASGD IE, C100            | 83.62 85.79 83.45 82.48 82.48
        """,
    ),
    **table(
        "Accuracy, MNIST, KMNIST, EMNIST",
        """
        SGD WRN (N=1), FM        | 95.41±0.16 97.21±0.34 95.77±1.21 96.87±0.26
        SGD Ours (N=1), FM       | 95.49±0.02 97.41±0.41 97.21±0.50 97.16±0.38
        SGD Ours, FM             | 95.35±0.10 97.46±0.56 97.80±0.72 97.44±0.65
        SGD IE, FM               | 95.83 96.47 95.99 96.75
        ASGD WRN (N=1), FM       | 95.61±0.08 95.42±0.97 94.76±1.39 94.45±0.94
        ASGD Ours (N=1), FM      | 95.56±0.08 95.13±0.27 94.08±0.75 93.79±0.79
        ASGD Ours (scratch), FM  | 95.66±0.10 96.38±0.55 96.38±0.15 95.26±0.44
        ASGD SWAG, FM            | 95.45±0.02 95.48±0.53 93.99±0.25 95.47±0.51
        ASGD SE, FM              | 95.62±0.09 95.35±0.88 94.66±1.55 94.43±1.05
        ASGD Ours, FM            | 95.72±0.07 96.65±0.68 96.45±0.87 95.96±0.78
        ASGD IE, FM              | 95.79 95.39 95.00 94.33
        """,
    ),
}


@item(
    "hypernet/table1-2",
    "Tables 1 and 2, Figure 2",
    shows="Accuracy of N = 10 members against one, SWAG, FGE, snapshots and an independent ensemble; nested or not",
    needs="Fashion-MNIST, CIFAR-10, CIFAR-100, GPUs",
    status="reduced",
)
def table1_2(scale: str) -> Run:
    if scale == "cpu":
        methods: dict[str, Method] = {
            "WRN (N=1)": Single(),
            "Ours (N=1)": one(),
            "Ours": cpu_hypernet(),
            "ASGD": cpu_hypernet(nested=False),
            **CPU_OTHERS,
            "IE": Deep(members=4),
        }
        fixed: dict[str, Method] = {
            "ASGD (constant LR)": cpu_hypernet(nested=False),
            "NASGD (constant LR)": cpu_hypernet(),
        }
        found = (*_small(methods), *cpu_rows(fixed, "fashion_mnist", recipe=CPU_CONSTANT.items()))
        printed = {row.label: TABLE1[f"{row.label}, FM"] for row in found}
        fewer = "10 samples of SWAG, 4 snapshots, 4 independent networks"
        return Run(rows=found, printed=printed, reduced=(CPU_HEADS, fewer))
    rows_: list[Row] = []
    for name, data in DATA.items():
        common = {"data": data, "seeds": SEEDS}
        made: dict[str, Method] = {
            "WRN (N=1)": Single(),
            "Ours (N=1)": one(),
            "Ours": accurate(),
            "ASGD": accurate(nested=False),
        }
        rows_ += rows(_named(made, name), ASGD, model=WIDE, **common)
        still: dict[str, Method] = {
            "ASGD (constant LR)": accurate(nested=False),
            "NASGD (constant LR)": accurate(),
        }
        rows_ += rows(_named(still, name), CONSTANT, model=WIDE, **common)
        others: dict[str, Method] = {
            "SWAG": Swag(members=30),
            "SE": Snapshot(members=10, cycles=False),
            "IE": Deep(members=10),
            **({} if name == "FM" else {"FGE": FastGeometric(members=12)}),
        }
        rows_ += rows(_named(others, name), ASGD, model=STANDARD, **common)
    remarks = {
        ("SWAG, C100", "Accuracy"): "82.12 in Table 3",
        ("SWAG, FM", "Accuracy"): "95.45 in Table S2",
    }
    departs = (NOISE, "FGE's numbers are quoted by the paper; here it is trained like the others")
    return Run(rows=tuple(rows_), printed=TABLE1, remarks=remarks, departs=departs)


def _named(methods: Mapping[str, Method], data: str) -> dict[str, Method]:
    return {f"{label}, {data}": method for label, method in methods.items()}


def _small(methods: Mapping[str, Method]) -> tuple[Row, ...]:
    """Rows at the scale of two cores, trained by averaged SGD; single runs alone where that is dear."""
    return cpu_rows(methods, "fashion_mnist", recipe=CPU_ASGD.items())


def foreign_rows(methods: Mapping[str, Method], recipe: Mapping[str, Any], name: str, model: str = WIDE) -> tuple:
    """Rows on one data set with its foreign sets, labelled "Method, C10"."""
    return rows(_named(methods, name), recipe, model=model, data=DATA[name], ood=FOREIGN[name], seeds=SEEDS)


@item(
    "hypernet/table3",
    "Tables 3 and S2",
    shows="OOD detection (AUROC of the entropy) by SGD and averaged SGD, against SWAG, snapshots, members from scratch",
    needs="CIFAR-10, CIFAR-100, SVHN, LSUN, Tiny ImageNet; the MNIST family; GPUs",
    status="reduced",
)
def table3(scale: str) -> Run:
    departs = (_LATE_IE, NOISE, SHARED_NORMS)
    if scale == "cpu":
        averaged: dict[str, Method] = {
            "ASGD WRN (N=1)": Single(),
            "ASGD Ours (N=1)": one(),
            "ASGD Ours": _cpu_watchful(),
            "ASGD Ours (scratch)": _cpu_watchful(ablation="scratch"),
            **{f"ASGD {label}": method for label, method in CPU_OTHERS.items()},
        }
        plain: dict[str, Method] = {"SGD WRN (N=1)": Single(), "SGD Ours": _cpu_watchful()}
        found = (*_small(averaged), *cpu_rows(plain, "fashion_mnist"))
        printed = {row.label: TABLE3[f"{row.label}, FM"] for row in found}
        return Run(
            rows=found,
            printed=printed,
            columns=("NLL", "Accuracy of members"),
            reduced=(CPU_HEADS, "EMNIST is left out"),
            departs=departs,
        )
    rows_: list[Row] = []
    for name in DATA:
        for optimizer, recipe in (("SGD", PLAIN_SGD), ("ASGD", ASGD)):
            ours: dict[str, Method] = {"WRN (N=1)": Single(), "Ours (N=1)": one(), "Ours": watchful()}
            theirs: dict[str, Method] = {"IE": Deep(members=10)}
            if optimizer == "ASGD":
                ours["Ours (scratch)"] = watchful(ablation="scratch", birth_epoch=0)
                theirs |= {"SWAG": Swag(members=30), "SE": Snapshot(members=10, cycles=False)}
            for methods, model in ((ours, WIDE), (theirs, STANDARD)):
                labelled = {f"{optimizer} {label}": method for label, method in methods.items()}
                rows_ += foreign_rows(labelled, recipe, name, model)
    return Run(rows=tuple(rows_), printed=TABLE3, departs=departs)


def _cpu_watchful(**changed: Any) -> Hypernet:
    return cpu_hypernet(**{"sigma": 0.5, "norm": "shared", "nested": False, **changed})


@item(
    "hypernet/table4",
    "Table 4",
    shows="Negative log-likelihood, summed over the test images, of N = 10 against N = 1",
    needs="the cells of Table 3",
    status="reduced",
)
def table4(scale: str) -> Run:
    summed = "the paper sums over 10,000 images; numbers here are means"
    if scale == "cpu":
        two = _small({"Ours (N=1)": one(), "Ours": _cpu_watchful()})
        better = (("NLL", "Ours", "Ours (N=1)"),)
        return Run(rows=two, columns=("NLL",), claims=better, reduced=(CPU_HEADS,), departs=(summed, SHARED_NORMS))
    found = [
        row for name in ("C10", "C100") for row in foreign_rows({"Ours (N=1)": one(), "Ours": watchful()}, ASGD, name)
    ]
    printed = table(
        "NLL",
        """
        Ours (N=1), C10  | 0.1125±0.0009
        Ours, C10        | 0.1081±0.0004
        Ours (N=1), C100 | 0.6848±0.0127
        Ours, C100       | 0.6259±0.0177
        """,
    )
    return Run(rows=tuple(found), printed=printed, departs=(summed, NOISE, SHARED_NORMS))


@item(
    "hypernet/figure1",
    "Figure 1",
    shows="How nested SGD holds back what is shared while the members step",
    needs="nothing",
    status="exact",
)
def figure1(scale: str) -> Run:
    gradient = "one backward pass per member, at its old embedding, as in the code; the box reads as at its new one"
    return Run(rows=(), departs=(gradient,))


@item(
    "hypernet/figure3",
    "Figures 3 and S2",
    shows="Accuracy and likelihood on the plane through three members' embeddings",
    needs="a trained ensemble of Table 3; then minutes",
    status="reduced",
)
def figure3(scale: str) -> Run:
    departs = ("heads take the same affine combination as embeddings", SHARED_NORMS)
    if scale == "cpu":
        return Run(rows=_small({"Ours": _cpu_watchful()}), reduced=(CPU_HEADS,), departs=departs)
    found = (*foreign_rows({"Ours": watchful()}, ASGD, "C100"), *foreign_rows({"Ours": watchful()}, ASGD, "C10"))
    return Run(rows=found, departs=departs)


ITEMS = (table1_2, table3, table4, figure1, figure3)
