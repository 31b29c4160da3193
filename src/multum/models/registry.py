"""Names, and the builders behind them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any

from torch import nn

from multum.errors import ConfigError, did_you_mean
from multum.models.lenet import LeNet
from multum.models.mlp import MLP
from multum.models.resnet import resnet18, resnet50, resnet50x4, resnext50
from multum.models.small_cnn import SmallCNN
from multum.models.timm_model import timm_model
from multum.models.wide_resnet import WideResNet

__all__ = ["build", "names"]

Builder = Callable[..., nn.Module]

BUILDERS: dict[str, Builder] = {
    "lenet": LeNet,
    "mlp": MLP,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "resnet50x4": resnet50x4,
    "resnext50": resnext50,
    "small-cnn": SmallCNN,
}
FAMILIES = ("timm:NAME", "wrn-D-K")
EXAMPLES = ("wrn-10-1", "wrn-16-4", "wrn-28-10", "wrn-40-2")


def names() -> list[str]:
    """The names :func:`build` understands; D, K and NAME stand for a depth, a width and a timm model.

    >>> names()
    ['lenet', 'mlp', 'resnet18', 'resnet50', 'resnet50x4', 'resnext50', 'small-cnn', 'timm:NAME', 'wrn-D-K']
    """
    return sorted([*BUILDERS, *FAMILIES])


def build(name: str, **keywords: Any) -> nn.Module:
    """Build a fresh network by name, with its recipe attached.

    ``network.recipe`` is ``{"name": name, "keywords": keywords}`` in plain JSON values, so that
    ``build(recipe["name"], **recipe["keywords"])`` builds the same architecture again.

    **Shape**: images [batch, in_channels, height, width] of any size, or rows [batch, in_features] for the mlp
    -> [batch, classes].

    >>> network = build("wrn-10-1", classes=100, variant="edward2")
    >>> network.recipe
    {'name': 'wrn-10-1', 'keywords': {'classes': 100, 'variant': 'edward2'}}
    """
    builder = _builder(name)
    try:
        plain = {keyword: _plain(keyword, value) for keyword, value in keywords.items()}
        _check_keywords(builder, plain)
        network = builder(**plain)
    except ConfigError as error:
        raise ConfigError(f"models.build({name!r}): {error}") from error.__cause__
    network.recipe = {"name": name, "keywords": plain}  # type: ignore[assignment]
    return network


def _builder(name: str) -> Builder:
    if not isinstance(name, str):
        raise ConfigError(f"a model's name must be a string; got {name!r}. Known: {', '.join(names())}.")
    if name in BUILDERS:
        return BUILDERS[name]
    if wide := re.fullmatch(r"wrn-([0-9]+)-([0-9]+)", name):
        return partial(WideResNet, *map(int, wide.groups()))
    if name.startswith("timm:"):
        return partial(timm_model, name.removeprefix("timm:"))
    known = [*BUILDERS, *EXAMPLES]
    raise ConfigError(
        f"a model's name must be one of {', '.join(names())} (D a depth, K a width); got {name!r}. "
        f"{did_you_mean(name.lower(), known)}"
    )


def _check_keywords(builder: Builder, keywords: dict[str, Any]) -> None:
    parameters = inspect.signature(builder).parameters.values()
    known = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    rule = f"the keywords are {', '.join(known)}"
    for keyword, value in keywords.items():
        if keyword not in known and not open_ended:
            raise ConfigError(f"{rule}; got {keyword}={value!r}. {did_you_mean(keyword, known)}")
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name not in keywords:
            raise ConfigError(f"{rule}, and {p.name} has no default; it was not given. Pass {p.name}=...")


def _plain(keyword: str, value: Any) -> Any:
    """The value in JSON's own types: NumPy's numbers become Python's, tuples become lists."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(keyword, item) for item in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _plain(keyword, item) for key, item in value.items()}
    raise ConfigError(
        f"a keyword must be a number, a string, or a list or dict of them, so that the recipe can be saved; "
        f"got {keyword}={value!r}. Build such a network yourself and hand it to multum.ensemble."
    )
