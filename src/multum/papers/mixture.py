"""MixtureEnsembles: its tables and figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..methods import BatchEnsemble, Deep, Method, Mimo, Mixture, Single
from . import mimo
from .base import Row, Run, item, table
from .settings import CIFAR_C, IMAGENET_LACKS, SGD, cpu_rows, rows

__all__ = ["ITEMS"]

SEEDS = (0, 1, 2)
WIDE = "wrn-28-10"
RECIPE = {
    **SGD,
    "epochs": 200,
    "batch_size": 128,
    "lr": 0.1,
    "weight_decay": 5e-4,
    "factor": 0.2,
    "ghost": 64,
    "milestones": (60, 120, 180),
}
THIN = {**RECIPE, "epochs": 1000, "milestones": (300, 600, 900)}
IMAGENET = {
    "optimizer": "sgd",
    "nesterov": False,
    "momentum": 0.9,
    "lr": 1.6,
    "batch_size": 1024,
    "epochs": 90,
    "schedule": "multistep",
    "milestones": (30, 60, 80),
    "factor": 0.1,
    "label_smoothing": 0.1,
    "warmup": 10,
    "weight_decay": 1e-4,
    "flip": True,
}
LARGE = 120_000_000
DEPARTS = (
    "'36.5M' is read as the number of the network's weights: the literal number leaves 6 templates where 7 fit",
    "seeds are not stated: three here",
    "the rows of other papers are trained as those papers say",
)

# Tables 1 to 4 in one: C10, then C100 and its corrupted images.
TABLES = table(
    "Params (M), Accuracy, NLL, ECE (%), Corrupt, cNLL, cECE (%), FLOPS (x)",
    """
    Baseline, C10                     | 36.5 96.0 0.159 2.3 - - - -
    BatchEnsembles, C10               | 36.5 96.2 0.143 2.1 - - - -
    BatchEnsembles + EnsembleBN, C10  | 36.5 96.2 - 1.8 - - - -
    MIMO, C10                         | 36.5 96.4 0.123 1.0 - - - -
    MixtureEnsembles, C10             | 36.5 96.3 0.120 0.8 - - - -
    Naive Ensemble, C10               | 146 96.6 0.114 1.0 - - - -
    MixtureEnsembles 120M, C10        | 120 96.6 0.119 0.8 - - - -
    Baseline, C100                    | 36.5 79.8 0.875 8.6 51.4 2.70 23.9 1
    BatchEnsembles, C100              | 36.5 81.5 0.740 5.6 54.1 2.49 19.1 4
    BatchEnsembles + EnsembleBN, C100 | 36.5 81.9 - 2.8 54.1 - 19.1 4
    MIMO, C100                        | 36.5 82.0 0.690 2.2 53.7 2.28 12.9 1
    MixtureEnsembles, C100            | 36.5 82.2 0.702 2.7 52.9 2.17 10.3 4
    Thin MixtureEnsembles, C100       | 36.5 82.3 0.689 2.4 54.2 2.09 9.7 1
    Naive Ensemble, C100              | 146 82.7 0.666 2.1 54.1 2.27 13.8 4
    MixtureEnsembles 120M, C100       | 120 82.9 0.666 2.2 54.7 2.00 10.3 4
    """,
)
TABLE5 = table(
    "Params (M), Top-1",
    """
    Baseline             | 25.6 76.4
    BatchEnsemble        | 25.6 76.7
    MIMO                 | 25.6 77.5
    MixtureEnsemble      | 25.6 77.2
    Naive Ensemble       | 102.4 77.5
    MixtureEnsemble 51M  | 51.2 77.9
    """,
)
TABLE6 = table(
    "Params (M), Accuracy, Diversity",
    """
    Naive Ensemble              | 146 82.7 0.88
    MixtureEnsembles            | 36.5 82.1 0.78
    MixtureEnsembles 120M       | 120 82.9 0.85
    BatchEnsembles + EnsembleBN | 36.5 81.9 0.4
    MIMO                        | 36.5 82.0 0.91
    """,
)


def _cifar(data: str, name: str) -> tuple[Row, ...]:
    """The rows of Tables 1 to 4 on one data set, labelled "Method, C10"."""
    common: dict[str, Any] = {"data": data, "seeds": SEEDS, "shift": CIFAR_C if name == "C100" else ()}
    ours: dict[str, Method] = {
        "MixtureEnsembles": Mixture(members=4, budget=1.0),
        "MixtureEnsembles 120M": Mixture(members=4, budget=LARGE),
    }
    own = rows({f"{label}, {name}": m for label, m in ours.items()}, RECIPE, model=WIDE, **common)
    if name == "C100":
        thin = Mixture(members=4, budget=36_500_000, singles="banks")
        own += rows({f"Thin MixtureEnsembles, {name}": thin}, THIN, model="wrn-28-5", **common)
    theirs = {
        "Baseline": "Deterministic",
        "BatchEnsembles": "BatchEnsemble",
        "MIMO": "MIMO",
        "BatchEnsembles + EnsembleBN": "BatchEnsemble",
        "Naive Ensemble": "Ensemble",
    }
    cited = []
    for label, source in theirs.items():
        row = next(row for row in mimo.cifar_rows(data) if row.label.startswith(source))
        method = BatchEnsemble(members=4, init="normal", norm="own") if "EnsembleBN" in label else row.method
        cited.append(replace(row, label=f"{label}, {name}", method=method, seeds=SEEDS, shift=common["shift"], ood=()))
    return (*cited, *own)


def _cpu_mixture(budget: float) -> Mixture:
    """Most layers of a small network are the only ones of their shape, and take no part unless they have banks."""
    return Mixture(members=4, budget=budget, singles="plain" if budget <= 1 else "banks")


CPU_METHODS: dict[str, Method] = {
    "Baseline": Single(),
    "BatchEnsembles": BatchEnsemble(members=4),
    "BatchEnsembles + EnsembleBN": BatchEnsemble(members=4, norm="own"),
    "MIMO": Mimo(members=3),
    "MixtureEnsembles": _cpu_mixture(1.0),
    "MixtureEnsembles 120M": _cpu_mixture(3.3),
    "Naive Ensemble": Deep(members=4),
}
CPU_BANKS = "wrn-10-1 has two layers of one shape; beyond one network's parameters every layer has a bank"


CLEAN = ("Accuracy", "NLL", "ECE (%)")
CORRUPTED = ("Corrupt", "cNLL", "cECE (%)")


def _cells(row: str, columns: tuple[str, ...]) -> dict:
    """What is printed in some columns of a row; sizes are another network's."""
    return {column: TABLES[row][column] for column in columns if column in TABLES[row]}


