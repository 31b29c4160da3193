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
from .results import FORMAT, VERDICTS, Printed

Document = Mapping[str, Any]
SHOWN = 40  # orderings in a page; all are in the JSON


def page(document: Document, note: str = "") -> str:
    """The setting, our numbers beside the paper's, the figures, what agrees and what does not.

    Args:
        note: what a person makes of it, in Markdown.
    """
    stem = document["item"].partition("/")[2]
    parts = [f"# {document['paper']}: {document['number']}", f"{document['shows']}.", _setting(document)]
    if document["lines"]:
        parts += ["## Numbers", _numbers(document["lines"], document["cells"])]
    if document["exact"]:
        parts += ["## Exact, in the paper's setting", _numbers(document["exact"], ())]
    for name, picture in document["pictures"].items():
        file = f"{stem}-{name}" if name else stem
        parts.append(f"## {picture['title']}\n\n![{picture['title']}]({file}.png)\n\n{picture['caption']}")
    parts += ["## What agrees, and what does not", *_agreement(document)]
    if note:
        parts += ["## What we make of it", note.strip()]
    return "\n\n".join(filter(None, parts)) + "\n"


def summary(document: Document) -> str:
    """What came out, in one sentence."""
    every = [*document["lines"], *document["exact"]]
    lines = [line for line in every if line["agrees"] is not None]
    printed, checks = ([x["agrees"] for x in lines if (x["printed"] is None) == own] for own in (False, True))
    own = sum(line["printed"] is None and line["agrees"] is None for line in every)
    counts = Counter(o["verdict"] for o in document["orderings"])
    parts = []
    if printed:
        parts.append(f"{sum(printed)} of {len(printed)} printed numbers agree to the last digit")
    if checks:
        parts.append(f"{sum(checks)} of {len(checks)} checks hold")
    if own:
        parts.append(f"{own} numbers that the paper does not print")
    if counts:
        parts.append(
            f"of {sum(counts.values())} orderings "
            + ", ".join(f"{counts[v]} {_short(v)}" for v in VERDICTS if counts[v])
        )
    waiting = sum(cell["status"] != "done" for cell in document["cells"])
    if waiting:
        parts.append(f"{waiting} of {len(document['cells'])} cells are not done")
    return "; ".join(parts) or "nothing was run"


def _short(verdict: str) -> str:
    return {"holds": "hold", "open": "are open", "reversed": "are reversed", "one seed": "rest on one seed"}[verdict]


def _setting(document: Document) -> str:
    kinds = {"exact": "Exact: nothing is trained.", "full": "As in the paper.", "reduced": "Reduced."}
    parts = [f"**{kinds.get(document['status'], document['status'])}** `{document['command']}`"]
    if document["reduced"]:
        parts += ["Smaller than in the paper:", _list(document["reduced"])]
    if document["departs"]:
        parts += ["Departs from the paper, or had to be chosen:", _list(document["departs"])]
    cells = document["cells"]
    if cells:
        seconds = sum(cell["seconds"] or 0 for cell in cells)
        done = sum(cell["status"] == "done" for cell in cells)
        seeds = sorted({cell["seed"] for cell in cells if cell["status"] == "done"})
        parts.append(
            f"{done} of {len(cells)} cells done (seeds {', '.join(map(str, seeds)) or 'none'}), {seconds / 3600:.2f} h "
            f"of one core; multum {document['versions']['multum']}, torch {document['versions']['torch']}, "
            f"{document['machine']['processor']}."
        )
    return "\n\n".join(parts)


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


def _agreement(document: Document) -> list[str]:
    parts = [f"{summary(document)[:1].upper()}{summary(document)[1:]}."]
    wrong = [line for line in (*document["lines"], *document["exact"]) if line["agrees"] is False]
    if wrong:
        named = [f"{x['row']}, {x['column']}: {_ours(x)} here, {x['printed'] or 'a check'} there" for x in wrong]
        parts += ["What is not the same, for the reasons above:", _list(named)]
    failed = [cell for cell in document["cells"] if cell["status"] == "failed"]
    if failed:
        parts += ["What failed:", _list(f"{c['row']}, seed {c['seed']}: {c['reason']}" for c in failed)]
    orderings = sorted(document["orderings"], key=lambda o: list(VERDICTS).index(o["verdict"]))
    if orderings:
        head = ["column", "better in the paper", "worse", "paper's difference", "ours", "95 % interval", "verdict"]
        parts.append(markdown_table(head, [ordering_cells(o) for o in orderings[:SHOWN]]))
        if len(orderings) > SHOWN:
            parts.append(f"{len(orderings) - SHOWN} more are in the JSON.")
        parts.append(_list(VERDICTS[v] for v in VERDICTS if any(o["verdict"] == v for o in orderings)))
    return parts


def ordering_cells(o: Mapping[str, Any]) -> list[str]:
    paper = "in words" if o["paper"] is None else f"{o['paper']:+.3g}"
    interval = "" if o["low"] is None else f"{o['low']:+.3g} to {o['high']:+.3g}"
    return [o["column"], o["better"], o["worse"], paper, f"{o['ours']:+.3g}", interval, o["verdict"]]


def _ours(line: Mapping[str, Any]) -> str:
    """Ours at the printed digits and one more; with its error where there are seeds.

    >>> _ours({"ours": 54.3217, "error": 0.1234, "printed": "96.0"})
    '54.32 ± 0.12'
    """
    value, printed = line["ours"], line["printed"]
    if value is None:
        return "not finite"
    if line.get("error") is None and line.get("seeds") is None:
        return f"{value:.10g}"
    digits = Printed(printed).digits + 1 if printed else _digits(value)
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
    """Every page of a folder, and their index, from its JSON; what a person made of it is read from ITEM.note.md."""
    rows = []
    for path in sorted(folder.glob("*/*.json")):
        document, note = json.loads(path.read_text()), path.with_suffix(".note.md")
        if document.get("format") != FORMAT:
            continue
        write_text(path.with_suffix(".md"), page(document, note.read_text() if note.is_file() else ""))
        link = f"[{document['item']}]({document['item']}.md)"
        rows.append([link, document["number"], document["shows"], document["status"], summary(document)])
    head = ["item", "in the paper", "shows", "status", "what came out"]
    write_text(folder / "index.md", f"# Tables and figures that were run\n\n{markdown_table(head, rows)}\n")


def _list(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
