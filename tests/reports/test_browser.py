"""The page in a browser: quiet, sortable, readable on a phone and in the dark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multum.figures.formats import shown, sized

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")

DESK, PHONE = {"width": 1280, "height": 900}, {"width": 375, "height": 812}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any, folder: Path) -> Iterator[Any]:
    """A function that opens the report; at the end nothing was asked of a network and nothing was complained about."""
    contexts, asked, complaints = [], [], []

    def open_page(viewport: dict[str, int], scheme: str = "light") -> Any:
        context = browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((folder / "report.html").as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert asked == [(folder / "report.html").as_uri()] * len(contexts)
    assert complaints == []


def column(page: Any, at: int) -> list[str]:
    return page.eval_on_selector_all(
        "table.comparison tbody tr", f"rows => rows.map(row => row.cells[{at}]?.dataset.value ?? null)"
    )


def test_a_heading_sorts_its_column(opened: Any, document: dict) -> None:
    page = opened(DESK)
    page.locator("#all-columns").check()
    keys = page.eval_on_selector_all("th[data-key]", "all => all.map(heading => heading.dataset.key)")
    for key in ("accuracy", "params"):
        at = keys.index(key) + 1
        heading = page.locator(f"th[data-key={key}]")
        means = [row["values"][key]["mean"] for row in document["rows"] if key in row["values"]]
        first, second = ("descending", "ascending") if key == "accuracy" else ("ascending", "descending")
        for order in (first, second, first):
            heading.locator("button").click()
            assert heading.get_attribute("aria-sort") == order
            found = column(page, at)
            assert found[-1] is None, "what has no number stays last"
            assert [float(v) for v in found[:-1]] == sorted(means, reverse=order == "descending")
    assert page.locator("th[aria-sort]").count() == 1


def test_the_keyboard_sorts_by_name(opened: Any, document: dict) -> None:
    page = opened(DESK)
    page.locator("table.comparison thead button").first.focus()
    page.keyboard.press("Enter")
    assert column(page, 0) == sorted(row["label"] for row in document["rows"])
    page.keyboard.press("Space")
    assert column(page, 0) == sorted((row["label"] for row in document["rows"]), reverse=True)


@pytest.mark.parametrize(("viewport", "plot"), [(DESK, "wide"), (PHONE, "narrow")], ids=["desk", "phone"])
def test_pointing_at_a_circle_shows_its_numbers(opened: Any, document: dict, viewport: dict, plot: str) -> None:
    page = opened(viewport)
    tip = page.locator("#tip")
    assert not tip.is_visible()
    index = [row["label"] for row in document["rows"]].index("packed")
    circle = page.locator(f"#pareto-{plot}-point-{index}")
    circle.scroll_into_view_if_needed()
    circle.hover(force=True)
    expect = playwright.expect
    expect(tip).to_be_visible()
    words = tip.inner_text()
    assert words.startswith("packed")
    for each in sized(document):
        assert shown(document["rows"][index]["values"][each["key"]], each) in words
    box = tip.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= viewport["width"]
    page.mouse.move(2, 2)
    expect(tip).to_be_hidden()
    circle.focus()
    expect(tip).to_be_visible()
    assert circle.get_attribute("aria-label") == "packed"
    page.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_a_phone_does_not_scroll_sideways(opened: Any) -> None:
    page = opened(PHONE)
    for details in page.locator("summary").all():
        details.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    page.evaluate("window.scrollTo(500, 0)")
    assert page.evaluate("window.scrollX") == 0
    table = page.locator("#comparison .scroll")
    assert table.evaluate("e => e.scrollWidth > e.clientWidth")
    table.evaluate("e => { e.scrollLeft = 300; }")
    first = page.locator("table.comparison tbody th").first.bounding_box()
    assert 0 <= first["x"] < 20, "the names stay in view"
    assert page.locator(".plot.narrow").first.is_visible() and not page.locator(".plot.wide").first.is_visible()


def background(page: Any) -> str:
    return page.evaluate("getComputedStyle(document.body).backgroundColor")


def test_dark_is_dark_and_the_toggle_turns_it(opened: Any) -> None:
    light, dark = opened(DESK), opened(DESK, "dark")
    papers = background(light), background(dark)
    assert papers == ("rgb(255, 255, 255)", "rgb(20, 23, 28)")
    words = "getComputedStyle(document.querySelector('.plot.wide svg text')).fill"
    assert light.evaluate(words) != dark.evaluate(words)
    for page, other in ((light, papers[1]), (dark, papers[0])):
        page.locator("#theme").click()
        assert background(page) == other
    light.emulate_media(media="print")
    assert background(light) == papers[0], "paper is white, whatever the screen was"


def test_numbers_of_a_figure_as_table_and_csv(opened: Any, document: dict, tmp_path: Path) -> None:
    page = opened(DESK)
    details = page.locator("#pareto details")
    details.locator("summary").click()
    rows = details.locator("tbody tr")
    playwright.expect(rows).to_have_count(sum(row["status"] != "failed" for row in document["rows"]))
    with page.expect_download() as waiting:
        details.locator("[data-do=download]").click()
    assert waiting.value.suggested_filename == "pareto.csv"
    waiting.value.save_as(tmp_path / "pareto.csv")
    lines = (tmp_path / "pareto.csv").read_text().splitlines()
    assert lines[0] == "method,macs,accuracy,error,params,front"
    assert lines[1].split(",")[:2] == ["single", str(document["rows"][0]["values"]["macs"]["mean"]).removesuffix(".0")]


def test_every_model_has_its_command(opened: Any, document: dict) -> None:
    page = opened(PHONE)
    commands = page.locator("#models code").all_inner_texts()
    folders = [f"{document['folder']}/{row['folder']}" for row in document["rows"] if row["folder"]]
    assert commands == [f"multum predict '{folder}' FILE" for folder in folders]


def test_the_page_reads_without_scripts(browser: Any, folder: Path, document: dict) -> None:
    context = browser.new_context(viewport=DESK, java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "report.html").as_uri())
    assert page.locator("table.comparison tbody tr").count() == len(document["rows"])
    assert not page.locator("#theme").is_visible()
    assert page.locator("#pareto .plot.wide svg").is_visible()
    shown_headings = page.locator("th[data-key]:visible")
    assert shown_headings.count() == sum(column["main"] for column in document["columns"])
    page.locator("#all-columns").check()
    assert shown_headings.count() == len(document["columns"])
    context.close()


def test_eight_columns_fit_a_desk_without_scrolling(opened: Any) -> None:
    page = opened(DESK)
    assert page.locator("table.comparison thead tr").nth(1).locator("th:visible").count() == 8
    assert page.locator("#comparison .scroll").evaluate("e => e.scrollWidth <= e.clientWidth")
    page.locator("#all-columns").check()
    widths = page.locator("#comparison .scroll").evaluate("e => [e.clientWidth, document.body.clientWidth]")
    assert 1080 < widths[0] <= widths[1], "all columns have the width of the window"
