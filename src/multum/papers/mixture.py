"""MixtureEnsembles: its tables and figures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..methods import BatchEnsemble, Deep, Mimo, Mixture, Single
from . import mimo
from .base import NEEDS_IMAGENET, Row, Run, item
from .basins import between
from .charts.items import scaling
from .exact import allocation
from .regimes import REGIMES
from .results import read
from .settings import CIFAR_C, IMAGENET_LACKS, MOMENTUM, SGD, rows

TABLES, REMARKS, DEPARTS = read("mixture")
TABLE1, TABLE6 = TABLES["Tables 1 to 4"], TABLES["Table 6"]  # the first: C10, then C100 and its corrupted images
SEEDS = (0, 1, 2)
WIDE = "wrn-28-10"
_STEPS = {"epochs": 200, "milestones": (60, 120, 180), "factor": 0.2, "lr": 0.1}
RECIPE = {**SGD, **_STEPS, "batch_size": 128, "weight_decay": 5e-4, "ghost": 64}
THIN = {**RECIPE, "epochs": 1000, "milestones": (300, 600, 900)}
_RATE = {"schedule": "multistep", "epochs": 90, "milestones": (30, 60, 80), "factor": 0.1, "warmup": 10, "lr": 1.6}
_BATCH = {"batch_size": 1024, "label_smoothing": 0.1, "weight_decay": 1e-4, "flip": True}
IMAGENET = {**MOMENTUM, **_RATE, **_BATCH, "nesterov": False}
LARGE = 120_000_000
THEIRS = {  # the rows of MIMO's tables that the paper quotes
    "Baseline": "Deterministic",
    "BatchEnsembles": "BatchEnsemble (M = 4)",
    "MIMO": "MIMO (M = 3)",
    "BatchEnsembles + EnsembleBN": "BatchEnsemble (M = 4)",
    "Naive Ensemble": "Ensemble (M = 4)",
}


def _cifar(data: str, name: str) -> tuple[Row, ...]:
    """The rows of Tables 1 to 4 on one data set, labelled "Method, C10"."""
    common: dict[str, Any] = {"seeds": SEEDS, "shift": CIFAR_C if name == "C100" else ()}
    ours = {
        "MixtureEnsembles": Mixture(members=4, budget=1.0),
        "MixtureEnsembles 120M": Mixture(members=4, budget=LARGE),
    }
    own = rows(ours, RECIPE, name, data=data, model=WIDE, **common)
    if name == "C100":
        thin = Mixture(members=4, budget=36_500_000, singles="banks")
        own += rows({"Thin MixtureEnsembles": thin}, THIN, name, data=data, model="wrn-28-5", **common)
    quoted = {row.label: row for row in mimo.cifar_rows(data)}
    cited = {label: replace(quoted[theirs], label=f"{label}, {name}", **common) for label, theirs in THEIRS.items()}
    norms = BatchEnsemble(members=4, init="normal", norm="own")
    cited["BatchEnsembles + EnsembleBN"] = replace(cited["BatchEnsembles + EnsembleBN"], method=norms)
    return (*cited.values(), *own)


# The rows of Tables 1 to 4 in R3, whose network has no norms for BatchEnsemble's members to own.
SMALL = {
    "Baseline": "one network",
    "BatchEnsembles": "BatchEnsemble",
    "MIMO": "MIMO (M = 3)",
    "MixtureEnsembles": "MixtureEnsembles, 1x",
    "MixtureEnsembles 120M": "MixtureEnsembles, 3.3x",
    "Naive Ensemble": "Deep Ensembles",
}
BUDGETS = {f"P = {size}": f"MixtureEnsembles, {size}" for size in ("1x", "2x", "3.3x")}
CLEAN = ("Accuracy", "NLL", "ECE (%)")
HEADLINE = (("MixtureEnsembles", "BatchEnsembles"), ("MixtureEnsembles 120M", "Naive Ensemble"))
CORRUPTED = ("Corrupt", "cNLL", "cECE (%)")


@item("mixture/table1-4", "Tables 1, 2, 3 and 4", "CIFAR-10, CIFAR-100, CIFAR-100-C, a GPU")
def table1_4(scale: str) -> Run:
    """Accuracy, likelihood and calibration on CIFAR-10, CIFAR-100 and corrupted images, by number of parameters."""
    stated = DEPARTS["Tables 1 to 4"]
    if scale == "cpu":  # without the sizes, which are another network's
        sources = ((", C10", CLEAN), (", C100", CORRUPTED))
        printed = {
            label: {c: TABLE1[label + n][c] for n, columns in sources for c in columns if c in TABLE1[label + n]}
            for label in SMALL
        }
        departs = (stated[1], *DEPARTS["Corrupted images"])
        points = REGIMES["R3"].points(SMALL, corrupted=True)
        columns = ("calibrated NLL",)
        return Run(rows=points, printed=printed, columns=columns, headline=HEADLINE, departs=departs)
    every = (*_cifar("cifar10", "C10"), *_cifar("cifar100", "C100"))
    return Run(rows=every, printed=TABLE1, remarks=REMARKS["Tables 1 to 4"], departs=stated)


@item("mixture/table5", "Table 5", "ImageNet, several GPUs", status=NEEDS_IMAGENET)
def table5(scale: str) -> Run:
    """Top-1 accuracy of ResNet-50 on ImageNet."""
    methods = {
        "Baseline": Single(),
        "BatchEnsemble": BatchEnsemble(members=4, init="normal"),
        "MIMO": Mimo(members=2, rho=0.6, repeats=2),
        "MixtureEnsemble": Mixture(members=4, budget=1.0, disjoint=True),
        "Naive Ensemble": Deep(members=4),
        "MixtureEnsemble 51M": Mixture(members=4, budget=2.0, disjoint=True),
    }
    every = rows(methods, IMAGENET, data="imagenet", model="resnet50:stem=imagenet", seeds=(0,))
    departs = (IMAGENET_LACKS, *DEPARTS["Table 5"])
    return Run(rows=every, printed=TABLES["Table 5"], remarks=REMARKS["Table 5"], departs=departs)


@item(
    "mixture/figure3",
    "Figure 3",
    "CIFAR-100, a GPU (allocation of templates: nothing)",
    exact=allocation,
    chart=scaling,
)
def figure3(scale: str) -> Run:
    """Accuracy by the number of parameters, and by the number of members."""
    if scale == "cpu":
        budget = {point: point.removeprefix("P = ") for point in BUDGETS}
        members = {f"M = {m}": f"MixtureEnsembles, 1x, M = {m}" for m in (2, 8)}
        budget |= dict.fromkeys(members, "1x")
        more = tuple(("Accuracy", f"P = {b}", f"P = {a}") for a, b in (("1x", "2x"), ("2x", "3.3x")))
        four = tuple(("Accuracy", "P = 1x", label) for label in members)  # "ensemble size 4 is best"
        return Run(rows=REGIMES["R3"].points({**BUDGETS, **members}, P=budget), claims=(*more, *four))
    budgets = {
        "7M": Mixture(members=4, budget=7_000_000, mode="blob"),
        "15M": Mixture(members=4, budget=15_000_000),
        "36.5M": Mixture(members=4, budget=1.0),
        "120M": Mixture(members=4, budget=LARGE),
    }
    every: list[Row] = []
    points = [(size, 4) for size in budgets] + [(size, m) for size in [*budgets][1:] for m in (2, 3, 6, 8)]
    for size, m in points:
        named = {f"P = {size}, M = {m}": replace(budgets[size], members=m)}
        every += rows(named, RECIPE, data="cifar100", model=WIDE, seeds=SEEDS, varied={"P": size})
    return Run(rows=tuple(every), departs=(*DEPARTS["Tables 1 to 4"][:2], *DEPARTS["Figure 3"]))


@item("mixture/table6", "Table 6", "the CIFAR-100 cells of Tables 2 to 4")
def table6(scale: str) -> Run:
    """Diversity: disagreement of two members over the error of one."""
    if scale == "cpu":
        points = REGIMES["R3"].points({label: SMALL[label] for label in TABLE6 if label in SMALL}, corrupted=True)
        printed = {row.label: {c: n for c, n in TABLE6[row.label].items() if c != "Params (M)"} for row in points}
        return Run(rows=points, printed=printed, headline=HEADLINE)
    by_label = {row.label: row for row in _cifar("cifar100", "C100")}
    every = tuple(replace(by_label[f"{label}, C100"], label=label) for label in TABLE6)
    return Run(rows=every, printed=TABLE6, remarks=REMARKS["Table 6"], departs=DEPARTS["Tables 1 to 4"])


@item("mixture/figure4", "Figure 4", "trained ensembles of Figure 3", extra=between)
def figure4(scale: str) -> Run:
    """Accuracy on the line between two members in parameter space, by number of parameters."""
    if scale == "cpu":
        points = REGIMES["R3"].points(BUDGETS, corrupted=True)
        return Run(rows=tuple(replace(row, seeds=SEEDS) for row in points))
    four = tuple(row for row in figure3.run("paper").rows if row.method.members == 4)
    return Run(rows=four, departs=DEPARTS["Figure 4"])
