"""Every error multum raises on purpose. Each states the rule, the value that broke it, the place, and the fix.

MultumError
├── ConfigError          a method's or function's argument breaks its rule        (also a ValueError)
├── ExampleError         the example batch does not fit the network               (also a ValueError)
├── NetworkError         the network itself cannot be an ensemble member          (also a TypeError)
├── RewriteError         modules that a rewrite does not understand, all of them  (has .refusals)
├── ExecutorError        an executor that cannot run this network was asked for   (also a RuntimeError)
├── CheckError           multum.check found a broken promise                      (also an AssertionError)
├── FileError            a file or folder that cannot be read or written          (also a ValueError)
├── DataError            a data set that is missing or malformed                  (also a ValueError)
├── TrainingError        training that cannot start or go on                      (also a RuntimeError)
├── ExportError          a format that cannot say what an ensemble computes       (also a RuntimeError)
└── MetricError          what a metric was given is not what it measures          (also a ValueError)
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "PAGES",
    "CheckError",
    "ConfigError",
    "DataError",
    "ExampleError",
    "ExecutorError",
    "ExportError",
    "FileError",
    "MetricError",
    "MultumError",
    "NetworkError",
    "Refusal",
    "RewriteError",
    "TrainingError",
    "check_known",
    "did_you_mean",
    "first_line",
]


# The page of docs/ that explains more.
PAGES = {
    "CheckError": "start/network",
    "ConfigError": "reference/command-line",
    "DataError": "data",
    "ExampleError": "start/network",
    "ExecutorError": "architecture",
    "ExportError": "exports",
    "FileError": "reference/files",
    "MetricError": "choose/numbers",
    "NetworkError": "start/network",
    "RewriteError": "reference/errors",
    "TrainingError": "training",
}


class MultumError(Exception):
    """The base of every error multum raises on purpose."""

    @property
    def page(self) -> str:
        """The page of the documentation that explains more, as a path without its ending."""
        return next((PAGES[kind.__name__] for kind in type(self).__mro__ if kind.__name__ in PAGES), "reference/errors")


class ConfigError(MultumError, ValueError):
    """An argument breaks its rule."""


class ExampleError(MultumError, ValueError):
    """The example batch does not fit the network."""


class NetworkError(MultumError, TypeError):
    """The network cannot be an ensemble member as it is."""


class ExecutorError(MultumError, RuntimeError):
    """The chosen executor cannot run this network."""


class CheckError(MultumError, AssertionError):
    """An ensemble breaks one of its promises."""


class FileError(MultumError, ValueError):
    """A file or folder cannot be read or written."""


class MetricError(MultumError, ValueError):
    """Predictions, labels or scores are not what a metric measures."""


class DataError(MultumError, ValueError):
    """A data set is missing or malformed."""


class TrainingError(MultumError, RuntimeError):
    """Training cannot start or go on."""


class ExportError(MultumError, RuntimeError):
    """A format cannot say what an ensemble computes."""


@dataclass(frozen=True)
class Refusal:
    """One place a rewrite does not understand, why, and what to do about it."""

    path: str
    reason: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path or '(the network itself)'}: {self.reason}\n    fix: {self.fix}"


class RewriteError(MultumError):
    """Everything a rewrite refuses in one network, listed at once.

    Shape: ``refusals`` is a tuple of :class:`Refusal` (path, reason, fix).
    """

    def __init__(self, what: str, refusals: Sequence[Refusal]):
        self.refusals = tuple(refusals)
        lines = "\n".join(f"  - {refusal}" for refusal in self.refusals)
        places = "1 place" if len(self.refusals) == 1 else f"{len(self.refusals)} places"
        super().__init__(f"{what}: refused at {places}, nothing was changed\n{lines}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known names, or all of them.

    >>> did_you_mean("resnet81", ["resnet18", "mlp"])
    'Did you mean resnet18?'
    """
    known = sorted(known)
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"Did you mean {' or '.join(close)}?" if close else f"Known: {', '.join(known)}."


def check_known(
    name: str, known: Collection[str], rule: str, error: type[MultumError] = ConfigError, got: str = ""
) -> None:
    """Refuse a name that is not known, with the rule, and what may have been meant.

    >>> check_known("mpl", ("mlp", "cnn"), "a model must be one that multum has")
    Traceback (most recent call last):
    multum.errors.ConfigError: a model must be one that multum has; got 'mpl'. Did you mean mlp?
    """
    if name not in known:
        raise error(f"{rule}; got {got or repr(name)}. {did_you_mean(str(name), known)}")


def first_line(error: BaseException) -> str:
    r"""What an error says in one line, or what it is where it says nothing.

    >>> first_line(ValueError("a\nb")), first_line(KeyError())
    ('a', 'KeyError')
    """
    return next(iter(str(error).splitlines()), "") or type(error).__name__
