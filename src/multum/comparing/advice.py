"""One sentence of advice, what is sure, what is not, and what to run to be sure.

Methods are ordered by calibrated NLL: a proper score, which rewards being right and knowing it. Only trained and
converged runs count. A method is out where its interval says that it is worse than the best by more than the margin, or
where it looks worse by `FAR` margins, proven or not. Of the others the cheapest are taken, within a tenth of the least
mult-adds; of these the one with the lowest NLL; and what is equal to that within the margin gives way to the cheaper.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..metrics.one_model import NOISE
from .budget import Budget
from .reading import PRICES, Row, cost_of, is_single, mean_of, named, nll, price, quality
from .versus import Versus, against, decides, is_better, is_worse, sure_of, unsure_of

FAR = 25  # margins: a quarter of the NLL
SAME_PRICE = 1.1
UNTRAINED, BADLY = 0.05, 0.5  # shares of what the best one learned, from chance


def advise(
    rows: Sequence[Row],
    budget: Budget | None = None,
    versus: Versus | None = None,
    margin: float = 0.0,
    epochs: int | None = None,
) -> dict[str, Any]:
    """The method to take, in words.

    Args:
        versus: the differences of all rows that have results, as `rows_of` gives them.
        margin: nats within which methods are equal.
        epochs: of the comparison, to say how many more it takes.
    """
    key = decides(rows)
    measured = [row for row in rows if key in row["values"]]
    trained = [row for row in measured if (row.get("learned") is None or row["learned"] >= UNTRAINED)]
    notes = [*_failures(rows, measured, key), *_one_models(trained)]
    within = [row for row in trained if budget is None or budget.allows(cost_of(row, "params"), cost_of(row, "macs"))]
    empty = {"label": None, "sure": [], "unsure": [], "notes": notes}
    if not within or versus is None:
        why = "every method failed" if not measured else "no method was trained" if not trained else None
        why = why or ("no method fits the budget" if not within else "nothing could be tested")
        return empty | {"sentence": f"No advice: {why}."}
    single = next((row for row in trained if is_single(row)), None)
    longer = f"train longer: --epochs {2 * epochs}" if epochs else "train longer"
    if len(measured) == len(rows) == 1:
        sentence = f"Only {named(within[0])} was run ({quality(within[0], key)}), which says nothing about others"
        return empty | {
            "label": within[0]["label"],
            "sentence": f"{sentence}: compare it with ensembles, as in --methods single,packed,deep.",
            "unsure": _unconverged(within, longer),
        }
    converged = [row for row in within if row.get("converged") is not False]
    looks_best = _lowest(within, key)
    if not converged or mean_of(_lowest(converged, key), key) - mean_of(looks_best, key) > margin:
        sentence = f"No advice yet: {named(looks_best)} looks best ({quality(looks_best, key)}), but its training had"
        return empty | {"sentence": f"{sentence} not converged; {longer}.", "unsure": _unconverged(trained, longer)}
    chosen, best = _chosen(converged, single, versus, margin), _lowest(converged, key)
    judged = [row for row in trained if row.get("converged") is not False]
    known = single if single in judged else None
    return {
        "label": chosen["label"],
        "sentence": _sentence(chosen, known, best, judged, versus, margin),
        "sure": sure_of(chosen, known, judged, versus, margin),
        "unsure": [*unsure_of(chosen, known, judged, versus, margin), *_unconverged(trained, longer)],
        "notes": [*_price(chosen, known), *notes, *_rivals(chosen, judged, within, budget, versus)],
    }


def _chosen(rows: Sequence[Row], single: Row | None, versus: Versus, margin: float) -> Row:
    key = versus.key
    best = _lowest(rows, key)
    ceiling = mean_of(best, key) + FAR * margin
    ceiling = ceiling if single is None else min(ceiling, max(mean_of(single, key), mean_of(best, key)) + margin)
    eligible = [
        row
        for row in rows
        if row is best
        or (mean_of(row, key) <= ceiling and not is_worse(versus.between(row["label"], best["label"]), margin))
    ]
    least = min(cost_of(row, "macs") for row in eligible)
    cheap = [row for row in eligible if cost_of(row, "macs") <= SAME_PRICE * least]
    lowest = mean_of(_lowest(cheap, key), key)
    equal = [row for row in cheap if mean_of(row, key) <= lowest + margin]
    return min(
        equal, key=lambda row: [*(cost_of(row, name) for name in ("macs", "params", "latency")), mean_of(row, key)]
    )


def _sentence(chosen: Row, single: Row | None, best: Row, rows: Sequence[Row], versus: Versus, margin: float) -> str:
    key = versus.key
    rivals = [row for row in rows if row is not chosen]
    if single is None:
        return f"Take {named(chosen)}: {quality(chosen, key)}{_dearer(chosen, best, None, versus)}."
    if chosen is single:
        helps = _help(single, best, rivals, versus, margin)
        return f"Take {named(single)} ({single['label']}): {quality(single, key)}, and {helps}."
    shown = is_better(against(chosen, single, versus))
    text = f"Take {named(chosen)}: it {'is' if shown else 'looks'} better than one network"
    text += f" ({nll(chosen, key)} against {mean_of(single, key):.4f}{'' if shown else ', not proven'})"
    text += f" at {price(chosen, single, PRICES[:1])}"
    if chosen.get("control") and chosen["name"] == "single":
        ensembles = [row for row in rivals if row["name"] != "single"]
        beaten = all(is_better(versus.between(chosen["label"], row["label"])) for row in ensembles)
        text += f"; it is {'better than' if beaten else 'not shown to be worse than'} every ensemble here"
        return f"{text}."
    return f"{text}{_dearer(chosen, best, single, versus)}."


def _help(single: Row, best: Row, ensembles: Sequence[Row], versus: Versus, margin: float) -> str:
    """What ensembles are worth where one network is advised."""
    differences = [(row, against(row, single, versus)) for row in ensembles]
    better = [row for row, difference in differences if is_better(difference)]
    within = all(versus.between(row["label"], single["label"]).low >= -margin for row in ensembles)
    if better:
        lowest = _lowest(better, versus.key)
        difference = against(lowest, single, versus)
        return (
            f"no ensemble is {'' if within else 'shown to be '}better by more than the margin of {margin:.2g} nats "
            f"({named(lowest)} is by {-difference.high:.2g} to {-difference.low:.2g} "
            f"at {price(lowest, single, PRICES[:1])})"
        )
    if within:
        return "no ensemble is better; an ensemble does not help here"
    looks = f" ({named(best)} looks best: {nll(best, versus.key)} at {price(best, single, PRICES[:1])})"
    return f"no ensemble was shown to be better{'' if best is single else looks}"


def _dearer(chosen: Row, best: Row, single: Row | None, versus: Versus) -> str:
    """That the row with the lowest NLL is not worth its price."""
    if best is chosen:
        return ""
    at = "" if single is None else f" at {price(best, single, PRICES[:1])}"
    return f"; {named(best)} is not shown to be better by more than the margin ({nll(best, versus.key)}{at})"


def _price(chosen: Row, single: Row | None) -> list[str]:
    if single is None or chosen is single:
        return []
    return [f"The price of {chosen['label']}, beside one network: {price(chosen, single)}."]


def _failures(rows: Sequence[Row], measured: Sequence[Row], key: str) -> list[str]:
    """What failed, did not train, or trained badly, each with the number that says so."""
    notes = [f"{row['label']} failed: {row['reason']}" for row in rows if row["status"] != "done"]
    for row in rows:
        if row["status"] == "done" and row not in measured:
            notes.append(f"{row['label']} did not train: its NLL is not a finite number.")
    for row in measured:
        learned, chance = row.get("learned"), row.get("chance")
        if learned is None or chance is None or learned >= BADLY:
            continue
        values = row["values"]
        what = quality(row, key)
        if learned < UNTRAINED and "accuracy" in values:
            share, luck = 100 * values["accuracy"]["mean"], 100 * chance["accuracy"]
            notes.append(f"{row['label']} did not train: accuracy {share:.0f} % is chance ({luck:.0f} %; {what}).")
        elif learned < UNTRAINED:
            notes.append(f"{row['label']} did not train: {what} is no better than chance (NLL {chance['nll']:.4f}).")
        else:
            notes.append(
                f"{row['label']} trained badly: it learned {100 * learned:.0f} % of what the best one learns ({what}). "
                "Look at its learning rate."
            )
    return notes


def _one_models(rows: Sequence[Row]) -> list[str]:
    coarse = next((row["coarse"] for row in rows if row.get("coarse")), None)
    if coarse is not None:
        return [
            f"Whether members are one model cannot be told here: even those of {coarse}, which share nothing, disagree "
            f"no more than one of them does with itself under the noise that is the yardstick, {100 * NOISE:g} % of "
            "the inputs' spread."
        ]
    return [
        f"The members of {row['label']} are one model: they disagree no more than one of them does with itself when "
        f"its inputs are shaken by {100 * NOISE:g} % of their spread."
        for row in rows
        if row.get("one_model")
    ]


def _unconverged(rows: Sequence[Row], longer: str) -> list[str]:
    falling = [row["label"] for row in rows if row.get("converged") is False]
    unknown = [row["label"] for row in rows if row.get("converged") is None]
    sentences = [f"Had not converged, so that nothing is concluded from them: {', '.join(falling)}; {longer}."]
    doubt = [f"Whether these had converged: {', '.join(unknown)}; {longer}."]
    return [*(sentences if falling else []), *(doubt if unknown else [])]


def _rivals(
    chosen: Row, judged: Sequence[Row], within: Sequence[Row], budget: Budget | None, versus: Versus
) -> list[str]:
    """Better methods that the budget excludes."""
    over = [row for row in judged if row not in within and mean_of(row, versus.key) < mean_of(chosen, versus.key)]
    return [
        f"{row['label']} has a lower NLL ({mean_of(row, versus.key):.4f}) but is over the budget of {budget}."
        for row in over
    ]


def _lowest(rows: Sequence[Row], key: str) -> Row:
    return min(rows, key=lambda row: mean_of(row, key))
