"""The site: its blocks run, its numbers and drawings are the code's, and what its pages name exists."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import multum
from multum.errors import PAGES, MultumError

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "multum"
PAGE = (ROOT / "docs" / "architecture.md").read_text()
STEPS = re.findall(r"`([\w/]+\.py):(\w+)`", PAGE)


@pytest.fixture(scope="module")
def graph() -> ModuleType:
    spec = importlib.util.spec_from_file_location("graph", ROOT / "docs" / "graph.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_that_of_the_code(graph: ModuleType) -> None:
    assert "](packages.svg)" in PAGE
    assert (ROOT / "docs" / "packages.svg").read_text() == graph.drawing(), "run `make docs-graph`"


def test_every_arrow_points_down(graph: ModuleType) -> None:
    root = ElementTree.fromstring(graph.drawing())
    heights = {
        text.text: float(text.attrib["y"])
        for text in root.iter()
        if text.tag.endswith("text") and "class" not in text.attrib
    }
    assert heights.keys() == graph.imports().keys()
    titles = [element.text or "" for element in root.iter() if element.tag.endswith("title")]
    assert len(titles) >= len(heights) - 1
    for title in titles:
        importer, imported = title.split(" imports ")
        assert heights[importer] < heights[imported]


def test_an_arrow_is_left_out_only_where_others_lead_there(graph: ModuleType) -> None:
    edges = graph.imports()
    shown = graph.reduced(edges)
    reached: dict[str, set[str]] = {}
    for part in sorted(edges, key=graph.levels(edges).__getitem__):
        reached[part] = shown[part].union(*(reached[other] for other in shown[part]))
        assert shown[part] <= edges[part] <= reached[part]
    assert graph.reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_a_circle_of_imports_is_named(graph: ModuleType) -> None:
    with pytest.raises(SystemExit, match=r"must not form a circle; got one among \['a', 'b'\]"):
        graph.levels({"a": {"b"}, "b": {"a"}, "c": set()})


@pytest.mark.parametrize(("file", "name"), STEPS, ids=[f"{file}:{name}" for file, name in STEPS])
def test_each_step_of_a_walk_exists(file: str, name: str) -> None:
    assert re.search(rf"^\s*(def|class) {name}\b", (SOURCE / file).read_text(), re.M)


def test_both_walks_have_ten_steps() -> None:
    assert len(STEPS) > 20
    assert len(re.findall(r"^10\. ", PAGE, re.M)) == 2 and not re.search(r"^11\. ", PAGE, re.M)


# The pages: what runs, and what the navigation has.

BLOCK = re.compile(r'^```(python|sh) exec="on"(.*)\n((?:.*\n)*?)```$', re.M)
PAGES_THAT_RUN = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if BLOCK.search(page.read_text()))


class _Loader(yaml.SafeLoader):
    """Of mkdocs.yml, whose names of Python functions are left alone."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, suffix, node: suffix)
SITE = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)


def in_navigation(part: object) -> list[str]:
    if isinstance(part, str):
        return [part]
    parts = part.values() if isinstance(part, dict) else part
    return [page for each in parts for page in in_navigation(each)]  # type: ignore[attr-defined]


def generated(name: str) -> ModuleType:
    """A module of docs/generate."""
    if str(DOCS) not in sys.path:
        sys.path.append(str(DOCS))
    return importlib.import_module(f"generate.{name}")


