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


# The page of the site that explains more; what has only this package asks `multum errors NAME`.
PAGES = {
    "CheckError": "start/network",
    "ConfigError": "methods/index",
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
    def kind(self) -> str:
        """The kind of error under which it is explained: `multum errors NAME`."""
        return next((kind.__name__ for kind in type(self).__mro__ if kind.__name__ in PAGES), "")

    @property
    def page(self) -> str:
        """The page of the documentation that explains more, as a path without its ending."""
        return PAGES.get(self.kind, "reference/errors")


class ConfigError(MultumError, ValueError):
    """An argument breaks its rule.

    The message names the argument, the rule, the value and a valid one. `multum methods` lists the fields of every
    method, `multum COMMAND --help` the options of a command, and `multum.Recipe` the fields of a recipe.
    """


class ExampleError(MultumError, ValueError):
    """The example batch does not fit the network.

    `example` must be one batch exactly as the network takes it: a tensor (or a tuple or dictionary of tensors) with the
    batch axis first. For data that was loaded by multum use `data.example()`.
    """


class NetworkError(MultumError, TypeError):
    """The network cannot be an ensemble member as it is.

    A network must be an `nn.Module`, or a function without arguments that returns one, and map a batch to outputs with
    the same batch axis. A class of your own is given to `multum.load` as `network=Net`.
    """


class ExecutorError(MultumError, RuntimeError):
    """The chosen executor cannot run this network.

    Leave the executor out, and multum takes one that can. `loop` runs every network; `vmap` and `grouped` need
    operations that have a batching rule.
    """


class CheckError(MultumError, AssertionError):
    """An ensemble breaks one of its promises.

    `multum.check` compares members with each other, executors with each other, and each member with its plain network.
    A network that fails keeps state outside of its parameters and buffers, or computes across the batch.
    """


class FileError(MultumError, ValueError):
    """A file or folder cannot be read or written.

    Most often the path is wrong, the folder is not one that `multum train` wrote, or the file was changed after it was
    written (its checksum is compared). A damaged run folder can be deleted: the same command writes it again.
    """


class MetricError(MultumError, ValueError):
    """Predictions, labels or scores are not what a metric measures.

    Probabilities are [batch, classes] and sum to 1, targets are class indices [batch], and scores of OOD detection are
    one number for each example.
    """


class DataError(MultumError, ValueError):
    """A data set is missing or malformed.

    A name is `digits`, `diabetes`, `csv:FILE#target=COLUMN`, `parquet:FILE#target=COLUMN`, `folder:DIR`, `npz:FILE`,
    `hf:NAME`, or NAME.npz in the folder $MULTUM_DATA. On the command line put quotes around a name with `#` or `;`.
    """


class TrainingError(MultumError, RuntimeError):
    """Training cannot start or go on.

    Either a recipe does not fit the data or the method, or the loss is no longer finite: lower `lr` (`--find-lr`
    proposes one). A folder that holds a run with other settings is not overwritten: choose another `--out`.
    """


class ExportError(MultumError, RuntimeError):
    """A format cannot say what an ensemble computes.

    The message names the operation that the format lacks. The other format may have it: ONNX with `--to NAME.onnx`,
    torch.export with `--to NAME.pt2`. ONNX needs `pip install onnx onnxruntime onnxscript`.
    """


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

    Common reasons: a width that is a literal number in `forward` instead of being read from a tensor, a layer that no
    rule covers, a parameter that is used outside of its layer. `refusals` is a tuple of `Refusal` (path, reason, fix).
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
