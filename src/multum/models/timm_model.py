"""Networks of timm, where it is installed."""

from __future__ import annotations

import difflib
from typing import Any

from torch import nn

from multum.errors import ConfigError, did_you_mean
from multum.models.checks import positive_int

__all__ = ["timm_model"]


def timm_model(model: str, *, classes: int | None = None, in_channels: int = 3, **keywords: Any) -> nn.Module:
    """Build a timm network, with multum's names for its outputs and input channels.

    timm.create_model(model, num_classes=classes, in_chans=in_channels, **keywords); ``classes=None`` keeps the head
    that timm gives the network.

    **Shape**: the network's own; [batch, in_channels, height, width] -> [batch, classes] for classifiers.

    >>> timm_model("convnext_atto", classes=10)  # doctest: +SKIP
    """
    renamed = {"num_classes": "classes", "in_chans": "in_channels"}
    for theirs in sorted(renamed.keys() & keywords.keys()):
        raise ConfigError(f"multum names this keyword {renamed[theirs]}; got {theirs}={keywords[theirs]!r}.")
    keywords["in_chans"] = positive_int("in_channels", in_channels)
    if classes is not None:
        keywords["num_classes"] = positive_int("classes", classes)

    timm = _timm()
    if not timm.is_model(model):
        # did_you_mean names every known name when none is close: timm has more than a thousand
        close = difflib.get_close_matches(model, timm.list_models(), cutoff=0.5)
        hint = did_you_mean(model, close) if close else "Its models are those of timm.list_models()."
        raise ConfigError(f"the name after timm: must be a model of timm; got {model!r}. {hint}")
    try:
        return timm.create_model(model, **keywords)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"timm cannot build {model!r}: {error}. Change the keywords it names.") from error


def _timm() -> Any:
    # a broken torchvision raises RuntimeError from inside timm's imports, not ImportError
    try:
        import timm
    except Exception as error:
        raise ConfigError(
            f"timm must be importable; got {type(error).__name__}: {error}. "
            "Install it with `pip install multum[timm]` and see that `python -c 'import timm'` works."
        ) from error
    return timm
