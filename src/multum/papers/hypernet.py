"""Economical ensembles with hypernetworks: the tables and figures of the paper and of its appendix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..methods import Deep, FastGeometric, Hypernet, Method, Single, Snapshot, Swag
from .base import Row, Run, item
from .basins import embeddings
from .charts.nested import constant_rate, nested_chart
from .exact import hypernet_size, nested
from .inside import own_statistics
from .regimes import NASGD, REGIMES
from .results import Table, read
from .settings import CIFAR, SGD, cpu_rows, rows

TABLES, REMARKS, DEPARTS = read("hypernet")
SEEDS = (0, 1, 2)
WIDE = "wrn-28-10"
STANDARD = "wrn-28-10:variant=meliketoy,dropout=0.0"  # of the comparators' code
DATA = {"FM": "fashion_mnist", **CIFAR}
OOD = {
    "FM": ("mnist", "kmnist", "emnist_letters"),
    "C10": ("svhn", "lsun", "tiny_imagenet", "cifar100"),
    "C100": ("svhn", "lsun", "tiny_imagenet", "cifar10"),
}
_BASE = {**SGD, "epochs": 200, "batch_size": 128, "lr": 0.1, "weight_decay": 5e-4}
PLAIN_SGD = {**_BASE, "milestones": (60, 120, 160), "factor": 0.2}
CPU_ASGD = {"schedule": "linear", "anneal_from": 0.4, "anneal_to": 0.8, "final": 0.5, "average_from": 0.8}
ASGD = {**_BASE, **CPU_ASGD}
LONGER = {**ASGD, "epochs": 300, "anneal_from": 80 / 300, "anneal_to": 240 / 300}
S9 = {**_BASE, "schedule": "linear", "anneal_from": 0.4, "anneal_to": 190 / 200, "final": 0.01}
CPU_CONSTANT = {"schedule": "constant", "average_from": 0.8}
NOISE, SHARED_NORMS = DEPARTS["Noise"], DEPARTS["Shared norms"]
CPU_HEADS = "heads at birth: copies of the trained head here, new ones in the paper"
CPU_OTHERS: dict[str, Method] = {
    "SWAG": Swag(members=10, start=0.5),
    "SE": Snapshot(members=4, cycles=False, start=0.6),
}
_GPUS = "CIFAR-10, CIFAR-100, GPUs"
# The OOD experiments: shared norms, sigma 0.5, not nested.
_OOD_FIELDS: dict[str, Any] = {"sigma": 0.5, "norm": "shared", "nested": False}


single_embedding = partial(Hypernet, members=1, sigma=0, heads="copy", nested=False)  # N = 1
# Tables 1 and 2: own norms, sigma 0.25, nested. The OOD experiments: the fields above.
accurate = partial(Hypernet, members=10, birth_epoch=120, sigma=0.25, heads="reset", nested=True)
watchful = partial(accurate, **_OOD_FIELDS)
# A few epochs are too few for ten new heads: members begin with the trained one.
cpu_hypernet = partial(Hypernet, members=10, heads="copy")
cpu_watchful = partial(cpu_hypernet, **_OOD_FIELDS)
_small = partial(cpu_rows, data="fashion_mnist", recipe=CPU_ASGD)  # rows at the scale of two cores, by averaged SGD


def _full(
    methods: Mapping[str, Method], recipe: Mapping[str, Any], name: str, model: str = WIDE, ood: bool = True
) -> tuple[Row, ...]:
    """Rows in the paper's setting on one data set, with its OOD data, labelled "Method, C10"."""
    return rows(methods, recipe, name, model=model, data=DATA[name], ood=OOD[name] if ood else (), seeds=SEEDS)


def _near(printed: Table, every: tuple[Row, ...], name: str) -> Table:
    """What is printed of the rows on one data set."""
    return {row.label: printed[f"{row.label}, {name}"] for row in every}


