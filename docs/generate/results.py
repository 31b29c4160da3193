"""Numbers of committed comparisons: docs/results/compare.md, read back. Nothing on the site is typed from it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

import multum

from . import svg

__all__ = ["Comparison", "advice", "comparisons", "of_method", "quality_and_cost"]

PAGE = Path(__file__).parents[1] / "results" / "compare.md"
VERDICTS = {
    "better": "better",
    "worse": "worse",
    "equal within the margin": "equal within the margin",
    "cannot be told": "inconclusive",
}
FOOTNOTES = r"\*\*| ≈| \(one model\)"


@dataclass(frozen=True)
class Comparison:
    """One section of the page: `rows` by method are columns as printed, `differences` those to one network."""

    title: str
    advice: str
    rows: dict[str, dict[str, str]]
    differences: dict[str, dict[str, str]]

    @property
    def name(self) -> str:
        return re.split(r"[:, ]", self.title)[0]

    @property
    def words(self) -> str:
        return self.title.rpartition(":")[0]

    def cost(self, method: str) -> float:
        """Mult-adds in those of one network."""
        return _amount(self.rows[method]["mult-adds"]) / _amount(self.rows["single"]["mult-adds"])


def comparisons() -> list[Comparison]:
    """All sections, in the page's order."""
    found = []
    for section in PAGE.read_text().split("\n## ")[1:]:
        title = section.splitlines()[0].replace("\\", "")
        tables = [_table(block) for block in re.findall(r"(?:^\|.*\n)+", section, re.M)]
        rows = next((t for t in tables if "mult-adds" in next(iter(t.values()), {})), None)
        differences = next((t for t in tables if "verdict" in next(iter(t.values()), {})), None)
        sentence = re.search(r"^\*\*(.+?)\*\*$", section, re.M)
        if rows and differences and sentence:
            found.append(Comparison(title, sentence[1], rows, differences))
    return found


def _table(block: str) -> dict[str, dict[str, str]]:
    lines = [
        [re.sub(FOOTNOTES, "", cell).strip() for cell in line.strip("| \n").split("|")] for line in block.splitlines()
    ]
    head, *rest = [line for line in lines if not set("".join(line)) <= set("-: ")]
    return {line[0]: dict(zip(head, line, strict=False)) for line in rest}


def _amount(words: str) -> float:
    number, _, unit = words.partition(" ")
    return float(number) * {"k": 1e3, "M": 1e6, "G": 1e9}.get(unit, 1)


