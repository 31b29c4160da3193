"""Points between members: mixtures of the tensors that members own, run like the members of one ensemble.

A point is a row of coefficients, one per corner; a corner is a member, or the origin of the weights. What the corners
share is left alone, and nothing of the ensemble is changed: weights are only read, buffers are copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..data import Data, Part
from ..ensemble import Ensemble
from ..errors import ConfigError, check_known
from ..executors import EXECUTORS, REFERENCE, default
from ..network.copies import tensors_of, trial_copy
from ..outputs.regression import at_least_float32, mean_and_variance
from ..rewrite.folded import MimoHead, MimoStem
from ..rewrite.norm import NORMS

ORIGIN = "origin"  # the corner where every weight is 0, in the place of a member's number
AT_ONCE = 16  # points run together
NUMBERS = 2**26  # weights of all points that are run together, at most

Members: TypeAlias = Ensemble | Sequence[nn.Module] | Sequence[Mapping[str, Tensor]]


@dataclass(frozen=True, eq=False)
class Corners:
    """What points are made of."""

    network: nn.Module  # computes one point; shares its weights with the members' network, and no buffer
    tensors: dict[str, Tensor]  # what differs between points, [corners, ...]
    weights: tuple[str, ...]  # those of them that are parameters: they span the coordinates
    norms: tuple[str, ...]  # batch norms whose statistics differ between points
    noise: Tensor | None  # of a regression whose networks have one output per target
    executor: str


@dataclass(frozen=True, eq=False)
class Examples:
    """What points are measured on. Shape: x [examples, ...] as the network takes it, y [examples, ...]."""

    x: Tensor
    y: Tensor
    task: str
    unit: float  # log of the unit that regression targets were divided by
    batches: int
    anew: Tensor | None  # training examples from which norms are computed anew; None: batches normalise themselves


@dataclass(frozen=True, eq=False)
class Measured:
    """What was measured at some points. Shape: [points], float64."""

    loss: Tensor
    accuracy: Tensor | None  # None for regression
    votes: Tensor | None  # predicted classes, [points, examples]; None where they were compared
    differ: Tensor | None  # share of votes that differ from each reference's, [references, points]


def corners_of(members: Members, chosen: Sequence[int | str], network: nn.Module | None = None) -> Corners:
    """The chosen members' own tensors, and the network that mixtures of them are put into.

    Args:
        members: an ensemble, or networks of one architecture, or state dicts of `network`.
        chosen: numbers of members; `ORIGIN` may be among them.

    >>> networks = [nn.Linear(2, 1), nn.Linear(2, 1)]
    >>> corners_of(networks, (0, ORIGIN)).tensors["bias"].shape
    torch.Size([2, 1])
    """
    ensemble = members if isinstance(members, Ensemble) else None
    count = ensemble.members if ensemble is not None else len(members)  # type: ignore[arg-type]
    for member in chosen:
        if member != ORIGIN and not (isinstance(member, int) and 0 <= member < count):
            raise ConfigError(
                f"a corner must be the number of a member, 0 to {count - 1}, or {ORIGIN!r}; got {member!r}"
            )
    if ensemble is None:
        one, stacked = _of_networks(members, network)  # type: ignore[arg-type]
    elif ensemble.folded and count > 1:
        one, stacked = _of_mimo(ensemble)
    else:
        one, stacked = _private(ensemble.network), ensemble.tensors(ensemble.own)
    if not stacked:
        what = "equal networks" if ensemble is None else f"{type(ensemble.method).__name__}, where members own none"
        raise ConfigError(f"members must differ in some tensor; got {what}. There is nothing between them")
    norms = _norms(one, stacked, ensemble.pooled if ensemble is not None and not ensemble.folded else None)
    weights = tuple(n for n, p in one.named_parameters() if n in stacked and p.is_floating_point())
    statistics = {f"{path}.{n}" for path in norms for n, _ in one.get_submodule(path).named_buffers(recurse=False)}
    tensors = {name: _rows(name, t, chosen, name in weights) for name, t in stacked.items() if name not in statistics}
    noise = None if ensemble is None else ensemble.state.get("noise")
    return Corners(one.eval(), tensors, weights, norms, noise, _executor(ensemble, one, norms))


def _rows(name: str, stacked: Tensor, chosen: Sequence[int | str], weight: bool) -> Tensor:
    """One tensor at the corners, [corners, ...]. The origin has no buffers: there, the first member's stand in."""
    first = next((m for m in chosen if isinstance(m, int)), 0)
    zero = torch.zeros_like(stacked[0]) if weight else stacked[first]
    rows = torch.stack([stacked[m] if isinstance(m, int) else zero for m in chosen]).detach()
    if not rows.is_floating_point() and not torch.equal(rows, rows[:1].expand_as(rows)):
        raise ConfigError(f"what differs between members must be floating point; got {rows.dtype} for {name}")
    return rows


