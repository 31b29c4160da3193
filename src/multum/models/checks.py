"""The rules a keyword's value can break, each stated with the value and the fix."""

from __future__ import annotations

from collections.abc import Iterable

from multum.errors import ConfigError, did_you_mean

__all__ = ["fraction", "one_of", "positive_int"]


def positive_int(keyword: str, value: object) -> int:
    """The value, if it is an int of at least 1.

    >>> positive_int("classes", 10)
    10
    """
    # bool is an int to isinstance, and classes=True is a mistake
    if type(value) is int and value >= 1:
        return value
    raise ConfigError(
        f"{keyword} must be an int of at least 1; got {keyword}={value!r}. Pass for example {keyword}=10."
    )


def fraction(keyword: str, value: object) -> float:
    """The value, if it is a number p with 0 <= p < 1.

    >>> fraction("dropout", 0.3)
    0.3
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1:
        return float(value)
    raise ConfigError(
        f"{keyword} must be a number p with 0 <= p < 1; got {keyword}={value!r}. Pass for example {keyword}=0.3."
    )


def one_of(keyword: str, value: object, choices: Iterable[str]) -> str:
    """The value, if it is one of the choices.

    >>> one_of("stem", "cifar", ("cifar", "imagenet"))
    'cifar'
    """
    choices = tuple(choices)
    if isinstance(value, str) and value in choices:
        return value
    rule = f"{keyword} must be one of {', '.join(map(repr, choices))}"
    raise ConfigError(f"{rule}; got {keyword}={value!r}. {did_you_mean(str(value), choices)}")
