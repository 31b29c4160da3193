"""`multum.plan`: which ensembles of a network fit what may be spent on it, and what is known of them.

1. Configs of every method (its members and knobs) are counted on the meta device, exactly.
2. A method with a size of its own is also sized to the limits; one that fits at no config gets a thinner network.
3. What passes is timed, within the seconds that measuring may take; the latency of the rest is predicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ..comparing.budget import largest_that_fits, thinner
from ..comparing.planning import Wanted, chosen_methods
from ..data.sources import load_data
from ..errors import ConfigError, MultumError, first_line
from ..files import plain
from ..methods import Method, Single
from ..runs.cells import spec_of
from ..runs.networks import default_model
from .backends import Backend, backend_of
from .candidates import Candidate, Comparison, configs_of
from .counting import Base
from .limits import NAMES, Limit, Limits
from .measuring import Watch, measured
from .network import base_of, model_name

MEMBERS = (2, 4, 8)  # that are tried, where nothing else is asked for


@dataclass(frozen=True)
class Plan:
    """Candidates as data: the feasible ones first, by mult-adds; then the excluded ones with their reasons."""

    candidates: tuple[Candidate, ...]
    single: Candidate  # the one network
    limits: Limits
    model: str | None  # the network's name, where it has one
    batch_size: int
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self.candidates)

    def __len__(self) -> int:
        return len(self.candidates)

    def __getitem__(self, index: int) -> Candidate:
        return self.candidates[index]

    @property
    def feasible(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self if candidate.feasible)

    @property
    def excluded(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self if not candidate.feasible)

    @property
    def proposal(self) -> tuple[Candidate, ...]:
        """Of every method the feasible candidate with the most mult-adds, on the network as it is."""
        largest = {c.method.name: c for c in self.feasible if c.width == 1}  # the last is the largest
        return tuple(largest.values())

    def document(self) -> dict[str, Any]:
        """All of it as plain values; times in seconds, sizes in bytes."""
        return plain(
            {
                "model": self.model,
                "batch_size": self.batch_size,
                "limits": asdict(self.limits),
                "single": self.single.document(),
                "candidates": [candidate.document() for candidate in self],
                "notes": self.notes,
            }
        )

    def __str__(self) -> str:
        from .show import text

        return text(self)


def plan(
    network: nn.Module | str,
    *,
    example: Any = None,
    data: str | None = None,
    shape: Sequence[int] | str | None = None,
    classes: int | None = None,
    task: str = "classification",
    targets: int | None = None,
    params: Limit = None,
    macs: Limit = None,
    memory: Limit = None,
    latency: Limit = None,
    methods: str | Sequence[str | Method] = "all",
    members: Sequence[int] = MEMBERS,
    batch_size: int = 1,
    backend: str | Backend = "eager",
    known: str | Path | None = None,
    seconds: float = 30.0,
    threads: int | None = None,
    progress: bool = False,
) -> Plan:
    """Search methods and their fields for ensembles that meet the limits.

    Args:
        network: a network with an `example` batch, or a name with `data` (by name), or `shape` and `classes`.
        params, macs: the most of all members together, as "1.2x" of the one network, or 1e6; to one in a hundred.
        memory: of weights and of the activations that are alive at once, as "200MB" or "2x".
        latency: of one pass over `batch_size` examples, as "5ms" or "1.5x".
        methods: "all", a list as on the command line whose fields are kept, or configs.
        backend: what latency is measured with: "eager", "onnxruntime" or "openvino"; or a function of an ensemble and a
            batch that gives what runs it once and returns its seconds.
        known: a folder that `multum compare` left: what it measured of a candidate goes with it.
        seconds: that measuring may take; latencies that are not measured by then are predicted. 0 measures none.
        threads: of torch while measuring; None for as many as it has.

    >>> import multum, torch
    >>> net = multum.models.build("mlp", in_features=4, classes=3)
    >>> planned = plan(net, example=torch.zeros(1, 4), params="1.1x", methods="deep", seconds=0)
    >>> planned.excluded[0].label, planned.excluded[0].reason
    ('deep:members=2', 'parameters 3.21 k, and 1.76 k are allowed')
    """
    timing = backend_of(backend)
    if latency is not None and seconds <= 0:
        raise ConfigError(f"a limit on latency must have time to measure; got seconds={seconds}. Use seconds=30")
    limits_by_name = {"params": params, "macs": macs, "memory": memory}
    base, notes = base_of(network, example, data, shape, classes, task, targets, batch_size)
    model = model_name(network)
    comparison = None if known is None else Comparison(known)
    if comparison is not None and model not in comparison.models:
        notes.append(f"nothing is known from {known}: it trained {', '.join(comparison.models)}")
    wanted = [each for each in chosen_methods(methods, controls=False) if each.method != Single()]
    with Watch(progress) as watch:
        single = Candidate(Single(), counts=base.counts(Single(), 1.0))
        assert single.counts is not None
        costs = {name: float(getattr(single.counts, name)) for name in limits_by_name}
        limits = Limits.parse(costs, **limits_by_name)
        single = replace(single, reason=limits.broken(**costs))
        search = _Search(base, limits, costs["params"])
        listed = [(each, configs_of(each, members)) for each in wanted]
        watch.begin("counting", sum(len(configs) for _, configs in listed))
        candidates = [c for each, configs in listed for c in search.of(each, configs, watch)]
        candidates, single, limits = measured(
            base, single, candidates, limits, latency, timing, seconds, threads, watch
        )
    if comparison is not None and model is not None:
        single, *candidates = (
            replace(c, known=comparison.of(c.method, thinner(model, c.width))) for c in (single, *candidates)
        )
    return Plan(tuple(sorted(candidates, key=_order)), single, limits, model, batch_size, tuple(notes))


def _order(candidate: Candidate) -> tuple[Any, ...]:
    """Feasible first, the cheapest first, and of equally cheap ones that with most members."""
    counts = candidate.counts
    return not candidate.feasible, counts is None, counts and counts.macs, -candidate.members, candidate.label


class _Search:
    """Counts configs, and finds sizes and widths that keep to the limits."""

    def __init__(self, base: Base, limits: Limits, params: float):
        self.base, self.limits = base, limits
        self.room = None if limits.params is None else limits.params / params
        self.done: dict[tuple[Method, float], Candidate] = {}

    def of(self, wanted: Wanted, configs: Sequence[Method], watch: Watch) -> list[Candidate]:
        """Every config of a method, and its default at the size or on the thinner network that fits."""
        by_cost: dict[Any, Candidate] = {}
        for method in configs:
            candidate = self.candidate(method, 1.0)
            # A knob that changes nothing here (subgroups that do not fit) makes no candidate.
            by_cost.setdefault((candidate.members, candidate.counts or method), candidate)
            watch.advance()
        candidates = list(by_cost.values())
        built = any(c.counts is not None for c in candidates)
        sizes = wanted.method.sized(1, self.room) is not None
        if not built or self.limits == Limits() or (any(c.feasible for c in candidates) and not sizes):
            return candidates
        fitted = largest_that_fits(wanted.method, self.room, lambda *config: self.candidate(*config).feasible)
        if fitted is not None and self.candidate(*fitted) not in candidates:
            candidates.append(self.candidate(*fitted))
        return candidates

    def candidate(self, method: Method, width: float) -> Candidate:
        """A config with its counts, counted once, and the limit that it breaks."""
        if (method, width) not in self.done:
            self.done[method, width] = self._counted(method, width)
        return self.done[method, width]

    def _counted(self, method: Method, width: float) -> Candidate:
        try:
            counts = self.base.counts(method, width, self.limits.budget.allows)
        except MultumError as error:
            return Candidate(method, width, reason=f"cannot be built: {first_line(error)}")
        reason = self.limits.broken(params=counts.params, macs=counts.macs, memory=counts.memory)
        return Candidate(method, width, counts, reason=reason)


def proposed(limits: str, data: str, model: str | None, methods: str, *, progress: bool = False) -> list[str]:
    """One network, and of every method the largest config that keeps to the limits, as `multum compare` takes them.

    Args:
        limits: as `params=1.2x,latency=5ms`. Latencies are measured, so that only other limits always propose the same.
        methods: those that are asked.

    >>> proposed("params=1.2x,macs=1.2x", "diabetes", "mlp", "deep,multihead")
    ['single', 'multihead:members=2']
    """
    parts: dict[str, Any] = dict(part.partition("=")[::2] for part in limits.replace(" ", "").split(","))
    if not parts.keys() <= NAMES.keys():
        raise ConfigError(
            f"`plan` must be limits on {', '.join(NAMES)}; got {limits!r}. Use for example --plan params=1.2x,macs=2x"
        )
    name = model or default_model(load_data(data))
    seconds = 30.0 if "latency" in parts else 0.0
    planned = plan(name, data=data, methods=methods, seconds=seconds, progress=progress, **parts)
    if not planned.proposal:
        raise ConfigError(
            f"some method must keep to the limits; got none for {limits!r}. See multum plan --model {name}"
        )
    return ["single", *(spec_of(candidate.method) for candidate in planned.proposal)]