def _executor(ensemble: Ensemble | None, network: nn.Module, norms: Sequence[str]) -> str:
    # Without running statistics a norm cannot tell whose they are, and an executor that pools would pool all points.
    bare = any(network.get_submodule(path).running_mean is None for path in norms)
    if ensemble is None or ensemble.folded or bare:
        return REFERENCE
    return default(ensemble.device.type, False, ensemble.has_trunk, ensemble.refusals)


def _private(network: nn.Module) -> nn.Module:
    copy = trial_copy(network)
    for module in copy.modules():
        module.__class__ = NORMS.get(type(module), type(module))  # only multum's own keep points apart
    return copy


def _of_networks(members: Sequence[Any], network: nn.Module | None) -> tuple[nn.Module, dict[str, Tensor]]:
    """Plain networks, or state dicts of one: what differs between them, [members, ...]."""
    states: list[Mapping[str, Tensor]] = [tensors_of(m) if isinstance(m, nn.Module) else m for m in members]
    network = network if network is not None else members[0]
    if not isinstance(network, nn.Module):
        raise ConfigError("state dicts need the network that they belong to; got none. Give network=")
    copy = _private(network)
    names = list(tensors_of(copy))
    for i, state in enumerate(states):
        differ = [n for n in names if n not in state or state[n].shape != states[0][n].shape]
        if differ:
            raise ConfigError(f"networks must have one architecture; got another {differ[0]} in member {i}")
    return copy, {
        n: torch.stack([state[n].detach() for state in states])
        for n in names
        if not all(torch.equal(states[0][n], state[n]) for state in states)
    }


def _of_mimo(ensemble: Ensemble) -> tuple[nn.Module, dict[str, Tensor]]:
    """The subnetworks of Mimo: the shared body between each member's blocks of the first and the last layer."""
    stacked = {}
    for path, module in ensemble.network.named_modules():
        if isinstance(module, (MimoStem, MimoHead)):
            stacked[f"{path}.weight"] = torch.stack(module.weight.detach().chunk(ensemble.members, module.side))
        if isinstance(module, MimoHead) and module.bias is not None:
            stacked[f"{path}.bias"] = torch.stack(module.bias.detach().chunk(ensemble.members))
    return _private(ensemble.member(0)), stacked


