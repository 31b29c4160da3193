"""Names with fields, as the command line writes them: `packed:members=4,alpha=2`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

from .errors import ConfigError

_WORDS = {"true": True, "false": False, "none": None}
_PLUS = re.compile(r"(?<![\d.][eE])\+")  # and not the sign of an exponent
LONGEST = 1000  # characters: nothing that a person writes, and Python's parser recurses


def value(text: str) -> Any:
    """A value by its looks: a number, a word, true, false, none; parts joined by + are a tuple.

    >>> value("4"), value("-1e+5"), value("true"), value("fresh"), value("60+120")
    (4, -100000.0, True, 'fresh', (60, 120))
    """
    if _PLUS.search(text.strip("+")):
        return tuple(value(part) for part in _PLUS.split(text) if part)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        literal = ast.literal_eval(text[:LONGEST])
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text
    return literal if isinstance(literal, (int, float, str, tuple)) and len(text) <= LONGEST else text


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """`field=value` texts as a dict.

    >>> assignments(["epochs=3", "schedule=cosine"])
    {'epochs': 3, 'schedule': 'cosine'}
    """
    fields: dict[str, Any] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"a setting must be written field=value; got {text!r}. For example: epochs=30")
        fields[name] = value(rest)
    return fields


def named(text: str) -> tuple[str, dict[str, Any]]:
    """`name:field=value,field=value` in its parts.

    >>> named("packed:members=4,alpha=2")
    ('packed', {'members': 4, 'alpha': 2})
    """
    name, _, rest = text.partition(":")
    return name, assignments(part for part in rest.split(",") if part)
