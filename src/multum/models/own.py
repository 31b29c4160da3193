"""Networks of one's own: `mynet.py:Net` and `package.module:function`, with keywords as in `mynet.py:Net:width=16`.

What is run is what is recorded: the text of the file, whose hash is part of the network's full name, as in
`mynet.py@1a2b3c4d5e6f:Net:width=16`. A folder that holds a copy of the text (`network.py`) can build the network
wherever it is. Only commands on such a folder, or on the file itself, run the text: `multum.load` never does.
"""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..errors import ConfigError, did_you_mean
from ..files import explained
from ..parsing import assignments
from .sources import NETWORK, SOURCES, Source, mistake, read_source, read_text, remember

SIZES = ("thin", "wide")  # keywords that every network takes: factors of its width
FORM = re.compile(r"(.+?\.py|[A-Za-z_][\w.]*)(?:@([0-9a-f]{12}))?:([A-Za-z_][\w.]*)(?::(.*))?")


class OwnName(NamedTuple):
    """The parts of a name: where the text is, its hash if the name has it, what builds the network, and keywords."""

    place: str
    digest: str | None
    target: str
    fields: str  # as written: "width=16,depth=3"

    @property
    def keywords(self) -> dict[str, Any]:
        return assignments(part for part in self.fields.split(",") if part)

    def __str__(self) -> str:
        at, behind = f"@{self.digest}" if self.digest else "", f":{self.fields}" if self.fields else ""
        return f"{self.place}{at}:{self.target}{behind}"


def parse(text: str, known: Sequence[str] = ()) -> OwnName | None:
    """The parts of a name of one's own network; None for any other name, such as the known ones.

    >>> parse("nets/mynet.py:Net:width=16")
    OwnName(place='nets/mynet.py', digest=None, target='Net', fields='width=16')
    >>> parse("mlp:hidden=8") is None
    True
    """
    match = FORM.fullmatch(text)
    if match is None and re.search(r"\.py($|[:@])", text):
        raise ConfigError(
            f"a network of one's own must be written FILE.py:NAME, or FILE.py:NAME:field=value; got {text!r}. "
            f"NAME is a class or a function in the file"
        )
    if match is None or match[1] in known:
        return None
    place, digest, target, fields = match.groups()
    return OwnName(place, digest, target, fields or "")


def with_hash(own: OwnName) -> OwnName:
    """The name with the hash of the text; reads the text, unless the name has a hash that this process knows.

    The file's own name stands in it without its folders: the same text is the same network, wherever it lies.
    """
    if own.digest in SOURCES:
        return own
    source = read_source(own.place)
    if own.digest not in (None, source.digest):
        raise ConfigError(
            f"{own.place} must have the text that the name speaks of; got {source.digest} for {own.digest}: the file "
            "has changed since. Leave the hash out of the name to take the file as it is"
        )
    remember(source)
    _target(source, own.target)
    return own._replace(place=source.place, digest=source.digest)


def name_of(build: Callable[..., nn.Module]) -> str:
    """The name of a class or function at the top of a file, or of a `functools.partial` of one."""
    keywords: Mapping[str, Any] = {}
    if isinstance(build, partial):
        keywords, args, build = build.keywords, build.args, build.func
        if args:
            raise ConfigError(f"`model` must be a partial of keywords alone; got {args!r}. Name them")
    target, module = getattr(build, "__qualname__", ""), sys.modules.get(getattr(build, "__module__", ""))
    file = getattr(module, "__file__", None)
    if isinstance(build, nn.Module) or not target or "<" in target or not (file and Path(file).is_file()):
        raise ConfigError(
            f"`model` must be a name, or a class or function at the top of a .py file, whose text a run folder can "
            f"keep; got {build!r:.100}. Write it to a file, and import it from there"
        )
    assert module is not None and file is not None
    if module.__name__ == "__main__":
        _check_guarded(Path(file))
    place = module.__name__ if module.__package__ and module.__name__ != "__main__" else file
    fields = ",".join(f"{name}={_written(name, value)}" for name, value in keywords.items())
    return f"{place}:{target}" + (f":{fields}" if fields else "")


def own_builder(own: OwnName, shape: Sequence[int], outputs: int) -> Callable[[], nn.Module]:
    """What builds the network, called with the keywords behind its name, and those of the data's that it takes."""
    if own.digest not in SOURCES:
        raise ConfigError(
            f"{own.place} must be there to build {own.target}; got no text with the hash {own.digest}. Name the file, "
            f"or the folder of a run, which holds it as {NETWORK}"
        )
    source = SOURCES[own.digest]
    target, what = _target(source, own.target), f"{own.place}:{own.target}"
    keywords = {name: value for name, value in own.keywords.items() if name not in SIZES}
    return builder_of(target, shape, outputs, keywords, what, source.running)


