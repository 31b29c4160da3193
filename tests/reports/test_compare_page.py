"""benchmarks/compare_page.py: one page of several comparisons, the same bytes for the same files."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from multum.files import dumps, plain
from reports import documents
from reports.answers import answered

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "compare_page.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_page", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_page_of_two_comparisons_and_peers(
    script: ModuleType, document: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regression = answered(documents.regression(methods=3))
    for name, each in (("digits", document), ("diabetes", regression)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(dumps(plain(each)))
    metrics = [{"accuracy": 0.95, "nll": 0.2}, {"accuracy": 0.97, "nll": 0.2}]
    peers = [{"data": "digits", "name": "HGB", "seed": i, "metrics": m, "seconds": 2.0} for i, m in enumerate(metrics)]
    peers.append({"data": "another", "name": "xgboost", "seed": 0, "metrics": {"accuracy": 0.5}, "seconds": None})
    (tmp_path / "peers.json").write_text(json.dumps({"rows": peers}))
    (tmp_path / "page.note.md").write_text("Why mimo is worse.\n")
    folders = [str(tmp_path / name) for name in ("digits", "diabetes")]
    out = tmp_path / "page.md"
    monkeypatch.setattr(sys, "argv", ["x", *folders, "--peers", str(tmp_path / "peers.json"), "--out", str(out)])
    script.main()
    text = out.read_text()
    script.main()
    assert out.read_text() == text
    monkeypatch.setattr(sys, "argv", ["x", "--out", str(out)])
    script.main()
    assert out.read_text() == text
    for each in (document, regression):
        assert each["command"] in text and each["advice"]["sentence"] in text and each["test"] in text
    assert "Why mimo is worse." in text and "xgboost" not in text
    assert re.search(r"\| HGB +\| +2 \| +96.00 ± 1.00 \| ", text)
    assert re.search(r"\| packed +\| lr 0.006, alpha 3 +\|", text)
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.M):
        assert len({len(line) for line in table.splitlines()}) == 1


def test_a_section_without_its_report_is_kept_and_its_peers_are_renewed(script: ModuleType, document: dict) -> None:
    peers = [
        {"data": "digits", "name": name, "seed": 0, "metrics": {"accuracy": a, "nll": 0.2}, "seconds": 2.0}
        for name, a in (("HGB", 0.95), ("tabm", 0.96))
    ]
    before = script.compare_page([document], peers)
    assert script.compare_page([], peers, before=before) == before
    renewed = script.compare_page([], [{**peers[0], "metrics": {"accuracy": 0.5, "nll": 0.7}}], before=before)
    changed = [(a, b) for a, b in zip(before.splitlines(), renewed.splitlines(), strict=True) if a != b]
    assert len(changed) == 1 and changed[0][0].startswith("| HGB") and " 50.00 |         0.700 | " in changed[0][1]


def test_differences_are_those_of_the_documents(script: ModuleType, document: dict) -> None:
    text = script.compare_page([document])
    row = next(row for row in document["rows"] if row["label"] == "packed")
    single = next(row for row in document["rows"] if row["label"] == "single")
    gap = row["against"]["single"]
    ood = [100 * (a - b) for a, b in zip(*(r["values"]["auroc"]["seeds"] for r in (row, single)), strict=True)]
    line = next(line for line in text.splitlines() if line.startswith("| packed") and f"{gap['mean']:+.4f} (" in line)
    assert f"({gap['low']:+.4f} to {gap['high']:+.4f})" in line and "better" in line
    assert f"{sum(ood) / 2:+.2f} (" in line


def test_an_older_document_has_its_section_too(script: ModuleType) -> None:
    text = script.compare_page([documents.minimal()])
    assert "91.00" in text and "Differences" not in text and "Chosen" not in text


def test_the_committed_page_is_that_of_its_reports(script: ModuleType) -> None:
    page = SCRIPT.parents[1] / "docs" / "results" / "compare.md"
    kept = json.loads(page.with_suffix(".json").read_text())
    assert kept["reports"] and script.page_of(page, kept) == page.read_text()
