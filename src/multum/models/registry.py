"""Names, and the builders behind them."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from functools import partial
from numbers import Integral, Real
from typing import Any

import torch
from torch import nn

from ..checks import number
from ..errors import ConfigError, check_known, did_you_mean
from ..parsing import named
from ..thinning.thin import thin, widen
from .mlp import MLP, TabularMLP
from .own import SIZES, OwnName, name_of, own_builder, parse, with_hash
from .resnet import resnet18, resnet50, resnet50x4, resnext50
from .small import CNN, LeNet, SmallCNN, SmallResNet
from .timm_model import timm_model
from .wide_resnet import WideResNet

Builder = Callable[..., nn.Module]

BUILDERS: dict[str, Builder] = {
    "cnn": CNN,
    "lenet": LeNet,
    "mlp": MLP,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "resnet50x4": resnet50x4,
    "resnext50": resnext50,
    "small-cnn": SmallCNN,
    "small-resnet": SmallResNet,
    "tabular-mlp": TabularMLP,
}
FOR_ROWS = ("mlp", "tabular-mlp")  # take rows; the others take images
FAMILIES = ("timm:NAME", "wrn-D-K")
EXAMPLES = ("wrn-10-1", "wrn-16-4", "wrn-28-10", "wrn-40-2")


def names() -> list[str]:
    """The names :func:`build` understands; D, K and NAME stand for a depth, a width and a timm model.

    >>> names()[:6]
    ['cnn', 'lenet', 'mlp', 'resnet18', 'resnet50', 'resnet50x4']
    >>> names()[6:]
    ['resnext50', 'small-cnn', 'small-resnet', 'tabular-mlp', 'timm:NAME', 'wrn-D-K']
    """
    return sorted([*BUILDERS, *FAMILIES])


def build(name: str, **keywords: Any) -> nn.Module:
    """Build a fresh network by name, with its recipe attached.

    ``network.recipe`` is ``{"name": name, "keywords": keywords}`` in plain JSON values, so that
    ``build(recipe["name"], **recipe["keywords"])`` builds the same architecture again.

    **Shape**: images [batch, in_channels, height, width] of any size, or rows [batch, in_features] for the MLPs
    -> [batch, classes].

    >>> network = build("wrn-10-1", classes=100, variant="edward2")
    >>> network.recipe
    {'name': 'wrn-10-1', 'keywords': {'classes': 100, 'variant': 'edward2'}}
    """
    make = _builder(name)
    try:
        plain = {keyword: _plain(keyword, value) for keyword, value in keywords.items()}
        _check_keywords(make, plain)
        network = make(**plain)
    except ConfigError as error:
        raise ConfigError(f"models.build({name!r}): {error}") from error.__cause__
    network.recipe = {"name": name, "keywords": plain}  # type: ignore[assignment]
    return network


def builder(
    text: str, shape: Sequence[int], outputs: int, *, numbers: Sequence[int] | None = None
) -> Callable[[], nn.Module]:
    """What builds a network from its name and keywords in one text, for examples of one shape.

    Every network takes ``thin``, a share of its width, or ``wide``, a multiple of it. A network of one's own is
    `mynet.py:Net:width=16`.

    **Shape**: ``shape`` is that of one example: [channels, height, width], or [features] for the networks of tables,
    of which ``numbers`` are the positions of those that are no zeros and ones; None: all.

    >>> builder("mlp:hidden=8+8", (10,), 2)().hidden[0]
    Linear(in_features=10, out_features=8, bias=True)
    >>> builder("small-cnn:thin=0.5", (1, 8, 8), 10)().conv1.out_channels
    8
    >>> builder("small-cnn:wide=1.5", (1, 8, 8), 10)().conv1.out_channels
    24
    """
    own = own_name(text)
    name, keywords = _named(text) if own is None else (text, own.keywords)
    factor = _factor(keywords)
    if own is not None:
        whole = own_builder(own if own.digest else with_hash(own), shape, outputs)
    elif name not in FOR_ROWS and len(shape) != 3:
        raise ConfigError(f"{name} must have images [channels, height, width]; got examples {[*shape]}. Use mlp")
    else:
        size: dict[str, Any] = {"in_features": math.prod(shape)} if name in FOR_ROWS else {"in_channels": shape[0]}
        size |= {"numbers": numbers} if name == "tabular-mlp" and numbers is not None else {}
        whole = partial(build, name, **{**size, "classes": outputs, **keywords})

    def make() -> nn.Module:
        network = whole()
        if factor == 1:
            return network
        example = torch.zeros(2, *shape, device=next(network.parameters()).device)
        with torch.device("cpu"):  # also where the network is built on the meta device
            # Drawn from torch's generator, so that every member built under a seed of its own has other weights.
            seed = int(torch.randint(2**62, ()))
            return (thin if factor < 1 else widen)(network, factor, example, seed=seed)

    return make


def is_resized(text: str) -> bool:
    """Whether a name asks for another width than the network has: its recipe alone does not build it then.

    >>> is_resized("small-cnn:thin=0.5"), is_resized("resnet18:wide=2"), is_resized("wrn-10-1:bias=none")
    (True, True, False)
    """
    own = own_name(text)
    return not {*SIZES}.isdisjoint(_named(text)[1] if own is None else own.keywords)


def _factor(keywords: dict[str, Any]) -> float:
    """The factor of the width; taken out of the keywords."""
    share = number("thin", keywords.pop("thin", 1), above=0, most=1)
    multiple = number("wide", keywords.pop("wide", 1), least=1)
    if share != 1 and multiple != 1:
        raise ConfigError(f"a network must be thinner or wider; got thin={share:g} and wide={multiple:g}. Use one")
    return share * multiple


def own_name(text: str) -> OwnName | None:
    """The parts of the name of a network of one's own, `mynet.py:Net:width=16`; None for multum's and timm's names."""
    return parse(text, (*BUILDERS, "timm"))


