"""Packed-Ensembles: the tables and figures of the paper and of its appendix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

from ..methods import BatchEnsemble, Deep, Masksembles, Method, Mimo, Packed, Single
from ..methods.batch_ensemble import SHORTCUTS
from .base import NEEDS_IMAGENET, UCI, Row, Run, item
from .charts.items import circles, divergence_chart, regressions, shift_chart, sweep, together
from .exact import divergence, grouped, params, settings
from .inside import speeds
from .regimes import REGIMES
from .results import Table, read
from .settings import A3, CIFAR, CIFAR_C, CIFAR_RECIPES, IMAGENET_LACKS, cpu_rows, rows

TABLES, REMARKS, DEPARTS = read("packed")
SEEDS = (0, 1, 2, 3, 4)
BEST_EPOCH = "the paper keeps the epoch with the best test accuracy; the last epoch is kept here"
NETWORKS = {"R18": "resnet18", "R50": "resnet50", "WR": "wrn-28-10:variant=meliketoy"}

METHODS: dict[str, Method] = {
    "Single Model": Single(),
    "BatchEnsemble": BatchEnsemble(members=4, init="normal", plain=SHORTCUTS),
    "MIMO": Mimo(members=4, rho=1),
    "Masksembles": Masksembles(members=4, scale=2),
    "Packed-Ensembles": Packed(members=4, alpha=2, gamma=2),
    "Deep Ensembles": Deep(members=4),
}
# The rows of Table 1 in R1.
SMALL = {
    **{label: label for label in METHODS},
    "Single Model": "one network",
    "MIMO": "MIMO (M = 4), rho 1",
}
GAMMA = "gamma: 1 here"


def cifar_rows(data: str, network: str, methods: Mapping[str, Method] = METHODS, **changed: Any) -> tuple[Row, ...]:
    """The rows of Table 1 for one data set and one network, labelled by their methods."""
    every: tuple[Row, ...] = ()
    method: Any
    for label, method in methods.items():
        model, recipe = NETWORKS[network], CIFAR_RECIPES[data, network]
        if method.name == "packed" and network == "WR":
            model += ",bias=edges"
            method = replace(method, gamma=1) if (data, method.gamma) == ("C100", 2) else method
        if method.name == "batchensemble" and network == "R50":
            recipe = {**recipe, "lr": 0.08}
            method = replace(method, plain=())
        common = {"data": CIFAR[data], "model": model, "recipe": recipe, "seeds": SEEDS, "ood": ("svhn",)}
        every += rows({label: method}, **{**common, **changed})
    return every


def _named(methods: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The methods with more in their labels."""
    return {", ".join((label, *names)): method for label, method in methods.items()}


def _on_cifar100(
    scale: str, methods: Mapping[str, Method], small: Mapping[str, str], printed: Table | None = None, **about: Any
) -> Run:
    """The Run of methods with ResNet-50 on CIFAR-100; at a CPU's scale rows of R1, with what is printed of them."""
    printed, reduced, departs = printed or {}, about.pop("reduced", ()), about.pop("departs", (BEST_EPOCH,))
    shift = about.pop("shift", ())
    if scale == "cpu":
        points = REGIMES["R1"].points(small, corrupted=True)
        return Run(rows=points, printed=_near(printed, points), reduced=reduced, **about)
    return Run(rows=cifar_rows("C100", "R50", methods, shift=shift), printed=printed, departs=departs, **about)


def _about(name: str) -> dict[str, Any]:
    """What a Run says of a table: the printed numbers, remarks on them, and departures."""
    return {"printed": TABLES[name], "remarks": REMARKS[name], "departs": DEPARTS[name]}


@item("packed/figure1", "Figure 1", "the cells of Table 1, and timings on a GPU", chart=circles)
def figure1(scale: str) -> Run:
    """Accuracy against images per second and size of six methods on CIFAR-100."""
    reduced = (GAMMA, "images per second of this CPU")
    return _on_cifar100(scale, _named(METHODS, "C100", "R50"), SMALL, reduced=reduced)


@item("packed/figure3-4", "Figures 2, 3 and 4", status="exact", exact=grouped)
def figure3_4(scale: str) -> Run:
    """That one grouped network, with its masks, equals M small networks (and the diagrams of the other papers)."""
    return Run(rows=())