def _norms(network: nn.Module, own: Mapping[str, Tensor], pooled: Sequence[str] | None) -> tuple[str, ...]:
    """The batch norms that see another input at every point; those of a shared trunk see the same."""
    paths = [path for path, m in network.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    return tuple(p for p in paths if pooled is None or p in pooled or any(n.rpartition(".")[0] == p for n in own))


def coordinates(corners: Corners, chosen: Sequence[int | str]) -> tuple[Tensor, Tensor, float]:
    """Where the corners lie, the foot of the weights' origin, and how far above it the origin is.

    **Shape**: ``[corners, corners - 1]`` and ``[corners - 1]``, orthonormal, from the first corner towards the second.

    >>> one, two = nn.Linear(2, 1, bias=False), nn.Linear(2, 1, bias=False)
    >>> _ = one.weight.data.copy_(torch.tensor([[0.0, 3.0]])), two.weight.data.copy_(torch.tensor([[4.0, 3.0]]))
    >>> coordinates(corners_of([one, two], (0, 1)), (0, 1))
    (tensor([[0.],
            [4.]], dtype=torch.float64), tensor([0.], dtype=torch.float64), 3.0)
    """
    rows = [corners.tensors[n].flatten(1).double() for n in corners.weights]
    nothing = torch.zeros(len(chosen), len(chosen), dtype=torch.float64)
    gram = sum((r @ r.T for r in rows), start=nothing.to(rows[0].device if rows else "cpu")).cpu()
    # Products of the directions w_k - w_0 among themselves, and with the way to the origin, -w_0.
    steps = gram[1:, 1:] - gram[1:, :1] - gram[:1, 1:] + gram[0, 0]
    home = gram[0, 0] - gram[1:, 0]
    lower, failed = torch.linalg.cholesky_ex(steps)
    sizes = lower.diagonal() / steps.diagonal().clamp_min(1e-300).sqrt()
    if int(failed) or not bool((sizes > 1e-6).all()):
        what = "equal" if len(chosen) == 2 or not bool((steps.diagonal() > 0).all()) else "on one line"
        raise ConfigError(
            f"members {', '.join(map(str, chosen))} must be apart and not on one line; got weights that are {what}. "
            "Train them first, or choose others"
        )
    foot = torch.linalg.solve_triangular(lower, home.unsqueeze(1), upper=False).squeeze(1)
    distance = float((gram[0, 0] - foot.square().sum()).clamp_min(0).sqrt())
    return torch.cat([lower.new_zeros(1, lower.shape[1]), lower]), foot, distance


def choose_examples(
    members: Members, data: Any, part: str, examples: int | None, batch_size: int, norms: str, seed: int
) -> Examples:
    """Examples of a data set's part, or of a pair of tensors, drawn under the seed; see `landscape.interpolation`."""
    check_known(norms, ("batch", "refresh"), "norms must be 'batch' or 'refresh'")
    if batch_size < 2:
        raise ConfigError(f"batch_size must be at least 2, as batch norm needs; got batch_size={batch_size}")
    anew, unit = None, 0.0
    if isinstance(data, Data):
        chosen = getattr(data, part, None) if part in ("train", "test", "validation") else None
        if chosen is None:
            raise ConfigError(f"part must be train, test, or a validation part that the data has; got {part!r}")
        chosen = chosen.drawn(examples, seed)
        x, y, task = data.prepare(chosen.x[:]), data.targets(chosen.y), data.task
        std = data.target_std
        unit = float(std.log().mean()) if isinstance(std, Tensor) else math.log(std)
        if norms == "refresh":
            anew = data.prepare(data.train.drawn(examples, seed).x[:])
    else:
        if norms == "refresh":
            raise ConfigError("norms='refresh' needs training examples; got a pair of tensors. Give a Data")
        x, y = data
        if len(x) != len(y):
            raise ConfigError(f"examples and targets must be equally many; got {len(x)} and {len(y)}")
        chosen = Part(x, y).drawn(examples, seed)
        x, y = chosen.x, chosen.y
        task = getattr(members, "task", "regression" if y.is_floating_point() else "classification")
    if len(x) < 2:
        raise ConfigError(f"a landscape needs at least two examples; got {len(x)}")
    return Examples(x, y, task, unit, -(-len(x) // batch_size), anew)


@torch.no_grad()
def run_points(
    corners: Corners, mixes: Tensor, seen: Examples, reference: Tensor | None, advance: Callable[[int], None]
) -> Measured:
    """Loss and accuracy at every point; several points are run at once.

    Args:
        reference: predicted classes [references, examples] that those of every point are compared with.

    **Shape**: mixes ``[points, corners]``, the coefficients of each point.
    """
    size = sum(t[0].numel() for t in corners.tensors.values())
    classes = seen.task == "classification"
    losses, rights, votes, differ = [], [], [], []
    for rows in mixes.split(max(1, min(AT_ONCE, NUMBERS // max(size, 1)))):
        outputs = at_least_float32(_outputs(corners, _at(corners, rows), len(rows), seen))
        y = seen.y.to(outputs.device)
        if classes:
            wanted, voted = y.long().expand(len(rows), *y.shape).unsqueeze(2), outputs.argmax(2).flatten(1)
            losses.append(-outputs.log_softmax(2).gather(2, wanted).flatten(1).double().mean(1))
            rights.append((voted == y.flatten()).double().mean(1))
            if reference is None:
                votes.append(voted)
            else:
                differ.append(torch.stack([(voted != own).double().mean(1) for own in reference]))
        else:
            mean, variance = mean_and_variance(outputs, corners.noise)
            log = torch.distributions.Normal(mean, variance.sqrt(), validate_args=False).log_prob(y.to(mean.dtype))
            losses.append(seen.unit - log.flatten(1).double().mean(1))
        advance(len(rows))
    return Measured(
        torch.cat(losses).cpu(),
        torch.cat(rights).cpu() if classes else None,
        torch.cat(votes) if votes else None,
        torch.cat(differ, 1).cpu() if differ else None,
    )


def _at(corners: Corners, mixes: Tensor) -> dict[str, Tensor]:
    """The tensors of some points, [points, ...]: mixtures of the corners'."""
    stacked = {
        name: torch.tensordot(mixes.to(t), t, 1) if t.is_floating_point() else t[:1].repeat_interleave(len(mixes), 0)
        for name, t in corners.tensors.items()
    }
    for path in corners.norms:
        for name, buffer in corners.network.get_submodule(path).named_buffers(recurse=False):
            shape = () if buffer.dtype == torch.int64 else buffer.shape[-1:]
            stacked[f"{path}.{name}"] = torch.zeros(len(mixes), *shape, dtype=buffer.dtype, device=buffer.device)
    return stacked


def _outputs(corners: Corners, stacked: dict[str, Tensor], points: int, seen: Examples) -> Tensor:
    """Outputs on all examples, [points, examples, ...]; batch norm sees batches of equal size."""
    norms = [m for m in corners.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    device = next(iter(stacked.values())).device

    def run(x: Tensor) -> list[Tensor]:
        parts = x.tensor_split(seen.batches)
        execute = EXECUTORS[corners.executor].run
        return [execute(corners.network, stacked, {}, p.to(device), points, False, None) for p in parts]

    for norm in norms:
        norm.train().momentum = None  # the mean of all batches
        for buffer in norm.buffers(recurse=False):
            buffer.zero_()
    if seen.anew is not None:
        run(seen.anew)
        for norm in norms:
            norm.eval()
    return torch.cat(run(seen.x), 1)
