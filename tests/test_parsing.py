"""Values by their looks, and texts that no parser should choke on."""

from __future__ import annotations

import pytest

from multum.errors import ConfigError
from multum.parsing import assignments, named, value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1e+5", -1e5),
        ("1e+5+2", (1e5, 2)),
        ("1e-3+1e-4", (1e-3, 1e-4)),
        ("+5", 5),
        ("a+b", ("a", "b")),
        ("None", None),
        ("'4'", "4"),
        ("(1,2)", (1, 2)),
        ("[1]", "[1]"),
        ("nan", "nan"),
        ("", ""),
        ("-" * 3000 + "1", "-" * 3000 + "1"),
        ("(" * 900, "(" * 900),
        ("1" * 5000, "1" * 5000),
    ],
    ids=lambda x: repr(x)[:20],
)
def test_a_value_by_its_looks(text: str, expected: object) -> None:
    assert value(text) == expected and type(value(text)) is type(expected)


def test_fields_without_a_name_or_a_value_are_refused() -> None:
    assert named("packed:members=4,rate=-1e+5") == ("packed", {"members": 4, "rate": -1e5})
    for text in ("epochs", "=3", "two words=3"):
        with pytest.raises(ConfigError, match=r"must be written field=value; got '.*'\. For example: epochs=30"):
            assignments([text])