@item("packed/table1", "Table 1, performance", "CIFAR-10, CIFAR-100, SVHN; weeks of a GPU")
def table1(scale: str) -> Run:
    """Accuracy, calibration and OOD detection of six methods on CIFAR-10 and CIFAR-100, three networks, five runs."""
    printed = TABLES["Table 1, performance"]
    if scale == "cpu":
        near = {label: printed[f"{label}, C10, R18"] for label in SMALL}
        headline = tuple(("Packed-Ensembles", other) for other in ("Single Model", "Deep Ensembles"))
        reduced = (GAMMA, "printed numbers are those of C10, R18")
        points = REGIMES["R1"].points(SMALL, corrupted=True)
        columns = ("calibrated NLL",)
        return Run(rows=points, printed=near, columns=columns, headline=headline, reduced=reduced)
    every = (cifar_rows(data, network, _named(METHODS, data, network)) for data, network in CIFAR_RECIPES)
    return Run(rows=sum(every, ()), printed=printed, departs=(BEST_EPOCH,))


@item("packed/table1-cost", "Table 1, efficiency", status="exact")
def table1_cost(scale: str) -> Run:
    """Parameters and mult-adds of six methods on three networks."""
    return Run(rows=table1.run("paper").rows, **_about("Table 1, efficiency"))


@item("packed/table2", "Table 2", "ImageNet, ImageNet-O, ImageNet-R, Textures; 2 to 8 A100", status=NEEDS_IMAGENET)
def table2(scale: str) -> Run:
    """Accuracy, calibration, OOD detection and shift of six methods on ImageNet."""
    every: tuple[Row, ...] = ()
    for network, alpha, plain in (("R50", 3, SHORTCUTS), ("R50x4", 2, ())):
        methods = {
            **METHODS,
            "BatchEnsemble": BatchEnsemble(members=4, init="normal", plain=plain),
            "Packed-Ensembles": Packed(members=4, alpha=alpha, gamma=1),
            "MIMO": Mimo(members=4),
        }
        model = f"{network.replace('R', 'resnet')}:stem=imagenet"
        for label, method in methods.items():
            recipe = {**A3, "clip": 5e-4} if method.name == "batchensemble" else dict(A3)
            if method.name == "masksembles" and network == "R50x4":
                recipe["batch_size"] = 1120
            ood = ("textures", "imagenet_o")
            every += rows({label: method}, recipe, network, model=model, data="imagenet", seeds=(0,), ood=ood)
    return Run(rows=every, printed=TABLES["Table 2"], departs=(IMAGENET_LACKS,))


DETECTION = ("accuracy", "aupr")
_EXPECTED = "The text expects a rise with alpha up to a plateau, no change with gamma, and a rise with M."
_WIDTHS = "Width 1 is the network itself. The text sees accuracy rise with the width, and AUPR stay as it is."
_NEEDS = "CIFAR-100, SVHN, a GPU"


def _packed(*triples: tuple[int, int, int]) -> dict[str, Method]:
    """Packed-Ensembles by (alpha, M, gamma)."""
    return {f"PE-({a},{m},{g})": Packed(alpha=a, members=m, gamma=g) for a, m, g in triples}


def _near(printed: Table, every: tuple[Row, ...]) -> Table:
    """What is printed of these rows."""
    return {row.label: printed[row.label] for row in every if row.label in printed}


@item(
    "packed/table5",
    "Figures 6 and 7, Table 5",
    _NEEDS,
    exact=params,
    chart=together(
        sweep("alpha", DETECTION, "Packed-Ensembles by alpha", _EXPECTED),
        sweep("gamma", DETECTION, "Packed-Ensembles by gamma", _EXPECTED, name="gamma", single_points=False),
        sweep("M", DETECTION, "Packed-Ensembles by M", _EXPECTED, name="members", single_points=False),
    ),
)
def table5(scale: str) -> Run:
    """Accuracy and OOD detection of Packed-Ensembles by alpha, gamma and M, ResNet-50 on CIFAR-100."""
    by = {"alpha": "alpha", "M": "members", "gamma": "gamma"}
    if scale == "cpu":
        others = ((1, 4, 1), (3, 4, 1), (2, 2, 1), (2, 8, 1), (2, 4, 2))
        labels = {f"PE-({a},{m},{g})": f"Packed-Ensembles ({a}, {m}, {g})" for a, m, g in others}
        points = REGIMES["R1"].points({"PE-(2,4,1)": "Packed-Ensembles", **labels}, by)
        floor = ("the floor of channels per subgroup: 4 here where gamma is 2, 64 in the paper",)
        return Run(rows=points, printed=_near(TABLES["Table 5"], points), reduced=floor)
    grid = _packed(*((a, 4, g) for g in (1, 2, 4) for a in (1, 2, 3, 4) if (a, g) != (1, 4)))
    grid |= _packed(*((a, m, 1) for m in (2, 8, 16) for a in (1, 2, 3, 4) if a <= m))
    departs = (BEST_EPOCH, *DEPARTS["Table 5"])
    return Run(rows=cifar_rows("C100", "R50", grid, by=by), printed=TABLES["Table 5"], departs=departs)


