"""The files of a report: whole, the same each time, self-contained, and safe whatever a label holds."""

from __future__ import annotations

import json
import os
import re
import struct
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from multum import reports
from multum.errors import ConfigError, FileError
from multum.reports.page import page as written_page
from reports import documents
from reports.answers import answered

FIGURES = [
    *("differences", "pareto-nll", "equivalent", "pareto", "reliability", "risk-coverage", "ood"),
    *("shift", "corruptions", "diversity", "training"),
]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


class Page(HTMLParser):
    """Every element with its attributes, and the text of scripts apart from that of the page."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        (self.scripts if self.inside in ("script", "style") else self.words).append(data)

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page((folder / "report.html").read_text())


def test_all_files_are_there(folder: Path, document: dict) -> None:
    names = {f"figures/{name}.{kind}" for name in FIGURES for kind in ("png", "svg")}
    assert set(contents(folder)) == names | {"report.html", "report.json", "report.md"}
    assert json.loads((folder / "report.json").read_text()) == document
    for name in FIGURES:
        assert ElementTree.parse(folder / "figures" / f"{name}.svg").getroot().tag.endswith("svg")
        head = (folder / "figures" / f"{name}.png").read_bytes()[:24]
        assert head[:8] == b"\x89PNG\r\n\x1a\n"
        assert struct.unpack(">I", head[16:20])[0] > 1000


def test_text_in_drawings_is_text(folder: Path) -> None:
    assert ">packed</text>" in (folder / "figures" / "pareto.svg").read_text()


def test_the_same_document_gives_the_same_bytes(tmp_path: Path) -> None:
    document = documents.regression(methods=2)
    paths = reports.write(document, tmp_path / "a")
    assert all(path.is_file() for path in paths)
    first = contents(tmp_path / "a")
    reports.write(documents.minimal(), tmp_path / "b")
    assert contents(tmp_path / "b") != first
    reports.write(document, tmp_path / "b")  # in another folder, over another report
    assert contents(tmp_path / "b") == first


def test_a_report_without_figures_removes_those_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "pareto.png").write_bytes(b"old")
    (tmp_path / "figures" / "my-own.png").write_bytes(b"mine")
    reports.write(documents.minimal(), tmp_path)
    assert set(contents(tmp_path)) == {"report.html", "report.json", "report.md", "figures/my-own.png"}


def test_nan_becomes_null(tmp_path: Path) -> None:
    document = documents.minimal()
    document["rows"][0]["values"]["accuracy"] |= {"mean": float("nan"), "error": float("inf")}
    reports.write(document, tmp_path)
    text = (tmp_path / "report.json").read_text()
    assert "NaN" not in text and "Infinity" not in text
    assert json.loads(text)["rows"][0]["values"]["accuracy"]["mean"] is None


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    with pytest.raises(ConfigError, match=r"file, the folder of a report, must be writable; got .*Use another folder"):
        reports.write(documents.minimal(), tmp_path / "file")
    assert (tmp_path / "file").read_text() == "here"


def test_a_write_that_breaks_off_leaves_the_report_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reports.write(documents.minimal(), tmp_path)
    before = contents(tmp_path)
    changed = documents.minimal() | {"title": "another"}

    def full(source: object, target: object) -> None:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileError, match="No space left"):
        reports.write(changed, tmp_path)
    assert contents(tmp_path) == before


def test_the_page_asks_nobody_for_anything(page: Page, folder: Path) -> None:
    text = (folder / "report.html").read_text()
    assert not re.findall(r"https?://", text)
    assert not re.search(r"@import|url\((?!#)", text)
    for tag, attributes in page.elements:
        assert tag not in ("link", "iframe", "object", "embed", "base")
        assert "src" not in attributes
        assert attributes.get("href", "#").startswith("#")
    policy = [m["content"] for m in page.of("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert policy and policy[0].startswith("default-src 'none'")


def test_ids_are_unique_and_references_lead_somewhere(page: Page) -> None:
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    used = {v[1:] for _, a in page.elements for n, v in a.items() if n == "href"}
    used |= {m for _, a in page.elements for v in a.values() if v for m in re.findall(r"url\(#([^)]+)\)", v)}
    assert len(used) > 50
    assert used <= set(ids)


def test_drawings_follow_the_pages_colours(page: Page) -> None:
    styles = [a.get("style", "") for tag, a in page.elements if tag in ("path", "use", "text", "g")]
    assert sum("var(--" in style for style in styles) > 1000
    assert not [style for style in styles if re.search(r"#[0-9a-fA-F]{3,8}\b", style)]
    assert not [a for tag, a in page.elements if tag in ("path", "use", "text") and {"fill", "stroke"} & set(a)] or all(
        a.get("fill") in ("currentColor", None) for tag, a in page.elements if tag in ("path", "use", "text")
    )


def test_the_page_says_it_all(page: Page, document: dict) -> None:
    words = " ".join(" ".join(page.words).split())
    assert document["advice"]["sentence"] in words
    assert document["command"] in words
    for note in document["advice"]["notes"]:
        assert note in words
    for row in document["rows"]:
        assert row["label"] in words
    failed = next(row for row in document["rows"] if row["status"] == "failed")
    assert failed["reason"] in words
    for part in ("versions", "machine"):
        for value in document[part].values():
            assert str(value) in words
    for figure in reports.figures(document):
        assert figure.title in words and figure.caption in words


def test_best_is_bold_and_tied_is_marked(page: Page, document: dict) -> None:
    values = [value for row in document["rows"] for value in row["values"].values()]
    cells = page.of("td")
    assert sum("best" in (a.get("class") or "").split() for a in cells) == sum(v["best"] for v in values) > 5
    tied = sum(v["tied"] for v in values)
    assert len([a for a in page.of("sup") if a.get("title")]) == tied > 0


def test_the_page_says_what_is_sure_how_it_was_tuned_and_tested(page: Page, document: dict) -> None:
    words = " ".join(" ".join(page.words).split())
    at = [words.index(part) for part in (document["advice"]["sentence"], document["advice"]["sure"][0])]
    assert at == sorted(at) and document["advice"]["unsure"][0] in words and document["test"] in words
    for name in ("control", "some seeds failed"):
        assert words.count(name) > 1, "beside the method and in the legend"
    assert "one model" not in words, "no mark of the legend that no method has"
    assert "lr 0.006, alpha 3" in words and "the same effort: 3 runs of 8 epochs, then 1 run of 20 epochs" in words
    assert words.count("one beyond it may be better") == 2, "once in the list, and once beside what was tried"


def test_main_columns_come_first_and_the_rest_behind_a_click(page: Page, document: dict) -> None:
    main = [c["key"] for c in document["columns"] if c["main"]]
    headings = [a for a in page.of("th") if "data-key" in a]
    assert len(main) == 7 and [a["data-key"] for a in headings[:7]] == main
    assert ["extra" in a["class"] for a in headings] == [False] * 7 + [True] * (len(document["columns"]) - 7)


def test_marks_of_methods_in_the_page() -> None:
    names = ["single", "mimo", "batchensemble"]
    document = answered(documents.classification(seeds=2, failed="", partly="", names=names))
    words = " ".join(Page(written_page(document, [], {})).words)
    assert words.count("not converged") == 2, "beside the method and in the legend"
    assert words.count("one model") == 3, "and in its own meaning"


def test_a_document_without_the_newer_keys_still_has_its_page() -> None:
    document = documents.classification(seeds=2, names=["single", "packed", "hypernet"])
    page = Page(written_page(document, [], {}))
    main = [a["data-key"] for a in page.of("th") if "data-key" in a and "extra" not in a["class"]]
    assert main == ["accuracy", "nll", "ece", "auroc", "params", "macs"]
    assert not {"tuning", "test"} & {a.get("id") for _, a in page.elements}


def test_every_figures_numbers_are_in_the_page(page: Page, document: dict) -> None:
    data = json.loads(next(s for s in page.scripts if '"frames"' in s))
    for figure in reports.figures(document):
        frame, stored = figure.frame(), data["frames"][figure.name]
        assert stored["columns"] == list(frame.columns)
        assert len(stored["rows"]) == len(frame)
        at = frame.columns.get_loc(frame.select_dtypes("number").columns[0])
        assert stored["rows"][-1][at] == pytest.approx(frame.iloc[-1, at], rel=1e-5)


def test_labels_are_words_and_not_markup(tmp_path: Path) -> None:
    document = documents.classification(seeds=1, failed="deep", partly="", names=["single", "deep"])
    evil = "</script><img src=x onerror=alert(1)>|`*_[a](javascript:b)"
    for part in (*document["rows"], *document["cells"]):
        part["label"] = part["label"].replace("single", evil)
        part["reason"] = part["reason"] and evil
    document |= {"title": evil, "command": evil, "advice": {"label": evil, "sentence": evil, "notes": [evil]}}
    document["columns"][0] |= {"help": f'"{evil}', "title": evil}
    reports.write(document, tmp_path)
    page = Page((tmp_path / "report.html").read_text())
    assert not page.of("img")
    assert len(page.of("script")) == 2
    assert not [a for _, a in page.elements if any(name.startswith("on") for name in a)]
    assert evil in "".join(page.words)
    markdown = (tmp_path / "report.md").read_text()
    assert not re.search(r"(?<!\\)<img", markdown.replace(f"```sh\n{evil}\n```", ""))