@item(
    "mixture/table1-4",
    "Tables 1, 2, 3 and 4",
    shows="Accuracy, likelihood and calibration on CIFAR-10, CIFAR-100 and corrupted images, by number of parameters",
    needs="CIFAR-10, CIFAR-100, CIFAR-100-C, a GPU",
    status="reduced",
)
def table1_4(scale: str) -> Run:
    if scale == "cpu":
        printed = {
            label: {**_cells(f"{label}, C10", CLEAN), **_cells(f"{label}, C100", CORRUPTED)} for label in CPU_METHODS
        }
        mixed = "what is printed of corrupted images is CIFAR-100's: the paper has none of CIFAR-10"
        return Run(rows=cpu_rows(CPU_METHODS), printed=printed, reduced=(CPU_BANKS,), departs=(*DEPARTS[1:2], mixed))
    sizes = {
        ("MixtureEnsembles 120M, C10", "Params (M)"): "24 templates, all that the budget of 120 million allows",
        ("MixtureEnsembles 120M, C100", "Params (M)"): "24 templates, all that the budget of 120 million allows",
        ("MixtureEnsembles, C100", "Params (M)"): "with norms and coefficients of four members, 105 + 17,952 each",
        ("MixtureEnsembles, C100", "Accuracy"): "82.1 in Table 6",
        ("Baseline, C100", "Params (M)"): "36.54: the head has 100 outputs",
        ("BatchEnsembles, C10", "Params (M)"): "36.56 with all layers scaled",
        ("BatchEnsembles, C100", "Params (M)"): "36.62 with all layers scaled",
        ("BatchEnsembles + EnsembleBN, C10", "Params (M)"): "36.61 with four sets of norms",
        ("BatchEnsembles + EnsembleBN, C100", "Params (M)"): "36.67 with four sets of norms",
        ("MIMO, C100", "Params (M)"): "36.67: three heads of 100 outputs",
        ("Thin MixtureEnsembles, C100", "Params (M)"): "the budget is 36.5 million; whole templates use 34.75 of it",
        ("Thin MixtureEnsembles, C100", "FLOPS (x)"): "1.005",
    }
    return Run(
        rows=(*_cifar("cifar10", "C10"), *_cifar("cifar100", "C100")), printed=TABLES, remarks=sizes, departs=DEPARTS
    )