@item("packed/table6", "Table 6", _NEEDS, exact=params)
def table6(scale: str) -> Run:
    """OOD detection by five criteria: maximum probability, maximum logit, entropy, mutual information, vote share."""
    grid = _packed((2, 4, 1), (3, 8, 1), (4, 8, 2), (6, 8, 4), (8, 16, 1))
    small = {"PE-(2,4,1)": "Packed-Ensembles", "PE-(2,8,1)": "Packed-Ensembles (2, 8, 1)"}
    headline = tuple(("ML", other) for other in ("MSP", "MI", "v"))  # "the maximum logit"
    return _on_cifar100(scale, grid, small, printed=TABLES["Table 6"], rivals=("AUPR", "AUC"), headline=headline)


@item("packed/table7", "Table 7", _NEEDS)
def table7(scale: str) -> Run:
    """Diversity and performance by the sources of chance: initialisation, batches.

    Members that begin alike have `init="pretrained"`, and batches of their own are the recipe's order "own".
    """
    chance = {
        "none": ("pretrained", "same"),
        "DI": ("fresh", "same"),
        "DB": ("pretrained", "own"),
        "DI+DB": ("fresh", "own"),
    }
    printed, departs = TABLES["Table 7"], DEPARTS["Table 7"]
    if scale == "cpu":
        words = {"none": "equal beginnings and batches", "DI": "own beginnings", "DB": "own batches"}
        labels = {**{label: f"thin ensemble, {own}" for label, own in words.items()}, "DI+DB": "thin ensemble"}
        near = {label: printed[f"{label}, R18"] for label in chance}
        return Run(rows=REGIMES["R1"].points(labels), printed=near, departs=departs)
    every: tuple[Row, ...] = ()
    for label, (init, order) in chance.items():
        method = Deep(members=4, init=init)
        for network in ("R18", "R50"):
            model, recipe = f"{NETWORKS[network]}:width=0.5", {**CIFAR_RECIPES["C100", network], "order": order}
            every += cifar_rows("C100", network, {f"{label}, {network}": method}, model=model, recipe=recipe)
    return Run(rows=every, printed=printed, departs=(*departs, BEST_EPOCH))


@item(
    "packed/figure8", "Figure 8", _NEEDS, chart=sweep("width", DETECTION, "One network by its width", _WIDTHS, log=True)
)
def figure8(scale: str) -> Run:
    """Accuracy and OOD detection of ResNet-18 and ResNet-50 by their width."""
    columns = ("Acc", "AUPR")
    every: tuple[Row, ...] = ()
    if scale == "cpu":
        widths = {0.25: "quarter width", 0.5: "half width", 1: "one network"}
        labels = {f"width {width:g}": theirs for width, theirs in widths.items()}
        every = REGIMES["R1"].points(labels, width=dict(zip(labels, widths, strict=True)))
        return Run(rows=every, columns=columns, claims=tuple(("Acc", b.label, a.label) for a, b in pairwise(every)))
    for network, width in product(("R18", "R50"), (0.25, 0.5, 0.75, 1, 1.5, 2)):
        model, varied = f"{NETWORKS[network]}:width={width:g}", {"network": network, "width": width}
        every += cifar_rows("C100", network, {f"{network}, width {width:g}": Single()}, model=model, varied=varied)
    return Run(rows=every, columns=columns, departs=(BEST_EPOCH, *DEPARTS["Figure 8"]))


@item("packed/table4", "Tables 3 and 4", status="exact", exact=settings)
def table4(scale: str) -> Run:
    """The notation, and the hyper-parameters of every CIFAR experiment."""
    every = tuple(row for d, n in CIFAR_RECIPES for row in cifar_rows(d, n, {f"{d}, {n}": Single()}, ood=()))
    return Run(rows=every, **_about("Table 4"))


@item("packed/figure5", "Figure 5", status="exact", exact=divergence, chart=divergence_chart)
def figure5(scale: str) -> Run:
    """The divergence of a sparse layer from a dense one, and its bound, against the share of weights kept."""
    return Run(rows=(), departs=DEPARTS["Figure 5"])