def environment() -> dict[str, str]:
    paths = [str(DOCS), str(ROOT / "src")]
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PATH": tools, "MULTUM_AUTOTUNE": "0", "COLUMNS": "100"}


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES_THAT_RUN)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path) -> None:
    """In their order and in one folder: all of Python in one process, commands by the shell between."""
    script = ["import subprocess"]
    for language, _, code in BLOCK.findall((DOCS / page).read_text()):
        script.append(code if language == "python" else f"subprocess.run(['sh', '-ec', {code!r}], check=True)")
    (tmp_path / "page.py").write_text("\n".join(script))
    ran = subprocess.run([sys.executable, "page.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


# Python that no page runs when the site is built, and why.
NOT_RUN_BY_THE_SITE = {
    "training.md": "run by tests/training/test_course.py",
    "exports.md": "calls on a run folder and on files of it, which tests/exporting makes; start/csv.md runs the same",
}


def fenced(text: str) -> list[tuple[str, str, str]]:
    """Language, options and code of every block."""
    return re.findall(r"^```(\w*)(.*)\n((?:.*\n)*?)```$", text, re.M)


def test_every_block_is_run_or_is_named_here() -> None:
    plain = {}
    for page in sorted(DOCS.rglob("*.md")):
        for language, options, code in fenced(page.read_text()):
            assert language in ("python", "sh", ""), f"{page}: {language}"
            if language == "python" and 'exec="on"' not in options:
                plain.setdefault(str(page.relative_to(DOCS)), []).append(code)
    assert plain.keys() == NOT_RUN_BY_THE_SITE.keys()
    for code in (c for blocks in plain.values() for c in blocks):
        compile(code, "block", "exec")
        for names in re.findall(r"\bmultum((?:\.\w+)+)", code):
            value: Any = multum
            for name in names.split(".")[1:]:
                value = getattr(value, name, None) or importlib.import_module(f"{value.__name__}.{name}")


def commands() -> list[tuple[str, list[str]]]:
    """Every command of multum that a page shows in a block of shell, run or not, with its page."""
    shown = []
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")]:
        for language, _, code in fenced(page.read_text()):
            lines = code.replace("\\\n", " ").splitlines() if language == "sh" else []
            for words in (shlex.split(line, comments=True) for line in lines):
                if "multum" in words:
                    after = itertools.takewhile(
                        lambda w: w not in ("|", "||", "&&"), words[words.index("multum") + 1 :]
                    )
                    shown.append((str(page.relative_to(ROOT)), [w for w in after if w not in ("--quiet", "--verbose")]))
    return shown


def test_commands_on_the_pages_are_those_of_the_command_line() -> None:
    import typer

    from multum import cli

    group: Any = typer.main.get_command(cli.app)
    shown = [(page, words) for page, words in commands() if words != ["--version"]]
    assert len(shown) > 40
    for page, (name, *arguments) in shown:
        command = group.commands[name]
        try:
            command.make_parser(typer.Context(command)).parse_args(args=arguments)
        except Exception as error:
            raise AssertionError(f"{page}: multum {shlex.join([name, *arguments])}") from error


# What pages claim: sentences that are typed by hand say what they stand on, and their numbers are those of the results.

CLAIMS = ("*By design:*", "*Measured:*", "*Paper:*")


def paragraphs(text: str) -> list[str]:
    """Paragraphs and points of a list, without code."""
    text = re.sub(r"^```(?:.*\n)*?```$", "", text, flags=re.M)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=- )", text) if part.strip()]


def numbers_of(page: Path) -> set[str]:
    """What stands on a page of results and in its JSON, as strings of digits, rounded in every way a sentence may."""
    said = set(re.findall(r"\d+(?:\.\d+)?", page.read_text().replace(",", "")))
    if page.with_suffix(".json").exists():
        for value in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", page.with_suffix(".json").read_text()):
            said |= {f"{abs(float(value)) * scale:.{digits}f}" for scale in (1, 100) for digits in range(5)}
    return said


@pytest.mark.parametrize("name", multum.methods.METHODS)
def test_when_a_method_helps_says_what_it_stands_on(name: str) -> None:
    section = re.search(r"^## When it helps\n(.*?)^## ", (DOCS / "methods" / f"{name}.md").read_text(), re.M | re.S)
    assert section is not None
    points = [point for point in paragraphs(section[1]) if point.startswith("- ")]
    assert points
    for point in points:
        assert point[2:].startswith(CLAIMS), point
        # Regimes stand on the page of claims, and tests/papers/test_notes.py holds their numbers to the JSON.
        claimed = "[Claims](../papers.md)" in point and re.search(r"\bR\d\b", point)
        stands = "../results/" in point or "../benchmarks.md" in point or bool(claimed)
        assert stands == point.startswith("- *Measured:*"), point
        numbers = re.findall(r"\d+\.?\d* %", point)
        assert not numbers or point.startswith("- *Measured:*"), f"a number without a result: {point}"


def test_numbers_beside_a_link_to_results_are_on_that_page() -> None:
    checked = 0
    for page in DOCS.rglob("*.md"):
        if page.is_relative_to(DOCS / "results") or page.name in ("benchmarks.md", "exports.md"):
            continue
        for part in paragraphs(page.read_text()):
            links = re.findall(r"\]\(((?:\.\./)*results/[\w/-]+\.md)", part)
            plain = re.sub(r"\]\([^)]*\)|`[^`]*`|\d+x\b|wrn-[\d-]+|WRN-[\d-]+|CIFAR-\d+|[A-Za-z]+_\w+", " ", part)
            plain = re.sub(r"(?:Table|Figure)s? \d+(?: (?:and|to) \d+)?", " ", plain).replace(",", "")
            numbers = re.findall(r"(?<![\w.])\d+\.\d+|(?<![\w.])\d+(?= %)", plain)
            if links and numbers:
                known = set().union(*(numbers_of((page.parent / link).resolve()) for link in links))
                assert set(numbers) <= known, (str(page.relative_to(DOCS)), sorted(set(numbers) - known), part)
                checked += len(numbers)
    assert checked > 20


@pytest.mark.slow
@pytest.mark.parametrize("notebook", ["table.py", "images.py"])
def test_notebooks_run(notebook: str, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "notebooks" / notebook)]
    ran = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert list(tmp_path.glob("*.onnx"))


