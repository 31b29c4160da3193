"""Numbers that people wrote into notes, computed again from the JSON beside them."""

import heapq
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from multum.papers import headlines
from multum.papers.claims import CLAIMS
from multum.papers.results import Printed

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def best_path(heights: np.ndarray, start: tuple[int, int], end: tuple[int, int]) -> float:
    """The height that a path over a grid need not fall below, with steps to any of eight neighbours."""
    reached, waiting = {start: heights[start]}, [(-heights[start], start)]
    while waiting:
        lowest, place = heapq.heappop(waiting)
        if place == end:
            return float(-lowest)
        for step in np.ndindex(3, 3):
            other = (place[0] + step[0] - 1, place[1] + step[1] - 1)
            if all(0 <= i < n for i, n in zip(other, heights.shape, strict=True)):
                height = min(-lowest, heights[other])
                if height > reached.get(other, -np.inf):
                    reached[other] = height
                    heapq.heappush(waiting, (-height, other))
    raise AssertionError("a grid is connected")


def test_a_best_path_goes_around_a_hill() -> None:
    heights = np.array([[5.0, 1.0, 5.0], [4.0, 1.0, 4.0], [3.0, 2.0, 3.0]])
    assert best_path(heights, (0, 0), (0, 2)) == 2.0


# Every number that a person wrote beside a result is one of that result, at the digits that are written: a line, a
# difference or a ratio of two lines of one column, an ordering, its interval. What is computed in another way is named.

ELSEWHERE = {
    "README.md": {
        "50.4": "the best path over MIMO's plane: see the test below",
        "20.8": "the lowest accuracy on that plane's straight lines: see the test below",
    },
    "mimo/figure3.note.md": dict.fromkeys(("50.4", "52.7", "55.2", "48.6"), "paths over the plane: see the test below"),
    "hypernet/figure2.note.md": dict.fromkeys(("79.9", "73.1", "76.3", "73.7"), "of the figure: see the test below"),
    "mimo/figure4-left.note.md": dict.fromkeys(("0.50", "0.33"), "no preference among two inputs, and among three"),
    "packed/appendix-j.note.md": dict.fromkeys(("0.32", "3.1"), "of an F distribution: see the test below"),
}


