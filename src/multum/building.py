"""`multum.ensemble`: from a network and a method to an ensemble, with clear errors for what cannot be one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_flatten, tree_map_only

from .checks import whole
from .ensemble import Ensemble
from .errors import ConfigError, ExampleError, NetworkError, check_known, first_line
from .executors import default
from .layout import lay_out, moving_buffers
from .network.copies import fold_rows, tensors_of, two_rows
from .rewrite.dropout import Randomness
from .rewrite.walker import Edit, install, seeded
from .thinning.thin import output_of

log = logging.getLogger("multum")

TASKS = ("classification", "regression")
SEGMENTATION = "segmentation"  # classification with further axes, which all of multum's outputs may have


class Birth:
    """What a method decides about one network before its members exist: here, that each is a network of its own."""

    edits: Sequence[Edit] = ()  # how the one-member network differs from the base network
    born: int | None = None  # members at the start, None for all of them
    folded: bool = False  # whether the network takes all members at once, folded into the batch
    starts_fresh: bool = False  # whether members draw first weights of their own: equal ones are worth a warning

    def begin(self, seeds: Sequence[int]) -> None:
        """Before the first member: all seeds, the last one of what members share; for what is drawn for all at once."""

    def member(self, index: int, seed: int) -> nn.Module:
        """Member `index` as a new network of one member, drawn under the seed."""
        raise NotImplementedError

    def owns(self, name: str, tensor: Tensor) -> bool:
        """Whether each member has its own copy of this parameter or buffer."""
        return True


def ensemble(
    network: nn.Module | Callable[[], nn.Module],
    method: Any,
    *,
    example: Any,
    task: str = "classification",
    targets: int | None = None,
    seed: int | None = None,
) -> Ensemble:
    """Turn a network into an ensemble.

    Args:
        network: the base network, left untouched; or a function that builds it, called once per member.
        method: what kind of ensemble, such as `Packed(members=4, alpha=2)`.
        example: one example batch; a tuple or dict for a network with several inputs.
        task: "classification"; "segmentation", which is that of every pixel, with outputs [batch, classes, H, W]; or
            "regression" with two outputs per target (mean, raw variance), or one (the mean).
        targets: of a regression with several: a network then has as many outputs, or twice as many (all means first).
        seed: of the members' initialisation and dropout; None takes it from torch's own generator.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=4, classes=3)
    >>> ens = multum.ensemble(net, multum.Deep(members=5), example=torch.zeros(2, 4))
    >>> ens(torch.zeros(2, 4)).shape
    torch.Size([5, 2, 3])
    """
    check_known(task, (*TASKS, SEGMENTATION), f"task must be {', '.join(map(repr, TASKS))} or {SEGMENTATION!r}")
    task = "classification" if task == SEGMENTATION else task
    if isinstance(method, type) or not hasattr(method, "birth"):
        got = f"the class {method.__name__}. Call it" if isinstance(method, type) else repr(method)
        raise ConfigError(f"method must be a method's config such as multum.Deep(members=4); got {got}")
    seeds = member_seeds(seed, method.members)
    builder = None if isinstance(network, nn.Module) else network
    with seeded(seeds[-1]):
        base = network if isinstance(network, nn.Module) else built_by(network)
    _check_network(base)
    example, width = _checked_example(base, example)
    state = _state(task, width, targets)
    birth: Birth = method.birth(base, example, builder)
    return assemble(birth, method, example, task, seeds, state)


def assemble(
    birth: Birth, method: Any, example: Any, task: str, seeds: Sequence[int], state: Mapping[str, Tensor] | None = None
) -> Ensemble:
    """Give birth to the members one by one and stack what they own."""
    birth.begin(seeds)
    network = birth.member(0, seeds[0])
    first = tensors_of(network)
    members = method.members if birth.born is None else birth.born
    fed = fold_rows(two_rows(example), members) if birth.folded else two_rows(example)
    moving = moving_buffers(network, fed)
    buffers = {name for name, t in first.items() if not isinstance(t, nn.Parameter)}
    own = [name for name, t in first.items() if birth.owns(name, t)]
    stacked = {
        name: torch.empty((members, *first[name].shape), dtype=first[name].dtype, device=first[name].device)
        for name in own
    }
    constant = {name for name in own if name in buffers - set(moving)}
    for i in range(members):
        born = first if i == 0 or not own or _on_meta(first) else tensors_of(birth.member(i, seeds[i]))
        _check_alike(first, born, i)
        for name in own:
            stacked[name][i].copy_(born[name].detach())
            if i and name in constant and not _on_meta(first) and not torch.equal(born[name], first[name]):
                constant.discard(name)
    if members > 1 and birth.starts_fresh and not _on_meta(first):
        _warn_of_twins(first, stacked)
    # A buffer that training never moves and that is the same in all members (a table of positions) needs no axis.
    own = [name for name in own if name not in constant]
    install(network, {name: stacked[name] for name in own})
    return assembled(
        network,
        own,
        members,
        method,
        example=example,
        task=task,
        seeds=seeds,
        edits=birth.edits,
        folded=birth.folded,
        state=state,
        moving=moving,
    )


def assembled(
    network: nn.Module,
    own: Collection[str],
    members: int,
    method: Any,
    *,
    example: Any,
    task: str = "classification",
    seeds: Sequence[int],
    edits: Sequence[Edit] = (),
    folded: bool = False,
    state: Mapping[str, Tensor] | None = None,
    moving: Iterable[str] | None = None,
) -> Ensemble:
    """An ensemble of a network whose own tensors are stacked already; the network becomes part of it.

    Args:
        own: names of the tensors with a member axis.
        seeds: one per member, and one for what they share.
        moving: the network's `moving_buffers`, where they are known.
    """
    randomness = Randomness(list(seeds))
    layout = lay_out(network, own, members, example, randomness, folded=folded, moving=moving)
    ens = Ensemble(
        network,
        layout=layout,
        members=members,
        method=method,
        example=tree_map_only(Tensor, lambda t: torch.empty_like(t[:2], device="meta"), example),
        task=task,
        randomness=randomness,
        edits=tuple(edits),
        folded=folded,
        state=dict(state or {}),
    )
    # An executor that nobody would have got by default is no loss.
    wanted, left = (default(ens.device.type, True, ens.has_trunk, refused) for refused in ((), ens.refusals))
    if wanted != left and members > 1:
        log.warning("multum runs this ensemble with executor %r; %s raises %s", left, wanted, ens.refusals[wanted])
    return ens


def member_seeds(seed: int | None, members: int) -> list[int]:
    """One seed per member and one for what they share, all different streams of one seed."""
    if seed is None:
        seed = int(torch.randint(2**62, ()).item())
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2**62, (members + 1,), generator=generator).tolist()


def _warn_of_twins(first: dict[str, Tensor], stacked: dict[str, Tensor]) -> None:
    trainable = [name for name in stacked if first[name].requires_grad]
    if trainable and all(torch.equal(stacked[name][0], stacked[name][1]) for name in trainable):
        log.warning(
            "all members start from the same weights, and will stay the same on the same data: the network's builder "
            "or its reset_parameters sets a seed of its own, or draws nothing"
        )


def _on_meta(tensors: dict[str, Tensor]) -> bool:
    return any(t.is_meta for t in tensors.values())


def built_by(builder: Any) -> nn.Module:
    """What a builder builds, or a clear error."""
    if not callable(builder):
        raise NetworkError(f"network must be an nn.Module or a function that builds one; got {type(builder).__name__}")
    built = builder()
    if not isinstance(built, nn.Module):
        raise NetworkError(f"the network's builder must return an nn.Module; got {type(built).__name__}")
    return built


def _check_alike(first: dict[str, Tensor], born: dict[str, Tensor], i: int) -> None:
    for name in {**first, **born}:
        shapes = [tuple(tensors[name].shape) if name in tensors else "no such tensor" for tensors in (first, born)]
        if shapes[0] != shapes[1]:
            raise NetworkError(
                f"the network's builder must build the same network every time; got {name} as {shapes[0]} in member 0 "
                f"and {shapes[1]} in member {i}. Take what varies out of the builder"
            )


def _check_network(network: nn.Module) -> None:
    if isinstance(network, Ensemble):
        raise NetworkError("network must be one plain network; got an Ensemble. Use its member(i)")
    lazy = [name for name, p in (*network.named_parameters(), *network.named_buffers()) if is_lazy(p)]
    if lazy:
        raise NetworkError(
            f"every parameter must have a shape; got lazy ones: {', '.join(lazy)}. Run the network once first"
        )


def _checked_example(network: nn.Module, example: Any) -> tuple[Any, int]:
    """The example, and how many outputs the network has."""
    tensors = [t for t in tree_flatten(example)[0] if isinstance(t, Tensor)]
    if not tensors:
        raise ExampleError(f"example must be a batch of tensors; got {type(example).__name__} without a tensor")
    for t in tensors:
        if t.ndim == 0 or t.shape[0] == 0:
            raise ExampleError(f"example must be a batch [batch, ...] of at least one row; got shape {tuple(t.shape)}")
        if t.is_floating_point() and not t.is_meta and not bool(torch.isfinite(t).all()):
            raise ExampleError("example must hold finite numbers; got NaN or infinity. Give a real batch")
    if _on_meta(tensors_of(network)):
        example = tree_map_only(Tensor, lambda t: t.to("meta"), example)
    try:
        out = output_of(network, example)
    except ExampleError as error:
        raise NetworkError(f"{error}; wrap it so that forward returns the outputs alone") from None
    except Exception as error:
        shapes = ", ".join(str(tuple(t.shape)) for t in tensors)
        reason = first_line(error)
        if "deepcopy protocol" in reason:
            raise NetworkError(
                "network must be copyable, once per member; got tensors that cannot be copied, as the old "
                "torch.nn.utils.spectral_norm and weight_norm leave behind. Use torch.nn.utils.parametrizations instead"
            ) from error
        raise ExampleError(
            f"network must run on the example; got {type(error).__name__} for shape {shapes}: {reason}"
        ) from error
    if out.ndim < 2 or out.shape[0] != tensors[0].shape[0]:
        raise NetworkError(
            f"network must give [batch, outputs]; got {tuple(out.shape)} for a batch of {tensors[0].shape[0]}. "
            "Wrap it so that every row keeps its own outputs"
        )
    if not out.is_floating_point():
        raise NetworkError(f"network must give floating point outputs; got {out.dtype}. Return logits, not labels")
    return example, out.shape[1]


def _state(task: str, width: int, targets: int | None) -> dict[str, Tensor]:
    """What tells regression networks of one output per target from those of two: see outputs/regression.py."""
    if task != "regression":
        if targets is not None:
            raise ConfigError(f"targets must be for task='regression'; got targets={targets}. Leave it out")
        return {}
    count = 1 if targets is None else whole("targets", targets)
    if width == 2 * count:
        return {}
    if width == count:
        return {"noise": torch.zeros(count, dtype=torch.float64)}
    raise NetworkError(
        f"a regression network must have two outputs per target, mean and raw variance (softplus makes it positive), "
        f"or one; got {width} for {count} target{'s' * (count != 1)}. Give its last layer {2 * count} or {count}, or "
        "say targets=..."
    )


@contextmanager
def without_remarks() -> Iterator[None]:
    """Without the remarks that a method makes on one config: a plan builds many that nobody asked for."""
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)
