"""`multum reproduce`: what it runs, what it says of it, and what it writes."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from scipy import stats

import multum
from multum import cli
from multum.errors import ConfigError, DataError
from multum.papers import ITEMS, find, show
from multum.papers import reproduce as module
from multum.papers.base import FACTS, NEEDS_IMAGENET, Facts, Item, Row, Run
from multum.papers.counting import plan
from multum.papers.measured import COLUMNS, Trained, lines, orderings
from multum.papers.pages import page, state, summary, write_pages
from multum.papers.results import Ordering, table
from multum.runs import pool as runners

RECIPE = {"epochs": 1, "batch_size": 256, "lr": 0.01}
METHODS = {"one": multum.Single(), "four": multum.Deep(members=2), "packed": multum.Packed(members=2)}


def small_run(scale: str = "cpu") -> Run:
    rows = tuple(
        Row(label=label, data="digits", model="small-cnn", method=m, recipe=RECIPE, seeds=(0, 1), examples=300)
        for label, m in METHODS.items()
    )
    printed = table("Acc, NLL, Params (M)", ["one | 90.0 0.5 1.0", "four | 92.0 0.4 4.0", "packed | 91.0 0.5 1.0"])
    return Run(rows=rows, printed=printed, columns=("Disagreement",), claims=(("Disagreement", "four", "one"),))


@pytest.fixture
def item(monkeypatch: pytest.MonkeyPatch) -> Item:
    """A table of our own, two seeds of a second each."""
    found = Item(id="packed/toy", number="Table 0", shows="A toy", needs="digits", status="reduced", make=small_run)
    monkeypatch.setitem(ITEMS, found.id, found)
    monkeypatch.setitem(FACTS, "digits", Facts((1, 8, 8), 10, 1258, 539))
    return found


# -- numbers and orderings ---------------------------------------------------------------------------------------------


def made_up(values: dict[str, dict[int, float]]) -> Trained:
    """Accuracies by row and seed, as cells would leave them."""
    results = {
        label: {seed: {"numbers": {"accuracy": x / 100, "nll": 1 - x / 100}, "cost": {}} for seed, x in found.items()}
        for label, found in values.items()
    }
    return Trained(small_run(), Path("nowhere"), results, {})


def test_lines_are_means_and_errors_over_the_seeds_that_are_done() -> None:
    found = {(x.row, x.column): x for x in lines(made_up({"one": {0: 80.0, 1: 90.0}, "four": {0: 70.0}, "packed": {}}))}
    one = found["one", "Acc"]
    assert one.ours == pytest.approx(85) and one.error == pytest.approx(5) and one.seeds == 2
    assert one.printed == "90.0" and one.difference == pytest.approx(-5)
    assert found["four", "Acc"].error is None and found["four", "Acc"].seeds == 1
    assert not any(row == "packed" for row, _ in found)


def test_orderings_are_tested_over_common_seeds() -> None:
    values = {"one": {0: 80.0, 1: 82.0, 2: 81.0}, "four": {0: 85.0, 1: 88.0, 2: 84.0}, "packed": {0: 70.0}}
    found = {(o.column, o.better, o.worse): o for o in orderings(made_up(values))}
    pair = found["Acc", "four", "one"]
    d = [5.0, 6.0, 3.0]
    expected = stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert pair.ours == pytest.approx(sum(d) / 3) and pair.paper == pytest.approx(2)
    assert (pair.low, pair.high) == pytest.approx((expected.low, expected.high))
    assert pair.verdict == "holds" and found["NLL", "four", "one"].verdict == "holds"
    assert found["NLL", "four", "one"].ours < 0  # less is better
    assert found["Acc", "packed", "one"].verdict == "one seed"
    assert ("NLL", "packed", "one") not in found and ("NLL", "one", "packed") not in found  # printed as equal


def test_rival_columns_are_ordered_within_a_row() -> None:
    row = replace(small_run().rows[0], label="ours")
    printed = table("AUC MSP, AUC MI, AUC v, AUPR MI", ["ours | 0.8 0.7 0.7 0.6"])
    run = Run(rows=(row,), printed=printed, rivals=("AUC",))
    scores = {"msp": {0: 0.60, 1: 0.62}, "mutual_information": {0: 0.50, 1: 0.55}, "variation_ratio": {0: 0.7, 1: 0.6}}
    cells = {
        seed: {"numbers": {"ood": {"svhn": {score: {"auroc": x[seed], "aupr": 0.5} for score, x in scores.items()}}}}
        for seed in (0, 1)
    }
    found = {(o.column, o.better, o.worse): o for o in orderings(Trained(run, Path("nowhere"), {"ours": cells}, {}))}
    assert set(found) == {("AUC, ours", "MSP", "MI"), ("AUC, ours", "MSP", "v")}  # MI and v are printed as equal
    ours = found["AUC, ours", "MSP", "MI"]
    expected = stats.ttest_1samp([0.10, 0.07], 0).confidence_interval(0.95)
    assert (ours.ours, ours.paper) == pytest.approx((0.085, 0.1))
    assert (ours.low, ours.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize(
    ("column", "ours", "low", "high", "verdict"),
    [
        *[("Acc", 2.0, 1.0, 3.0, "holds"), ("Acc", 2.0, -1.0, 5.0, "open"), ("Acc", -2.0, -3.0, -1.0, "reversed")],
        *[("NLL", -2.0, -3.0, -1.0, "holds"), ("NLL", 2.0, 1.0, 3.0, "reversed"), ("Acc", 2.0, None, None, "one seed")],
    ],
)
def test_verdicts(column: str, ours: float, low: float | None, high: float | None, verdict: str) -> None:
    assert Ordering(column, "a", "b", None, ours, low, high, lower=column == "NLL").verdict == verdict


def test_rows_on_other_data_are_not_ordered() -> None:
    trained = made_up({"one": {0: 1.0}, "four": {0: 2.0}, "packed": {0: 3.0}})
    rows = (trained.run.rows[0], *(replace(row, data="mnist") for row in trained.run.rows[1:]))
    found = list(orderings(replace(trained, run=replace(trained.run, rows=rows, claims=()))))
    assert {(o.better, o.worse) for o in found} == {("four", "packed")}


def test_every_printed_column_of_a_trained_item_is_measured_or_known_not_to_be() -> None:
    """A column that no one computes would silently be left out of a page."""
    elsewhere = {
        *("Params (M)", "Params", "Mult-Adds (G)", "FLOPS (x)", "Std of Acc"),
        *("Training f32 (s/epoch)", "Inference f32 (im/s)", "Training f16 (s/epoch)", "Inference f16 (im/s)"),
        *("Prediction time (ms)", "Forward passes"),  # of a GPU; and see mimo/table1-2's remark
    }
    for item in ITEMS.values():
        if item.status in ("full", "reduced"):
            printed = {column for cells in item.run("cpu").printed.values() for column in cells}
            assert printed <= {*COLUMNS, *elsewhere}, item.id
            assert set(item.run("cpu").columns) <= set(COLUMNS), item.id


def test_a_claim_is_about_rows() -> None:
    with pytest.raises(ConfigError, match="claims must be about rows"):
        replace(small_run(), claims=(("Acc", "four", "five"),))


# -- the whole ---------------------------------------------------------------------------------------------------------


def test_an_item_runs_once_and_tells_the_same_again(
    item: Item, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = module.reproduce(item.id, tmp_path, threads=1)
    files = {path.name for path in (tmp_path / "packed").iterdir()}
    assert {"toy.json", "toy.md", "toy-orderings.png", "toy-orderings.svg"} <= files
    assert json.loads((tmp_path / "packed" / "toy.json").read_text()) == first
    assert [cell["status"] for cell in first["cells"]] == ["done"] * 6
    ours = {(line["row"], line["column"]): line for line in first["lines"]}
    cell = next(c for c in first["cells"] if c["row"] == "four" and c["seed"] == 1)
    alone = json.loads((tmp_path / "cells" / cell["folder"] / "result.json").read_text())
    both = [json.loads((tmp_path / "cells" / c["folder"] / "result.json").read_text()) for c in first["cells"][2:4]]
    assert alone in both
    assert ours["four", "Acc"]["ours"] == pytest.approx(50 * sum(r["numbers"]["accuracy"] for r in both))
    monkeypatch.setattr(runners, "work", lambda *args: pytest.fail("a finished cell was run"))
    assert module.reproduce(item.id, tmp_path, threads=1) == first
    assert "toy.md" in (tmp_path / "index.md").read_text()
    # Every interval can be computed again from the JSON, which has the whole recipe too.
    for ordering in first["orderings"]:
        expected = stats.ttest_1samp(ordering["differences"], 0).confidence_interval(0.95)
        assert (ordering["low"], ordering["high"]) == pytest.approx((expected.low, expected.high), nan_ok=True)
    assert ours["four", "Acc"]["ours"] == pytest.approx(sum(ours["four", "Acc"]["values"]) / 2)
    assert first["rows"]["four"]["recipe"] == RECIPE and first["rows"]["four"]["data"] == "digits#first=300"

    written = {path.name: path.read_bytes() for path in (tmp_path / "packed").iterdir()}
    for gather in (False, True):  # the cells are elsewhere: the same files from the JSON, and nothing is trained
        assert module.reproduce(item.id, tmp_path / "empty", pages=tmp_path, gather=gather) == first
        assert {path.name: path.read_bytes() for path in (tmp_path / "packed").iterdir()} == written


def test_a_second_run_elsewhere_gives_the_same_numbers(item: Item, tmp_path: Path) -> None:
    runs = [module.reproduce(item.id, tmp_path / name, seeds=[1], threads=1) for name in ("a", "b")]
    assert (
        len(module.reproduce(item.id, tmp_path / "c", pages=tmp_path / "a", gather=True)["cells"]) == 6
    )  # other seeds
    assert runs[0]["lines"] == runs[1]["lines"] and runs[0]["lines"]
    assert {cell["seed"] for cell in runs[0]["cells"]} == {1}


def test_second_runs_are_drawn_and_stay_on_the_page(item: Item, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must be finished before they are repeated"):
        module.reproduce(item.id, tmp_path, threads=1, repeat=2)
    first = module.reproduce(item.id, tmp_path, threads=1)
    second = module.reproduce(item.id, tmp_path, threads=1, repeat=2)
    (draw,) = second["repeated"]
    assert [cell["same"] for cell in draw["cells"]] == [True, True] and draw["of"] == 6
    assert {**second, "repeated": 0} == {**first, "repeated": 0}
    text = (tmp_path / "packed" / "toy.md").read_text()
    assert "Second runs: 2 of 6 cells, drawn at random; all gave the same" in text
    assert module.reproduce(item.id, tmp_path, threads=1) == second
    assert module.reproduce(item.id, tmp_path / "empty", pages=tmp_path) == second
    assert (tmp_path / "packed" / "toy.md").read_text() == text
    with pytest.raises(ConfigError, match="must be of an item that is trained"):
        module.reproduce("packed/table4", tmp_path, repeat=1)


def test_cells_run_where_they_are_asked_to(item: Item, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def on_ray(cells, out, threads, begin, *, jobs, address):
        asked.update(cells=len(cells), jobs=jobs, address=address)
        return iter(())

    monkeypatch.setattr(runners, "on_ray", on_ray)
    document = module.reproduce(item.id, tmp_path, jobs=3, on="ray", address="head:6379")
    assert asked == {"cells": len(document["cells"]), "jobs": 3, "address": "head:6379"}
    with pytest.raises(ConfigError, match="must be 'here' or 'ray'"):
        module.reproduce(item.id, tmp_path, on="mars")


def test_gather_trains_nothing_and_says_what_is_missing(
    item: Item, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runners, "work", lambda *args: pytest.fail("gather trained"))
    document = module.reproduce(item.id, tmp_path, gather=True, pages=tmp_path / "pages")
    assert document["lines"] == [] and {cell["status"] for cell in document["cells"]} == {"not run"}
    assert "6 of 6 cells are not done" in summary(document)
    assert (tmp_path / "pages" / "packed" / "toy.json").is_file() and not (tmp_path / "packed").exists()


def test_what_fails_is_told_and_stops_nothing(item: Item, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = small_run()
    broken = replace(run.rows[1], model="small-cnn:nonsense=1")
    monkeypatch.setitem(
        ITEMS,
        item.id,
        replace(item, make=lambda scale: replace(run, rows=(run.rows[0], broken), printed={}, claims=())),
    )
    document = module.reproduce(item.id, tmp_path, seeds=[0], threads=1)
    assert {cell["row"]: cell["status"] for cell in document["cells"]} == {"one": "done", "four": "failed"}
    assert "nonsense" in page(document) and "What failed" in page(document)


def test_missing_data_is_told_once_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTUM_DATA", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match=r"packed/table11 needs uci_boston: a data set must be .*; got 'uci_boston'"):
        module.reproduce("packed/table11", tmp_path / "out")
    assert not (tmp_path / "out" / "cells").exists()


def test_the_page_says_what_is_smaller_and_how_the_paper_was_left(item: Item, tmp_path: Path) -> None:
    document = module.reproduce("hypernet/table4", tmp_path, gather=True)
    text = page(document)
    assert "training examples: 5,000 here, 50,000 in the paper" in text
    assert "the paper sums over 10,000 images" in text and "Economical ensembles" in text


def test_an_item_for_gpus_says_what_it_needs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"packed/table2, which needs ImageNet.*--dry-run"):
        module.reproduce("packed/table2", tmp_path)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ConfigError, match="of which it has none"):
        module.reproduce("mimo/figure2", tmp_path, seeds=[99])


@pytest.mark.parametrize("id", ["mimo/footnote2", "packed/figure5", "hypernet/figure1", "packed/figure3-4"])
def test_exact_items_are_run_and_written(id: str, tmp_path: Path) -> None:
    document = module.reproduce(id, tmp_path)
    assert document["status"] == "exact" and document["cells"] == [] and document["lines"]
    text = (tmp_path / f"{id}.md").read_text()
    assert text == page(document) and "**Exact.**" in text
    assert all(line["agrees"] is not False or line["remark"] for line in document["lines"])


def test_a_note_beside_the_json_is_on_the_page(tmp_path: Path) -> None:
    (tmp_path / "mimo").mkdir()
    (tmp_path / "mimo" / "footnote2.note.md").write_text("It *is* so.\n")
    document = module.reproduce("mimo/footnote2", tmp_path)
    text = (tmp_path / "mimo" / "footnote2.md").read_text()
    assert text == page(document, "It *is* so.") and "## What we make of it\n\nIt *is* so.\n" in text


def test_index_lists_what_lies_in_the_folder(tmp_path: Path) -> None:
    module.reproduce("mimo/footnote2", tmp_path)
    module.reproduce("packed/figure5", tmp_path)
    (tmp_path / "packed" / "other.json").write_text('{"format": 0}')
    write_pages(tmp_path)
    text = (tmp_path / "index.md").read_text()
    assert re.findall(r"\[(\S+)\]\((\S+)\.md\)", text) == [("mimo/footnote2",) * 2, ("packed/figure5",) * 2]
    assert "43 items" in text and all(f"| {id} " in text or f"[{id}]" in text for id in ITEMS)


@pytest.mark.parametrize(
    ("status", "cells", "words"),
    [
        ("exact", [], "exact"),
        ("reduced", ["not run"], "not run yet"),  # whatever of it is exact
        ("reduced", ["done", "not run"], "begun: 1 of 2 cells"),
        ("reduced", ["done"], "run in a stated regime"),
        ("full", ["done"], "run in full"),
        (NEEDS_IMAGENET, ["not run"], "needs a GPU and ImageNet"),
    ],
)
def test_states(status: str, cells: list[str], words: str) -> None:
    assert state({"status": status, "cells": [{"status": cell} for cell in cells]}) == words


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_lists_all_items(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["multum", "reproduce", "--list", "--json"])
    with pytest.raises(SystemExit):
        cli.main()
    assert len(json.loads(capsys.readouterr().out)) == 43


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(sys, "argv", ["multum", "reproduce", "packed/figure5", "--out", "here"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    printed = capsys.readouterr().out
    assert stopped.value.code in (None, 0) and "KL (17)" in printed and "60 of 60 checks hold" in printed
    document = json.loads((tmp_path / "here" / "packed" / "figure5.json").read_text())
    assert document["command"] == "multum reproduce packed/figure5"  # and no place of one machine


def test_a_wrong_name_is_told_without_a_traceback(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["multum", "reproduce", "mimo/footnot2"])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2 and "mimo/footnote2" in capsys.readouterr().err


def test_the_plan_is_shown(tmp_path: Path) -> None:
    item = find("mimo/figure3")
    shown = io.StringIO()
    Console(file=shown, width=120).print(show.planned(plan(item.run("cpu"), rate=24), item, "cpu"))
    text = " ".join(shown.getvalue().split())
    assert "as in the paper" in text and "one A100" in text and "Needs: CIFAR-10" in text
    assert "2 different cells" in text and "epochs, rate and pooling of the SmallCNN are not stated" in text


# -- what is committed -------------------------------------------------------------------------------------------------

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_every_committed_page_is_what_its_json_says(tmp_path: Path) -> None:
    shutil.copytree(RESULTS, tmp_path / "results")
    for path in (tmp_path / "results").glob("*/*.md"):
        if not path.name.endswith(".note.md"):
            path.unlink()
    write_pages(tmp_path / "results")
    pages = sorted(path.relative_to(RESULTS) for path in RESULTS.glob("*/*.md"))
    assert len(pages) >= 20 and pages == sorted(
        path.relative_to(tmp_path / "results") for path in (tmp_path / "results").glob("*/*.md")
    )
    for name in [*pages, "index.md"]:
        assert (tmp_path / "results" / name).read_text() == (RESULTS / name).read_text(), name


AGAIN = [id for id, item in ITEMS.items() if item.status in ("reduced", "full")]


def test_the_command_makes_committed_pages_again_from_their_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte for byte on any machine, and of all that is trained; what is begun anew counts networks: see other tests."""
    monkeypatch.setattr(module, "machine", lambda: {"processor": "another"})
    shutil.copytree(RESULTS, tmp_path / "results")
    again = [id for id in AGAIN if state(json.loads((RESULTS / f"{id}.json").read_text())).startswith("run")]
    assert len(again) >= 20
    again += ["mimo/footnote2", "packed/figure5", "packed/table4", "packed/figure8"]  # exact, and not run yet
    for id in again:
        module.reproduce(id, tmp_path / "out", pages=tmp_path / "results", gather=id == "packed/figure8")
        for kind in ("json", "md"):
            assert (tmp_path / "results" / f"{id}.{kind}").read_bytes() == (RESULTS / f"{id}.{kind}").read_bytes(), id
    assert (tmp_path / "results" / "index.md").read_bytes() == (RESULTS / "index.md").read_bytes()


