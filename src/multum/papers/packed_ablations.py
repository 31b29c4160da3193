"""Packed-Ensembles: the ablations of the appendix, on CIFAR-100 in the paper."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from ..methods import Deep, Method, Packed, Single
from .base import Row, Run, item, table
from .packed import BEST_EPOCH, NETWORKS, cifar_rows
from .settings import cpu_rows

__all__ = ["ITEMS", "c100_rows"]

TABLE5 = table(
    "Acc (share), ECE, AUPR (share)",
    """
    PE-(1,4,1) | 0.7872 0.0165 0.8969
    PE-(2,4,1) | 0.8116 0.0203 0.8966
    PE-(3,4,1) | 0.8187 0.0201 0.8825
    PE-(4,4,1) | 0.8183 0.0230 0.8939
    PE-(1,4,2) | 0.7857 0.0185 0.9024
    PE-(2,4,2) | 0.8103 0.0295 0.9115
    PE-(3,4,2) | 0.8186 0.0197 0.9127
    PE-(4,4,2) | 0.8242 0.0190 0.9088
    PE-(2,4,4) | 0.8119 0.0180 0.9066
    PE-(3,4,4) | 0.8182 0.0236 0.9140
    PE-(4,4,4) | 0.8225 0.0226 0.9229
    """,
)
CRITERIA = ("MSP", "ML", "Ent.", "MI", "v")
TABLE6 = table(
    ", ".join([f"AUPR {c}" for c in CRITERIA] + [f"AUC {c}" for c in CRITERIA]),
    """
    PE-(2,4,1)  | 0.8952±0.0132 0.9183±0.0098 0.9105±0.0138 0.8649±0.0061 0.8404±0.0071 \
0.8056±0.0260 0.8562±0.0194 0.8361±0.0271 0.7711±0.0064 0.7305±0.0153
    PE-(3,8,1)  | 0.9055±0.0034 0.9175±0.0044 0.9152±0.0035 0.9139±0.0077 0.8746±0.0056 \
0.8204±0.0101 0.8421±0.0115 0.8427±0.0095 0.8312±0.0135 0.7799±0.0129
    PE-(4,8,2)  | 0.9153±0.0012 0.9285±0.0012 0.9260±0.0016 0.9157±0.0072 0.8827±0.0033 \
0.8408±0.0033 0.8665±0.0027 0.8662±0.0027 0.8402±0.0116 0.7943±0.0082
    PE-(6,8,4)  | 0.9149±0.0071 0.9265±0.0070 0.9237±0.0066 0.9196±0.0109 0.8842±0.0102 \
0.8432±0.0134 0.8621±0.0144 0.8617±0.0136 0.8468±0.0163 0.7999±0.0166
    PE-(8,16,1) | 0.9141±0.0057 0.9268±0.0068 0.9252±0.0060 0.9245±0.0091 0.8931±0.0072 \