@item("hypernet/table1-2", "Tables 1 and 2", "Fashion-MNIST, CIFAR-10, CIFAR-100, GPUs")
def table1_2(scale: str) -> Run:
    """Accuracy of N = 10 members against one, SWAG, FGE, snapshots and an independent ensemble; nested or not."""
    printed = TABLES["Tables 1 and 2"]
    ours = cpu_hypernet if scale == "cpu" else accurate
    methods = {
        "WRN (N=1)": Single(),
        "Ours (N=1)": single_embedding(),
        "Ours": ours(),
        "ASGD": ours(nested=False),
    }
    constant = {"ASGD (constant LR)": ours(nested=False), "NASGD (constant LR)": ours()}
    if scale == "cpu":
        every = (*_small({**methods, **CPU_OTHERS, "IE": Deep(members=4)}), *_small(constant, recipe=CPU_CONSTANT))
        fewer = "10 samples of SWAG, 4 snapshots, 4 independent networks"
        pairs = (("Ours", "Ours (N=1)"), ("Ours", "IE"), ("NASGD (constant LR)", "ASGD (constant LR)"))
        reduced = (CPU_HEADS, fewer)
        return Run(rows=every, printed=_near(printed, every, "FM"), headline=pairs, reduced=reduced)
    every = ()
    for name in DATA:
        others: dict[str, Method] = {
            "SWAG": Swag(members=30),
            "SE": Snapshot(members=10, cycles=False),
            "IE": Deep(members=10),
            **({} if name == "FM" else {"FGE": FastGeometric(members=12)}),
        }
        every += _full(methods, ASGD, name, ood=False)
        every += _full(constant, {**_BASE, **CPU_CONSTANT}, name, ood=False)
        every += _full(others, ASGD, name, STANDARD, ood=False)
    departs = (*NOISE, *DEPARTS["Tables 1 and 2"])
    return Run(rows=every, printed=printed, remarks=REMARKS["Tables 1 and 2"], departs=departs)


@item("hypernet/figure2", "Figure 2", "CIFAR-10, GPUs", chart=constant_rate)
def figure2(scale: str) -> Run:
    """Test accuracy along training at a constant rate, by nested steps and by plain ones."""
    if scale == "cpu":
        plain = "N = 10, averaged SGD, constant rate"
        every = REGIMES["R4"].points({"ASGD": plain, "NASGD": f"{NASGD}, constant rate"})
        every = tuple(replace(row, seeds=SEEDS) for row in every)
        return Run(rows=every, claims=(("Accuracy", "NASGD", "ASGD"),), reduced=(CPU_HEADS,))
    two = {"ASGD": accurate(nested=False), "NASGD": accurate()}
    return Run(rows=_full(two, {**_BASE, **CPU_CONSTANT, "states": 1}, "C10", ood=False), departs=NOISE)


@item(
    "hypernet/table3",
    "Tables 3 and S2",
    "CIFAR-10, CIFAR-100, SVHN, LSUN, Tiny ImageNet; the MNIST family; GPUs",
    extra=own_statistics,
)
def table3(scale: str) -> Run:
    """OOD detection (AUROC of the entropy) by SGD and averaged SGD, against SWAG, snapshots, members from scratch."""
    departs, printed = (*DEPARTS["Tables 3 and S2"], *NOISE, *SHARED_NORMS), TABLES["Tables 3 and S2"]
    if scale == "cpu":
        averaged = {
            "ASGD WRN (N=1)": Single(),
            "ASGD Ours (N=1)": single_embedding(),
            "ASGD Ours": cpu_watchful(),
            "ASGD Ours (scratch)": cpu_watchful(ablation="scratch"),
            **{f"ASGD {label}": method for label, method in CPU_OTHERS.items()},
        }
        every = (*_small(averaged), *_small({"SGD WRN (N=1)": Single(), "SGD Ours": cpu_watchful()}, recipe={}))
        return Run(
            rows=every,
            printed=_near(printed, every, "FM"),
            columns=("NLL", "Accuracy of members"),
            headline=(("ASGD Ours", "ASGD Ours (N=1)"), ("ASGD Ours", "ASGD SWAG")),
            reduced=(CPU_HEADS, "EMNIST is left out"),
            departs=departs,
        )
    every = ()
    for name in DATA:
        for optimizer, recipe in (("SGD", PLAIN_SGD), ("ASGD", ASGD)):
            ours: dict[str, Method] = {"WRN (N=1)": Single(), "Ours (N=1)": single_embedding(), "Ours": watchful()}
            theirs: dict[str, Method] = {"IE": Deep(members=10)}
            if optimizer == "ASGD":
                ours["Ours (scratch)"] = watchful(ablation="scratch", birth_epoch=0)
                theirs |= {"SWAG": Swag(members=30), "SE": Snapshot(members=10, cycles=False)}
            for methods, model in ((ours, WIDE), (theirs, STANDARD)):
                every += _full(
                    {f"{optimizer} {label}": method for label, method in methods.items()}, recipe, name, model
                )
    return Run(rows=every, printed=printed, departs=departs)


