"""The rules that a setting's value can break, each stated with the value and the fix."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

from .errors import ConfigError, MultumError, did_you_mean, first_line


def whole(name: str, value: object, least: int = 1) -> int:
    """The value, if it is a whole number of at least `least`.

    >>> whole("classes", 10)
    10
    """
    # bool is an int to isinstance, and classes=True is a mistake
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    raise ConfigError(f"{name} must be a whole number >= {least}; got {name}={value!r}. Use for example {name}={least}")


def number(
    name: str,
    value: object,
    *,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    fix: str = "",
) -> float:
    """The value, if it is a finite number within these bounds.

    >>> number("rho", 0.5, least=0, most=1)
    0.5
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and -math.inf < value < math.inf:
        reaches = (least is None or value >= least) and (above is None or value > above)
        if reaches and (most is None or value <= most) and (below is None or value < below):
            return value
    low = f"{least:g} <= " if least is not None else f"{above:g} < " if above is not None else ""
    high = f" <= {most:g}" if most is not None else f" < {math.inf if below is None else below:g}"
    if not fix:
        too_high = most is not None and isinstance(value, (int, float)) and value > most
        nearest = most if too_high or least is None else least
        fix = f"Use for example {name}={1 if nearest is None else nearest:g}"
    raise ConfigError(f"{name} must be a number with {low}{name}{high}; got {name}={value!r}. {fix}")


def flag(name: str, value: object) -> None:
    """Refuse a value that is neither True nor False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name} must be True or False; got {name}={value!r}. Use {name}=True or {name}=False")


def one_of(name: str, value: object, choices: Iterable[str]) -> str:
    """The value, if it is one of the choices.

    >>> one_of("stem", "cifar", ("cifar", "imagenet"))
    'cifar'
    """
    choices = tuple(choices)
    if isinstance(value, str) and value in choices:
        return value
    rule = f"{name} must be one of {', '.join(map(repr, choices))}"
    raise ConfigError(f"{rule}; got {name}={value!r}. {did_you_mean(str(value), choices)}")


def needed(module: str, rule: str, fix: str, error: type[MultumError] = ConfigError) -> Any:
    """A module of a package that not everyone has, or an error that says what it is needed for and how to get it.

    >>> needed("json", "this must be read by json", "pip install json").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(module)
    except Exception as cause:  # a package with compiled parts that do not fit raises more than ImportError
        raise error(f"{rule}, which cannot be imported ({first_line(cause)}). {fix}") from cause


def strings(name: str, value: Any, example: str) -> tuple[str, ...]:
    """The value as a tuple, if it is a sequence of texts; one text may come bare.

    >>> strings("plain", "*shortcut*", "fc")
    ('*shortcut*',)
    """
    texts: Sequence[Any] = (value,) if isinstance(value, str) else value
    if not isinstance(texts, (tuple, list)) or not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"{name} must be a tuple of texts; got {name}={value!r}. Use for example ({example!r},)")
    return tuple(texts)
