"""Class by class and target by target: what is drawn is what was counted, mean over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from multum import reports
from reports.documents import classification, minimal, regression

NAMES = ["cat", "a rather long name of a class", "dog"]
COUNTS = {0: [[8, 1, 1], [0, 10, 0], [5, 0, 5]], 1: [[6, 2, 2], [0, 10, 0], [0, 0, 0]]}


def table(seed: int, positive: str | None = None) -> dict[str, Any]:
    counts = np.array(COUNTS[seed], dtype=float)
    right, support, predicted = counts.diagonal(), counts.sum(1), counts.sum(0)
    rows = [
        {
            "class": name,
            "support": int(support[k]),
            "precision": right[k] / predicted[k],
            "recall": right[k] / support[k] if support[k] else None,
            "f1": 2 * right[k] / (support[k] + predicted[k]),
            "ece": 0.1,
        }
        for k, name in enumerate(NAMES)
    ]
    return {"uneven": True, "rows": rows, "confusion": COUNTS[seed], **({"positive": positive} if positive else {})}


@pytest.fixture
def document() -> dict[str, Any]:
    made = classification(seeds=2, names=["single", "deep"])
    for cell in made["cells"]:
        cell["curves"]["by_class"] = table(cell["seed"], positive="dog")
    return made


def drawn(document: dict[str, Any]) -> dict[str, Any]:
    return {figure.name: figure for figure in reports.figures(document)}


def numbers_on(figure: Any, panel: int = 0) -> list[str]:
    return [text.get_text() for text in figure.plot().axes[panel].texts if text.get_text().replace(".", "").isdigit()]


def test_confusions_are_shares_of_the_true_class(document):
    figure = drawn(document)["confusion"]
    frame = figure.frame()
    assert len(frame) == 2 * 9 and list(frame) == ["method", "class", "predicted", "share"]
    first = frame[(frame["method"] == "deep") & (frame["class"] == "cat")]["share"].tolist()
    assert first == pytest.approx([0.7, 0.15, 0.15])
    missing = frame[(frame["class"] == "dog")]["share"]
    assert missing.isna().all()  # no example of it in one of the seeds
    assert numbers_on(figure) == ["70", "15", "15", "0", "100", "0"]


def test_every_class_has_its_measures(document):
    figure = drawn(document)["classes"]
    frame = figure.frame().set_index(["method", "class", "measure"])["value"]
    assert frame["single", "cat", "recall"] == pytest.approx(0.7)
    assert frame["single", "dog", "support"] == 5
    assert frame["single", NAMES[1], "precision"] == pytest.approx((10 / 11 + 10 / 12) / 2)
    assert "The positive class is dog." in figure.caption
    ticks = [t.get_text() for t in figure.plot().axes[0].get_yticklabels()]
    assert ticks[0] == "cat" and ticks[1].startswith("a rather") and "…" in ticks[1]


def test_too_many_classes_are_not_drawn(document):
    for cell in document["cells"]:
        rows = cell["curves"]["by_class"]["rows"]
        cell["curves"]["by_class"]["rows"] = [{**rows[0], "class": str(k)} for k in range(31)]
    assert not {"confusion", "classes"} & set(drawn(document))
    for cell in document["cells"]:
        cell["curves"]["by_class"] = {"uneven": False}  # more than a hundred classes have no table
    assert not {"confusion", "classes"} & set(drawn(document))


def test_targets_are_compared_with_the_best_method():
    document = regression(seeds=2, methods=2)
    errors = {"single": {"low": 2.0, "high": 30.0}, "deep": {"low": 1.0, "high": 60.0}}
    for cell in document["cells"]:
        cell["curves"]["by_target"] = [{"target": t, "rmse": e} for t, e in errors[cell["label"]].items()]
    figure = drawn(document)["targets"]
    assert figure.frame()["rmse"].tolist() == [2.0, 30.0, 1.0, 60.0]
    assert numbers_on(figure) == ["2.00", "1.00", "1.00", "2.00"]


def test_documents_without_them_have_no_such_figure():
    for document in (classification(seeds=1), regression(), minimal()):
        assert not {"confusion", "classes", "targets"} & set(drawn(document))


def test_the_page_and_markdown_show_them(document, tmp_path):
    reports.write(document, tmp_path)
    page, text = ((tmp_path / f"report.{kind}").read_text() for kind in ("html", "md"))
    assert 'id="confusion"' in page and 'id="classes"' in page and "Class by class" in text
    assert (tmp_path / "figures" / "confusion.svg").is_file()