def _step(least: float) -> float:
    """A round distance of ticks: 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(least))
    return next(power * round_number for round_number in (1, 2, 5, 10) if power * round_number >= least)


def _interval(words: str) -> tuple[float, float, float]:
    mean, low, high = (float(n) for n in re.findall(r"[-+]?\d+\.?\d*(?:e-?\d+)?", words)[:3])
    return mean, low, high


def advice() -> str:
    """What each comparison recommended, as Markdown."""
    lines = ["| Data | What the report recommends |", "|---|---|"]
    return "\n".join([*lines, *(f"| {c.words} | {c.advice} |" for c in comparisons())])


def of_method(name: str) -> str:
    """A method in every comparison that has it, as Markdown: in a sentence, then in numbers."""
    verdicts: dict[str, list[str]] = {words: [] for words in VERDICTS.values()}
    lines = ["| Data | Difference in calibrated NLL (95 % interval) | Verdict | Mult-adds |", "|---|---:|---|---:|"]
    for c in comparisons():
        for label in c.rows:
            if label.partition(":")[0] != name or label not in c.differences:
                continue
            difference = c.differences[label]
            verdict = VERDICTS[difference["verdict"]]
            verdicts[verdict].append(c.name)
            lines.append(f"| {c.words} | {difference['calibrated NLL']} | {verdict} | {c.cost(label):.2f}x |")
    if len(lines) == 2:
        return (
            "None of our [comparisons](../results/compare.md) includes this method; run `multum compare` on your data."
        )
    said = "; ".join(f"**{verdict}** on {', '.join(names)}" for verdict, names in verdicts.items() if names)
    source = "From [our comparisons](../results/compare.md), in which all methods were tuned with the same effort."
    return "\n".join([f"Compared with one network: {said}.", "", *lines, "", source])


def quality_and_cost(style: str = "") -> str:
    """Calibrated NLL against mult-adds, both beside one network, a panel for each comparison."""
    shown = [c for c in comparisons() if c.name != "digits"]  # at its ceiling: nothing can be told there
    kinds = sorted({label.partition(":")[0] for c in shown for label in c.differences})
    columns = 2
    width, high, left, gap = 330, 150, 60, 78
    shapes: list[str] = []
    for place, c in enumerate(shown):
        x0, y0 = left + (place % columns) * (width + gap), 34 + (place // columns) * (high + 78)
        values = {label: _interval(d["calibrated NLL"]) for label, d in c.differences.items()}
        low = min(0, *(v[1] for v in values.values()))
        top = max(0, *(v[2] for v in values.values()))
        pad = 0.08 * (top - low)
        low, top = low - pad, top + pad

        def y(value: float, low: float = low, top: float = top, y0: float = y0) -> float:
            return y0 + high * (top - value) / (top - low)

        def x(cost: float, x0: float = x0) -> float:
            return x0 + 16 + (width - 32) * math.log(max(cost, 0.9) / 0.9) / math.log(5 / 0.9)

        shapes.append(svg.text(x0, y0 - 12, c.words, "title"))
        shapes += [svg.line(x0, y(0), x0 + width, y(0), "axis"), svg.line(x0, y0, x0, y0 + high, "axis")]
        shapes.append(svg.text(x0 - 6, y(0) + 4, "0", "quiet", "end"))
        step = _step((top - low) / 5)
        for tick in range(math.ceil(low / step), math.floor(top / step) + 1):
            if tick and abs(y(tick * step) - y(0)) > 12:
                shapes.append(svg.text(x0 - 6, y(tick * step) + 4, f"{tick * step:+.3g}", "quiet", "end"))
        for cost in (1, 2, 4):
            shapes.append(svg.text(x(cost), y0 + high + 16, f"{cost}x", "quiet", "middle"))
        ordered = sorted(values, key=c.cost)
        for label in ordered:
            mean, below, above = values[label]
            same = [o for o in ordered if abs(math.log(c.cost(o) / c.cost(label))) < 0.12]  # beside each other
            at = x(c.cost(label)) + 13 * (same.index(label) - (len(same) - 1) / 2)
            kind = f"own{kinds.index(label.partition(':')[0]) % 6}"
            shapes += [
                svg.line(at, y(below), at, y(above), f"bar {kind}"),
                svg.circle(at, y(mean), 4.5, f"solid {kind}"),
            ]
    bottom = 34 + -(-len(shown) // columns) * (high + 78) - 24
    shapes.append(
        svg.text(
            left,
            bottom,
            "vertical: difference in calibrated NLL from one network (lower is better), with 95 % intervals",
            "quiet",
        )
    )
    shapes.append(svg.text(left, bottom + 15, "horizontal: mult-adds per prediction, in units of one network", "quiet"))
    for i, kind in enumerate(kinds):
        at = left + 122 * i
        shapes += [svg.circle(at + 5, bottom + 36, 5, f"solid own{i % 6}"), svg.text(at + 15, bottom + 40, kind)]
    label = "Quality against cost: " + "; ".join(c.words for c in shown)
    return svg.picture(left + columns * width + gap + 20, bottom + 56, label, shapes, style)


def file_style() -> str:
    """Colours for a picture that is a file of its own: light, or dark where the reader's system is."""
    light = ("#0072b2", "#d55e00", "#009e73", "#b5528f", "#8a6d00", "#5b5bd6", "#222", "#667", "#a9afba")
    dark = ("#56a8e0", "#ef8a4a", "#3cc29a", "#d98abb", "#d0b040", "#a3a3f5", "#ddd", "#a0a6b2", "#626977")

    def rules(colours: tuple[str, ...]) -> str:
        *members, ink, quiet, faint = colours
        own = "".join(f".own{i}{{--own:{colour}}}" for i, colour in enumerate(members))
        return own + f"text{{fill:{ink}}}.quiet{{fill:{quiet}}}.axis{{stroke:{faint}}}"

    common = "svg{font:12px system-ui,sans-serif}.title{font-weight:600}.quiet{font-size:11px}"
    common += ".solid{fill:var(--own)}.bar{stroke:var(--own);stroke-width:2}"
    return f"{common}{rules(light)}@media(prefers-color-scheme:dark){{{rules(dark)}}}"


if __name__ == "__main__":
    target = Path(__file__).parents[1] / "assets" / "quality-cost.svg"
    target.write_text(quality_and_cost(file_style()) + "\n")
    print(f"{target}: multum {multum.__version__}")
