"""Which input a unit of a MIMO network listens to: the variance of its pre-activation as one input changes alone.

    V_m(a) = E_others [ Var_x_m a(x_1, ..., x_M) ]        MIMO, section 3.3 and Figure 4

The other inputs are held at some examples, the context; the variance over examples at the m-th input is averaged over
contexts. Where the subnetworks are separate, each unit has a large V_m for one m alone. Var(a), all inputs drawn at
once, is the whole: V_m <= Var(a), and the V_m of a unit that adds its inputs up sum to it.

A unit is an output channel of a weighted layer; variances of a convolution's positions are averaged. The prose behind
the paper's formula swaps the roles of the inputs; the formula stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..data import Data
from ..ensemble import Ensemble
from ..errors import ConfigError, check_known
from ..network.copies import trial_copy
from ..rewrite.folded import KINDS, MimoHead, MimoStem

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class ConditionalVariances:
    """The variances of every unit.

    **Shape**: layers and units ``[n]``, the layer of each unit and its number there; inputs ``[members, n]``, V_m of
    each; total ``[n]``, Var(a); float64.
    """

    layers: tuple[str, ...]
    units: tuple[int, ...]
    inputs: Tensor
    total: Tensor
    examples: int
    contexts: int

    @property
    def owner(self) -> Tensor:
        """The input that each unit listens to most, ``[n]``."""
        return self.inputs.argmax(0)

    @property
    def share(self) -> Tensor:
        """max_m V_m / sum_m V_m, ``[n]``: 1 where a unit hears one input, 1/M where all alike; NaN if constant."""
        return self.inputs.amax(0) / self.inputs.sum(0)

    @property
    def separation(self) -> float:
        """The mean share of all units that are not constant: 1 where subnetworks are separate, 1/M where none is."""
        return float(self.share.nanmean())

    def frame(self) -> pd.DataFrame:
        """One row per unit: layer, unit, input_0 ... input_(M-1), total, owner, share."""
        import pandas as pd

        columns: dict[str, Any] = {"layer": self.layers, "unit": self.units}
        columns |= {f"input_{m}": values.numpy() for m, values in enumerate(self.inputs)}
        return pd.DataFrame(
            {**columns, "total": self.total.numpy(), "owner": self.owner.numpy(), "share": self.share.numpy()}
        )


@torch.no_grad()
def conditional_variances(
    ensemble: Ensemble,
    data: Data | Tensor,
    layers: Sequence[str] | None = None,
    *,
    examples: int = 256,
    contexts: int = 32,
    seed: int = 0,
    advance: Callable[[int], None] = lambda passes: None,
) -> ConditionalVariances:
    """The conditional variance of every pre-activation with respect to each input, in eval mode; nothing is changed.

    Args:
        data: a data set, whose test part is used, or inputs as the network takes them, [n, ...].
        layers: paths of modules whose outputs are looked at; None: every convolution and linear layer but the head.
        examples: over which the variance is taken, drawn under the seed; they are run in one pass.
        contexts: examples that the other inputs are held at, drawn anew each time.
        advance: called after each of the (members + 1) * contexts passes, for a progress bar.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=3, classes=2)
    >>> ens = multum.ensemble(net, multum.Mimo(members=2), example=torch.zeros(2, 3), seed=0)
    >>> units = conditional_variances(ens, torch.randn(64, 3, generator=torch.Generator().manual_seed(0)), contexts=4)
    >>> units.inputs.shape[0], bool((units.share >= 0.5).all())
    (2, True)
    """
    members = ensemble.members
    if not ensemble.folded or members < 2:
        raise ConfigError(
            "conditional variances need two members or more that share one pass over several inputs, as Mimo's do; got "
            f"{type(ensemble.method).__name__} with {members} member{'s' * (members != 1)}"
        )
    if examples < 2 or contexts < 1:
        raise ConfigError(f"`examples` must be >= 2 and `contexts` >= 1; got examples={examples}, contexts={contexts}")
    draw = torch.Generator().manual_seed(seed)
    x = _inputs(data, examples, draw).to(ensemble.device)
    network = trial_copy(ensemble.network)
    paths = _paths(network, layers)
    values: dict[tuple[str, int | None], list[Tensor]] = {}  # of each pass, by layer and the input that was varied
    varied: int | None = None

    def listen(path: str, module: nn.Module, args: Any, out: Any) -> None:
        values.setdefault((path, varied), []).append(_variances(path, module, out, len(x)))

    def means(varied: int | None) -> Tensor:
        return torch.cat([torch.stack(values[path, varied]).mean(0) for path in paths])

    for path in paths:
        network.get_submodule(path).register_forward_hook(partial(listen, path))
    network.eval()
    for varied in (*range(members), None):
        for _ in range(contexts):
            network(_fed(x, members, varied, draw).flatten(0, 1))
            advance(1)
    silent = [path for path in paths if (path, None) not in values]
    if silent:
        raise ConfigError(f"every chosen layer must run in a prediction; got {', '.join(silent)}, which does not")
    units = [(path, unit) for path in paths for unit in range(len(values[path, None][0]))]
    return ConditionalVariances(
        layers=tuple(path for path, _ in units),
        units=tuple(unit for _, unit in units),
        inputs=torch.stack([means(m) for m in range(members)]),
        total=means(None),
        examples=len(x),
        contexts=contexts,
    )


def _variances(path: str, module: nn.Module, out: Any, rows: int) -> Tensor:
    """The variance of each unit of a layer's output over the rows; positions are averaged."""
    if not isinstance(out, Tensor) or out.shape[0] != rows or out.ndim < 2:
        shape = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise ConfigError(
            f"a layer between stem and head must give one row per example, {rows}; got {shape} from {path}. "
            "Choose other layers"
        )
    channel = out.ndim - 1 if isinstance(module, (nn.Linear, nn.LayerNorm)) else 1
    return out.double().var(0).movedim(channel - 1, 0).reshape(out.shape[channel], -1).mean(1).cpu()


def _inputs(data: Data | Tensor, examples: int, draw: torch.Generator) -> Tensor:
    count = len(data.test) if isinstance(data, Data) else len(data)
    if count < 2:
        raise ConfigError(f"a variance needs at least two examples; got {count}")
    rows = torch.randperm(count, generator=draw)[:examples]
    return data.prepare(data.test.x[rows]) if isinstance(data, Data) else data[rows]


def _fed(x: Tensor, members: int, varied: int | None, draw: torch.Generator) -> Tensor:
    """The inputs of one pass, [members, examples, ...]: one input runs over all examples, each other is held at one."""
    fed = []
    for member in range(members):
        if varied is None:
            fed.append(x[torch.randint(len(x), (len(x),), generator=draw)])
        elif member == varied:
            fed.append(x)
        else:
            held = int(torch.randint(len(x), (), generator=draw))
            fed.append(x[held].expand_as(x))
    return torch.stack(fed)


def _paths(network: nn.Module, layers: Sequence[str] | None) -> list[str]:
    known = {path: module for path, module in network.named_modules() if path}
    if layers is None:
        return [
            path
            for path, module in known.items()
            if isinstance(module, MimoStem) or (isinstance(module, KINDS) and not isinstance(module, MimoHead))
        ]
    for path in layers:
        check_known(path, known, "layers must be paths of modules")
        if isinstance(known[path], MimoHead):
            raise ConfigError(
                f"layers must lie before the head, which gives each member its own output; got the head {path!r}"
            )
    return list(dict.fromkeys(layers))
