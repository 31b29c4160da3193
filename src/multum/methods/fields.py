"""The fields of a method: their defaults, what is printed about them, and the rules that their values obey."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import field
from typing import Any, get_args, get_origin, get_type_hints

from ..checks import flag, number, one_of, strings, whole


def setting(default: Any, text: str, **rule: Any) -> Any:
    """A field of a method: its default, the line that `multum methods` prints about it, and the rule of its values.

    Args:
        rule: `choices`, an `example` of a text, the bounds of `checks.number`, or `check(name, value)` for anything
            else; a field that may be None says so in its type.
    """
    return field(default=default, metadata={"help": text, "rule": rule})


@functools.cache
def _types(method: type) -> dict[str, Any]:
    return get_type_hints(method)


def holds_several(method: type, name: str) -> bool:
    """Whether a field of this class of methods is a tuple."""
    return get_origin(_types(method)[name]) is tuple


def checked(method: type, name: str, value: Any, rule: Mapping[str, Any]) -> Any:
    """The value of a field of this class of methods, if it obeys the rule."""
    kind = _types(method)[name]
    if value is None and type(None) in get_args(kind):
        return None
    if "check" in rule:
        rule["check"](name, value)
    elif "choices" in rule:
        one_of(name, value, rule["choices"])
    elif holds_several(method, name):
        return strings(name, value, rule["example"])
    elif kind is bool:
        flag(name, value)
    elif kind is int:
        whole(name, value, **rule)
    elif rule:
        number(name, value, **rule)
    return value