def read(item: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{item}.json").read_text())


def spoken(documents: Sequence[Mapping[str, Any]]) -> dict[str, set[float]]:
    """All that a sentence may say of results: values of lines and orderings, and differences and ratios of lines."""
    values, columns = set(), {}
    for document in documents:
        for line in (*document["lines"], *document["exact"]):
            values |= {x for x in (line["ours"], line["error"]) if x is not None}
            if line["printed"]:
                values.add(Printed(line["printed"]).value)
            if line["seeds"] and line["ours"] is not None:
                # Clean and corrupted images have columns of their own, and are compared.
                name = "accuracy" if line["column"] in ACCURACIES else f"{document['item']} {line['column']}"
                columns.setdefault(name, set()).add(line["ours"])
        for ordering in document["orderings"]:
            values |= {ordering[key] for key in ("paper", "ours", "low", "high") if ordering[key] is not None}
    pairs = [pair for numbers in columns.values() for pair in permutations(numbers, 2)]
    differences = {a - b for a, b in pairs}
    ratios = {a / b for a, b in pairs if b}
    changes = values | {100 * (ratio - 1) for ratio in ratios}
    return {"": values, "points": values | differences, "times": ratios, "change": changes}


ACCURACIES = ("Acc", "Accuracy", "cAcc", "Corrupt")


def is_known(number: str, kind: str, values: Mapping[str, set[float]]) -> bool:
    """Whether a number is one of these at its digits; shares of 1 are written as percent too."""
    digits = len(number.partition(".")[2])
    shares = () if kind == "times" else (100 * v for v in values[kind] if abs(v) <= 1)
    return any(f"{abs(v):.{digits}f}" == number for v in chain(values[kind], shares))


def written(text: str) -> list[tuple[str, str]]:
    """Decimals, and whole numbers of percent, points and nats, each with what it counts.

    No names of tables, of settings and of formulas.
    """
    plain = " ".join(re.sub(r"\]\([^)]*\)|`[^`]*`|\*\*|95 %|[A-Za-z]+[-_]\d[\w-]*|1e-12", " ", text).split())
    plain = re.sub(r"(?:rho|gamma|alpha|sigma|P|N|M) = [\d., and]+|rate of [\d.]+|more than 0\.9", " ", plain)
    listed = r"(?:,? ?(?:and|to|against|%|,)? ?\+?\d[\d.]*)*"
    found = re.finditer(rf"(?<![\w.,])(\d+\.\d+|\d+(?={listed} ?(?:%|points|nats)))(?![\w]|\.\d)", plain)
    every = []
    for match in found:
        what = re.match(rf"{listed} (points|nats|times)", plain[match.end() :])
        change = re.match(r" % (?:at|less|more|,)|,? on ", plain[match.end() :]) and "by" in plain[: match.end()][-20:]
        kinds = {"points": "points", "nats": "points", "times": "times"}
        every.append((match[1], "change" if change else kinds[what[1]] if what else ""))
    return every


def unknown(text: str, items: Iterable[str], place: str) -> list[str]:
    """The numbers of a text that are none of these items'."""
    values, allowed = spoken([read(item) for item in dict.fromkeys(items)]), ELSEWHERE.get(place, {})
    return [x for x, kind in written(text) if x not in allowed and not is_known(x, kind, values)]


def linked(text: str, folder: str) -> list[str]:
    """Items whose pages a text links."""
    links = re.findall(r"\]\(([\w./-]+)\.md\)", text)
    items = [os.path.normpath(f"{folder}/{link}") for link in links]
    return [item for item in items if (RESULTS / f"{item}.json").is_file() and "/" in item]


def parts() -> list[tuple[str, str, list[str]]]:
    """Every note, and every point, row and paragraph of the page: where, what it says, and of which items."""
    every = []
    for note in sorted(RESULTS.glob("*/*.note.md")):
        text, place = note.read_text(), str(note.relative_to(RESULTS))
        every.append((place, text, [place.removesuffix(".note.md"), *linked(text, note.parent.name)]))
    page = (RESULTS / "README.md").read_text()
    page = page.partition(headlines.BEGIN)[0] + page.partition(headlines.END)[2]  # that table is compared as a whole
    for part in re.split(r"\n\s*\n|\n(?=- |\|)", page):
        if linked(part, "."):
            every.append(("README.md", part, linked(part, ".")))
    return every


PARTS = parts()


@pytest.mark.parametrize(("place", "text", "items"), PARTS, ids=[f"{place}-{i}" for i, (place, *_) in enumerate(PARTS)])
def test_numbers_in_notes_are_those_of_the_json(place: str, text: str, items: list[str]) -> None:
    assert unknown(text, items, place) == []


WHY = {says: " ".join(texts) for says, texts in headlines._reasons(RESULTS).items()}


def means_of(regimes: Iterable[str]) -> dict[str, set[float]]:
    """All that a sentence may say of regimes: means over seeds, and differences of two rows of one regime."""
    document = json.loads((RESULTS / "headlines.json").read_text())
    values, differences = set(), set()
    for regime in regimes:
        rows = document["regimes"][regime]["rows"].values()
        for column in {column for row in rows for column in row["values"]}:
            means = {sum(own.values()) / len(own) for row in rows if (own := row["values"].get(column))}
            values |= means
            differences |= {a - b for a, b in permutations(means, 2)}
    return {"": values, "points": differences, "times": set(), "change": set()}


@pytest.mark.parametrize("says", WHY)
def test_numbers_in_reasons_are_means_of_the_regime(says: str) -> None:
    (claim,) = (claim for claim in CLAIMS if claim.says == says)
    known = means_of({claim.regime, *re.findall(r"\bR\d\b", WHY[says])})
    assert [x for x, kind in written(WHY[says]) if not is_known(x, kind, known)] == []


def test_numbers_in_short_are_means_of_the_regimes_that_are_named_there() -> None:
    page = (RESULTS / "README.md").read_text()
    points = page.partition("## In short")[2].partition("\n## ")[0].strip().split("\n- ")
    assert len(points) > 4
    for point in points:
        known = means_of(re.findall(r"\bR\d\b", point))
        assert [x for x, kind in written(point) if not is_known(x, kind, known)] == [], point


def test_the_tables_of_tabms_protocol_are_means_of_their_json() -> None:
    section = (RESULTS / "README.md").read_text().partition("### R6 and R7")[2].partition("\n### ")[0]
    regimes = json.loads((RESULTS / "headlines.json").read_text())["regimes"]
    peers = json.loads((RESULTS / "compare.json").read_text())["peers"]
    columns = (("R6", "Accuracy", "adult", "accuracy", 100, 2), ("R7", "RMSE", "california_housing", "rmse", 1, 3))
    for label in ("one network", "Packed-Ensembles", "BatchEnsemble", "Deep Ensembles", "`tabm`, 32 members"):
        cells = []
        for regime, column, data, metric, scale, digits in columns:
            if label.startswith("`"):
                runs = [p for p in peers if (p["data"], p["name"]) == (data, "tabm-256")]
                values = [scale * run["metrics"][metric] for run in runs]
            else:
                row = regimes[regime]["rows"].get(label)
                values = list(row["values"][column].values()) if row else []
            cells.append(f"{sum(values) / len(values):.{digits}f}" if values else "not planned")
        assert f"| {label} | {' | '.join(cells)} |" in section


METHODS = [
    pytest.param(point, id=f"{page.stem}-{i}")
    for page in sorted((RESULTS.parent / "methods").glob("*.md"))
    for i, point in enumerate(re.findall(r"^- (.+(?:\n  .+)*)", page.read_text(), re.M))
    if re.search(r"\bR\d\b|\]\(\.\./results/\w+/", point)
]


@pytest.mark.parametrize("point", METHODS)
def test_numbers_on_the_pages_of_methods_are_those_of_the_json(point: str) -> None:
    of_items = spoken([read(item) for item in linked(point.replace("../results/", ""), ".")])
    of_regimes = means_of(re.findall(r"\bR\d\b", point))
    known = {kind: of_items[kind] | of_regimes[kind] for kind in of_items}
    assert [x for x, kind in written(point) if not is_known(x, kind, known)] == []


def test_a_wrong_number_in_a_note_is_found() -> None:
    """Each number of three figures and more is changed by some percent: most changes must be told."""
    changed = told = 0
    for _, text, items in PARTS:
        values = spoken([read(item) for item in dict.fromkeys(items)])
        for number, kind in written(text):
            if len(number.replace(".", "").lstrip("0")) >= 3:
                digits = len(number.partition(".")[2])
                wrong = f"{1.07 * float(number) + 3 * 10.0**-digits:.{digits}f}"
                changed += 1
                told += not is_known(wrong, kind, values)
    assert changed > 50 and told > 0.8 * changed, (told, changed)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.json")), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_interval_can_be_computed_from_the_json(path: Path) -> None:
    document = json.loads(path.read_text())
    for line in document["lines"]:
        if line["error"] is not None:
            values = np.array(line["values"] or line["left_out"])
            assert len(values) == line["seeds"]
            if line["values"]:
                assert line["ours"] == pytest.approx(values.mean())
                expected = values.std(ddof=1) / len(values) ** 0.5
            else:  # a jackknife's
                expected = ((len(values) - 1) * values.var()) ** 0.5
            assert line["error"] == pytest.approx(expected)
    for ordering in document["orderings"]:
        if ordering["low"] is not None:
            by_seed = np.array(ordering["differences"])
            half = stats.t.ppf(0.975, len(by_seed) - 1) * by_seed.std(ddof=1) / len(by_seed) ** 0.5
            interval = (by_seed.mean() - half, by_seed.mean() + half)
            assert (ordering["low"], ordering["high"]) == pytest.approx(interval)


def test_counts_of_orderings_are_those_of_the_json() -> None:
    sentences = 0
    for _, text, items in PARTS:
        for match in re.finditer(r"[Oo]f (\d+) orderings ([^.;]*)", " ".join(text.split())):
            document = next(d for d in map(read, items) if len(d["orderings"]) == int(match[1]))
            counts = Counter(o["verdict"] for o in document["orderings"])
            for number, word in re.findall(r"(\d+) (?:are |is )?(hold|open|reversed)", match[2]):
                assert counts["holds" if word == "hold" else word] == int(number), match[0]
                sentences += 1
    assert sentences >= 12


def test_the_interval_of_a_ratio_of_standard_deviations() -> None:
    ends = [math.sqrt(stats.f.ppf(p, 4, 4)) for p in (0.025, 0.975)]
    assert [f"{end:.{digits}f}" for end, digits in zip(ends, (2, 1), strict=True)] == ["0.32", "3.1"]


def test_nested_steps_are_ahead_in_the_two_epochs_after_members_are_born() -> None:
    numbers = pd.DataFrame(read("hypernet/figure2")["pictures"][""]["numbers"]).set_index(["curve", "epoch"])
    tested = 100 * numbers["test accuracy"]
    note = " ".join((RESULTS / "hypernet" / "figure2.note.md").read_text().split())
    assert (
        f"right on {tested['NASGD', 7]:.1f} % of the test images, by plain steps on {tested['ASGD', 7]:.1f} %" in note
    )
    assert f"another epoch later on {tested['NASGD', 8]:.1f} and {tested['ASGD', 8]:.1f} %" in note
    by_seed = numbers.filter(regex="test accuracy, seed")
    assert (by_seed.loc["NASGD", 7] > by_seed.loc["ASGD", 7]).all() and "on every seed" in note


def test_subnetworks_of_mimo_are_joined_by_paths() -> None:
    numbers = json.loads((RESULTS / "mimo" / "figure3.json").read_text())["pictures"][""]["numbers"]
    side = round(len(numbers["accuracy"]) ** 0.5)
    accuracy = 100 * np.array(numbers["accuracy"]).reshape(side, side)
    corners = [divmod(int(np.argmin(numbers[f"disagreement_{i}"])), side) for i in range(3)]
    note = (RESULTS / "mimo" / "figure3.note.md").read_text()
    assert f"below {best_path(accuracy, corners[0], corners[1]):.1f} %" in note
    assert f"have {accuracy[corners[0]]:.1f} and {accuracy[corners[1]]:.1f} %" in note
    for member in (0, 1):
        assert f"its own {best_path(accuracy, corners[member], corners[2]):.1f} %" in note
    assert f"{best_path(accuracy, corners[0], corners[1]):.1f} %" in (RESULTS / "README.md").read_text()
