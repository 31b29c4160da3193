"""Pictures of what numbers mean, drawn from an ensemble that is trained on digits when the site is built."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import matplotlib
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import multum
from multum import metrics

__all__ = ["calibration", "conformal", "disagreement", "likelihood", "ood", "selective"]

INK = "#010203"  # becomes the colour of the page's text
BLUE, ORANGE, GREEN = "#2f7fb8", "#d5702e", "#2f9e78"


@cache
def trained() -> dict[str, Any]:
    """Predictions on digits of an ensemble that knows 0 to 7, with 8 and 9 as OOD data."""
    data = multum.load_data("digits#hold_out=8+9")
    other = multum.load_data("digits#only=8+9")
    net = multum.models.build("cnn", classes=data.outputs, in_channels=1)
    ens = multum.ensemble(net, multum.Deep(members=4), example=data.example(), seed=0)
    few = data.prepare(data.train.x[:200]), data.train.y[:200]
    multum.fit(ens, few, multum.Recipe(epochs=12, lr=0.01), warn=False)
    ens.eval()
    x, y = data.prepare(data.test.x), data.test.y
    known, strange = multum.predict(ens, x), multum.predict(ens, data.prepare(other.test.x))
    return {"known": known, "strange": strange, "y": y, "right": known.labels == y}


def _svg(figure: Any) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    drawn = file.getvalue()
    return f'<div class="figure">{drawn[drawn.index("<svg") :].replace(INK, "currentColor")}</div>'


def _axes(across: str, up: str) -> tuple[Any, Any]:
    colours = dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "text.color"), INK)
    plt.rcParams.update({**colours, "svg.fonttype": "none", "font.size": 9, "svg.hashsalt": "multum"})
    figure, axes = plt.subplots(figsize=(4.6, 2.7))
    axes.set(xlabel=across, ylabel=up)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def likelihood() -> str:
    figure, axes = _axes("probability of the true class", "NLL of one example (nats)")
    p = torch.linspace(0.01, 1, 200)
    axes.plot(p, -p.log(), color=BLUE)
    here = trained()
    true = here["known"].probs.gather(1, here["y"][:, None]).flatten()
    axes.plot(true, -true.log(), "o", color=ORANGE, alpha=0.4, markersize=3, label=f"{len(true)} examples")
    axes.axhline(-true.log().mean(), color=GREEN, linewidth=1, label="mean: the NLL")
    axes.legend(frameon=False)
    return _svg(figure)


def calibration() -> str:
    figure, axes = _axes("confidence", "accuracy")
    here = trained()
    curve = metrics.reliability_curve(here["known"].confidence, here["right"], bins=8, adaptive=True)
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, linestyle=":")
    axes.plot(curve.confidence, curve.accuracy, "o-", color=BLUE, label=f"ECE {curve.ece:.3f}")
    axes.vlines(curve.confidence, curve.confidence, curve.accuracy, color=ORANGE, linewidth=2)
    axes.legend(frameon=False)
    return _svg(figure)


def ood() -> str:
    figure, axes = _axes("entropy of the prediction (nats)", "share of examples")
    here = trained()
    known, strange = here["known"].entropy, here["strange"].entropy
    bins = torch.linspace(0, float(torch.cat([known, strange]).max()), 25).tolist()
    for values, colour, name in ((known, BLUE, "0 to 7: in-distribution"), (strange, ORANGE, "8 and 9: OOD")):
        axes.hist(
            values, bins=bins, weights=torch.full_like(values, 1 / len(values)), color=colour, alpha=0.55, label=name
        )
    axes.set_title(f"AUROC {metrics.auroc(known, strange):.3f}", fontsize=9)
    axes.legend(frameon=False)
    return _svg(figure)


def selective() -> str:
    figure, axes = _axes("coverage: share of examples answered", "risk: error rate among these")
    here = trained()
    curve = metrics.risk_coverage(here["known"].confidence, here["right"])
    axes.plot(curve.coverage, curve.risk, color=BLUE, label=f"AURC {curve.aurc:.4f}")
    axes.axhline(
        float(1 - here["right"].float().mean()), color=ORANGE, linewidth=1, linestyle="--", label="abstaining at random"
    )
    axes.legend(frameon=False)
    return _svg(figure)


def conformal() -> str:
    figure, axes = _axes("target coverage", "actual coverage")
    here = trained()
    probs, y = here["known"].probs, here["y"]
    half = len(y) // 2
    levels = [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99]
    held, sizes = [], []
    for level in levels:
        sets = metrics.fit_sets(probs[:half], y[:half], alpha=1 - level)(probs[half:])
        held.append(float(sets.gather(1, y[half:, None]).float().mean()))
        sizes.append(float(sets.sum(1).float().mean()))
    axes.plot([0.5, 1], [0.5, 1], color=INK, linewidth=0.8, linestyle=":")
    axes.plot(levels, held, "o-", color=BLUE)
    for level, share, size in zip(levels, held, sizes, strict=True):
        axes.annotate(f"{size:.2f}", (level, share), textcoords="offset points", xytext=(0, 6), ha="center", fontsize=8)
    axes.set_title("labels: mean set size", fontsize=9)
    return _svg(figure)


def disagreement() -> str:
    figure, axes = _axes("mean entropy of members (aleatoric)", "mutual information (epistemic)")
    here = trained()
    for prediction, colour, name in ((here["known"], BLUE, "in-distribution"), (here["strange"], ORANGE, "OOD")):
        mutual = prediction.mutual_information
        axes.plot(prediction.entropy - mutual, mutual, "o", color=colour, alpha=0.45, markersize=3, label=name)
    axes.legend(frameon=False)
    return _svg(figure)
