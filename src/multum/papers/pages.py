"""An item's Markdown page, from its document alone; and the index of all pages of a folder."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..figures.formats import markdown_table
from ..files import write_text
from . import ITEMS
from .base import NEEDS_IMAGENET
from .repeating import told
from .results import CUT, FORMAT, VERDICTS, Printed

Document = Mapping[str, Any]
SHOWN = 40  # orderings on a terminal; a page folds them, and the JSON has all
FEW = 16  # orderings that need no fold


def page(document: Document, note: str = "") -> str:
    """The claim and what came out, then the setting, our numbers beside the paper's, the figures, and all orderings.

    Args:
        note: what a person makes of it, in Markdown.
    """
    stem = document["item"].partition("/")[2]
    parts = [f"# {document['paper']}: {document['number']}", f"{document['shows']}."]
    parts.append(f"**{_sentence(state(document))}** {_sentence(summary(document))}")
    claim = claims(document)
    if claim:
        parts += ["## The claim", _orderings(claim)]
        if document["headline"]:
            parts += [f"![Our differences with their intervals]({stem}-orderings.png)", FOREST]
    if note:
        parts += ["## What we make of it", note.strip()]
    parts += ["## Setting", _setting(document)]
    if document.get("plan"):
        parts.append(_plan(document["plan"]))
    if document["lines"]:
        parts += ["## Numbers", _numbers(document["lines"], document["cells"])]
    if document["exact"]:
        parts += ["## Exact, in the paper's setting", _numbers(document["exact"], ())]
    for name, picture in document["pictures"].items():
        file = f"{stem}-{name}" if name else stem
        parts.append(f"## {picture['title']}\n\n![{picture['title']}]({file}.png)\n\n{picture['caption']}")
    parts += _rest(document, len(claim))
    return "\n\n".join(filter(None, parts)) + "\n"


FOREST = "Our differences, paired by seed, with their 95 % intervals and the signs of the table, in the columns' units."


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."


def state(document: Document) -> str:
    """What was done of an item: one of a few words, the same on its page and in the index.

    >>> state({"status": "reduced", "cells": [{"status": "not run"}]})
    'not run yet'
    """
    cells = document["cells"]
    done = sum(cell["status"] == "done" for cell in cells)
    if document["status"] in ("exact", NEEDS_IMAGENET):
        return str(document["status"])
    if not done:
        return "not run yet"
    if done < len(cells):
        return f"begun: {done} of {len(cells)} cells"
    return "run in full" if document["status"] == "full" else "run in a stated regime"


def claims(document: Document) -> list[Mapping[str, Any]]:
    """The orderings of the pairs that the paper is about; all of them where they are few and none is named."""
    pairs = [{*pair} for pair in document["headline"]]
    if pairs:
        return [o for o in document["orderings"] if {o["better"], o["worse"]} in pairs]
    return [*document["orderings"]] if len(document["orderings"]) <= FEW else []


def summary(document: Document) -> str:
    """What came out, in one sentence."""
    every = [*document["lines"], *document["exact"]]
    lines = [line for line in every if line["agrees"] is not None]
    printed, checks = ([x["agrees"] for x in lines if (x["printed"] is None) == own] for own in (False, True))
    own = sum(line["printed"] is None and line["agrees"] is None for line in every)
    counts = Counter(o["verdict"] for o in document["orderings"])
    parts = []
    if printed:
        cut = sum(line["agrees"] is True and line["remark"] == CUT for line in lines)
        how = f", {cut} of them cut off and not rounded" if cut else ""
        parts.append(f"{sum(printed)} of {len(printed)} printed numbers agree to the last digit{how}")
    if checks:
        parts.append(f"{sum(checks)} of {len(checks)} checks hold")
    if own:
        parts.append(f"{own} numbers that the paper does not print")
    if counts:
        several = [f"{counts[v]} {_short(v, counts[v])}" for v in VERDICTS if counts[v]]
        parts.append(f"of {sum(counts.values())} orderings {', '.join(several)}")
    waiting = sum(cell["status"] != "done" for cell in document["cells"])
    if waiting and document["status"] != NEEDS_IMAGENET:
        parts.append(f"{waiting} of {len(document['cells'])} cells are not done")
    if document.get("plan"):
        planned = document["plan"]
        parts.append(f"the plan: {planned['cells']} cells, {planned['gpu_hours']:,.0f} hours of one A100")
    return "; ".join(parts) or "nothing was run"


def _short(verdict: str, count: int) -> str:
    """
    >>> _short("open", 1), _short("open", 2)
    ('is open', 'are open')
    """
    be, s = ("is", "s") if count == 1 else ("are", "")
    return {"holds": f"hold{s}", "one seed": f"rest{s} on one seed"}.get(verdict, f"{be} {verdict}")


def _setting(document: Document) -> str:
    parts = [f"`{document['command']}`"]
    if document["reduced"]:
        parts += ["Smaller than in the paper, or otherwise:", _list(document["reduced"])]
    if document["departs"]:
        parts += ["Departs from the paper, or had to be chosen:", _list(document["departs"])]
    cells = document["cells"]
    if any(cell["status"] == "done" for cell in cells):
        seconds = sum(cell["seconds"] or 0 for cell in cells)
        done = sum(cell["status"] == "done" for cell in cells)
        seeds = sorted({cell["seed"] for cell in cells if cell["status"] == "done"})
        parts.append(
            f"{done} of {len(cells)} cells done (seeds {_ranges(seeds)}), {seconds / 3600:.2f} h "
            f"of one core; multum {document['versions']['multum']}, torch {document['versions']['torch']}, "
            f"{document['machine']['processor']}. The whole recipe of every row is in the JSON."
        )
    if "repeated" in document:
        parts.append(told(document["repeated"]))
    return "\n\n".join(parts)


def _ranges(seeds: Sequence[int]) -> str:
    """
    >>> _ranges([0, 1, 2, 3]), _ranges([0, 2])
    ('0 to 3', '0, 2')
    """
    if len(seeds) > 1 and [*seeds] == [*range(seeds[0], seeds[-1] + 1)]:
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _plan(plan: Mapping[str, Any]) -> str:
    rows = [[r["label"], str(r["cells"]), f"{r['params']:,}", f"{r['training'] / 1e15:,.1f}"] for r in plan["rows"]]
    return (
        f"The plan, at the paper's own scale: {plan['cells']} cells, about {plan['gpu_hours']:,.0f} hours of one A100 "
        f"at {plan['gpu_rate']:,.0f} GMAC/s.\n\n"
        + markdown_table(["row", "cells", "parameters", "training, PMAC"], rows, align="lr")
    )


def _numbers(lines: Sequence[Mapping[str, Any]], cells: Sequence[Any]) -> str:
    """One line a row, ours beside the paper's; one a number where nothing was trained."""
    notes = _list(remarked(lines))
    if not cells:
        head = ["row", "column", "ours", "paper", "difference", "agrees"]
        return "\n\n".join(filter(None, [markdown_table(head, [line_cells(line) for line in lines]), notes]))
    columns = list(dict.fromkeys(line["column"] for line in lines))
    rows = list(dict.fromkeys(line["row"] for line in lines))
    by_place = {(line["row"], line["column"]): line for line in lines}
    printed = [c for c in columns if any(line["printed"] for line in lines if line["column"] == c)]
    head = ["row", *(title for c in columns for title in ([c, "paper"] if c in printed else [c]))]
    body = []
    for row in rows:
        cells = [row]
        for column in columns:
            line = by_place.get((row, column))
            cells.append("" if line is None else _ours(line))
            if column in printed:
                cells.append((line or {}).get("printed") or "")
        body.append(cells)
    return "\n\n".join(filter(None, [markdown_table(head, body), "Ours: mean ± standard error over seeds.", notes]))


