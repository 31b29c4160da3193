"""What a cascade saves and loses, on images that no measurement had seen before. Decided before the first run:

    training     Fashion-MNIST's training images 20,000 to 29,999; small-resnet, default recipe but 6 epochs
    choosing     images 30,000 to 39,999: the first 1,000, the first 5,000, all
    measuring    images 40,000 to 59,999
    ensembles    deep and packed:alpha=2 of 4 members, seeds 0, 1, 2
    stated       losses of 0.003, 0.01, 0.03 and 0.1 nats; `Cascade.choose` at 95 %, as it stands
    held?        30 draws of 1,000 and 30 of 5,000 of the choosing images, for each ensemble, seed and stated loss: how
                 many of the chosen cascades lose more on the measuring images than was stated

The rule (the bound of multum/cascades/bound.py, its bets, and thresholds that are no one's data) was made with
simulated losses alone. Run `python benchmarks/cascade.py --work FOLDER`: 15 minutes on one core; logits stay in the
folder. It writes docs/results/cascade.json and cascade.md; with --page, the page again from the JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import multum
from multum.cascades.cascade import Cascade
from multum.data.parts import assembled
from multum.figures.formats import markdown_table
from multum.files import read_json, write_json, write_text
from multum.metrics.differences import Differences
from multum.metrics.statistics import over_seeds
from multum.runs.defaults import default_model, default_recipe

OUT = Path("docs/results/cascade.json")
TRAIN, CHOOSE, MEASURE = slice(20_000, 30_000), slice(30_000, 40_000), slice(40_000, 60_000)
METHODS = ("deep:members=4", "packed:members=4,alpha=2")
SEEDS, EPOCHS = (0, 1, 2), 6
LOSSES = (0.003, 0.01, 0.03, 0.1)
SIZES = (1_000, 5_000, 10_000)
DRAWS, DRAWN = 30, (1_000, 5_000)


def logits_of(method: str, seed: int, work: Path) -> tuple[Cascade, dict[str, Tensor]]:
    """A cascade that never stops, and what every member says of the images; trained where it is not there yet."""
    whole = multum.load_data("fashion_mnist").train
    data = assembled("fashion_mnist", "classification", whole.rows(TRAIN), whole.rows(MEASURE))
    network = multum.models.build(default_model(data), classes=data.outputs, in_channels=1)
    ens = multum.ensemble(network, multum.methods.parse(method), example=data.example(), seed=seed)
    path = work / f"{method.partition(':')[0]}-{seed}.pt"
    if not path.is_file():
        recipe = multum.Recipe().with_overrides({**default_recipe(data), "epochs": EPOCHS, "seed": seed})
        multum.fit(ens, data, recipe, progress=False)
        parts = {name: whole.rows(rows) for name, rows in (("choose", CHOOSE), ("measure", MEASURE))}
        logits = {
            name: multum.predict(ens, data.prepare(part.x[:]), batch_size=500).logits for name, part in parts.items()
        }
        torch.save(logits | {f"{name}_y": part.y for name, part in parts.items()}, path)
    return Cascade(ens, float("inf")), torch.load(path, weights_only=True)


def outcome(cascade: Cascade, logits: Mapping[str, Tensor], rows: Any, loss: float) -> dict[str, Any]:
    """What is chosen on these images, and what it does on those for measuring, example by example."""
    choice = cascade.choice_for(logits["choose"][:, rows], logits["choose_y"][rows], loss)
    cascade.score, cascade.threshold = choice.score, choice.threshold
    y, whole = logits["measure_y"], multum.Prediction.from_logits(logits["measure"])
    voted = cascade.replay(logits["measure"])
    right = [(prediction.labels == y).double() for prediction in (whole, voted)]
    return {
        "choice": choice,
        "voted": float(voted.voted.double().mean()),
        "saved": cascade.saved(voted),
        "lost": nll(voted, y) - nll(whole, y),
        "accuracy_lost": right[0] - right[1],
    }


def nll(prediction: multum.Prediction, y: Tensor) -> Tensor:
    return -prediction.log_probs.gather(1, y.unsqueeze(1))[:, 0].double()


def study(work: Path) -> dict[str, Any]:
    rows: dict[tuple[str, int, float], dict[int, dict[str, Any]]] = {}
    held: dict[tuple[str, int, float], list[tuple[float, float]]] = {}
    for method in METHODS:
        for seed in SEEDS:
            cascade, logits = logits_of(method, seed, work)
            label = method.partition(":")[0]
            for loss in LOSSES:
                for size in SIZES:
                    rows.setdefault((label, size, loss), {})[seed] = outcome(cascade, logits, slice(size), loss)
                generator = torch.Generator().manual_seed(seed)
                for size in DRAWN:
                    for _ in range(DRAWS):
                        drawn = torch.randperm(len(logits["choose_y"]), generator=generator)[:size]
                        one = outcome(cascade, logits, drawn, loss)
                        held.setdefault((label, size, loss), []).append((float(one["lost"].mean()), one["saved"]))
            print(
                label, seed, {f"{loss:g}": rows[label, SIZES[-1], loss][seed]["saved"] for loss in LOSSES}, flush=True
            )
    return {
        "rows": [row_of(*key, seeds) for key, seeds in sorted(rows.items())],
        "held": [held_of(*key, draws) for key, draws in sorted(held.items())],
    }


def row_of(method: str, size: int, loss: float, seeds: Mapping[int, dict[str, Any]]) -> dict[str, Any]:
    saved = over_seeds([row["saved"] for row in seeds.values()])
    row: dict[str, Any] = {"method": method, "size": size, "loss": loss}
    row |= {"scores": [each["choice"].score for each in seeds.values()]}
    row |= {"thresholds": [each["choice"].threshold for each in seeds.values()]}
    row |= {"members": over_seeds([each["voted"] for each in seeds.values()]).mean}
    row |= {"saved": [saved.mean, *saved.interval()]}
    for name in ("lost", "accuracy_lost"):
        estimate = Differences({"lost": {seed: each[name] for seed, each in seeds.items()}}).mean("lost")
        row[name] = [estimate.mean, *estimate.interval()]
    return row


def held_of(method: str, size: int, loss: float, draws: list[tuple[float, float]]) -> dict[str, Any]:
    row: dict[str, Any] = {"method": method, "size": size, "loss": loss, "draws": len(draws)}
    row |= {"exceeded": sum(lost > loss for lost, _ in draws), "most": max(lost for lost, _ in draws)}
    return row | {"saved": sorted(saved for _, saved in draws)[len(draws) // 2]}


ABOUT = """# What a cascade saves and loses

