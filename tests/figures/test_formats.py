"""How numbers are written."""

from __future__ import annotations

from typing import Any

import pytest

from multum.figures.formats import NOTHING, count, heading, sized
from multum.reports import shown

CASES = [
    (0.5, None, "%", "50.00 %"),
    (0.97123, 0.02, "%", "97.1 ± 2.0 %"),
    (0.0123, 0.00004, "%", "1.23 ± 0.00 %"),
    (1.0, 0.0, "%", "100.0 ± 0.0 %"),
    (0.1234, 0.0021, "", "0.1234 ± 0.0021"),
    (0.1234, 0.03, "", "0.123 ± 0.030"),
    (54.812, 0.4, "", "54.81 ± 0.40"),
    (48211.3, 120.0, "", "48,211 ± 120"),
    (-1.2345, None, "", "-1.234"),
    (0.0, None, "", "0.00"),
    (3.2e-9, None, "", "3.2e-09"),
    (12.345, 0.21, "ms", "12.3 ± 0.2 ms"),
    (0.41234, None, "ms", "0.412 ms"),
    (3601.2, None, "s", "3,601 s"),
    (94410, None, "count", "94.4 k"),
    (94410.0, 0.0, "count", "94.4 k"),
    (94410.0, 210.0, "count", "94.4 k ± 210"),
    (float("nan"), None, "%", NOTHING),
    (0.5, float("nan"), "%", "50.00 %"),
]


@pytest.mark.parametrize(("mean", "error", "unit", "expected"), CASES, ids=[case[3] for case in CASES])
def test_shown(mean: float, error: float | None, unit: str, expected: str) -> None:
    assert shown({"mean": mean, "error": error}, {"unit": unit}) == expected


@pytest.mark.parametrize("value", [None, {}, {"mean": None}, {"mean": None, "error": 0.1}])
def test_a_missing_number_is_a_dash(value: Any) -> None:
    assert shown(value, {"unit": "%"}) == NOTHING


def test_values_of_a_column_have_the_same_places() -> None:
    means = [0.9712, 0.98, 1.0, 0.0001]
    rows = [{"values": {"accuracy": {"mean": m, "error": 0.0021}}} for m in means] + [{"values": {}}]
    [column] = sized({"columns": [{"key": "accuracy", "unit": "%"}], "rows": rows})
    texts = [shown(row["values"]["accuracy"], column, unit=False) for row in rows[:4]]
    assert texts == ["97.12 ± 0.21", "98.00 ± 0.21", "100.00 ± 0.21", "0.01 ± 0.21"]


def test_one_value_far_off_does_not_take_the_digits_of_the_others() -> None:
    rows = [{"values": {"nll": {"mean": m, "error": None}}} for m in (0.1234, 0.1311, 0.1402, 87.5)]
    [column] = sized({"columns": [{"key": "nll", "unit": ""}], "rows": rows})
    assert shown(rows[0]["values"]["nll"], column) == "0.1234"


@pytest.mark.parametrize(
    ("number", "text"), [(999, "999"), (1000, "1.00 k"), (999.6e3, "1.00 M"), (12.34e12, "12.3 T"), (-2e6, "-2.00 M")]
)
def test_counts(number: float, text: str) -> None:
    assert count(number) == text


def test_headings_carry_the_unit() -> None:
    assert heading({"key": "x", "title": "accuracy", "unit": "%"}) == "accuracy (%)"
    assert heading({"key": "rmse", "unit": ""}) == "rmse"