def full_name(model: str | Callable[..., nn.Module]) -> str:
    """The name under which a network is recorded: with the hash of its text, where it is one's own."""
    text = model if isinstance(model, str) else name_of(model)
    own = own_name(text)
    return text if own is None else str(with_hash(own))


def _named(text: str) -> tuple[str, dict[str, Any]]:
    family = "timm:" if text.startswith("timm:") else ""
    name, keywords = named(text.removeprefix(family))
    return family + name, keywords


def _builder(name: str) -> Builder:
    if not isinstance(name, str):
        raise ConfigError(f"a model's name must be a string; got {name!r}. Known: {', '.join(names())}.")
    if name in BUILDERS:
        return BUILDERS[name]
    if wide := re.fullmatch(r"wrn-([0-9]+)-([0-9]+)", name):
        return partial(WideResNet, *map(int, wide.groups()))
    if name.startswith("timm:"):
        return partial(timm_model, name.removeprefix("timm:"))
    rule = f"a model's name must be one of {', '.join(names())} (D a depth, K a width)"
    raise ConfigError(f"{rule}; got {name!r}. {did_you_mean(name.lower(), [*BUILDERS, *EXAMPLES])}")


def _check_keywords(make: Builder, keywords: dict[str, Any]) -> None:
    parameters = inspect.signature(make).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    rule = f"the keywords must be {', '.join(known)}"
    for keyword, value in keywords.items() if not open_ended else ():
        check_known(keyword, known, rule, got=f"{keyword}={value!r}")
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name not in keywords:
            raise ConfigError(f"{rule}; got no {p.name}, which has no default. Pass {p.name}=...")


def _plain(keyword: str, value: Any) -> Any:
    """The value in JSON's own types: NumPy's numbers become Python's, tuples become lists."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(keyword, part) for part in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(keyword, part) for key, part in value.items()}
    raise ConfigError(
        f"a keyword must be a number, a string, or a list or dict of them, so that the recipe can be saved; "
        f"got {keyword}={value!r}. Build such a network yourself and hand it to multum.ensemble."
    )