@item("packed/table8", "Table 8", "an RTX 3090; here relative to one network on the CPU, in 32 bits", extra=speeds)
def table8(scale: str) -> Run:
    """Seconds per epoch and images per second of six methods, in 32 and 16 bits."""
    small = scale == "cpu"
    methods: dict[str, Method] = {
        "Single Model": Single(),
        "Packed-Ensembles-(2,4,1)": Packed(members=4, alpha=2, gamma=1),
        "Packed-Ensembles-(2,4,2)": Packed(members=4, alpha=2, gamma=2, min_channels=4 if small else 64),
        "Deep Ensembles": Deep(members=4),
        "MIMO": Mimo(members=4, rho=1),
        "BatchEnsemble": BatchEnsemble(members=4) if small else BatchEnsemble(members=4, init="normal"),
    }
    if small:
        ours = "Packed-Ensembles-(2,4,1)"
        others = (("MIMO", "Single Model"), ("BatchEnsemble", "Deep Ensembles"))
        pairs = ((ours, "Single Model"), (ours, "Deep Ensembles"), *others)
        reduced = ("16 bits are left out",)
        every = cpu_rows(methods, recipe={"epochs": 1}, examples=2000, ood=(), shift=(), shift_examples=None)
        return Run(rows=every, printed=TABLES["Table 8"], headline=pairs, reduced=reduced)
    return Run(rows=cifar_rows("C100", "R50", methods), printed=TABLES["Table 8"], remarks=REMARKS["Table 8"])


@item("packed/figure9", "Figure 9", "CIFAR-100-C, a GPU", chart=shift_chart)
def figure9(scale: str) -> Run:
    """Accuracy and calibration error on corrupted images, by severity."""
    ours, columns = "Packed-Ensembles", ("cAcc", "cECE")
    # "the highest accuracy and lowest ECE"
    best = tuple((column, ours, label) for column in columns for label in METHODS if label != ours)
    departs = (BEST_EPOCH, *DEPARTS["Figure 9"])
    return _on_cifar100(
        scale, METHODS, SMALL, shift=CIFAR_C, reduced=(GAMMA,), columns=columns, claims=best, departs=departs
    )


@item("packed/appendix-j", "Appendix J", "15 trainings on CIFAR-100, a GPU")
def appendix_j(scale: str) -> Run:
    """The standard deviation of accuracy over five runs: one network, Deep Ensembles, Packed-Ensembles."""
    printed = TABLES["Appendix J"]
    if scale == "cpu":
        points = REGIMES["R1"].points({label: SMALL[label] for label in printed}, corrupted=True)
        every = tuple(replace(row, seeds=SEEDS) for row in points)
        return Run(rows=every, printed=printed, reduced=(GAMMA,))
    return _on_cifar100(scale, {label: METHODS[label] for label in printed}, {}, printed=printed)


@item("packed/table9", "Table 9", "CIFAR-10, SVHN, a GPU (parameters: nothing)")
def table9(scale: str) -> Run:
    """Packed-Ensembles against one ResNeXt of the same size: groups alone are not enough."""
    method, printed = Packed(members=4, alpha=2, gamma=1), TABLES["Table 9"]
    if scale == "cpu":
        without = "an MLP has no groups: a plain network stands beside, and nothing is said of groups alone"
        beside = "printed numbers are those of PE ResNet-50"
        points = REGIMES["R1"].points({"PE MLP": "Packed-Ensembles", "one MLP": "one network"}, corrupted=True)
        every = tuple(replace(row, seeds=SEEDS) for row in points)
        return Run(rows=every, printed={"PE MLP": printed["PE ResNet-50"]}, reduced=(without, beside))
    packed = {"PE ResNet-50": method}
    grouped_network = cifar_rows("C10", "R50", {"ResNeXt-50": Single()}, model="resnext50")
    return Run(rows=(*cifar_rows("C10", "R50", packed), *grouped_network), printed=printed, departs=(BEST_EPOCH,))


@item("packed/table10", "Table 10", status="exact")
def table10(scale: str) -> Run:
    """Parameters and mult-adds of six methods on ImageNet."""
    return Run(rows=table2.run("paper").rows, **_about("Table 10"))


@item("packed/table11", "Table 11", "the UCI sets with their splits", status="full", chart=regressions)
def table11(scale: str) -> Run:
    """Error and likelihood of Packed-Ensembles and Deep Ensembles on nine regression sets."""
    recipe = {"optimizer": "adam", "lr": 1e-2, "weight_decay": 0.0, "schedule": "cosine", "epochs": 40}
    methods = {"PE": Packed(members=3, alpha=2, gamma=1), "DE": Deep(members=3), "Single": Single()}
    every: tuple[Row, ...] = ()
    for (name, (*_, splits)), (label, method) in product(UCI.items(), methods.items()):
        model = f"mlp:hidden={400 if name == 'protein' else 200}"
        common: dict[str, Any] = {"data": f"uci_{name}", "model": model, "seeds": tuple(range(splits))}
        varied = {"method": label, "data": name}
        every += rows({label: method}, {**recipe, "batch_size": 100}, name, varied=varied, **common)
    return Run(rows=every, **_about("Table 11"))
