"""What every method is: a frozen config that knows how its members are born."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..building import Birth
from ..network.copies import full_copy, name_in, on_meta, tensors_of
from ..rewrite.walker import Edit, apply, fold, install, reset, seeded
from .fields import checked, setting

INITS = ("fresh", "pretrained")
NOISE = 0.2  # relative, on heads and branches that start from given weights: see benchmarks/twins.py

Builder = Callable[[], nn.Module]


class Batch(NamedTuple):
    """What the members see in one step. Shape: x [batch, ...], or [members, batch, ...] where `per_member`."""

    x: Any
    y: Any
    per_member: bool


@dataclass(frozen=True, kw_only=True)
class Method:
    """A method's config. Subclasses add fields and `birth`, and say where they differ from the rest."""

    deterministic: ClassVar[bool] = True  # False: the outputs are random draws, another one at every call
    renews_norms: ClassVar[bool] = False  # whether batch norm statistics are computed anew once training is over
    independent: ClassVar[bool] = False  # whether members share nothing, so that each may see batches in its own order
    arranges_batches: ClassVar[bool] = False  # whether `batch` gives members other rows than those of the batch
    takes_turns: ClassVar[bool] = False  # whether a step trains the one member that `turn` names
    undecayed_names: ClassVar[tuple[str, ...]] = ()  # last names of the tensors that have no weight decay
    training_only: ClassVar[tuple[str, ...]] = ()  # fields that change how members are trained and no cost
    variants: ClassVar[tuple[dict[str, Any], ...]] = ()  # fields that tuning tries beside the default, at most two
    knobs: ClassVar[dict[str, tuple[Any, ...]]] = {}  # fields that set the cost, beside `members`: what a plan tries

    members: int = setting(4, "M")

    def __post_init__(self) -> None:
        for f in fields(self):
            if "rule" in f.metadata:
                value = checked(type(self), f.name, getattr(self, f.name), f.metadata["rule"])
                object.__setattr__(self, f.name, value)

    @property
    def name(self) -> str:
        """As the command line and saved files write it."""
        return type(self).__name__.lower()

    @property
    def order(self) -> str:
        """Of batches, where the recipe leaves it open: the "same" for all members, or each its "own"."""
        return "same"

    def as_dict(self) -> dict[str, Any]:
        """Name and fields, as files hold them."""
        return {"name": self.name, **asdict(self)}

    def birth(self, network: nn.Module, example: Any, builder: Builder | None) -> Birth:
        """How the members of this network come to be; raises where the method and the network do not fit."""
        raise NotImplementedError

    def finish(self, network: nn.Module, ensemble: Any, index: int) -> nn.Module:
        """The last touch to member `index`, a plain network already: the same function, perhaps a smaller network."""
        return network

    def unfold(self, network: nn.Module, index: int) -> nn.Module:
        """Member `index` as a plain network, made in place of one that takes all members at once (`Birth.folded`)."""
        return fold(network)

    def alone(self) -> Method | None:
        """The same method with one member and the given weights, which is then the base network; None if it is not."""
        return None

    def batch(self, x: Any, y: Any, generator: torch.Generator | None = None) -> Batch:
        """What the members see of one batch; the same for all, unless a method says otherwise."""
        return Batch(x, y, per_member=False)

    # What a budget and a table of costs ask.

    def sized(self, share: float, room: float | None) -> Method | None:
        """The method at a share of its largest size; None where none of its fields sets a size.

        Args:
            room: the parameters that may be spent, in those of the base network; None where they have no limit.
        """
        return None

    def training_macs(self, macs: int, members: int) -> int:
        """Mult-adds that one training example costs forward, where a prediction by all members costs `macs`."""
        return macs // members if self.takes_turns else macs

    # What a training loop asks, where a method differs from training all members together from the first step on.

    def learning_rate(self, default: float, step: int, steps: int, per_epoch: int, lr: float) -> float:
        """The rate of step 0 .. steps - 1; `default` is the recipe's, `lr` its base rate."""
        return default

    def check_epochs(self, epochs: int) -> None:
        """Refuse, before training, a number of epochs in which the members cannot be made."""

    def birth_after(self, epochs: int) -> int | None:
        """The number of epochs after which `give_birth` makes the members; None where they are born at the start."""
        return None

    def give_birth(self, ensemble: Any, seed: int | None = None) -> None:
        """Make the members of a trained one, where `birth_after` names an epoch."""

    def turn(self, ensemble: Any, step: int, generator: torch.Generator) -> int | None:
        """The one member that this step trains; None for all of them."""
        return None

    def shared_step_every(self, members: int) -> int:
        """Steps of single members after which what they share moves, by the gradients of all these steps."""
        return 1

    def sharers(self, ensemble: Any) -> dict[str, int | Tensor]:
        """How many members use each trainable tensor that has no member axis: all, unless a method says otherwise.

        Shape: a number, or a tensor that broadcasts to the parameter where its parts differ.
        """
        own, members = set(ensemble.own), ensemble.members
        return {name: members for name, p in ensemble.named_parameters() if p.requires_grad and name not in own}

    def average_shared(self, ensemble: Any) -> None:
        """Members trained as if alone, in a loop of one's own: between the backward of the sum and the optimizer."""
        divide_gradients(dict(ensemble.named_parameters()), self.sharers(ensemble))

    def collects(self, epoch: int, epochs: int) -> bool:
        """Whether `collect` is called at the end of this epoch (1, 2, ... epochs)."""
        return False

    def collects_average(self) -> bool:
        """Whether what is gathered is the recipe's running average of the weights, where it has one."""
        return False

    def collect(self, ensemble: Any) -> None:
        """Gather what the network is now."""

    def conclude(self, ensemble: Any) -> None:
        """Training is over: make the members of what was gathered."""

    def decays(self, name: str, tensor: Tensor) -> bool:
        """Whether weight decay applies to this parameter."""
        return name.rpartition(".")[2] not in self.undecayed_names

    def undecayed(self, ensemble: Any) -> set[str]:
        """Names of the parameters without weight decay, where a name and a tensor alone do not tell."""
        return {name for name, p in ensemble.named_parameters() if not self.decays(name, p)}

    def parameter_groups(self, ensemble: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
        """Groups for a torch optimizer: what decays, and what the method keeps from decaying."""
        trainable = [(name, p) for name, p in ensemble.named_parameters() if p.requires_grad]
        return decay_groups(trainable, self.undecayed(ensemble), weight_decay)


def divide_gradients(parameters: Mapping[str, nn.Parameter], counts: Mapping[str, int | Tensor]) -> None:
    """The sum of several members' gradients becomes their mean."""
    for name, count in counts.items():
        gradient = parameters[name].grad
        if gradient is not None:
            gradient.div_(count)


def decay_groups(named: Iterable[tuple[str, Tensor]], undecayed: set[str], decay: float) -> list[dict[str, Any]]:
    """Groups for a torch optimizer: what decays, and the rest; none is empty."""
    named = list(named)
    groups = [
        {"params": [p for name, p in named if name not in undecayed], "weight_decay": decay},
        {"params": [p for name, p in named if name in undecayed], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class Rewritten(Birth):
    """Members of one rewritten network: what they share keeps the given weights, what they own is born under a seed.

    Args:
        edits: how the one-member network differs from the base network.
        owns: name and tensor of the rewritten network -> whether each member has its own.
        fresh: paths of modules (heads, branches) or names of tensors that every member initialises anew.
        builder: of the base network; without one the layers' own initialisation runs again.
        noise: on what trains and is own in every member but the first, relative to the rms of each tensor. Members of
            one body see the same batches, and without it would stay the same.
    """

    def __init__(
        self,
        network: nn.Module,
        edits: Sequence[Edit],
        owns: Callable[[str, Tensor], bool],
        fresh: Sequence[str] = (),
        builder: Builder | None = None,
        noise: float = 0.0,
    ):
        self.network, self.edits, self.owned, self.fresh = network, tuple(edits), owns, tuple(fresh)
        self.builder, self.starts_fresh, self.noise = builder, bool(fresh), noise

    def member(self, index: int, seed: int) -> nn.Module:
        network = full_copy(self.network)
        with seeded(seed):
            apply(network, self.edits, {})
            if self.fresh and not on_meta(network):
                self._renew(network)
            if self.noise and index > 0 and not on_meta(network):
                self._shake(network)
        return network

    @torch.no_grad()
    def _shake(self, network: nn.Module) -> None:
        for name, p in network.named_parameters():
            if p.requires_grad and self.owns(name, p):
                p.add_(torch.randn_like(p), alpha=self.noise * float(p.square().mean().sqrt()))

    def _renew(self, network: nn.Module) -> None:
        """Only a whole network knows its law (a wide ResNet's head is He-normal): a new one lends its parts."""
        if self.builder is not None:
            donor = self.builder()
        else:
            donor = full_copy(network)
            reset(donor)
        new, old = tensors_of(donor), tensors_of(network)
        names = [n for n in new if any(n == f or n.startswith(f"{f}.") for f in self.fresh)]
        frozen = {n for n in names if isinstance(old[n], nn.Parameter) and not old[n].requires_grad}
        install(network, {n: new[n].detach() for n in names if n not in frozen})

    def owns(self, name: str, tensor: Tensor) -> bool:
        return self.owned(name, tensor)


class Remake(Birth):
    """Members made from the base network: initialised anew under a seed, or copies of the given weights."""

    def __init__(self, network: nn.Module, init: str, builder: Builder | None):
        self.network, self.init, self.builder = network, init, builder
        self.starts_fresh = init == "fresh"

    def member(self, index: int, seed: int) -> nn.Module:
        network = full_copy(self.network)
        if self.init == "pretrained" or on_meta(network):
            return network
        frozen = {name: t.detach().clone() for name, t in _frozen(network).items()}
        with seeded(seed):
            if self.builder is None:
                reset(network)
            else:
                network = self.builder().train(network.training)
        install(network, frozen)
        return network


def _frozen(network: nn.Module) -> dict[str, Tensor]:
    """What keeps its values: frozen parameters, and the statistics of layers whose parameters are all frozen."""
    tensors: dict[str, Tensor] = {}
    for path, module in network.named_modules():
        parameters = dict(module.named_parameters(recurse=False))
        frozen: dict[str, Tensor] = {name: p for name, p in parameters.items() if not p.requires_grad}
        if frozen and len(frozen) == len(parameters):
            frozen |= dict(module.named_buffers(recurse=False))
        tensors |= {name_in(path, name): t for name, t in frozen.items()}
    first = tensors_of(network)
    return {name: t for name, t in tensors.items() if name in first}