@item("hypernet/table4", "Table 4", "the cells of Table 3")
def table4(scale: str) -> Run:
    """Negative log-likelihood, summed over the test images, of N = 10 against N = 1."""
    departs = (*DEPARTS["Table 4"], *SHARED_NORMS)
    if scale == "cpu":
        two = _small({"Ours (N=1)": single_embedding(), "Ours": cpu_watchful()})
        better = (("NLL", "Ours", "Ours (N=1)"),)
        return Run(rows=two, columns=("NLL",), claims=better, reduced=(CPU_HEADS,), departs=departs)
    methods = {"Ours (N=1)": single_embedding(), "Ours": watchful()}
    every = (*_full(methods, ASGD, "C10"), *_full(methods, ASGD, "C100"))
    return Run(rows=every, printed=TABLES["Table 4"], departs=(departs[0], *NOISE, *SHARED_NORMS))


@item("hypernet/figure1", "Figure 1", status="exact", exact=nested, chart=nested_chart)
def figure1(scale: str) -> Run:
    """How nested SGD holds back what is shared while the members step."""
    return Run(rows=(), departs=DEPARTS["Figure 1"])


@item("hypernet/figure3", "Figures 3 and S2", "a trained ensemble of Table 3; then minutes", extra=embeddings)
def figure3(scale: str) -> Run:
    """Accuracy and likelihood on the plane through three members' embeddings."""
    departs = (*DEPARTS["Figure 3"], *SHARED_NORMS)
    if scale == "cpu":
        return Run(rows=_small({"Ours": cpu_watchful()}), reduced=(CPU_HEADS,), departs=departs)
    ours = {"Ours": watchful()}
    return Run(rows=(*_full(ours, ASGD, "C100"), *_full(ours, ASGD, "C10")), departs=departs)


TEXT = TABLES["Table S1, text"]["the text's formula"]


@item("hypernet/table-s1", "Table S1", status="exact", exact=partial(hypernet_size, text=TEXT))
def table_s1(scale: str) -> Run:
    """Every hypernetwork's shape, and the parameters of the whole.

    The text's 35,892,789 + 25,013 N is the public code's count; the table as printed gives another.
    """
    every = rows({"N = 1": single_embedding(), "N = 10": accurate()}, ASGD, data="cifar10", model=WIDE, seeds=SEEDS)
    return Run(rows=every, printed=TABLES["Table S1"], remarks=REMARKS["Table S1"])


@item("hypernet/table-s3-s9", "Tables S3, S4, S5, S7, S8 and S9", _GPUS)
def table_s3_s9(scale: str) -> Run:
    """Accuracy and OOD detection by noise, time of birth, epochs, number of members, final rate, nesting."""
    printed = TABLES["Tables S3 to S9"]
    if scale == "cpu":
        labels = {"sigma=0.0": "sigma 0", "sigma=0.25": NASGD, "sigma=1.0": "sigma 1", "N=5": "N = 5"}
        every = REGIMES["R4"].points({**labels, "T0=160": "born after 0.8 of the epochs"})
        reduced = (
            "printed numbers are CIFAR-10's",
            "own norms and nested steps, as in Tables 1 and 2; the paper's rows share norms and are not nested",
            "N = 15, T0 = 80, epochs, final rate and nesting (S5, S8, S9) are left out",
        )
        return Run(rows=every, printed=_near(printed, every, "C10"), reduced=reduced)
    methods = {
        **{f"sigma={s}": watchful(sigma=s) for s in (0.0, 0.25, 0.5, 0.75, 1.0)},
        **{f"T0={t}": watchful(birth_epoch=t) for t in (80, 160)},
        **{f"N={n}": watchful(members=n) for n in (5, 15)},
    }
    plain, nested_ = accurate(nested=False), accurate()
    low = {"ASGD eta=0.01 (N=1)": single_embedding(), "ASGD eta=0.01": plain, "NASGD eta=0.01": nested_}
    longer = {
        "300 epochs WRN (N=1)": Single(),
        "300 epochs Ours (N=1)": single_embedding(),
        "300 epochs Ours": accurate(birth_epoch=160),
    }
    every = ()
    for name in ("C10", "C100"):
        every += _full(methods, ASGD, name)
        every += _full(low, {**ASGD, "final": 0.1}, name)
        every += _full({"ASGD eta=0.05": plain, "NASGD eta=0.05": nested_}, ASGD, name)
        every += _full(longer, LONGER, name)
    for name in DATA:
        every += _full({"SGD": plain, "NSGD": nested_}, S9, name)
    return Run(rows=every, printed=printed, departs=(*NOISE, *DEPARTS["Tables S3 to S9"]))


