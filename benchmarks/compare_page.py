"""docs/results/compare.md: comparisons that were run, with the commands that run them, from their report.json.

    multum compare --data digits --seeds 5 --out runs/digits
    python benchmarks/compare_page.py runs/digits runs/fashion --peers runs/peers/peers.json
    python benchmarks/compare_page.py                                   the same bytes from what is kept

Peers are other libraries on the same splits: {"rows": [{"data", "name", "seed", "metrics": {...}, "seconds"}]}. Reports
(without their cells) and peers are kept beside the page, in compare.json; what is written by hand stands in
compare.note.md. A section of the page whose report is not kept stays as it is, but for the rows of peers that were
measured since.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from multum.comparing.reading import columns
from multum.figures.formats import NOTHING, heading, markdown_table, shown, sized
from multum.files import read_json, write_json, write_text
from multum.metrics.statistics import over_seeds, paired_t
from multum.reports.markdown import advice_parts, code, legend, main_table, safe
from multum.reports.summary import settings_words
from multum.reports.table import to_single, verdict

OUT = Path("docs/results/compare.md")
OOD = "auroc"
BESIDE = "Beside other libraries, on the same splits:"
OURS = "multum: "
INTRODUCTION = """# Comparisons that were run

Each from one command. Intervals are at 95 %, over seeds and test examples together; a difference to one network is
paired, and for calibrated NLL its interval holds for all methods at once. Tuning saw no test example."""


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="of comparisons: those that hold a report.json")
    parser.add_argument("--peers", nargs="*", default=[], type=Path, help="JSON files of other libraries' results")
    parser.add_argument("--out", default=OUT, type=Path)
    options = parser.parse_args()
    source = options.out.with_suffix(".json")
    kept = read_json(source) if source.is_file() else {"reports": {}, "peers": []}
    for folder in options.folders:
        report = read_json(folder / "report.json")
        kept["reports"][folder.name] = {key: value for key, value in report.items() if key != "cells"}
    measured = [*kept["peers"], *(row for path in options.peers for row in read_json(path).get("rows", []))]
    latest = {(row["data"], row["name"], row["seed"]): row for row in measured}
    kept["peers"] = [latest[key] for key in sorted(latest)]
    write_json(source, kept)
    write_text(options.out, page_of(options.out, kept))
    print(f"wrote {options.out}")


def page_of(path: Path, kept: Mapping[str, Any]) -> str:
    """The page as it is to be, from what is kept, its note, and the page as it is."""
    note = path.with_suffix(".note.md")
    texts = (file.read_text() if file.is_file() else "" for file in (note, path))
    return compare_page(list(kept["reports"].values()), kept["peers"], *texts)


def compare_page(
    documents: Sequence[Mapping[str, Any]], peers: Sequence[Mapping[str, Any]] = (), note: str = "", before: str = ""
) -> str:
    """The page as Markdown: the sections of the page as it was, renewed or kept, then the new ones."""
    sections = {text.partition("\n")[0]: text.strip() for text in before.split("\n## ")[1:]}
    sections = {title: _with_peers(text, peers) for title, text in sections.items()}
    for document in documents:
        sections[safe(document["title"])] = "\n\n".join(_section(document, peers)).removeprefix("## ")
    parts = [INTRODUCTION, *([note.strip()] if note.strip() else []), *(f"## {text}" for text in sections.values())]
    return "\n\n".join(parts) + "\n"


def _with_peers(section: str, peers: Sequence[Mapping[str, Any]]) -> str:
    """A section of the page with the peers of today in its last table; ours, and peers not measured since, are kept."""
    text, titled, table = section.partition(f"{BESIDE}\n\n")
    command = section.partition(" --data ")[2].split(maxsplit=1)
    own = [peer for peer in peers if command and peer["data"] == command[0].strip("'").partition("#")[0]]
    if not titled or not own:
        return section
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    known = {heading(column): column for column in (c.described() for c in columns())}
    shared = [{**known[name], "digits": _decimals(rows[-1][2 + i])} for i, name in enumerate(head[2:-1])]
    new = {row[0]: row for row in _peer_rows(own, shared)}
    kept = [row for row in rows if row[0] not in new]
    ours = [row for row in kept if row[0].startswith(OURS)]
    others = [row for row in kept if row not in ours]
    return f"{text}{titled}{markdown_table(head, [*new.values(), *others, *ours], 'lr')}"


def _decimals(cell: str) -> int:
    """How many places a number of the page has behind its point."""
    return len(cell.split()[0].partition(".")[2])


def _section(document: Mapping[str, Any], peers: Sequence[Mapping[str, Any]]) -> list[str]:
    machine, versions = document.get("machine") or {}, document.get("versions") or {}
    where = ", ".join(str(machine[name]) for name in ("processor", "system") if machine.get(name))
    where += f"; {machine['cores']} cores" if machine.get("cores") else ""
    where += "".join(f"; {name} {version}" for name, version in versions.items())
    parts = [f"## {safe(document['title'])}", code(document.get("command") or ""), safe(where)]
    parts += advice_parts(document)
    parts += [main_table(document), legend(document["rows"])]
    parts += _titled("Differences to one network:", _differences(document))
    parts += _titled("Chosen by tuning:", _chosen(document))
    parts += [safe(document["test"])] if document.get("test") else []
    parts += _titled(BESIDE, _beside(document, peers))
    return [part for part in parts if part]


def _titled(title: str, table: str) -> list[str]:
    return [title, table] if table else []


def _differences(document: Mapping[str, Any]) -> str:
    """Calibrated NLL and OOD AUROC less those of the single network."""
    single = next((row for row in document["rows"] if row["name"] == "single" and not row.get("control")), None)
    body = []
    for row in document["rows"]:
        gap, ood = to_single(row), _paired(row, single, OOD)
        if gap is None and ood is None:
            continue
        says = NOTHING if gap is None else verdict(gap, document.get("margin") or 0.0)
        nll = NOTHING if gap is None else _signed(gap["mean"], gap.get("low"), gap.get("high"), 4)
        body.append([safe(row["label"]), nll, says, NOTHING if ood is None else _signed(*(100 * v for v in ood), 2)])
    known = any(line[3] != NOTHING for line in body)
    head = ["method", "calibrated NLL", "verdict", "OOD AUROC, points (t, over seeds)"][: 4 if known else 3]
    return markdown_table(head, [line[: len(head)] for line in body], "lrlr") if body else ""


def _paired(row: Mapping[str, Any], single: Mapping[str, Any] | None, key: str) -> tuple[float, float, float] | None:
    """The mean difference over seeds with its interval; None where there are not two of the same seeds."""
    if single is None or row is single or key not in row["values"] or key not in single["values"]:
        return None
    a, b = (each["values"][key]["seeds"] for each in (row, single))
    if len(a) != len(b) or len(a) < 2:
        return None
    test = paired_t(torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64))
    return test.difference, test.low, test.high


def _signed(mean: float, low: float | None, high: float | None, places: int) -> str:
    ends = "" if low is None or high is None else f" ({low:+.{places}f} to {high:+.{places}f})"
    return f"{mean:+.{places}f}{ends}"


def _chosen(document: Mapping[str, Any]) -> str:
    methods = (document.get("tuning") or {}).get("methods") or {}
    body = [
        [safe(label), safe(settings_words(each.get("chosen")) or "none"), str(len(each["tried"])), _edge(each)]
        for label, each in methods.items()
    ]
    return markdown_table(["method", "chosen", "runs", "at the end of the ladder"], body, "llrl") if body else ""


def _edge(tuned: Mapping[str, Any]) -> str:
    return "yes" if tuned.get("edge") else ""


def _beside(document: Mapping[str, Any], peers: Sequence[Mapping[str, Any]]) -> str:
    """Other libraries' results, then ours in the metrics that they have."""
    data = (document.get("settings") or {}).get("data", "")
    own = [peer for peer in peers if peer.get("data") in (data, data.partition("#")[0])]
    measured = {key for peer in own for key in peer.get("metrics") or {}}
    shared = [column for column in sized(document) if column["key"] in measured]
    if not shared:
        return ""
    body = _peer_rows(own, shared)
    for row in (row for row in document["rows"] if row["values"]):
        cells = [shown(row["values"].get(column["key"]), column, unit=False) for column in shared]
        training = row["values"].get("train_seconds") or {}
        seeds = max((len(value.get("seeds") or []) for value in row["values"].values()), default=0)
        body.append([f"{OURS}{safe(row['label'])}", str(seeds), *cells, _seconds(training.get("seeds") or [])])
    head = ["model", "seeds", *(safe(heading(column)) for column in shared), "training (s)"]
    return markdown_table(head, body, "lr")


def _peer_rows(peers: Sequence[Mapping[str, Any]], shared: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """One line for each peer: its seeds, its metrics in these columns, its seconds."""
    body = []
    for name in dict.fromkeys(str(peer["name"]) for peer in peers):
        runs = [peer for peer in peers if str(peer["name"]) == name]
        seconds = [run["seconds"] for run in runs if run.get("seconds") is not None]
        cells = [shown(_mean([run["metrics"].get(c["key"]) for run in runs]), c, unit=False) for c in shared]
        body.append([safe(name), str(len(runs)), *cells, _seconds(seconds)])
    return body


def _mean(values: Sequence[float | None]) -> dict[str, Any]:
    numbers = [value for value in values if value is not None]
    if not numbers or len(numbers) < len(values):
        return {"mean": None, "error": None}
    summary = over_seeds(numbers)
    return {"mean": summary.mean, "error": summary.error if len(numbers) > 1 else None}


def _seconds(seconds: Sequence[float]) -> str:
    return f"{sum(seconds) / len(seconds):.1f}" if seconds else NOTHING


if __name__ == "__main__":
    main()