Deep and Packed (alpha=2) ensembles of 4 `small-resnet`, trained for 6 epochs on 10,000 images of Fashion-MNIST, 3
seeds. `Cascade.choose` took score and threshold on held-out images, for a stated loss of NLL against all members, in
nats, that holds with a probability of 95 % over the choice of these images. Measured on 20,000 other images. No image
had been in a measurement before; images, sizes, losses and seeds were written down before the first run
(`benchmarks/cascade.py`), and the rule was made with simulated losses alone.

Intervals are at 95 %: of what is lost over seeds and images together, of what is saved over seeds.
"""

HELD = """## Whether the stated loss holds

{draws} times for each row (30 draws of held-out images, 3 seeds), a cascade was chosen and measured on the 20,000
images; 5 % of them may lose more than was stated.
"""

READING = """## How to read it

- **A small loss takes many examples to promise.** Stopping early costs most examples nothing and a few several nats; of
  what happens once in 1,000 examples, 1,000 examples often show nothing. Where they do not suffice for the stated loss,
  the cascade never stops and says so.
- The bound is careful: what is lost is well below what was stated. An interval of the normal distribution, which stood
  here before, saved more and exceeded its stated losses (0.003 stated, up to 0.005 lost).
- It assumes that no new example loses more than the most that a held-out one would by stopping anywhere.
- What is saved is mult-adds of examples one by one. Seconds are saved as far as smaller batches are faster."""


def interval(values: list[float], unit: float, digits: int) -> str:
    mean, low, high = (f"{unit * value:.{digits}f}" for value in values)
    return f"{mean} [{low}, {high}]"


def page_of(results: Mapping[str, Any]) -> str:
    """The page, from what cascade.json holds."""
    head = [
        "method",
        "held out",
        "stated loss",
        "members asked",
        "mult-adds saved, %",
        "NLL lost",
        "accuracy lost, points",
    ]
    rows = [
        [
            *(row["method"], f"{row['size']:,}", f"{row['loss']:g}", f"{row['members']:.2f}"),
            *(interval(row["saved"], 100, 1), interval(row["lost"], 1, 4), interval(row["accuracy_lost"], 100, 2)),
        ]
        for row in results["rows"]
    ]
    held_head = ["method", "held out", "stated loss", "exceeded", "the most lost", "mult-adds saved (median), %"]
    held = [
        [
            *(row["method"], f"{row['size']:,}", f"{row['loss']:g}", f"{row['exceeded']} of {row['draws']}"),
            *(f"{row['most']:.4f}", f"{100 * row['saved']:.1f}"),
        ]
        for row in results["held"]
    ]
    draws = results["held"][0]["draws"]
    tables = [markdown_table(head, rows, align="lrrrrrr"), markdown_table(held_head, held, align="lrrrrr")]
    return "\n".join([ABOUT, tables[0], "", HELD.format(draws=draws), tables[1], "", READING, ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, default=Path("runs/cascade"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--page", action="store_true", help="write the page again, and run nothing")
    options = parser.parse_args()
    if not options.page:
        torch.set_num_threads(1)
        options.work.mkdir(parents=True, exist_ok=True)
        write_json(options.out, study(options.work))
    write_text(options.out.with_suffix(".md"), page_of(read_json(options.out)))


if __name__ == "__main__":
    main()
