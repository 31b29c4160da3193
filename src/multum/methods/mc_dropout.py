"""MC dropout: one network whose dropout stays on at prediction; the members are samples.

Gal, Ghahramani: Dropout as a Bayesian Approximation: Representing Model Uncertainty in Deep Learning, ICML 2016; a
baseline of Havasi et al., Training independent subnetworks for robust prediction, ICLR 2021.

    f_m(x) = f(x; W o z_m / (1 - p)),    z_m ~ Bernoulli(1 - p), another one at every call

The network's dropout modules are used, at their own rates. Where it has none, dropout is put where Havasi et al. have
it in a wide ResNet (after the first convolution of every block: the module named `dropout`), and elsewhere before every
weighted layer but the first. Each member draws from its own generator, so that the ensemble's seed fixes the sequence
of samples, and copies and saved files continue it. What nn.MultiheadAttention drops of its attention weights is a
number there, not a module: it stays off at prediction.

In training there is one network and one sample: all rows of the output are that sample, computed once.

Shape: x [batch, ...] -> [members, batch, outputs]. Cost: one network's parameters; what precedes the first dropout is
computed once, the rest M times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from ..errors import Refusal, RewriteError
from ..network.dependence import Usage
from ..rewrite.dropout import DROPOUTS, Drawing
from ..rewrite.walker import Edit, layer
from .base import Builder, Method, Rewritten, setting
from .paths import followed

RATE = 0.1  # of Havasi et al., where the network says nothing
PLACE = "dropout"  # what a module is called that stands, as nn.Identity, where dropout may go


@layer
class InputDropout(Drawing):
    """Any layer behind a dropout of its input, one mask per element; an nn.Identity becomes dropout itself."""

    rate: float
    plain: type[nn.Module]

    def adopt(self, network: nn.Module) -> None:
        """Nothing to add."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        inputs = [*args, *kwargs.values()]
        dropped: list[tuple[Tensor, Tensor]] = []
        # An attention layer's query, key and value are inputs alike; one tensor in all three roles is dropped once.
        for i in range(3 if isinstance(self, nn.MultiheadAttention) else 1):
            x = inputs[i]
            inputs[i] = next((new for old, new in dropped if old is x), None)
            if inputs[i] is None:
                inputs[i] = self.drop(x)
                dropped.append((x, inputs[i]))
        named = dict(zip(kwargs, inputs[len(args) :], strict=True))
        return super().forward(*inputs[: len(args)], **named)  # type: ignore[misc]

    def drop(self, x: Tensor) -> Tensor:
        # Before the ensemble has handed out generators a layer is looked at, not used.
        mask = self.draw(x, self.rate, channelwise=False) if "randomness" in self.__dict__ else None
        return x if mask is None else x * (mask / (1 - self.rate))

    def fold(self) -> None:
        self.forget()
        self.__class__ = self.plain  # type: ignore[assignment]
        rate = self.__dict__.pop("rate")
        if type(self) is nn.Identity:
            self.__class__ = nn.Dropout  # type: ignore[assignment]
            self.__dict__.update(p=rate, inplace=False)


@dataclass(frozen=True, kw_only=True)
class McDropout(Method):
    """Samples of one network under dropout."""

    deterministic = False
    variants = ({"rate": 0.05}, {"rate": 0.2})

    members: int = setting(5, "T: samples per prediction")
    rate: float | None = setting(
        None,
        "p: of every dropout; None: the network's own rates, 0.1 where it has none",
        least=0,
        below=1,
        fix=f"Havasi et al. use rate={RATE}",
    )

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        modules = dict(network.named_modules())
        usage = followed(network, example, "give the network nn.Dropout modules that run, or use another method")
        edits = self._always_on(modules, usage) or self._inserted(modules, usage)
        return Rewritten(network, [*_no_shortcuts(modules), *edits], owns=lambda name, tensor: False)

    def alone(self) -> McDropout:
        return replace(self, members=1, rate=0.0)

    def training_macs(self, macs: int, members: int) -> int:
        """One sample sees each example."""
        return macs // members

    def _always_on(self, modules: dict[str, nn.Module], usage: Usage) -> list[Edit]:
        """The network's own dropout modules, where they run."""
        dropouts: dict[str, Any] = {p: m for p, m in modules.items() if type(m) in DROPOUTS and p in usage.calls}
        rate = self.rate
        if rate is None and all(module.p == 0 for module in dropouts.values()):
            rate = RATE  # places for dropout, left unused
        return [Edit(path, {"always": True} if rate is None else {"always": True, "p": rate}) for path in dropouts]

    def _inserted(self, modules: dict[str, nn.Module], usage: Usage) -> list[Edit]:
        """New ones: in the places that are kept for dropout, else before every weighted layer but the first."""
        paths = [p for p, m in modules.items() if type(m) is nn.Identity and p.rpartition(".")[2] == PLACE]
        paths = [p for p in paths if p in usage.calls] or usage.layers[1:]
        put = "put nn.Dropout where it should be"
        refusals = [
            Refusal(p, "dropout must go before a layer; got a module that holds weights and other layers", put)
            for p in paths
            if any(not p or other.startswith(f"{p}.") for other in usage.layers)
        ]
        if not paths:
            reason = "dropout goes before every weighted layer but the first, and there must be a second one; got none"
            refusals = [Refusal("", reason, f"{put}, or use another method")]
        if refusals:
            raise RewriteError("McDropout", refusals)
        rate = RATE if self.rate is None else self.rate
        return [Edit(path, {"always": True, "rate": rate}, "InputDropout") for path in paths]


def _no_shortcuts(modules: dict[str, nn.Module]) -> list[Edit]:
    """Torch's transformer layers have a fast path in eval mode that runs no dropout: these attributes turn it off."""
    kinds = (
        (nn.TransformerEncoderLayer, "activation_relu_or_gelu", 0),
        (nn.TransformerEncoder, "use_nested_tensor", False),
    )
    return [
        Edit(path, {name: value})
        for path, module in modules.items()
        for kind, name, value in kinds
        if isinstance(module, kind)
    ]
