"""The papers' main claims in words, the regime and the two rows that test each: fixed before anything is trained."""

from __future__ import annotations

from dataclasses import dataclass

from .regime import AGAIN
from .regimes import NASGD

CALIBRATED = {"NLL": "calibrated NLL", "ECE (%)": "calibrated ECE (%)"}  # columns that are tested twice
LEVEL = 0.95
VERDICTS = {
    "confirmed": "the whole interval has the sign of the claim",
    "equivalent": "the whole interval lies within the margin",
    "open": "the interval holds both, or not all planned seeds were run",
    "contradicted": "the whole interval has the other sign or, of an `as good as`, is worse than the margin",
    "not run": "no seed of it was run",
}


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
    main: bool = True  # in the first table; the others are behind a fold

    @property
    def link(self) -> str:
        """Where it is printed, with our page of it."""
        page = PAGES.get(self.source)
        return f"[{self.source}]({page}.md)" if page else self.source


PACKED = "Packed-Ensembles, Table 1 (ResNet-18, CIFAR-10)"
PACKED_WR = "Packed-Ensembles, Table 1 (WRN-28-10, CIFAR-10)"
MIMO = "MIMO, Table 1 (WRN-28-10, CIFAR-10)"
MIXTURE = "MixtureEnsembles, Table 1 (WRN-28-10, CIFAR-10)"
HYPERNET = "Hypernetworks, Table 1 (WRN-28-10, Fashion-MNIST)"
CONSTANT = "Hypernetworks, Table 2 (constant rate, Fashion-MNIST)"
PAGES = {
    PACKED: "packed/table1",
    PACKED_WR: "packed/table1",
    "Packed-Ensembles, Figure 3": "packed/figure3-4",
    MIMO: "mimo/table1-2",
    "MIMO, Figure 4, right": "mimo/figure4-right",
    "MIMO, Figure 6": "mimo/figure6",
    MIXTURE: "mixture/table1-4",
    HYPERNET: "hypernet/table1-2",
    CONSTANT: "hypernet/table1-2",
}

CLAIMS = tuple(
    Claim(*claim)
    for claim in (
        (
            *("Packed-Ensembles are better than one network", PACKED, "NLL 0.178 against 0.238"),
            *("R1", "Packed-Ensembles", "one network", "NLL", 0.01),
        ),
        (
            *("Packed-Ensembles are better calibrated than one network", PACKED, "ECE 0.7 % against 3.5 %"),
            *("R1", "Packed-Ensembles", "one network", "ECE (%)", 0.5, False, False),
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
            *("R1", "Masksembles", "one network", "NLL", 0.01, False, False),
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
            *("R2", "MIMO (M = 3)", "multihead (M = 3)", "Disagreement", 0.01, False, False),
        ),
        (
            *("Batch repetition helps MIMO", "MIMO, Figure 6", "drawn"),
            *("R2", "MIMO (M = 3)", "MIMO (M = 3), no repetition", "Accuracy", 0.5, False, False),
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
            *(HYPERNET, "95.80 % against 95.56 %"),
            *("R4", NASGD, "N = 1", "Accuracy", 0.5),
        ),
        (
            "Where they fit their images, ten members of a hypernetwork are more accurate than one",
            *(HYPERNET, "95.80 % against 95.56 %"),
            *("R8", f"N = 10, {AGAIN}", f"N = 1, {AGAIN}", "Accuracy", 0.5),
        ),
        (
            *("Nested steps are better than plain ones at a constant rate", CONSTANT, "94.87 % against 91.12 %", "R4"),
            *(f"{NASGD}, constant rate", "N = 10, averaged SGD, constant rate", "Accuracy", 0.5, False, False),
        ),
        (
            *("Trained as if alone, Packed-Ensembles are as accurate as one network on the first grid", PACKED_WR),
            *("96.2 % against 95.4 %", "R0", "Packed-Ensembles", "one network", "Accuracy", 1.0, True, False),
        ),
        (
            *("Packed-Ensembles of convolutions are better than one network", PACKED, "NLL 0.178 against 0.238"),
            *("R5", "Packed-Ensembles", "one network", "NLL", 0.02, False, False),
        ),
        (
            *("Packed-Ensembles of convolutions are as accurate as Deep Ensembles", PACKED, "94.3 % against 95.1 %"),
            *("R5", "Packed-Ensembles", "Deep Ensembles", "Accuracy", 1.0, True, False),
        ),
        (
            *("BatchEnsemble of convolutions is better than one network", MIMO, "NLL 0.143 against 0.159"),
            *("R5", "BatchEnsemble", "one network", "NLL", 0.02, False, False),
        ),
        (
            *("Where a half is enough, Packed-Ensembles of convolutions are better than one network", PACKED),
            *("NLL 0.178 against 0.238", "R8", "Packed-Ensembles", "one network", "NLL", 0.02),
        ),
        (
            *("Where a half is enough, Packed-Ensembles of convolutions are as accurate as Deep Ensembles", PACKED),
            *("94.3 % against 95.1 %", "R8", "Packed-Ensembles", "Deep Ensembles", "Accuracy", 1.0, True, False),
        ),
        (
            f"Where a half is enough, Packed-Ensembles of convolutions are as accurate as Deep Ensembles, with {AGAIN}",
            *(PACKED, "94.3 % against 95.1 %", "R8", f"Packed-Ensembles, {AGAIN}", f"Deep Ensembles, {AGAIN}"),
            *("Accuracy", 1.0, True, False),
        ),
        (
            *("On a table BatchEnsemble (as in TabM) has a smaller error than one network", "TabM", "in words"),
            *("R7", "BatchEnsemble", "one network", "RMSE", 0.005, False, False),
        ),
        (
            f"On a table BatchEnsemble (as in TabM) has a smaller error than one network, with {AGAIN}",
            *("TabM", "in words", "R7", f"BatchEnsemble, {AGAIN}", f"one network, {AGAIN}", "RMSE", 0.005),
        ),
    )
)


def tests() -> int:
    """How many tests there are: each claim as printed, and some after temperature scaling."""
    return sum(1 + (claim.column in CALIBRATED) for claim in CLAIMS)


def level() -> float:
    """Of each test, so that all of them together have LEVEL (Sidak)."""
    return float(LEVEL ** (1 / tests()))