def builder_of(
    target: Callable[..., Any],
    shape: Sequence[int],
    outputs: int,
    keywords: Mapping[str, Any],
    what: str,
    running: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Callable[[], nn.Module]:
    """What calls a class or function with these keywords, and those of the data's that it takes.

    >>> def network(in_features, outputs):
    ...     return nn.Linear(in_features, outputs)
    >>> builder_of(network, (4,), 3, {}, "network")()
    Linear(in_features=4, out_features=3, bias=True)
    """
    accepted = _accepted(target, keywords, _offered(shape, outputs), what)
    checked = False

    def make() -> nn.Module:
        nonlocal checked
        with running():
            network = target(**accepted)
        if not isinstance(network, nn.Module):
            raise ConfigError(f"{what} must give an nn.Module; got {type(network).__name__}. Return the network")
        if not checked:
            _check_outputs(network, shape, outputs, what)
            checked = True
        return network

    return make


def _target(source: Source, name: str) -> Callable[..., Any]:
    """The class or function of a name."""
    target: Any = source.module()
    for part in name.split("."):
        public = [n for n, value in vars(target).items() if callable(value) and not n.startswith("_")]
        if not hasattr(target, part):
            raise ConfigError(
                f"{source.place} must have the class or function that is named; got {name!r}, which it does not have. "
                f"{did_you_mean(part, public)}"
            )
        target = getattr(target, part)
    if isinstance(target, nn.Module) or not callable(target):
        raise ConfigError(
            f"{source.place}:{name} must build networks, one for each member; got {type(target).__name__}. Name a "
            "class, or a function that returns a new network"
        )
    return target


def _offered(shape: Sequence[int], outputs: int) -> dict[str, Any]:
    """What is known of the data, by the names that networks usually have for it."""
    names = ("classes", "num_classes", "n_classes", "outputs", "num_outputs", "out_features", "output_dim")
    offered: dict[str, Any] = dict.fromkeys(names, outputs)
    offered |= dict.fromkeys(("in_features", "n_features", "input_dim"), math.prod(shape))
    offered |= dict.fromkeys(("input_shape", "example_shape"), tuple(shape))
    if len(shape) == 3:
        offered |= dict.fromkeys(("in_channels", "in_chans"), shape[0])
        offered |= dict.fromkeys(("image_size", "img_size"), shape[1] if shape[1] == shape[2] else tuple(shape[1:]))
    return offered


def _accepted(
    target: Callable[..., Any], keywords: Mapping[str, Any], offered: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """The keywords to call with; all mistakes that can be known before."""
    with explained(f"{what} must have a signature", "Name a Python function", ConfigError, (TypeError, ValueError)):
        parameters = inspect.signature(target).parameters.values()
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in keywords if not open_ended else ():
        if name not in known:
            hint = did_you_mean(name, known) if known else "It takes none"
            raise ConfigError(f"the keywords of {what} must be its own; got {name}={keywords[name]!r}. {hint}")
    every = {name: value for name, value in offered.items() if name in known} | dict(keywords)
    required = (p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL))
    missing = [name for name in required if name not in every]
    if missing:
        raise ConfigError(
            f"{what} must be callable with the keywords behind its name, and what is known of the data "
            f"({', '.join(offered)}); got no {', '.join(missing)}. Write {what}:{missing[0]}=..., or give it a default"
        )
    return every


def _check_outputs(network: nn.Module, shape: Sequence[int], outputs: int, what: str) -> None:
    parameter = next(network.parameters(), torch.zeros(()))
    training = network.training
    try:
        with torch.no_grad(), torch.random.fork_rng():
            given = network.eval()(torch.zeros(2, *shape, device=parameter.device, dtype=parameter.dtype))
    except Exception as error:
        raise ConfigError(
            f"{what} must run on examples of shape {list(shape)}; got {mistake(error)}. Take what is known of the "
            f"data as keywords: {', '.join(_offered(shape, outputs))}"
        ) from error
    finally:
        network.train(training)
    if isinstance(given, Tensor) and tuple(given.shape[:2]) != (2, outputs):
        raise ConfigError(
            f"{what} must give {outputs} outputs for each example; got {list(given.shape)} for 2 examples. Take the "
            "number as a keyword: classes, num_classes or outputs"
        )


def _check_guarded(path: Path) -> None:
    """A script's text is run again where its network is built: it must do nothing then but define."""
    doing = (ast.Expr, ast.For, ast.While, ast.With, ast.Delete, ast.Raise, ast.Assert)
    body = ast.parse(read_text(path)).body
    lines = [n.lineno for n in body if isinstance(n, doing) and not isinstance(getattr(n, "value", None), ast.Constant)]
    if lines:
        raise ConfigError(
            f"`model` must come from a file that only defines; got a function of the script {path.name}, which runs "
            f'line {lines[0]} when it is imported. Put that under `if __name__ == "__main__":`, or the network in a '
            "file of its own"
        )


def _written(name: str, value: Any) -> str:
    """A keyword as it is written behind a name."""
    if isinstance(value, (tuple, list)) and len(value) > 1:
        return "+".join(_written(name, part) for part in value)
    if (
        value is None
        or isinstance(value, (bool, int, float))
        or (isinstance(value, str) and re.fullmatch(r"[\w.-]+", value))
    ):
        return str(value)
    raise ConfigError(f"a keyword of a network must be a number, a word or several; got {name}={value!r}. Use another")
