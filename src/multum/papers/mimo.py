"""MIMO, training independent subnetworks: its tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from ..methods import BatchEnsemble, Deep, McDropout, Method, Mimo, Multihead, Single, TreeNet
from .base import NEEDS_IMAGENET, Row, Run, item
from .basins import subnetworks
from .bias import bias_and_variance
from .charts.items import diversity, sweep, together
from .inside import by_sparsity, listening, paths
from .regimes import L1, REGIMES
from .results import read
from .settings import CIFAR_C, IMAGENET_LACKS, MOMENTUM, SGD, rows

TABLES, REMARKS, DEPARTS = read("mimo")
SEEDS = (0, 1, 2)
WIDE = "wrn-28-10:variant=edward2"
# Weight decay is twice the paper's L2 factor: its code adds l2 * |w|^2, torch steps by weight_decay * w.
_STEPS = {"factor": 0.2, "warmup": 1, "milestones": (80, 160, 180)}
BASELINE: dict[str, Any] = {**SGD, **_STEPS, "epochs": 200, "batch_size": 512, "lr": 0.4, "weight_decay": 4e-4}
LONG = {**BASELINE, "epochs": 250, "milestones": (100, 200, 225)}
BATCHED = {**LONG, "batch_size": 128, "lr": 0.1}  # every image counts four times: 512 rows
OURS = {**BATCHED, "weight_decay": 6e-4}
_RATE = {"schedule": "multistep", "factor": 0.1, "warmup": 5, "lr": 1.6, "epochs": 90, "milestones": (30, 60, 80)}
IMAGENET = {**MOMENTUM, **_RATE, "batch_size": 4096, "weight_decay": 2e-4, "flip": True}
IMAGENET_LONG = {**IMAGENET, "epochs": 150, "milestones": (50, 100, 133)}
IMAGENET_OURS = {**IMAGENET_LONG, "batch_size": 2048, "lr": 0.8}
PLAIN_R50, WIDE_R50 = "resnet50:stem=imagenet", "resnet50:stem=imagenet,width=2"
QUALITY = ("accuracy", "nll")
_GPUS = "CIFAR-10, CIFAR-100, GPUs"


def _rows(settings: Mapping[str, tuple[Method, str, Mapping[str, Any]]], **common: Any) -> tuple[Row, ...]:
    """Rows by label: method, network and recipe, with all else in common."""
    every = settings.items()
    return sum((rows({label: m}, recipe, model=model, **common) for label, (m, model, recipe) in every), ())


def _cifars(methods: Mapping[str, Method], recipe: Mapping[str, Any], **varied: Any) -> tuple[Row, ...]:
    """Rows on both data sets."""
    return tuple(
        row
        for data, name in (("cifar10", "C10"), ("cifar100", "C100"))
        for row in rows(methods, recipe, name, data=data, model=WIDE, seeds=SEEDS, **varied)
    )


def cifar_rows(data: str) -> tuple[Row, ...]:
    """The eight rows of Tables 1 and 2."""
    settings: dict[str, tuple[Method, str, dict[str, Any]]] = {
        "Deterministic": (Single(), WIDE, BASELINE),
        "Dropout": (McDropout(members=1, rate=0.1), f"{WIDE},dropout=0.1", {**BASELINE, "lr": 0.2}),
        "Naive multihead (M = 3)": (Multihead(members=3), WIDE, LONG),
        "MIMO (M = 3)": (Mimo(members=3, rho=0, repeats=4), WIDE, OURS),
        "TreeNet (M = 3)": (TreeNet(members=3), WIDE, LONG),
        "BatchEnsemble (M = 4)": (BatchEnsemble(members=4, init="normal"), WIDE, BATCHED),
        "Thin Ensemble (M = 4)": (Deep(members=4), "wrn-28-5:variant=edward2", BASELINE),
        "Ensemble (M = 4)": (Deep(members=4), WIDE, BASELINE),
    }
    return _rows(settings, data=data, seeds=SEEDS, shift=CIFAR_C)


# The rows of Table 1 in R2.
SMALL = {
    "Deterministic": "one network",
    "Dropout": "dropout",
    "Naive multihead (M = 3)": "multihead (M = 3)",
    "MIMO (M = 3)": "MIMO (M = 3)",
    "TreeNet (M = 3)": "TreeNet (M = 3)",
    "BatchEnsemble (M = 4)": "BatchEnsemble (M = 4)",
    "Thin Ensemble (M = 4)": "thin ensemble (M = 4)",
    "Ensemble (M = 4)": "Deep Ensembles (M = 4)",
}


@item("mimo/figure2", "Figure 2", "nothing but its function", status="full", extra=bias_and_variance)
def figure2(scale: str) -> Run:
    """Error, bias and variance of MIMO on a synthetic regression, by number of members."""
    recipe = {"optimizer": "adam", "lr": 1e-2, "weight_decay": 0.0, "schedule": "cosine", "epochs": 500}
    methods = {f"M = {m}": Mimo(members=m) for m in range(1, 6)}
    common: dict[str, Any] = {"data": "sines", "model": "mlp:hidden=32+128", "seeds": tuple(range(20))}

    better = tuple(("RMSE", f"M = {m}", "M = 1") for m in (2, 3))  # "improved generalization performance"
    every = rows(methods, {**recipe, "batch_size": 64}, **common)
    return Run(rows=every, columns=("RMSE", "NLL"), claims=better, departs=DEPARTS["Figure 2"])


def _small_cnn() -> tuple[Row, ...]:
    methods = {"MIMO (M = 3)": Mimo(members=3), "Naive multihead (M = 3)": Multihead(members=3)}
    recipe = {"optimizer": "sgd", "lr": 0.02, "warmup": 1, "weight_decay": 1e-4, "epochs": 20, "states": 1}
    return rows(methods, {**recipe, "batch_size": 128}, data="cifar10", model="small-cnn", seeds=(0,))


@item("mimo/figure3", "Figure 3", "CIFAR-10", status="full", extra=subnetworks)
def figure3(scale: str) -> Run:
    """Accuracy and disagreement on the plane through three subnetworks: MIMO's are apart, a multihead's are not."""
    return Run(rows=_small_cnn(), departs=(*DEPARTS["Figure 4, middle-right"], *DEPARTS["Figure 3"]))


@item("mimo/figure4-left", "Figure 4, left and middle-left", "trained MIMO networks on CIFAR-10", extra=listening)
def figure4_left(scale: str) -> Run:
    """Variance of every pre-activation by each input: almost all depend on one input alone."""
    if scale == "cpu":
        labels = [f"MIMO (M = {m})" for m in (2, 3)]
        return Run(rows=REGIMES["R2"].points(dict(zip(labels, labels, strict=True)), corrupted=True))
    methods = {f"MIMO (M = {m})": Mimo(members=m, repeats=4) for m in (2, 3)}

    return Run(rows=rows(methods, OURS, data="cifar10", model=WIDE, seeds=(0,)), departs=DEPARTS["Figure 4, left"])


@item("mimo/figure4-trajectories", "Figure 4, middle-right", "CIFAR-10", status="full", extra=paths)
def figure4_trajectories(scale: str) -> Run:
    """The paths of three subnetworks through function space while they train."""
    return Run(rows=_small_cnn()[:1], departs=DEPARTS["Figure 4, middle-right"])


@item("mimo/figure4-right", "Figure 4, right", "the cells of Table 1", chart=diversity)
def figure4_right(scale: str) -> Run:
    """Diversity (disagreement, divergence) of multihead, TreeNet, BatchEnsemble, MIMO and Deep Ensembles."""
    labels = ("Naive multihead (M = 3)", "TreeNet (M = 3)", "BatchEnsemble (M = 4)", "MIMO (M = 3)", "Ensemble (M = 4)")
    small = REGIMES["R2"].points(SMALL, corrupted=True)
    by_label = {row.label: row for row in (cifar_rows("cifar10") if scale == "paper" else small)}
    multihead, tree, batch, mimo, _ = labels
    words = [(multihead, tree), (multihead, batch), (multihead, mimo), (tree, mimo), (batch, mimo)]
    claims = tuple(("Disagreement", more, less) for less, more in words)
    every, columns = tuple(by_label[label] for label in labels), ("Disagreement", "KL", "Accuracy")
    return Run(rows=every, departs=DEPARTS["Figure 4, right"], columns=columns, claims=claims)


_BY_MEMBERS = (
    "M = 1 is a plain network. In the paper subnetworks become weaker as M grows, and their ensemble is best between "
    "M = 2 and M = 4."
)


@item(
    "mimo/figure5",
    "Figure 5",
    "CIFAR-10, CIFAR-100, a GPU",
    chart=sweep(
        "M",
        QUALITY,
        "MIMO by its number of subnetworks",
        _BY_MEMBERS,
        along="subnetworks M",
        parts={"ensemble": "", "subnetworks, their mean": "member_"},
    ),
)
def figure5(scale: str) -> Run:
    """Accuracy and likelihood of the subnetworks and of their ensemble, by number of members."""
    columns = ("Accuracy", "NLL", "Accuracy of members", "NLL of members")
    if scale == "cpu":
        weaker = tuple(("Accuracy of members", f"M = {m}", f"M = {m + 1}") for m in (1, 2, 3))
        labels = {"M = 1": "one network", **{f"M = {m}": f"MIMO (M = {m})" for m in (2, 3, 4)}}
        return Run(rows=REGIMES["R2"].points(labels, {"M": "members"}), columns=columns, claims=weaker)
    methods = {f"M = {m}": Mimo(members=m, repeats=4) for m in range(1, 6)}
    return Run(rows=_cifars(methods, OURS, by={"M": "members"}), departs=DEPARTS["Tables 1 and 2"], columns=columns)


_EQUAL = "At rho = 0 subnetworks see independent inputs, at 1 always the same one."
_OFTEN = "Every example comes so often into a batch; the paper sees a slight gain."


@item(
    "mimo/figure6",
    "Figure 6",
    "ImageNet and CIFAR, GPUs; here both on Fashion-MNIST",
    chart=together(
        sweep("rho", QUALITY, "MIMO by rho, the share of equal inputs", _EQUAL),
        sweep("repetitions", QUALITY, "MIMO by batch repetitions", _OFTEN, name="repetitions", boxed=True),
    ),
)
def figure6(scale: str) -> Run:
    """Performance by rho, the share of equal inputs, and by the number of batch repetitions."""
    if scale == "cpu":
        three = "MIMO (M = 3)"
        by_rho = {"rho = 0": three, "rho = 0.5": f"{three}, rho 0.5", "rho = 1": f"{three}, rho 1"}
        often = {1: f"{three}, no repetition", 2: f"{three}, 2 repetitions", 4: three}
        repeated = {f"repetitions = {r}": theirs for r, theirs in often.items()}
        half = tuple(("Accuracy", "rho = 0.5", other) for other in ("rho = 0", "rho = 1"))
        points = REGIMES["R2"].points
        return Run(
            rows=(*points(by_rho, {"rho": "rho"}), *points(repeated, {"repetitions": "repeats"})),
            claims=(*half, *(("Accuracy", f"repetitions = {r}", "repetitions = 1") for r in (2, 4))),
            reduced=("one setting of batch size, rate and M, of the paper's 12",),
        )
    every: tuple[Row, ...] = ()
    for name, model in (("R50", PLAIN_R50), ("wide R50", WIDE_R50)):
        common: dict[str, Any] = {"data": "imagenet", "model": model, "seeds": (0,), "varied": {"network": name}}
        rhos = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
        shares = {f"rho = {rho:g}": Mimo(members=2, rho=rho, repeats=2) for rho in rhos}
        every += rows(shares, IMAGENET_OURS, name, by={"rho": "rho"}, **common)
    grid = product((1, 2, 4, 6), (2, 3, 4))
    several = {f"repetitions = {r}, M = {m}": Mimo(members=m, repeats=r) for r, m in grid}
    for size, lr in ((64, 0.05), (64, 0.1), (128, 0.1), (128, 0.2)):
        setting, by = f"batch {size}, lr {lr:g}", {"repetitions": "repeats", "M": "members"}
        common = {"data": "cifar10", "model": WIDE, "seeds": (0,), "varied": {"setting": setting}}
        every += rows(several, {**OURS, "batch_size": size, "lr": lr}, setting, by=by, **common)
    return Run(rows=every, departs=(IMAGENET_LACKS, *DEPARTS["Figure 6"]))


@item("mimo/table1-2", "Tables 1 and 2", "CIFAR-10, CIFAR-100 and their corrupted versions, GPUs")
def table1_2(scale: str) -> Run:
    """Eight methods on CIFAR-10 and CIFAR-100, clean and corrupted."""
    if scale == "cpu":
        points = REGIMES["R2"].points({**SMALL, "MIMO (M = 3), rho = 1": "MIMO (M = 3), rho 1"}, corrupted=True)
        headline = tuple(("MIMO (M = 3)", other) for other in ("Deterministic", "Ensemble (M = 4)"))
        return Run(rows=points, printed=TABLES["Table 1"], columns=("calibrated NLL",), headline=headline)
    every, printed = [], {}
    for data, name, table in (("cifar10", "C10", "Table 1"), ("cifar100", "C100", "Table 2")):
        for row in cifar_rows(data):
            every.append(replace(row, label=f"{row.label}, {name}"))
            printed[f"{row.label}, {name}"] = TABLES[table][row.label]
    tree = "1.68 times the mult-adds of one network; its printed time is 1.52 times one network's"
    remarks = {(f"TreeNet (M = 3), {name}", "Forward passes"): tree for name in ("C10", "C100")}
    return Run(rows=tuple(every), printed=printed, remarks=remarks, departs=DEPARTS["Tables 1 and 2"])


@item(
    "mimo/table3-4",
    "Tables 3 and 4",
    "ImageNet, -C, -A, V2, Vid-Robust, YTTB-Robust, ObjectNet; TPUs",
    status=NEEDS_IMAGENET,
)
def table3_4(scale: str) -> Run:
    """Methods with ResNet-50 on ImageNet and on seven sets like it."""
    two = Mimo(members=2, rho=0.6, repeats=2)
    settings: dict[str, tuple[Method, str, dict[str, Any]]] = {
        "Deterministic": (Single(), PLAIN_R50, IMAGENET),
        "Naive multihead (M = 3)": (Multihead(members=3), PLAIN_R50, IMAGENET_LONG),
        "MIMO (M = 2)": (two, PLAIN_R50, IMAGENET_OURS),
        "TreeNet (M = 2)": (TreeNet(members=2), PLAIN_R50, IMAGENET_LONG),
        "BatchEnsemble (M = 4)": (BatchEnsemble(members=4, init="normal"), PLAIN_R50, {**IMAGENET, "epochs": 135}),
        "Ensemble (M = 4)": (Deep(members=4), PLAIN_R50, IMAGENET),
        "Wide Deterministic": (Single(), WIDE_R50, IMAGENET),
        "Wide MIMO (M = 2)": (two, WIDE_R50, IMAGENET_OURS),
    }
    departs = (IMAGENET_LACKS, *DEPARTS["Table 3"])
    every = _rows(settings, data="imagenet", seeds=(0,))
    return Run(rows=every, printed=TABLES["Table 3"], remarks=REMARKS["Table 3"], departs=departs)


_STRONG = "The text expects that more subnetworks suffer more where regularisation is strong."


@item(
    "mimo/figure7-9",
    "Figures 7, 8 and 9",
    _GPUS,
    extra=by_sparsity,
    chart=together(
        sweep("L1", QUALITY, "MIMO by L1 regularisation", _STRONG, log=True),
        sweep("L2", QUALITY, "MIMO by L2 regularisation", _STRONG, name="l2", log=True),
    ),
)
def figure7_9(scale: str) -> Run:
    """Accuracy and likelihood by L1 or L2 regularisation, and by sparsity, for one to six members."""
    every: tuple[Row, ...] = ()
    by = {"M": "members"}
    if scale == "cpu":
        named = {(m, l1): f"L1 = {l1:g}, M = {m}" for m in (1, 3) for l1 in L1}
        labels = {label: f"MIMO (M = {m}), L1 {l1:g}" for (m, l1), label in named.items()}
        every = REGIMES["R2"].points(labels, by, L1={label: l1 for (_, l1), label in named.items()})
        return Run(rows=every, reduced=("L1 alone, four strengths, M of 1 and 3",))
    strengths = [("L1", x, {"l1": x, "weight_decay": 0.0}) for x in (5e-7, 5e-6, 5e-5, 5e-4, 5e-3)]
    strengths += [("L2", x, {"l1": 0.0, "weight_decay": 2 * x}) for x in (1e-5, 1e-4, 1e-3, 1e-2, 5e-2)]
    for kind, x, regular in strengths:
        methods = {f"{kind} = {x:g}, M = {m}": Mimo(members=m, repeats=4) for m in range(1, 7)}
        every += _cifars(methods, {**OURS, **regular}, by=by, varied={kind: x})
    return Run(rows=every, departs=(*DEPARTS["Tables 1 and 2"][:2], *DEPARTS["Figures 7, 8 and 9"]))


@item("mimo/footnote2", "Footnote 2", status="exact")
def footnote2(scale: str) -> Run:
    """Parameters and FLOPs of WRN-28-10 with and without three inputs and outputs."""
    methods = {"ResNet28-10": Single(), "MIMO (M = 3)": Mimo(members=3, repeats=4)}
    both = rows(methods, OURS, data="cifar10", model=WIDE, seeds=SEEDS)

    return Run(rows=both, printed=TABLES["Footnote 2"], departs=DEPARTS["Footnote 2"])