0.8387±0.0094 0.8607±0.0114 0.8614±0.0096 0.8513±0.0120 0.8092±0.0113
    """,
)
TABLE7 = table(
    "Acc, ECE, AUPR, IDMI, OODMI",
    """
    none, R18  | 71.70±0.06 0.0497±0.0013 87.32±0.91 0 0
    DI, R18    | 76.20±0.04 0.0419±0.0006 89.54±0.39 0.2011 0.4391
    DB, R18    | 76.06±0.02 0.0434±0.0011 88.70±0.27 0.1987 0.4079
    DI+DB, R18 | 76.14±0.07 0.0437±0.0008 89.21±0.38 0.1943 0.4195
    none, R50  | 77.63±0.23 0.0825±0.0018 89.19±0.65 0 0
    DI, R50    | 81.01±0.06 0.0202±0.0011 91.10±0.39 0.1524 0.4088
    DB, R50    | 80.87±0.10 0.0178±0.0010 90.80±0.30 0.1505 0.4115
    DI+DB, R50 | 81.10±0.05 0.0186±0.0016 90.85±0.29 0.1521 0.4034
    """,
)


def _packed(*triples: tuple[int, int, int]) -> dict[str, Method]:
    """Packed-Ensembles by (alpha, M, gamma)."""
    return {f"PE-({a},{m},{g})": Packed(alpha=a, members=m, gamma=g) for a, m, g in triples}


def c100_rows(methods: dict[str, Method], network: str = "R50") -> tuple[Row, ...]:
    """Rows on CIFAR-100 with the labels of the methods alone."""
    found = cifar_rows("C100", network, methods)
    return tuple(replace(row, label=label) for row, label in zip(found, methods, strict=True))


@item(
    "packed/table5",
    "Figures 6 and 7, Table 5",
    shows="Accuracy and OOD detection of Packed-Ensembles by alpha, gamma and M, ResNet-50 on CIFAR-100",
    needs="CIFAR-100, SVHN, a GPU",
    status="reduced",
)
def table5(scale: str) -> Run:
    if scale == "cpu":
        grid = _packed((1, 4, 1), (2, 4, 1), (3, 4, 1), (4, 4, 1), (2, 2, 1), (2, 8, 1))
        small = {f"PE-({a},4,2)": Packed(alpha=a, members=4, gamma=2, min_channels=4) for a in (2, 4)}
        floor = "the floor of channels per subgroup: 4 here, 64 in the paper"
        near = {label: TABLE5[label] for label in {**grid, **small} if label in TABLE5}
        return Run(rows=cpu_rows({**grid, **small}), printed=near, reduced=(floor,))
    grid = _packed(*((a, 4, g) for g in (1, 2, 4) for a in (1, 2, 3, 4) if (a, g) != (1, 4)))
    more = _packed(*((a, m, 1) for m in (2, 8, 16) for a in (1, 2, 3, 4) if a <= m))
    departs = (
        BEST_EPOCH,
        "the text says CIFAR-10, the captions CIFAR-100: the captions are followed",
        "M other than 4: chosen here",
    )
    return Run(rows=c100_rows({**grid, **more}), printed=TABLE5, departs=departs)


@item(
    "packed/table6",
    "Table 6",
    shows="OOD detection by five criteria: maximum probability, maximum logit, entropy, mutual information, vote share",
    needs="CIFAR-100, SVHN, a GPU",
    status="reduced",
)
def table6(scale: str) -> Run:
    if scale == "cpu":
        rows = cpu_rows(_packed((2, 4, 1), (2, 8, 1)))
        return Run(rows=rows, printed={"PE-(2,4,1)": TABLE6["PE-(2,4,1)"]}, rivals=("AUPR", "AUC"))
    settings = ((2, 4, 1), (3, 8, 1), (4, 8, 2), (6, 8, 4), (8, 16, 1))
    return Run(rows=c100_rows(_packed(*settings)), printed=TABLE6, rivals=("AUPR", "AUC"), departs=(BEST_EPOCH,))


@item(
    "packed/table7",
    "Table 7",
    shows="Diversity and performance by the sources of chance: initialisation, batches",
    needs="CIFAR-100, SVHN, a GPU",
    status="reduced",
)
def table7(scale: str) -> Run:
    """Members that begin alike have `init="pretrained"`, and batches of their own are the recipe's order "own"."""
    chance = {
        "none": ("pretrained", "same"),
        "DI": ("fresh", "same"),
        "DB": ("pretrained", "own"),
        "DI+DB": ("fresh", "own"),
    }
    departs = (
        "on a CPU the rows ND do not exist: members that begin alike and see the same batches stay equal to the bit",
        "members are four networks of half the width, which is PE-(2,4,1): there alone can all begin alike",
        BEST_EPOCH,
    )
    found: list[Row] = []
    for label, (init, order) in chance.items():
        methods: dict[str, Method] = {label: Deep(members=4, init=init)}
        if scale == "cpu":
            found += cpu_rows(methods, recipe={"order": order}.items(), model="wrn-10-1:thin=0.5")
            continue
        for network in ("R18", "R50"):
            (row,) = c100_rows(methods, network)
            model, recipe = f"{NETWORKS[network]}:width=0.5", {**row.recipe, "order": order}
            found.append(replace(row, label=f"{label}, {network}", model=model, recipe=recipe))
    printed = TABLE7 if scale == "paper" else {label: TABLE7[f"{label}, R18"] for label in chance}
    return Run(rows=tuple(found), printed=printed, departs=departs)


@item(
    "packed/figure8",
    "Figure 8",
    shows="Accuracy and OOD detection of ResNet-18 and ResNet-50 by their width",
    needs="CIFAR-100, SVHN, a GPU",
    status="reduced",
)
def figure8(scale: str) -> Run:
    found: tuple[Row, ...] = ()
    if scale == "cpu":
        widths = {0.25: "wrn-10-1:thin=0.25", 0.5: "wrn-10-1:thin=0.5", 1: "wrn-10-1", 2: "wrn-10-2"}
        found = tuple(row for w, m in widths.items() for row in cpu_rows({f"width {w:g}": Single()}, model=m))
        wider = tuple(("Acc", b.label, a.label) for a, b in pairwise(found))
        return Run(rows=found, columns=("Acc", "AUPR"), claims=wider)
    for network in ("R18", "R50"):
        for width in (0.25, 0.5, 0.75, 1, 1.5, 2):
            (row,) = c100_rows({f"{network}, width {width:g}": Single()}, network)
            found += (replace(row, model=f"{NETWORKS[network]}:width={width:g}"),)
    return Run(
        rows=found, columns=("Acc", "AUPR"), departs=(BEST_EPOCH, "the widths are not stated in the text: chosen here")
    )


ITEMS = (table5, table6, table7, figure8)