def _rest(document: Document, shown: int) -> list[str]:
    """What differs, what failed, and behind a fold all orderings, where the claim shows but some."""
    parts = []
    wrong = [line for line in (*document["lines"], *document["exact"]) if line["agrees"] is False]
    if wrong:
        named = [f"{x['row']}, {x['column']}: {_ours(x)} here, {x['printed'] or 'a check'} there" for x in wrong]
        parts += ["## Numbers that differ from the printed ones", _list(named)]
    failed = [cell for cell in document["cells"] if cell["status"] == "failed"]
    if failed:
        parts += ["## What failed", _list(f"{c['row']}, seed {c['seed']}: {c['reason']}" for c in failed)]
    orderings = document["orderings"]
    if len(orderings) > shown:
        fold = f'<details markdown="1">\n<summary>All {len(orderings)} orderings of the paper</summary>'
        parts += [fold, _orderings(orderings), "</details>"]
    return parts


def _orderings(orderings: Sequence[Mapping[str, Any]]) -> str:
    head = ["column", "better in the paper", "worse", "paper's difference", "ours", "95 % interval", "verdict"]
    every = sorted(orderings, key=lambda o: [*VERDICTS].index(o["verdict"]))
    meanings = _list(VERDICTS[v] for v in VERDICTS if any(o["verdict"] == v for o in every))
    return f"{markdown_table(head, [ordering_cells(o) for o in every])}\n\n{meanings}"


