"""Packed-Ensembles: the tables and figures of the paper's main part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..methods import BatchEnsemble, Deep, Masksembles, Method, Mimo, Packed, Single
from ..methods.batch_ensemble import SHORTCUTS
from .base import Printed, Row, Run, item, table
from .settings import A3, IMAGENET_LACKS, SGD, cpu_rows

__all__ = ["BEST_EPOCH", "ITEMS", "METHODS", "SEEDS", "SETTINGS", "cifar_rows"]

SEEDS = (0, 1, 2, 3, 4)
BEST_EPOCH = "the paper keeps the epoch with the best test accuracy; the last epoch is kept here"
NETWORKS = {"R18": "resnet18", "R50": "resnet50", "WR": "wrn-28-10:variant=meliketoy"}
DATA = {"C10": "cifar10", "C100": "cifar100"}

_R18 = {**SGD, "nesterov": False, "epochs": 75, "batch_size": 128, "lr": 0.05, "milestones": (25, 50)}
_DEEP = {**SGD, "epochs": 200, "batch_size": 128, "lr": 0.1, "milestones": (60, 120, 160), "factor": 0.2}
_MEDIUM = {"randaugment": 2, "magnitude": 9, "mixup": 0.5, "cutmix": 0.2, "label_smoothing": 0.1}

# Table 4: by data and network.
SETTINGS: dict[tuple[str, str], dict[str, Any]] = {
    ("C10", "R18"): {**_R18, "weight_decay": 5e-4, "factor": 0.1},
    ("C10", "R50"): {**_DEEP, "weight_decay": 5e-4},
    ("C10", "WR"): {**_DEEP, "weight_decay": 5e-4},
    ("C100", "R18"): {**_R18, "weight_decay": 1e-4, "factor": 0.2},
    ("C100", "R50"): {**_DEEP, "weight_decay": 5e-4},
    ("C100", "WR"): {**_DEEP, **_MEDIUM, "weight_decay": 5e-4},
}

METHODS: dict[str, Method] = {
    "Single Model": Single(),
    "BatchEnsemble": BatchEnsemble(members=4, init="normal", plain=SHORTCUTS),
    "MIMO": Mimo(members=4, rho=1),
    "Masksembles": Masksembles(members=4, scale=2),
    "Packed-Ensembles": Packed(members=4, alpha=2, gamma=2),
    "Deep Ensembles": Deep(members=4),
}


def cifar_rows(data: str, network: str, methods: Mapping[str, Method] = METHODS, **changed: Any) -> tuple[Row, ...]:
    """The rows of Table 1 for one data set and one network, labelled "Method, C10, R18"."""
    found = []
    for label, method in methods.items():
        model, recipe = NETWORKS[network], SETTINGS[data, network]
        if method.name == "packed" and network == "WR":
            model += ",bias=edges"
            if (data, method.as_dict()["gamma"]) == ("C100", 2):
                method = Packed(members=method.members, alpha=method.as_dict()["alpha"], gamma=1)
        if method.name == "batchensemble" and network == "R50":
            recipe = {**recipe, "lr": 0.08}
            method = BatchEnsemble(members=method.members, init=method.as_dict()["init"])
        settings = {"seeds": SEEDS, "ood": ("svhn",), **changed}
        row = Row(
            label=f"{label}, {data}, {network}",
            data=DATA[data],
            model=model,
            method=method,
            recipe=recipe,
            **settings,
        )
        found.append(row)
    return tuple(found)


def _table1_rows() -> tuple[Row, ...]:
    return tuple(row for data, network in SETTINGS for row in cifar_rows(data, network))


TABLE1 = table(
    "Acc, NLL, ECE, AUPR, AUC, FPR95, Params (M), Mult-Adds in M passes (G)",
    """
    Single Model, C10, R18      | 94.0 0.238 0.035 94.0 89.7 33.8 11.17 0.56
    BatchEnsemble, C10, R18     | 92.9 0.257 0.031 92.4 87.8 32.1 11.21 2.22
    MIMO, C10, R18              | 94.0 0.228 0.033 94.4 90.2 28.6 11.19 2.24
    Masksembles, C10, R18       | 94.0 0.188 0.009 93.6 89.5 27.8 11.24 2.22
    Packed-Ensembles, C10, R18  | 94.3 0.178 0.007 94.7 91.3 23.2 8.18 0.48
    Deep Ensembles, C10, R18    | 95.1 0.156 0.008 94.7 91.3 18.0 44.70 2.22
    Single Model, C10, R50      | 95.1 0.211 0.031 95.2 91.9 23.6 23.52 1.30
    BatchEnsemble, C10, R50     | 93.9 0.255 0.033 94.7 91.3 20.1 23.63 5.19
    MIMO, C10, R50              | 95.4 0.197 0.030 95.1 90.8 26.0 23.59 5.22
    Masksembles, C10, R50       | 95.3 0.175 0.019 95.7 92.2 22.1 23.81 5.19
    Packed-Ensembles, C10, R50  | 95.9 0.137 0.008 97.3 95.2 14.4 14.55 1.00
    Deep Ensembles, C10, R50    | 96.0 0.136 0.008 97.0 94.7 15.5 94.08 5.19
    Single Model, C10, WR       | 95.4 0.200 0.029 96.1 93.2 20.4 36.49 5.95
    BatchEnsemble, C10, WR      | 95.6 0.206 0.027 95.5 92.5 22.1 36.59 23.81
    MIMO, C10, WR               | 94.7 0.234 0.034 94.9 90.6 30.9 36.51 23.82
    Masksembles, C10, WR        | 94.0 0.186 0.016 97.2 95.0 14.5 36.53 23.82
    Packed-Ensembles, C10, WR   | 96.2 0.133 0.009 98.1 96.5 11.1 19.35 4.06
    Deep Ensembles, C10, WR     | 95.8 0.143 0.013 97.8 96.0 12.5 145.96 23.82
    Single Model, C100, R18     | 75.1 1.016 0.093 88.6 79.5 55.0 11.22 0.56
    BatchEnsemble, C100, R18    | 71.2 1.236 0.116 86.0 75.4 60.2 11.25 2.22
    MIMO, C100, R18             | 75.3 0.962 0.069 89.2 80.7 52.9 11.36 2.24
    Masksembles, C100, R18      | 74.2 1.054 0.061 86.7 76.3 59.8 11.24 2.22
    Packed-Ensembles, C100, R18 | 76.4 0.858 0.041 88.7 79.8 57.1 8.18 0.48
    Deep Ensembles, C100, R18   | 78.2 0.800 0.018 90.2 82.4 50.5 44.88 2.22
    Single Model, C100, R50     | 78.3 0.905 0.089 87.4 77.9 57.6 23.70 1.30
    BatchEnsemble, C100, R50    | 66.6 1.788 0.182 85.2 74.6 60.6 23.81 5.19
    MIMO, C100, R50             | 79.0 0.876 0.079 87.5 76.9 64.7 24.33 5.22
    Masksembles, C100, R50      | 78.5 0.832 0.046 90.3 81.9 52.3 23.81 5.19
    Packed-Ensembles, C100, R50 | 81.2 0.703 0.020 90.0 81.7 56.5 15.55 1.00
    Deep Ensembles, C100, R50   | 80.9 0.713 0.026 89.2 80.8 52.5 94.82 5.19
    Single Model, C100, WR      | 80.3 0.963 0.156 81.0 64.2 80.1 36.49 5.95
    BatchEnsemble, C100, WR     | 82.3 0.835 0.130 88.1 78.2 69.8 36.59 23.81
    MIMO, C100, WR              | 80.2 0.822 0.028 84.9 72.0 72.8 36.51 23.82
    Masksembles, C100, WR       | 74.4 0.937 0.063 76.1 60.0 75.1 36.53 23.82
    Packed-Ensembles, C100, WR  | 83.9 0.678 0.089 86.2 73.2 80.7 36.62 5.96
    Deep Ensembles, C100, WR    | 82.5 0.903 0.229 81.6 67.9 71.3 145.96 23.82
    """,
)
COST1 = ("Params (M)", "Mult-Adds in M passes (G)")
TABLE2 = table(
    "Acc, ECE, AUPR (T), AUC (T), FPR95 (T), AUPR (IO), AUC (IO), FPR95 (IO), rAcc, rNLL, rECE",
    """
    Single Model, R50      | 77.8 0.1206 18.0 80.9 68.6 3.6 50.8 90.8 23.5 5.187 0.0822
    BatchEnsemble, R50     | 75.9 0.0348 20.2 81.6 66.5 4.0 55.2 82.3 21.0 6.148 0.1649
    MIMO, R50              | 77.6 0.1465 18.4 81.6 66.8 3.7 52.2 90.6 23.4 5.115 0.0585
    Masksembles, R50       | 73.6 0.2093 13.6 79.7 68.3 3.3 47.7 87.7 21.2 5.139 0.0107
    Packed-Ensembles, R50  | 77.9 0.1796 35.1 88.2 43.7 9.9 68.4 80.9 23.8 4.978 0.0221
    Deep Ensembles, R50    | 79.2 0.2326 19.6 83.4 62.1 3.7 52.5 85.5 24.9 4.879 0.0182
    Single Model, R50x4    | 80.2 0.0221 20.5 82.6 63.9 4.9 60.2 87.4 26.0 5.190 0.1721
    BatchEnsemble, R50x4   | 77.7 0.0237 23.8 82.8 63.8 4.4 58.4 80.5 23.4 6.079 0.2029
    MIMO, R50x4            | 80.3 0.0150 19.3 82.5 66.1 4.9 60.7 86.4 25.8 5.278 0.1886
    Packed-Ensembles, R50x4 | 81.3 0.1034 34.6 88.1 50.3 9.6 69.9 79.2 26.6 4.848 0.0750
    Deep Ensembles, R50x4  | 82.1 0.0534 23.0 85.6 58.1 5.0 62.7 81.9 28.2 4.789 0.1048
    """,
)


def imagenet_rows() -> tuple[Row, ...]:
    """The rows of Tables 2 and 10, labelled "Method, R50"."""
    found = []
    for network, width in (("R50", 3), ("R50x4", 2)):
        methods: dict[str, Method] = {
            **METHODS,
            "BatchEnsemble": BatchEnsemble(members=4, init="normal", plain=SHORTCUTS if network == "R50" else ()),
            "Packed-Ensembles": Packed(members=4, alpha=width, gamma=1),
            "MIMO": Mimo(members=4),
        }
        for label, method in methods.items():
            recipe = {**A3, "clip": 5e-4} if method.name == "batchensemble" else dict(A3)
            if method.name == "masksembles" and network == "R50x4":
                recipe["batch_size"] = 1120
            row = Row(
                label=f"{label}, {network}",
                data="imagenet",
                model=f"resnet50{network[3:]}:stem=imagenet",
                method=method,
                recipe=recipe,
                seeds=(0,),
                ood=("textures", "imagenet_o"),
            )
            found.append(row)
    return tuple(found)


def _picked(printed: Mapping[str, Mapping[str, Printed]], cost: bool) -> dict[str, dict[str, Printed]]:
    """The performance or the cost columns of Table 1."""
    return {row: {c: n for c, n in cells.items() if (c in COST1) == cost} for row, cells in printed.items()}


# At the scale of two cores gamma is 1: members of so small a network have fewer than 64 channels to split.
CPU_METHODS: dict[str, Method] = {
    **METHODS,
    "BatchEnsemble": BatchEnsemble(members=4),
    "MIMO": Mimo(members=4, rho=1),
    "Packed-Ensembles": Packed(members=4, alpha=2, gamma=1),
}
CPU_GAMMA = "gamma: 1 here, since members of so narrow a network have fewer channels than the floor of 64"


@item(
    "packed/figure1",
    "Figure 1",
    shows="Accuracy against images per second and size of six methods on CIFAR-100",
    needs="the cells of Table 1, and timings on a GPU",
    status="reduced",
)
def figure1(scale: str) -> Run:
    if scale == "cpu":
        return Run(rows=cpu_rows(CPU_METHODS), reduced=(CPU_GAMMA, "images per second of this CPU"))
    return Run(rows=cifar_rows("C100", "R50"), departs=(BEST_EPOCH,))


@item(
    "packed/figure3-4",
    "Figures 2, 3 and 4",
    shows="That one grouped network, with its masks, equals M small networks (and the diagrams of the other papers)",
    needs="nothing",
    status="exact",
)
def figure3_4(scale: str) -> Run:
    return Run(rows=())


@item(
    "packed/table1",
    "Table 1, performance",
    shows="Accuracy, calibration and OOD detection of six methods on CIFAR-10 and CIFAR-100, three networks, five runs",
    needs="CIFAR-10, CIFAR-100, SVHN; weeks of a GPU",
    status="reduced",
)
def table1(scale: str) -> Run:
    printed = _picked(TABLE1, cost=False)
    if scale == "cpu":
        mine = {f"{label}, C10": method for label, method in CPU_METHODS.items()}
        near = {f"{label}, C10": printed[f"{label}, C10, WR"] for label in CPU_METHODS}
        return Run(rows=cpu_rows(mine), printed=near, reduced=(CPU_GAMMA, "printed numbers are those of C10, WR"))
    return Run(rows=_table1_rows(), printed=printed, departs=(BEST_EPOCH,))


_COPIED = "copied from the other data set"
_PASSES = "Table 1 counts one MIMO prediction as four passes; it is one"


@item(
    "packed/table1-cost",
    "Table 1, efficiency",
    shows="Parameters and mult-adds of six methods on three networks",
    needs="nothing",
    status="exact",
)
def table1_cost(scale: str) -> Run:
    params, adds = COST1
    remarks = {
        ("Single Model, C100, WR", params): f"{_COPIED}: CIFAR-10's value",
        ("Packed-Ensembles, C100, R18", params): f"{_COPIED}: CIFAR-10's value",
        ("Packed-Ensembles, C100, R50", params): "reached by no alpha, M, gamma or rule that was tried",
        ("Packed-Ensembles, C100, WR", adds): "off by 0.008; the parameters agree",
        ("BatchEnsemble, C10, R50", params): "reached only if some convolutions stay plain; equal to Masksembles' true "
        "count, so perhaps a copy of it",
        ("BatchEnsemble, C100, R50", params): "reached only if some convolutions stay plain; equal to Masksembles' "
        "true count, so perhaps a copy of it",
        ("BatchEnsemble, C10, WR", adds): "23.8057: the paper leaves r, s, members' biases and the head's uncounted",
        ("BatchEnsemble, C100, WR", params): f"{_COPIED}: CIFAR-10's value",
        ("BatchEnsemble, C100, WR", adds): "23.8057: the paper leaves r, s, members' biases and the head's uncounted",
        ("MIMO, C100, R18", params): "reached by no rule that was tried",
        ("MIMO, C10, R50", adds): "5.2130 would be printed 5.21; equal to CIFAR-100's, so perhaps a copy of it",
        ("MIMO, C100, WR", params): f"{_COPIED}: CIFAR-10's value",
        ("Masksembles, C10, R18", params): f"{_COPIED}: CIFAR-100's value",
        ("Masksembles, C10, R50", params): f"{_COPIED}: CIFAR-100's value",
        ("Masksembles, C100, WR", params): f"{_COPIED}: CIFAR-10's value",
        ("Deep Ensembles, C100, WR", params): f"{_COPIED}: CIFAR-10's value",
    }
    caption = "the caption's gamma = 1 for the wide network holds on CIFAR-100 only: 19.35 M is gamma = 2"
    rows = _table1_rows()
    return Run(rows=rows, printed=_picked(TABLE1, cost=True), remarks=remarks, departs=(_PASSES, caption))


@item(
    "packed/table2",
    "Table 2",
    shows="Accuracy, calibration, OOD detection and shift of six methods on ImageNet",
    needs="ImageNet, ImageNet-O, ImageNet-R, Textures; 2 to 8 A100",
    status="needs a GPU and ImageNet",
)
def table2(scale: str) -> Run:
    return Run(rows=imagenet_rows(), printed=TABLE2, departs=(IMAGENET_LACKS,))


ITEMS = (figure1, figure3_4, table1, table1_cost, table2)
