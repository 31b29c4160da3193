"""The papers' main claims: the plan is what is run, and verdicts follow from the values that are kept."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from multum import Deep, Single, reproduce
from multum.errors import ConfigError, DataError
from multum.methods import Method
from multum.papers import claims, headlines, repeating
from multum.papers.base import Row
from multum.papers.claims import CLAIMS, Claim
from multum.papers.measured import COLUMNS, settings_of
from multum.papers.plan import plan_page
from multum.papers.regime import Regime
from multum.papers.regimes import REGIMES
from multum.runs.pool import here

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def document(values: dict[str, dict[str, list[float]]], planned: int | None = None) -> dict:
    """The document of a regime T whose rows have these values by column, of all planned seeds or of some."""
    seeds = planned or max(len(seeds) for columns in values.values() for seeds in columns.values())
    rows = {
        row: {
            "seeds": list(range(seeds)),
            "values": {column: {str(i): x for i, x in enumerate(seeds)} for column, seeds in columns.items()},
        }
        for row, columns in values.items()
    }
    return {"regimes": {"T": {"rows": rows}}}


def only(monkeypatch: pytest.MonkeyPatch, claim: Claim) -> None:
    for module in (claims, headlines):
        monkeypatch.setattr(module, "CLAIMS", (claim,))


def test_the_committed_plan_is_what_is_run() -> None:
    assert (RESULTS / "plan.md").read_text("utf-8") == plan_page()


def test_the_committed_table_comes_from_the_committed_values() -> None:
    kept = json.loads((RESULTS / "headlines.json").read_text())
    page = (RESULTS / "README.md").read_text("utf-8")
    assert f"{headlines.BEGIN}\n\n{headlines.section(kept, RESULTS)}\n\n{headlines.END}" in page
    reasons = headlines._reasons(RESULTS)
    assert reasons.keys() <= {claim.says for claim in CLAIMS}


def test_values_that_are_kept_belong_to_planned_settings_and_seeds() -> None:
    kept = json.loads((RESULTS / "headlines.json").read_text())
    for regime in REGIMES.values():
        for row in regime.every:
            own = kept["regimes"][regime.name]["rows"][row.label]
            assert own["settings"] == json.loads(json.dumps(settings_of(row)))
            for seeds in own["values"].values():
                assert {*map(int, seeds)} <= {*row.seeds}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.says)
def test_claims_are_about_rows_and_columns_that_are_measured(claim: Claim) -> None:
    labels = [row.label for row in REGIMES[claim.regime].every]
    assert len(labels) == len({*labels}) and {claim.method, claim.other} <= {*labels}
    assert claim.column in COLUMNS and claim.column in headlines.KEPT and claim.margin > 0
    page = claims.PAGES.get(claim.source)
    assert claim.source == "TabM" if page is None else (RESULTS / f"{page}.md").is_file()


def test_the_cells_that_were_run_before_the_plan_grew_are_still_its_own() -> None:
    kept = json.loads((RESULTS / "headlines.json").read_text())["regimes"]["R1"]["rows"]
    assert sum(len(row["seconds"]) for row in kept.values()) >= 29
    assert [row.label for row in REGIMES["R1"].rows] == [*kept][: len(REGIMES["R1"].rows)]


def test_intervals_hold_for_all_tests_together(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = Claim("a is better", "paper", "1", "T", "a", "b", "NLL", 0.01)
    only(monkeypatch, claim)
    a, b = [0.30, 0.33, 0.31, 0.32], [0.41, 0.40, 0.43, 0.44]
    values = {"a": {"NLL": a, "calibrated NLL": a}, "b": {"NLL": b, "calibrated NLL": a}}
    raw, calibrated = headlines.tested(document(values))
    level = 0.95 ** (1 / 2)  # two tests: as printed, and calibrated
    expected = stats.ttest_rel(a, b).confidence_interval(level)
    assert (raw["low"], raw["high"]) == pytest.approx((expected.low, expected.high))
    assert raw["verdict"] == "confirmed" and raw["seeds"] == 4 and raw["difference"] == pytest.approx(-0.105)
    assert calibrated["verdict"] == "equivalent"  # the same values
    begun = next(headlines.tested(document(values, planned=5)))
    assert begun["verdict"] == "open" and begun["low"] == raw["low"]  # nothing is judged before the last seed


@pytest.mark.parametrize(
    ("column", "equal", "interval", "verdict"),
    [
        ("NLL", False, (-0.20, -0.10), "confirmed"),
        ("NLL", False, (0.10, 0.20), "contradicted"),
        ("NLL", False, (0.001, 0.004), "contradicted"),  # small, but surely worse
        ("NLL", False, (-0.005, 0.004), "equivalent"),
        ("NLL", False, (-0.1, 0.1), "open"),
        ("Accuracy", False, (0.10, 0.20), "confirmed"),
        ("Accuracy", False, (-0.20, -0.10), "contradicted"),
        ("Accuracy", True, (-0.009, -0.001), "equivalent"),
        ("Accuracy", True, (-0.02, -0.001), "open"),  # perhaps worse than the margin
        ("Accuracy", True, (-0.2, -0.1), "contradicted"),
        ("Accuracy", True, (0.02, 0.1), "confirmed"),  # better than as good
    ],
)
def test_verdicts(column: str, equal: bool, interval: tuple[float, float], verdict: str) -> None:
    claim = Claim("a", "paper", "1", "T", "a", "b", column, 0.01, equal)
    assert headlines._verdict(claim, column, *interval) == verdict


def test_too_few_seeds_are_open_and_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, Claim("a", "paper", "1", "T", "a", "b", "Accuracy", 1.0))
    one = document({"a": {"Accuracy": [90.0]}, "b": {"Accuracy": [80.0, 81.0]}})
    none = document({"a": {"Accuracy": []}, "b": {"Accuracy": [80.0]}})
    assert [next(headlines.tested(d))["verdict"] for d in (one, none)] == ["open", "not run"]
    assert headlines.table_rows(one)[0]["ours"] == "90.0 against 80.0"


def test_what_claims_are_about_is_run_first_and_the_cheapest_regime_before_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def regime(name: str, width: int, methods: dict[str, Method]) -> Regime:
        how: dict[str, Any] = {"data": "uci_energy", "model": f"mlp:hidden={width}", "recipe": {"epochs": 1}}
        rows = [Row(label=label, method=method, seeds=(0, 1), **how) for label, method in methods.items()]
        return Regime(name=name, title="t", why="w", rate=1, rows=tuple(rows))

    beside, pair = {"beside": Deep(members=3)}, {"one": Single(), "two": Deep(members=2)}
    every = (regime("L", 64, beside | pair), regime("S", 8, beside | pair), regime("N", 1, {"one": Deep(members=5)}))
    monkeypatch.setattr(headlines, "REGIMES", {regime.name: regime for regime in every})
    about = [Claim(f"{name}: two are better", "paper", "1", name, "two", "one", "NLL", 0.01) for name in "LS"]
    for module in (claims, headlines):
        monkeypatch.setattr(module, "CLAIMS", tuple(about))
    begun: list[str] = []
    monkeypatch.setattr(
        headlines, "run_cells", lambda cells, *args, titles, **how: begun.extend(titles[cell.name] for cell in cells)
    )
    monkeypatch.setattr(headlines, "_write", lambda *args: None)
    reproduce("headlines", tmp_path / "run", pages=tmp_path / "pages", threads=1)
    first, others = begun[:8], begun[8:]
    assert first == [f"{name}: {label}" for name in "SL" for _ in range(2) for label in ("one", "two")]
    assert others == ["N: one"] * 2 + ["S: beside"] * 2 + ["L: beside"] * 2


def test_a_run_is_kept_beyond_its_cells_and_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = {"epochs": 1, "batch_size": 256}
    rows = tuple(
        Row(label=label, data="digits", model="mlp:hidden=8", method=method, recipe=recipe, seeds=(0, 1))
        for label, method in (("one", Single()), ("two", Deep(members=2)))
    )
    regime = Regime(name="T", title="digits", why="a trial", rate=1, rows=rows, single="one", half="two")
    monkeypatch.setattr(headlines, "REGIMES", {"T": regime})
    only(monkeypatch, Claim("two are better", "paper", "1", "T", "two", "one", "NLL", 0.01))
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "README.md").write_text(f"# Results\n\n{headlines.BEGIN}\nBefore.\n{headlines.END}\n\nThe rest.\n")
    (pages / "headlines.why.txt").write_text("two are better | since there are two | and more\n")
    first = reproduce("headlines", tmp_path / "run", pages=pages, threads=1)
    nll = first["regimes"]["T"]["rows"]["one"]["values"]["NLL"]
    assert [*nll] == ["0", "1"] and all(x > 0 for x in nll.values())
    text = (pages / "README.md").read_text()
    assert (
        "two are better" in text and "since there are two |" in text and "Before." not in text and "The rest." in text
    )
    assert "More on these verdicts" in text and "- *two are better*: and more" in text
    assert "4 of 4 planned cells" in text and "training accuracy" in text

    elsewhere = reproduce("headlines", tmp_path / "another", pages=pages, gather=True)  # no cell is there
    assert elsewhere["regimes"] == first["regimes"]

    second = reproduce("headlines", tmp_path / "run", pages=pages, threads=1, repeat=3)
    (draw,) = second["repeated"]
    assert [cell["same"] for cell in draw["cells"]] == [True] * 3 and draw["of"] == 4
    assert "3 of 4 cells, drawn at random; all gave" in (pages / "README.md").read_text()
    weights = next((tmp_path / "run" / "repeated").glob("*/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    first = reproduce("headlines", tmp_path / "run", pages=pages, threads=1, repeat=3)
    (draw,) = first["repeated"]  # the same cells: the new draw is in the place of the old one
    assert sum(cell["same"] for cell in draw["cells"]) == 2  # one bit is seen, and named
    assert "2 gave the same weights and numbers bit by bit. Not: T: " in (pages / "README.md").read_text()

    read = (pages / "headlines.json").read_bytes(), (pages / "README.md").read_bytes()
    monkeypatch.setattr(headlines, "run_cells", lambda *args, **how: pytest.fail("a known cell was run"))
    assert reproduce("headlines", tmp_path / "another", pages=pages) == first
    assert read == ((pages / "headlines.json").read_bytes(), (pages / "README.md").read_bytes())

    changed = copy.deepcopy(first)
    changed["regimes"]["T"]["rows"]["one"]["settings"]["model"] = "mlp:hidden=9"
    (pages / "headlines.json").write_text(json.dumps(changed))
    again = reproduce("headlines", tmp_path / "another", pages=pages, gather=True)
    assert again["regimes"]["T"]["rows"]["one"]["values"]["NLL"] == {}  # of other settings: not taken
    assert again["regimes"]["T"]["rows"]["two"] == first["regimes"]["T"]["rows"]["two"]


def test_draws_of_other_cells_stay(tmp_path: Path) -> None:
    row = Row(label="one", data="uci_energy", model="mlp", method=Single(), recipe={}, seeds=(0, 1))
    (tmp_path / "cells").mkdir()
    drawn = {"T": row.cells()}

    def again(before: list[dict[str, Any]]) -> list[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(repeating, "is_done", lambda cell, folder: True)
            patch.setattr(repeating, "run_cells", lambda *args, **how: {})
            return repeating.repeated(drawn, tmp_path, 2, before, runner=here, threads=1, progress=False)

    elsewhere = {"of": 7, "cells": [{"run": "S", "seed": 0, "same": True}]}
    once = again([elsewhere])
    assert [draw["of"] for draw in once] == [7, 2] and once[0] == elsewhere
    assert again(once) == once
    assert repeating.told(once).startswith("Second runs: 3 of 9 cells, drawn at random; 1 gave")


def test_the_plan_is_run_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be run as planned"):
        reproduce("headlines", tmp_path, seeds=[0])
    with pytest.raises(DataError, match="must be finished before they are repeated"):
        reproduce("headlines", tmp_path, repeat=2)
