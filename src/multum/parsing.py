"""Names with fields, as the command line writes them: `packed:members=4,alpha=2`."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from .errors import ConfigError

__all__ = ["assignments", "named", "value"]

_WORDS = {"true": True, "false": False, "none": None}


def value(text: str) -> Any:
    """A value by its looks: a number, a word, true, false, none; parts joined by + are a tuple.

    >>> value("4"), value("0.5"), value("true"), value("fresh"), value("60+120")
    (4, 0.5, True, 'fresh', (60, 120))
    """
    if "+" in text.strip("+") and not text.lower().replace("e+", "").replace(".", "").isdigit():
        return tuple(value(part) for part in text.split("+") if part)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return found if isinstance(found, (int, float, str, tuple)) else text


def assignments(texts: Iterable[str]) -> dict[str, Any]:
    """`field=value` texts as a dict.

    >>> assignments(["epochs=3", "schedule=cosine"])
    {'epochs': 3, 'schedule': 'cosine'}
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(f"a setting is written field=value, however: {text!r}; for example epochs=30")
        found[name] = value(rest)
    return found


def named(text: str) -> tuple[str, dict[str, Any]]:
    """`name:field=value,field=value` in its parts.

    >>> named("packed:members=4,alpha=2")
    ('packed', {'members': 4, 'alpha': 2})
    """
    name, _, rest = text.partition(":")
    return name, assignments(part for part in rest.split(",") if part)
