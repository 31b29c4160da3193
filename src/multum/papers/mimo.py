"""MIMO, training independent subnetworks: its tables and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..methods import BatchEnsemble, Deep, McDropout, Method, Mimo, Multihead, Single, TreeNet
from .base import Row, Run, item
from .basins import subnetworks
from .bias import bias_and_variance
from .charts.items import diversity, sweep, together
from .inside import by_sparsity, listening, paths
from .printed import read
from .settings import CIFAR_C, IMAGENET_LACKS, MOMENTUM, SGD, cpu_rows, rows

__all__ = ["ITEMS", "cifar_rows"]

TABLES, REMARKS = read("mimo")
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
DEPARTS = (
    "the rate drops by 0.2, as in the code, where the text says 0.1",
    "the baselines' rate is 0.4 at 512 images, as in the code; MIMO and BatchEnsemble have 0.1 at 128 different ones",
    "the number of runs is not stated: three here",
)
QUALITY = ("accuracy", "nll")
_GPUS = "CIFAR-10, CIFAR-100, GPUs"


def _rows(settings: Mapping[str, tuple[Method, str, Mapping[str, Any]]], **common: Any) -> tuple[Row, ...]:
    """Rows by label: method, network and recipe, with all else in common."""
    return tuple(
        Row(label=label, model=model, method=method, recipe=recipe, **common)
        for label, (method, model, recipe) in settings.items()
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


CPU_METHODS: dict[str, Method] = {
    "Deterministic": Single(),
    "Dropout": McDropout(members=1, rate=0.1),
    "Naive multihead (M = 3)": Multihead(members=3),
    "MIMO (M = 3)": Mimo(members=3),
    "TreeNet (M = 3)": TreeNet(members=3),
    "BatchEnsemble (M = 4)": BatchEnsemble(members=4),
    "Ensemble (M = 4)": Deep(members=4),
}

# -- what subnetworks are, and how far they are apart ------------------------------------------------------------------


@item("mimo/figure2", "Figure 2", needs="nothing but its function", status="full", extra=bias_and_variance)
def figure2(scale: str) -> Run:
    """Error, bias and variance of MIMO on a synthetic regression, by number of members."""
    recipe = {"optimizer": "adam", "lr": 1e-2, "weight_decay": 0.0, "schedule": "cosine", "epochs": 500}
    methods = {f"M = {m}": Mimo(members=m) for m in range(1, 6)}
    common: dict[str, Any] = {"data": "sines", "model": "mlp:hidden=32+128", "seeds": tuple(range(20))}
    departs = (
        "function, noise and range are Blundell et al.'s: see `multum.data.sines`",
        "optimizer, epochs and the number of training sets are not stated: Adam, 500 epochs, 20 sets",
        "the squared error is of the mean; the network gives a variance too",
    )
    better = tuple(("RMSE", f"M = {m}", "M = 1") for m in (2, 3))  # "improved generalization performance"
    every = rows(methods, {**recipe, "batch_size": 64}, **common)
    return Run(rows=every, columns=("RMSE", "NLL"), claims=better, departs=departs)


_SMALL_DEPARTS = (
    "epochs, rate and pooling of the SmallCNN are not stated: 20 epochs, 0.02 falling along a cosine, two max-poolings",
)


def _small_cnn() -> tuple[Row, ...]:
    methods = {"MIMO (M = 3)": Mimo(members=3), "Naive multihead (M = 3)": Multihead(members=3)}
    recipe = {"optimizer": "sgd", "lr": 0.02, "warmup": 1, "weight_decay": 1e-4, "epochs": 20, "states": 1}
    return rows(methods, {**recipe, "batch_size": 128}, data="cifar10", model="small-cnn", seeds=(0,))


@item("mimo/figure3", "Figure 3", needs="CIFAR-10", status="full", extra=subnetworks)
def figure3(scale: str) -> Run:
    """Accuracy and disagreement on the plane through three subnetworks: MIMO's are apart, a multihead's are not."""
    silent = "a subnetwork of MIMO on the plane is fed alone, its other inputs at 0: what they get is not stated"
    plane = "the plane goes through the three subnetworks; the origin, which the paper's figure has too, is not on it"
    return Run(rows=_small_cnn(), departs=(*_SMALL_DEPARTS, silent, plane))


@item(
    "mimo/figure4-left",
    "Figure 4, left and middle-left",
    needs="trained MIMO networks on CIFAR-10",
    extra=listening,
)
def figure4_left(scale: str) -> Run:
    """Variance of every pre-activation by each input: almost all depend on one input alone."""
    if scale == "cpu":
        return Run(rows=cpu_rows({f"MIMO (M = {m})": Mimo(members=m) for m in (2, 3)}))
    methods = {f"MIMO (M = {m})": Mimo(members=m, repeats=4) for m in (2, 3)}
    departs = ("the text's 8190 pre-activations are 8976: all outputs of the 3x3 convolutions",)
    return Run(rows=rows(methods, OURS, data="cifar10", model=WIDE, seeds=(0,)), departs=departs)


@item("mimo/figure4-trajectories", "Figure 4, middle-right", needs="CIFAR-10", status="full", extra=paths)
def figure4_trajectories(scale: str) -> Run:
    """The paths of three subnetworks through function space while they train."""
    return Run(rows=_small_cnn()[:1], departs=_SMALL_DEPARTS)


@item("mimo/figure4-right", "Figure 4, right", needs="the cells of Table 1", chart=diversity)
def figure4_right(scale: str) -> Run:
    """Diversity (disagreement, divergence) of multihead, TreeNet, BatchEnsemble, MIMO and Deep Ensembles."""
    labels = ("Naive multihead (M = 3)", "TreeNet (M = 3)", "BatchEnsemble (M = 4)", "MIMO (M = 3)", "Ensemble (M = 4)")
    by_label = {row.label: row for row in (cifar_rows("cifar10") if scale == "paper" else cpu_rows(CPU_METHODS))}
    multihead, tree, batch, mimo, _ = labels
    words = [(multihead, tree), (multihead, batch), (multihead, mimo), (tree, mimo), (batch, mimo)]
    claims = tuple(("Disagreement", more, less) for less, more in words)
    unequal = "the measure is the share of unequal predictions; the text prints '=' and calls it similarity"
    measures = ("Disagreement", "KL", "Accuracy")
    return Run(rows=tuple(by_label[label] for label in labels), departs=(unequal,), columns=measures, claims=claims)


# -- performance -------------------------------------------------------------------------------------------------------

_BY_MEMBERS = (
    "M = 1 is a plain network. In the paper subnetworks become weaker as M grows, and their ensemble is best between "
    "M = 2 and M = 4."
)


@item(
    "mimo/figure5",
    "Figure 5",
    needs="CIFAR-10, CIFAR-100, a GPU",
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
    every: list[Row] = []
    if scale == "cpu":
        weaker = tuple(("Accuracy of members", f"M = {m}", f"M = {m + 1}") for m in (1, 2, 3))
        for m in (1, 2, 3, 4):
            every += cpu_rows({f"M = {m}": Mimo(members=m)}, varied={"M": m})
        return Run(rows=tuple(every), columns=columns, claims=weaker)
    for data, name in (("cifar10", "C10"), ("cifar100", "C100")):
        for m in range(1, 6):
            method, common = {f"M = {m}": Mimo(members=m, repeats=4)}, {"data": data, "seeds": SEEDS}
            every += rows(method, OURS, name, model=WIDE, varied={"M": m}, **common)
    return Run(rows=tuple(every), departs=DEPARTS, columns=columns)


_EQUAL = "At rho = 0 subnetworks see independent inputs, at 1 always the same one."
_OFTEN = "Every example comes so often into a batch; the paper sees a slight gain."


@item(
    "mimo/figure6",
    "Figure 6",
    needs="ImageNet and CIFAR, GPUs; here both on CIFAR-10",
    chart=together(
        sweep("rho", QUALITY, "MIMO by rho, the share of equal inputs", _EQUAL),
        sweep("repetitions", QUALITY, "MIMO by batch repetitions", _OFTEN, name="repetitions", boxed=True),
    ),
)
def figure6(scale: str) -> Run:
    """Performance by rho, the share of equal inputs, and by the number of batch repetitions."""
    every: list[Row] = []
    common: dict[str, Any]
    if scale == "cpu":
        for rho in (0.0, 0.5, 1.0):
            every += cpu_rows({f"rho = {rho:g}": Mimo(members=3, rho=rho)}, varied={"rho": rho})
        for r in (1, 2):
            every += cpu_rows({f"repetitions = {r}": Mimo(members=3, repeats=r)}, varied={"repetitions": r})
        half = tuple(("Accuracy", "rho = 0.5", other) for other in ("rho = 0", "rho = 1"))
        return Run(
            rows=tuple(every),
            claims=(*half, ("Accuracy", "repetitions = 2", "repetitions = 1")),
            reduced=("one setting of batch size, rate and M, of the paper's 12",),
        )
    for name, model in (("R50", PLAIN_R50), ("wide R50", WIDE_R50)):
        for rho in (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0):
            method, varied = Mimo(members=2, rho=rho, repeats=2), {"rho": rho, "network": name}
            common = {"data": "imagenet", "model": model, "seeds": (0,), "varied": varied}
            every += rows({f"rho = {rho:g}, {name}": method}, IMAGENET_OURS, **common)
    for size, lr in ((64, 0.05), (64, 0.1), (128, 0.1), (128, 0.2)):
        setting, recipe = f"batch {size}, lr {lr:g}", {**OURS, "batch_size": size, "lr": lr}
        for r in (1, 2, 4, 6):
            for m in (2, 3, 4):
                varied = {"repetitions": r, "M": m, "setting": setting}
                common = {"data": "cifar10", "model": WIDE, "seeds": (0,), "varied": varied}
                every += rows({f"repetitions = {r}, M = {m}, {setting}": Mimo(members=m, repeats=r)}, recipe, **common)
    departs = (
        IMAGENET_LACKS,
        "the 12 settings of batch size, rate and M behind each box, and the repetitions, are not stated: chosen here",
        "'with probability rho' is a fixed share of the rows, as in the code",
    )
    return Run(rows=tuple(every), departs=departs)


@item("mimo/table1-2", "Tables 1 and 2", needs="CIFAR-10, CIFAR-100 and their corrupted versions, GPUs")
def table1_2(scale: str) -> Run:
    """Eight methods on CIFAR-10 and CIFAR-100, clean and corrupted."""
    if scale == "cpu":
        thin = cpu_rows({"Thin Ensemble (M = 4)": Deep(members=4)}, model="wrn-10-1:thin=0.5")
        share = {"MIMO (M = 3), rho = 1": Mimo(members=3, rho=1)}
        return Run(rows=(*cpu_rows({**CPU_METHODS, **share}), *thin), printed=TABLES["Table 1"])
    every, printed = [], {}
    for data, name, table in (("cifar10", "C10", "Table 1"), ("cifar100", "C100", "Table 2")):
        for row in cifar_rows(data):
            every.append(replace(row, label=f"{row.label}, {name}"))
            printed[f"{row.label}, {name}"] = TABLES[table][row.label]
    tree = "1.68 times the mult-adds of one network; its printed time is 1.52 times one network's"
    remarks = {(f"TreeNet (M = 3), {name}", "Forward passes"): tree for name in ("C10", "C100")}
    return Run(rows=tuple(every), printed=printed, remarks=remarks, departs=DEPARTS)


@item(
    "mimo/table3-4",
    "Tables 3 and 4",
    needs="ImageNet, -C, -A, V2, Vid-Robust, YTTB-Robust, ObjectNet; TPUs",
    status="needs a GPU and ImageNet",
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
    departs = (
        IMAGENET_LACKS,
        "where TreeNet branches is cut off in the text: before stage 3, the only split near its 1.5 passes",
        "where the rate drops in runs of 90 and 135 epochs is not stated: 30, 60 and 80 here",
    )
    every = _rows(settings, data="imagenet", seeds=(0,))
    return Run(rows=every, printed=TABLES["Table 3"], remarks=REMARKS["Table 3"], departs=departs)


_STRONG = "The text expects that more subnetworks suffer more where regularisation is strong."


@item(
    "mimo/figure7-9",
    "Figures 7, 8 and 9",
    needs=_GPUS,
    extra=by_sparsity,
    chart=together(
        sweep("L1", QUALITY, "MIMO by L1 regularisation", _STRONG, log=True),
        sweep("L2", QUALITY, "MIMO by L2 regularisation", _STRONG, name="l2", log=True),
    ),
)
def figure7_9(scale: str) -> Run:
    """Accuracy and likelihood by L1 or L2 regularisation, and by sparsity, for one to six members."""
    every: list[Row] = []
    if scale == "cpu":
        for m in (1, 3):
            for l1 in (1e-5, 1e-4, 1e-3):
                regular = {"l1": l1, "weight_decay": 0.0}
                method, varied = {f"L1 = {l1:g}, M = {m}": Mimo(members=m)}, {"L1": l1, "M": m}
                every += cpu_rows(method, recipe=regular, shift=(), varied=varied)
        return Run(rows=tuple(every), reduced=("L1 alone, three strengths, M of 1 and 3",))
    strengths = [("L1", x, {"l1": x, "weight_decay": 0.0}) for x in (5e-7, 5e-6, 5e-5, 5e-4, 5e-3)]
    strengths += [("L2", x, {"l1": 0.0, "weight_decay": 2 * x}) for x in (1e-5, 1e-4, 1e-3, 1e-2, 5e-2)]
    for data, name in (("cifar10", "C10"), ("cifar100", "C100")):
        for kind, x, regular in strengths:
            for m in range(1, 7):
                method = {f"{kind} = {x:g}, M = {m}": Mimo(members=m, repeats=4)}
                common = {"data": data, "model": WIDE, "seeds": SEEDS, "varied": {kind: x, "M": m}}
                every += rows(method, {**OURS, **regular}, name, **common)
    return Run(rows=tuple(every), departs=(*DEPARTS[:2], "strengths between the stated ends are chosen here"))


@item("mimo/footnote2", "Footnote 2", status="exact")
def footnote2(scale: str) -> Run:
    """Parameters and FLOPs of WRN-28-10 with and without three inputs and outputs."""
    methods = {"ResNet28-10": Single(), "MIMO (M = 3)": Mimo(members=3, repeats=4)}
    both = rows(methods, OURS, data="cifar10", model=WIDE, seeds=SEEDS)
    departs = ("FLOPs are 2 mult-adds + 2 parameters, cut off after 3 digits",)
    return Run(rows=both, printed=TABLES["Footnote 2"], departs=departs)


ITEMS = (
    *(figure2, figure3, figure4_left, figure4_trajectories, figure4_right),
    *(figure5, figure6, table1_2, table3_4, figure7_9, footnote2),
)
