"""TreeNet: one trunk that all members share, and a branch for each of them.

Lee, Purushwalkam, Cogswell, Crandall, Batra: Why M Heads are Better than One: Training a Diverse Ensemble of Deep
Networks, 2015; a baseline of Havasi et al., Training independent subnetworks for robust prediction, ICLR 2021.

    f_m(x) = g_m(h(x)),    h the trunk, computed once; g_m initialised independently

A tensor belongs to the branch if every module that holds it first runs at or after the branch point. Residual networks
branch, as in the papers, before their third group: a wide ResNet shares its stem and groups 1 and 2 (1.68 times the
mult-adds of WRN-28-10 at M = 3), ResNet-50 its stem and stages 1 and 2 (1.56 times at M = 2).

Shape: x [batch, ...] -> [members, batch, outputs]. Cost: one trunk and M branches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from ..errors import ConfigError, Refusal, RewriteError, did_you_mean
from ..network.dependence import Usage
from ..rewrite.walker import names_of
from .base import INITS, NOISE, Builder, Method, Rewritten, setting
from .paths import followed


def _branch_point(name: str, at: object) -> None:
    share = isinstance(at, (int, float)) and not isinstance(at, bool) and 0 < at < 1
    if not share and not (isinstance(at, str) and at):
        raise ConfigError(
            f"at must be the path of a module, or a share of the layers with 0 < at < 1; got at={at!r}. "
            "at=0.5 shares half of them, Deep shares none, Multihead all but the last"
        )


STAGES = ("layer1", "layer2", "layer3")  # what residual networks call their groups


@dataclass(frozen=True, kw_only=True)
class TreeNet(Method):
    """M branches on one trunk."""

    variants = ({"at": 0.25}, {"at": 0.75})
    knobs = {"at": (None, 0.25, 0.75)}

    members: int = setting(3, "M")
    at: str | float | None = setting(
        None,
        "branch point: a path, or the trunk's share of the layers; None: the papers', else 0.5",
        check=_branch_point,
    )
    init: str = setting(
        "fresh",
        '"fresh": every branch initialised on its own; "pretrained": the given weights, with noise',
        choices=INITS,
    )

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Rewritten:
        usage = followed(network, example, "use Multihead(head=path), which need not follow it, or Deep")
        runs = _first_runs(network, usage)
        start = self._start(network, usage, runs)
        ties = names_of(network).items()
        own = [first for first, names in ties if all(runs[name.rpartition(".")[0]] >= start for name in names)]
        if not own:
            raise ConfigError(
                f"a branch must have parameters; got none at or after at={self.at!r}. The last weighted layer is "
                f"{usage.layers[-1]!r}"
            )
        _check_trains(network, own, self.members)
        fresh, noise = (own, 0.0) if self.init == "fresh" else ((), NOISE)
        return Rewritten(network, (), lambda name, tensor: name in set(own), fresh, builder, noise)

    def alone(self) -> TreeNet:
        return replace(self, members=1, init="pretrained")

    def _start(self, network: nn.Module, usage: Usage, runs: dict[str, int]) -> int:
        """The branch point on the clock of `runs`."""
        at = self.at
        if at is None:
            children = dict(network.named_children())
            at = STAGES[-1] if all(stage in children for stage in STAGES) else 0.5
        if isinstance(at, str):
            return _run_of(at, network, usage)
        layers = usage.layers
        if len(layers) < 2:
            reason = f"trunk and branch must have a weighted layer each; got {len(layers)} in all"
            raise RewriteError("TreeNet", [Refusal(", ".join(layers), reason, "use Deep, or a deeper network")])
        return runs[layers[min(max(int(at * len(layers) + 1e-6), 1), len(layers) - 1)]]


def _first_runs(network: nn.Module, usage: Usage) -> dict[str, int]:
    """Module path -> when it first ran. What never runs itself (a list, attention's out_proj) runs with its parent."""
    clock = {path: time for time, path in enumerate(usage.calls)}
    runs: dict[str, int] = {}
    for path, _ in network.named_modules(remove_duplicate=False):
        runs[path] = clock.get(path, runs.get(path.rpartition(".")[0], 0))
    return runs


def _run_of(at: str, network: nn.Module, usage: Usage) -> int:
    """When the named module first ran; a list of modules, when its first one did."""
    paths = [path for path, _ in network.named_modules() if path]
    times = [time for time, path in enumerate(usage.calls) if path == at or path.startswith(f"{at}.")]
    if times:
        return min(times)
    top = ", ".join(name for name, _ in network.named_children())
    what = "which never runs." if at in paths else f"which the network does not have. {did_you_mean(at, paths)}"
    raise ConfigError(
        f"at must be the path of a module that runs; got at={at!r}, {what} The network's own modules are {top}"
    )


def _check_trains(network: nn.Module, own: list[str], members: int) -> None:
    parameters = dict(network.named_parameters())
    if members > 1 and not any(name in parameters and parameters[name].requires_grad for name in own):
        reason = "a branch must have something to train; got all of it frozen, and members would stay the same"
        raise RewriteError("TreeNet", [Refusal(own[0].rpartition(".")[0], reason, "unfreeze it, or branch earlier")])