@item("hypernet/table-s6-s11", "Tables S6, S10 and S11", "CIFAR-10, CIFAR-100, GPUs (sizes: nothing)")
def table_s6_s11(scale: str) -> Run:
    """Larger networks with cutout, and hypernetworks of less than half the size."""
    if scale == "cpu":
        labels = {"compression 1": NASGD, "compression 2": "compression 2"}
        return Run(rows=REGIMES["R4"].points(labels), reduced=("S6's larger networks are left out",))
    every: tuple[Row, ...] = ()
    printed, larger = {}, TABLES["Table S6"]
    small = {"15.6M nested": accurate(compression=2), "15.6M": watchful(compression=2)}
    for name, final, sigma in (("C10", 0.1, 0.25), ("C100", 0.5, 0.5)):
        recipe = {**LONGER, "cutout": 16, "final": final}
        ours = accurate(birth_epoch=160, sigma=sigma)
        for width in (14, 18):
            base = f"WRN 28-{width}, {name}"
            common: dict[str, Any] = {"model": f"wrn-28-{width}", "data": DATA[name], "seeds": SEEDS}
            for label, method in {"WRN (N=1)": Single(), "Ours (N=1)": single_embedding(), "Ours": ours}.items():
                every += rows({f"{base}, {label}": method}, recipe, **common)
                printed[f"{base}, {label}"] = {"Accuracy": larger[base][label]}
            printed[f"{base}, Ours"]["Params (M)"] = larger[base]["Params (M)"]
        every += _full(small, ASGD, name)
    return Run(
        rows=every,
        printed={**printed, **TABLES["Tables S10 and S11"]},
        remarks={**REMARKS["Table S6"], **REMARKS["Tables S10 and S11"]},
        departs=(*DEPARTS["Table S6"], *NOISE),
    )


@item("hypernet/table-s12-s13", "Tables S12 and S13", _GPUS)
def table_s12_s13(scale: str) -> Run:
    """Members with own heads and norms, or heads alone, against members with embeddings."""
    printed = TABLES["Tables S12 and S13"]
    if scale == "cpu":
        every = _small(
            {
                "Ours": cpu_hypernet(),
                "LL+BN": cpu_hypernet(ablation="LL+BN"),
                # Copies of one head without noise would stay one head: here heads begin anew, as in the paper.
                "OOD Ours": cpu_watchful(),
                "OOD LL": cpu_watchful(heads="reset", ablation="LL"),
            }
        )
        pairs, reduced = (("LL+BN", "Ours"), ("OOD LL", "OOD Ours")), ("printed numbers are CIFAR-10's",)
        return Run(rows=every, printed=_near(printed, every, "C10"), headline=pairs, reduced=reduced)
    late = {
        "300 epochs LL+BN": accurate(ablation="LL+BN", birth_epoch=160),
        "300 epochs Ours": accurate(birth_epoch=160),
    }
    every = ()
    for name in ("C10", "C100"):
        every += _full({"LL+BN": accurate(ablation="LL+BN"), "Ours": accurate()}, ASGD, name)
        every += _full(late, LONGER, name)
        every += _full({"OOD LL": watchful(ablation="LL"), "OOD Ours": watchful()}, ASGD, name)
    return Run(rows=every, printed=printed, departs=NOISE)