@item(
    "mixture/table5",
    "Table 5",
    shows="Top-1 accuracy of ResNet-50 on ImageNet",
    needs="ImageNet, several GPUs",
    status="needs a GPU and ImageNet",
)
def table5(scale: str) -> Run:
    methods: dict[str, Method] = {
        "Baseline": Single(),
        "BatchEnsemble": BatchEnsemble(members=4, init="normal"),
        "MIMO": Mimo(members=2, rho=0.6, repeats=2),
        "MixtureEnsemble": Mixture(members=4, budget=1.0, disjoint=True),
        "Naive Ensemble": Deep(members=4),
        "MixtureEnsemble 51M": Mixture(members=4, budget=2.0, disjoint=True),
    }
    found = rows(methods, IMAGENET, data="imagenet", model="resnet50:stem=imagenet", seeds=(0,))
    remarks = {
        ("MIMO", "Params (M)"): "27.6 with the two members of the MIMO paper (29.7 with three, as this table says)",
        ("BatchEnsemble", "Params (M)"): "25.8 with all layers scaled",
        ("Naive Ensemble", "Params (M)"): "4 times the rounded 25.6",
        ("MixtureEnsemble", "Params (M)"): "the budget is of weights; norms and coefficients come on top",
        ("MixtureEnsemble 51M", "Params (M)"): "templates are whole: not all of the budget can be used",
    }
    norms = "weight decay is on batch norms too: the recipe cannot leave them out"
    others = "all rows have this paper's recipe; the paper quotes the other methods' numbers"
    return Run(rows=found, printed=TABLE5, remarks=remarks, departs=(IMAGENET_LACKS, norms, others))


@item(
    "mixture/figure3",
    "Figure 3",
    shows="Accuracy by the number of parameters, and by the number of members",
    needs="CIFAR-100, a GPU (allocation of templates: nothing)",
    status="reduced",
)
def figure3(scale: str) -> Run:
    blob = Mixture(members=4, budget=7_000_000, mode="blob")
    if scale == "cpu":
        budgets = {f"P = {b:g}x": _cpu_mixture(b) for b in (1.0, 2.0, 3.3)}
        budgets["P = 0.7x"] = Mixture(members=4, budget=0.7, mode="blob")
        members = {f"M = {m}": Mixture(members=m, budget=1.0) for m in (2, 6)}
        more = tuple(("Accuracy", f"P = {b:g}x", f"P = {a:g}x") for a, b in ((0.7, 1), (1, 2), (2, 3.3)))
        four = tuple(("Accuracy", "P = 1x", other) for other in members)  # "ensemble size 4 is best"
        return Run(rows=cpu_rows({**budgets, **members}), claims=(*more, *four), reduced=(CPU_BANKS,))
    budgets = {
        "P = 7M, M = 4": blob,
        "P = 15M, M = 4": Mixture(members=4, budget=15_000_000),
        "P = 36.5M, M = 4": Mixture(members=4, budget=1.0),
        "P = 120M, M = 4": Mixture(members=4, budget=LARGE),
    }
    members = {
        f"{name}, M = {m}": replace(budgets[f"{name}, M = 4"], members=m)
        for name in ("P = 15M", "P = 36.5M", "P = 120M")
        for m in (2, 3, 6, 8)
    }
    blobs = "7M is the single-blob mode: by type it would exceed its budget"
    found = rows({**budgets, **members}, RECIPE, data="cifar100", model=WIDE, seeds=SEEDS)
    return Run(
        rows=found, departs=(*DEPARTS[:2], blobs, "members other than 4 are not stated in the text: chosen here")
    )


_DIVERSE = ("Naive Ensemble", "MixtureEnsembles", "MixtureEnsembles 120M", "BatchEnsembles + EnsembleBN", "MIMO")


@item(
    "mixture/table6",
    "Table 6",
    shows="Diversity: disagreement of two members over the error of one",
    needs="the CIFAR-100 cells of Tables 2 to 4",
    status="reduced",
)
def table6(scale: str) -> Run:
    if scale == "cpu":
        printed = {label: {c: n for c, n in TABLE6[label].items() if c != "Params (M)"} for label in TABLE6}
        found = cpu_rows({label: CPU_METHODS[label] for label in _DIVERSE})
        return Run(rows=found, printed=printed, reduced=(CPU_BANKS,))
    by_label = {row.label: row for row in _cifar("cifar100", "C100")}
    found = tuple(replace(by_label[f"{label}, C100"], label=label) for label in _DIVERSE)
    why = "see Tables 1 to 4"
    remarks = {(row, "Params (M)"): why for row in TABLE6 if row != "Naive Ensemble"}
    remarks["MixtureEnsembles", "Accuracy"] = "82.2 in Table 2"
    return Run(rows=found, printed=TABLE6, remarks=remarks, departs=DEPARTS)


@item(
    "mixture/figure4",
    "Figure 4",
    shows="Accuracy on the line between two members in parameter space, by number of parameters",
    needs="trained ensembles of Figure 3",
    status="reduced",
)
def figure4(scale: str) -> Run:
    if scale == "cpu":
        return Run(rows=cpu_rows({f"P = {b:g}x": _cpu_mixture(b) for b in (1.0, 3.3)}), reduced=(CPU_BANKS,))
    found = tuple(row for row in figure3.run("paper").rows if row.label.endswith("M = 4"))
    return Run(rows=found, departs=("batch norm is in training mode between the members, as in the paper",))


ITEMS = (table1_4, table5, figure3, table6, figure4)
