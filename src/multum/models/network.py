"""What every network of this folder has in common: it can be born again."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..checks import whole
from ..errors import ConfigError


class Network(nn.Module):
    """A network that re-initialises itself in place, whatever widths its layers have by then.

    ``recipe`` is ``{"name": ..., "keywords": {...}}``, set by :func:`multum.models.build`; it rebuilds the network.

    >>> class Tiny(Network):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.fc = nn.Linear(2, 1)
    ...         self.reset_parameters()
    >>> tiny = Tiny()
    >>> tiny.fc = nn.Linear(5, 1)
    >>> tiny.reset_parameters()
    """

    recipe: dict[str, Any]

    def reset_parameters(self) -> None:
        """Draw every parameter anew from torch's global generator, under torch's default scheme of each layer.

        Convolutions and linears: U(-1/sqrt(fan_in), 1/sqrt(fan_in)), weights and biases. Batch norms: weight 1,
        bias 0, running mean 0, running variance 1.
        """
        for layer in self.modules():
            reset = getattr(layer, "reset_parameters", None)
            if layer is not self and callable(reset):
                reset()


def widths_of(name: str, value: object) -> list[int]:
    """The widths of layers, of one or several.

    >>> widths_of("hidden", 8), widths_of("hidden", (8, 4))
    ([8], [8, 4])
    """
    if isinstance(value, (list, tuple)):
        return [whole(name, width) for width in value]
    if type(value) is int:
        return [whole(name, value)]
    raise ConfigError(
        f"{name} must be a width or a sequence of widths; got {name}={value!r}. Pass for example {name}=(200, 200)."
    )