def test_committed_recipes_are_what_was_run() -> None:
    """A cell's name is a checksum of its settings; those that were named before recipes had a reduction lack it."""
    proved = 0
    for path in sorted(RESULTS.glob("*/*.json")):
        document = json.loads(path.read_text())
        for cell in document["cells"]:
            if cell["status"] == "done":
                settings = {**document["rows"][cell["row"]], "seed": cell["seed"]}
                bare = {k: v for k, v in settings["recipe"].items() if k != "reduction"}
                names = {digest_of(settings), digest_of({**settings, "recipe": bare})}
                assert cell["folder"].rpartition("-")[2] in names, (document["item"], cell)
                proved += 1
    assert proved > 800


def digest_of(settings: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]


def test_committed_results_are_whole_and_of_no_machine() -> None:
    documents = [json.loads(path.read_text()) for path in sorted(RESULTS.glob("*/*.json"))]
    assert {d["item"] for d in documents} <= set(ITEMS)
    for document in documents:
        text = json.dumps(document)
        assert not re.search(r"/(tmp|home|root|work)/", text), document["item"]
        names = [f"-{name}" if name else "" for name in document["pictures"]]
        for name in names:
            assert (RESULTS / f"{document['item']}{name}.png").is_file()
    assert {d["item"] for d in documents} == set(ITEMS)  # each has a page, and a state that is not half of one
    assert not [d["item"] for d in documents if state(d).startswith("begun")]
    drawn = {f"{d['item']}{f'-{name}' if name else ''}" for d in documents for name in d["pictures"]}
    drawn |= {f"{d['item']}-orderings" for d in documents if d["headline"] and d["orderings"]}
    assert {str(path.relative_to(RESULTS).with_suffix("")) for path in RESULTS.glob("*/*.png")} == drawn
    full = [d for d in documents if d["status"] == "full"]
    assert {d["item"] for d in full} == {id for id, item in ITEMS.items() if item.status == "full"}
    assert all(cell["status"] == "done" for d in full for cell in d["cells"])