def ordering_cells(o: Mapping[str, Any]) -> list[str]:
    paper = "in words" if o["paper"] is None else f"{o['paper']:+.3g}"
    interval = "" if o["low"] is None else f"{o['low']:+.3g} to {o['high']:+.3g}"
    return [o["column"], o["better"], o["worse"], paper, f"{o['ours']:+.3g}", interval, o["verdict"]]


def _ours(line: Mapping[str, Any]) -> str:
    """Ours at the printed digits and one more, or more where nothing would be left of it; with its error.

    >>> _ours({"ours": 54.3217, "error": 0.1234, "printed": "96.0"})
    '54.32 ± 0.12'
    >>> _ours({"ours": 0.00123, "error": 0.0004, "printed": "0"})
    '0.00123 ± 0.00040'
    """
    value, printed = line["ours"], line["printed"]
    if value is None:
        return "not finite"
    if line.get("error") is None and line.get("seeds") is None:
        return f"{value:.10g}"
    digits = Printed(printed).digits + 1 if printed else _digits(value)
    if value and not round(value, digits):
        digits = _digits(value)
    return f"{value:.{digits}f}" + ("" if line["error"] is None else f" ± {line['error']:.{digits}f}")


def remarked(lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is remarked, each remark once with all that it is about."""
    about: dict[str, list[str]] = {}
    for line in lines:
        if line["remark"]:
            about.setdefault(line["remark"], []).append(f"{line['row']}, {line['column']}")
    return [f"{'; '.join(places)}: {remark}" for remark, places in about.items()]


def _digits(value: float) -> int:
    """So that four figures are seen, and three below 1.

    >>> _digits(56.34), _digits(0.0731), _digits(0.00468)
    (2, 4, 5)
    """
    if abs(value) >= 1:
        return 3 if abs(value) < 10 else 2
    return 2 - math.floor(math.log10(max(abs(value), 1e-6)))


def line_cells(line: Mapping[str, Any]) -> list[str]:
    """A line in words: row, column, ours, the paper's, the difference, whether they agree."""
    words = {True: "yes", False: "no", None: ""}
    difference = ""
    if line["difference"] is not None:
        difference = f"{line['difference']:{'+,.0f' if line['difference'] % 1 == 0 else '+.4g'}}"
    return [line["row"], line["column"], _ours(line), line["printed"] or "", difference, words[line["agrees"]]]


def write_pages(folder: Path) -> None:
    """Every page of a folder from its JSON, and the index of all items; what a person makes of one is ITEM.note.md."""
    rows = {}
    for path in sorted(folder.glob("*/*.json")):
        document, note = json.loads(path.read_text()), path.with_suffix(".note.md")
        if document.get("format") != FORMAT:
            continue
        write_text(path.with_suffix(".md"), page(document, note.read_text() if note.is_file() else ""))
        link = f"[{document['item']}]({document['item']}.md)"
        rows[document["item"]] = [link, document["number"], document["shows"], state(document), summary(document)]
    for id, item in ITEMS.items():
        nothing = {"status": item.status, "cells": ()}
        rows.setdefault(id, [id, item.number, item.shows, state(nothing), f"see `multum reproduce {id} --dry-run`"])
    head = ["item", "in the paper", "shows", "state", "what came out"]
    counts = Counter(row[3] for row in rows.values())
    states = "; ".join(f"{words}: {count}" for words, count in counts.most_common())
    table = markdown_table(head, [rows[id] for id in sorted(rows)])
    write_text(folder / "index.md", f"# All tables and figures\n\n{len(rows)} items. State: {states}.\n\n{table}\n")


def _list(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