@pytest.mark.slow
def test_the_example_runs(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "active_learning.py"), "--seeds", "2", "--epochs", "1"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    labelled = [int(line.split()[0]) for line in ran.stdout.splitlines()[1:]]
    assert labelled == [40, 80, 120, 160, 200, 240]


def test_every_page_is_in_the_navigation_once() -> None:
    pages = in_navigation(SITE["nav"])
    assert len(set(pages)) == len(pages)
    assert {page for page in pages if not (DOCS / page).exists()} == set()
    lying = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert {page for page in lying - set(pages) if not page.startswith("results/")} == set()


def test_every_method_has_its_page() -> None:
    named = {page.stem for page in (DOCS / "methods").glob("*.md")} - {"index"}
    assert named == set(multum.methods.METHODS), "docs/methods/NAME.md, and its line in mkdocs.yml"


@pytest.mark.parametrize("name", multum.methods.METHODS)
def test_a_drawing_shows_what_members_own(name: str) -> None:
    drawn = generated("drawings").drawing(name)
    ElementTree.fromstring(drawn)
    own = set(re.findall(r'class="(?:solid|made|wire) own(\d)"', drawn))
    assert len(own) == (4 if multum.methods.METHODS[name]().members > 1 else 1)
    assert "<title>" in drawn


def test_costs_are_counted() -> None:
    table = generated("methods").costs("single", "deep")
    assert "(4.00x)" in table and "11,173,962 (1.00x)" in table


def test_numbers_of_comparisons_are_read_back() -> None:
    results = generated("results")
    fashion = next(c for c in results.comparisons() if c.name == "fashion_mnist")
    assert fashion.cost("deep") == pytest.approx(4, rel=0.01)
    page = (DOCS / "results" / "compare.md").read_text()
    for difference in (d["calibrated NLL"] for c in results.comparisons() for d in c.differences.values()):
        assert difference in page
    assert "deep" in fashion.advice or "single" in fashion.advice


def test_the_figure_of_the_readme_is_that_of_the_results() -> None:
    results = generated("results")
    drawn = results.quality_and_cost(results.file_style()) + "\n"
    assert (DOCS / "assets" / "quality-cost.svg").read_text() == drawn, "run `make docs`"


def test_the_command_line_is_documented_as_it_is() -> None:
    page = generated("reference").command_line()
    commands = re.findall(r"^## multum (\S+)", page, re.M)
    assert {"compare", "train", "evaluate", "predict", "export", "plan", "bench", "reproduce", "methods"} <= set(
        commands
    )
    assert "`--conformal`" in page and "`--seeds` | `3`" in page


def test_every_error_has_a_page() -> None:
    kinds = {kind.__name__: kind for kind in MultumError.__subclasses__() if kind.__module__ == "multum.errors"}
    assert set(PAGES) == set(kinds)
    for name, page in PAGES.items():
        assert (DOCS / f"{page}.md").exists(), name
    assert multum.errors.DataError("x").page == "data" and MultumError("x").page == "reference/errors"
    explained = re.findall(r"^## (\w+)\n\n(.+)", generated("reference").errors(), re.M)
    assert dict(explained) == {name: inspect.getdoc(kind).partition("\n")[0] for name, kind in kinds.items()}  # type: ignore[union-attr]


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) < 120
    assert f"runs {len(multum.papers.catalogue())} tables and figures again" in readme
    for link in re.findall(r"\]\(([^)#]+)\)", readme):
        assert (ROOT / link).exists(), link


def test_broken_links_are_seen(tmp_path: Path) -> None:
    build = generated("build")
    (tmp_path / "a.html").write_text('<a href="b.html#there">b</a><a href="b.html#gone">b</a><a href="c.html">c</a>')
    (tmp_path / "b.html").write_text('<h1 id="there">b</h1><script src="https://cdn.example/x.js"></script>')
    wrong = build.broken(tmp_path)
    assert [w.partition(":")[0] for w in wrong] == ["a.html", "a.html", "b.html"]
    assert "no such place" in wrong[0] and "no file" in wrong[1] and "fetches" in wrong[2]


@pytest.mark.slow
def test_a_worker_from_disk_gets_copies(tmp_path: Path) -> None:
    """What the site's search stands on: it changes the question that it was given, which the page still shows."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("chromium is not installed")
    shutil.copy(DOCS / "assets" / "iframe-worker.js", tmp_path)
    (tmp_path / "worker.js").write_text("self.onmessage = e => { e.data.asked = 'taken'; self.postMessage(e.data) }")
    (tmp_path / "page.html").write_text(
        '<html><head><script src="iframe-worker.js"></script></head><body><script>'
        "const question = { asked: 'what' }; const worker = new Worker('worker.js');"
        "worker.onmessage = e => { document.title = question.asked + ' ' + e.data.asked };"
        "worker.postMessage(question)</script></body></html>"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto((tmp_path / "page.html").as_uri())
        page.wait_for_function("document.title !== ''", timeout=5000)
        assert page.title() == "what taken"
        browser.close()
