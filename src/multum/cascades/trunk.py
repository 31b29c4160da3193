"""What members share, computed once: the first member that runs leaves it for those that run after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from ..ensemble import Ensemble
from ..network.copies import tensors_of
from ..network.dependence import trace_members
from ..outputs.prediction import eval_mode


def rows_of(x: Any, index: Tensor) -> Any:
    """These rows of every tensor; the tensors themselves where that is all of them."""
    return tree_map_only(Tensor, lambda t: t[index] if len(index) < len(t) else t, x)


def zeros_for(ensemble: Ensemble, rows: int = 1) -> Any:
    """A batch of zeros as the ensemble takes it."""

    def zeros(t: Tensor) -> Tensor:
        return torch.zeros((rows, *t.shape[1:]), dtype=t.dtype, device=ensemble.device)

    return tree_map_only(Tensor, zeros, ensemble.example)


def trunk_of(ensemble: Ensemble) -> tuple[str, ...]:
    """The outermost modules that give every member the same, row by row: the first member computes them for all."""
    if not ensemble.has_trunk:
        return ()
    own = {*ensemble.own, *ensemble.numbers}
    usage = trace_members(ensemble.single(), own, zeros_for(ensemble))

    def shared(path: str, module: nn.Module) -> bool:
        inside = [path, *(f"{path}.{name}" for name, _ in module.named_modules() if name)]
        names = [f"{path}.{name}" for name in tensors_of(module)]
        return path in usage.calls and not usage.inputs & {*inside} and not own & {*names}

    paths: list[str] = []
    for path, module in ensemble.network.named_modules():
        if path and not any(path.startswith(f"{outer}.") for outer in paths) and shared(path, module):
            paths.append(path)
    with eval_mode(ensemble), torch.no_grad(), replayed(ensemble.network, paths) as replay:
        replay.begin(torch.arange(3, device=ensemble.device))
        ensemble(zeros_for(ensemble, 3), member=0)
    return tuple(path for path in paths if all(_has_rows(out, 3) for out in replay.outputs[path]))


def _has_rows(output: Any, rows: int) -> bool:
    leaves = tree_leaves(output)
    return all(isinstance(leaf, Tensor) and leaf.ndim > 0 and len(leaf) == rows for leaf in leaves)


class Replay:
    """What modules gave in the first pass, for later passes over some of its rows."""

    def __init__(self, paths: Sequence[str]):
        self.outputs: dict[str, list[Any]] = {path: [] for path in paths}
        self.calls = dict.fromkeys(paths, 0)
        self.rows = torch.empty(0, dtype=torch.int64)

    def begin(self, rows: Tensor) -> None:
        """A pass over these rows of the first pass."""
        self.rows, self.calls = rows, dict.fromkeys(self.calls, 0)

    def run(self, path: str, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        outputs, call = self.outputs[path], self.calls[path]
        self.calls[path] += 1
        if call == len(outputs):
            outputs.append(forward(*args, **kwargs))
        return rows_of(outputs[call], self.rows)


@contextmanager
def replayed(network: nn.Module, paths: Sequence[str]) -> Iterator[Replay]:
    """A context in which these modules run in the first pass, and later passes get rows of what they gave then."""
    replay = Replay(paths)
    modules = {path: network.get_submodule(path) for path in paths}
    try:
        for path, module in modules.items():
            module.forward = partial(replay.run, path, module.forward)
        yield replay
    finally:
        for module in modules.values():
            module.__dict__.pop("forward", None)
