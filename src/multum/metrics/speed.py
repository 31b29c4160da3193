"""How fast an ensemble predicts and how much room it takes: measured, where `cost` counts.

    latency      seconds of one pass over a batch: median, first and third quartile over rounds
    throughput   examples per second, batch size / median latency
    peak         bytes of the tensors that are alive at once while a batch is predicted, weights left out
    weights      bytes of parameters and buffers
    disk         bytes of the saved file

Several ensembles are timed in turn within each round, forwards and backwards alternately, so that whatever slows the
machine down slows all of them: a ratio is the median over rounds of the ratios within one round. Every number goes with
its batch size, threads, device and executor.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from ..ensemble import Ensemble
from ..errors import ConfigError
from ..figures.formats import fixed_width
from ..network.copies import arguments, tensors_of
from ..outputs.prediction import eval_mode
from ..processor import with_threads
from ..saving import save
from .timing import in_turn, ratio, spread

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Speed:
    """One ensemble at one batch size."""

    name: str
    batch_size: int
    latency: float  # seconds, the median over rounds
    lower: float  # first quartile
    upper: float  # third quartile
    ratio: float  # to the first ensemble, median over rounds
    ratio_lower: float
    ratio_upper: float
    peak: int  # bytes of tensors alive at once, weights left out
    weights: int  # bytes of parameters and buffers
    disk: int  # bytes of the saved file
    members: int
    executor: str  # its name; "" for a plain network
    device: str
    threads: int
    rounds: int
    warmup: int
    seconds: tuple[float, ...] = ()  # of every round

    @property
    def throughput(self) -> float:
        """Examples per second."""
        return self.batch_size / self.latency if self.latency else float("inf")


@dataclass(frozen=True)
class Speeds:
    """What was measured, a row for each ensemble and batch size."""

    rows: tuple[Speed, ...]

    def frame(self) -> pd.DataFrame:
        """One row per ensemble and batch size, times in seconds, sizes in bytes."""
        import pandas as pd

        frame = pd.DataFrame([asdict(row) for row in self.rows]).drop(columns="seconds")
        frame.insert(frame.columns.get_loc("ratio"), "throughput", [row.throughput for row in self.rows])
        return frame

    def __str__(self) -> str:
        rows = [
            {
                "name": row.name,
                "batch": str(row.batch_size),
                "ms": _milliseconds(row.latency),
                "quartiles": f"{_milliseconds(row.lower)}-{_milliseconds(row.upper)}",
                "examples/s": f"{row.throughput:,.0f}",
                "ratio": f"{row.ratio:.2f}",
                **{f"{part} MB": f"{getattr(row, part) / 1e6:.2f}" for part in ("peak", "weights", "disk")},
                "executor": row.executor or "-",
            }
            for row in self.rows
        ]
        first = self.rows[0]
        where = f"{first.device}, {first.threads} thread{'s' * (first.threads != 1)}"
        stated = f"{where}; {first.rounds} rounds after {first.warmup} of warm-up"
        return "\n".join([*fixed_width([list(rows[0]), *(list(row.values()) for row in rows)]), stated])


def _milliseconds(seconds: float) -> str:
    """Three figures, never an exponent."""
    return f"{seconds * 1e3:.{2 if seconds < 0.01 else 1 if seconds < 0.1 else 0}f}"


def speed(ensemble: Ensemble | nn.Module, example: Any, **settings: Any) -> Speeds:
    """The speed of one ensemble, or of a plain network; the arguments are those of `compare_speed`.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> measured = speed(net, torch.zeros(1, 4), batch_sizes=(3,), rounds=2)
    >>> row = measured.rows[0]
    >>> row.batch_size, row.peak, row.weights  # two layers of 3 x 8 numbers are alive at once
    (3, 192, 232)
    """
    name = type(ensemble.method).__name__ if isinstance(ensemble, Ensemble) else type(ensemble).__name__
    return compare_speed({name: ensemble}, example, **settings)


def compare_speed(
    ensembles: Mapping[str, Ensemble | nn.Module],
    example: Any,
    *,
    batch_sizes: Sequence[int] = (1, 128),
    rounds: int = 20,
    warmup: int = 3,
    threads: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
    advance: Callable[[int], None] = lambda passes: None,
) -> Speeds:
    """The speed of several ensembles, timed in turn within every round; nothing is changed.

    Args:
        ensembles: by name; ratios are to the first. A plain network may be among them.
        example: some examples as the networks take them, repeated up to each batch size.
        rounds: how often each is timed; the first `warmup` passes before them are not.
        threads: of torch while measuring; None for as many as it has.
        advance: called after every pass, for a progress bar: (rounds + warmup) passes each.
    """
    _check(ensembles, example, batch_sizes, rounds, warmup, threads)
    names, rows = list(ensembles), []
    with with_threads(threads):
        for size in batch_sizes:
            fed = {name: repeated(example, size, _device(network)) for name, network in ensembles.items()}
            timed = {name: partial(time_once, network, fed[name], clock) for name, network in ensembles.items()}
            every = in_turn(timed, warmup + rounds, partial(back_and_forth, warmup), lambda name: advance(1))
            times = {name: seconds[warmup:] for name, seconds in every.items()}
            measured = {"batch_size": size, "rounds": rounds, "warmup": warmup}
            rows += [_row(name, ensembles[name], fed[name], times[name], times[names[0]], **measured) for name in names]
    return Speeds(tuple(rows))


def back_and_forth(warmup: int, number: int, names: list[str]) -> list[str]:
    """The order of a round: as given in the first one that counts, then backwards, and so on."""
    return names if (number - warmup) % 2 == 0 else names[::-1]


def _row(name: str, network: nn.Module, x: Any, seconds: list[float], first: list[float], **measured: int) -> Speed:
    """What is known of one ensemble at one batch size; `first` are the seconds of the ensemble that ratios are to."""
    own, ratios = spread(seconds), ratio(seconds, first)
    return Speed(
        name=name,
        latency=own.median,
        lower=own.lower,
        upper=own.upper,
        ratio=ratios.median,
        ratio_lower=ratios.lower,
        ratio_upper=ratios.upper,
        peak=peak_bytes(network, x),
        weights=sum(t.nbytes for t in tensors_of(network).values()),
        disk=_disk(network),
        members=network.members if isinstance(network, Ensemble) else 1,
        executor=_executor(network, x),
        device=str(_device(network)),
        threads=torch.get_num_threads(),
        seconds=tuple(seconds),
        **measured,
    )


def _run(network: nn.Module, x: Any) -> None:
    """One pass in eval mode, to its end, without what it returns."""
    args, kwargs = ((x,), {}) if isinstance(network, Ensemble) else arguments(x)
    network(*args, **kwargs)
    _wait(_device(network))


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def time_once(network: nn.Module, x: Any, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of one pass in eval mode, without gradients."""
    with eval_mode(network), torch.no_grad():
        _wait(_device(network))
        start = clock()
        _run(network, x)
        return clock() - start


def peak_bytes(network: nn.Module, x: Any) -> int:
    """Bytes of tensors alive at once, beside the weights and the batch itself."""
    device = _device(network)
    with eval_mode(network), torch.no_grad():
        if device.type == "cuda":
            _wait(device)
            before = torch.cuda.memory_allocated(device)
            torch.cuda.reset_peak_memory_stats(device)
            _run(network, x)
            return torch.cuda.max_memory_allocated(device) - before
        with _Alive([*tensors_of(network).values(), *tree_leaves(x)]) as alive:
            _run(network, x)
    return alive.peak


class _Alive(TorchDispatchMode):
    """Adds up the storages that operations have made and that something still refers to."""

    def __init__(self, known: Sequence[Any]):
        super().__init__()
        self.known = {t.untyped_storage()._cdata for t in known if isinstance(t, Tensor)}
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for storage in (t.untyped_storage() for t in tree_leaves(out) if isinstance(t, Tensor)):
            if storage._cdata not in self.known:
                self.alive[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())
        self.alive = {key: entry for key, entry in self.alive.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.alive.values()))
        return out


def _disk(network: nn.Module) -> int:
    with tempfile.TemporaryDirectory(prefix="multum-") as folder:
        path = Path(folder) / "model.safetensors"
        if isinstance(network, Ensemble):
            save(network, path)
        else:
            save_file({n: t.detach().cpu().contiguous().clone() for n, t in tensors_of(network).items()}, path)
        return path.stat().st_size


def _executor(network: nn.Module, x: Any) -> str:
    if not isinstance(network, Ensemble):
        return ""
    with eval_mode(network), torch.no_grad():
        return network.settle(x)


def _device(network: nn.Module) -> torch.device:
    first = next(iter(tensors_of(network).values()), None)
    return first.device if first is not None else torch.device("cpu")


def repeated(example: Any, size: int, device: torch.device) -> Any:
    """A batch of this size: the examples again and again, or the first of them."""
    return tree_map_only(Tensor, lambda t: t[torch.arange(size) % len(t)].to(device), example)


def _check(
    ensembles: Mapping[str, Any], example: Any, batch_sizes: Sequence[int], rounds: int, warmup: int, threads: Any
) -> None:
    if not ensembles:
        raise ConfigError("speed needs at least one ensemble; got none")
    tensors = [t for t in tree_leaves(example) if isinstance(t, Tensor)]
    if not tensors or any(t.ndim == 0 or len(t) == 0 for t in tensors):
        raise ConfigError("`example` must be a batch of at least one example; got none")
    if not batch_sizes or any(size < 1 for size in batch_sizes):
        raise ConfigError(f"batch_sizes must be whole numbers >= 1; got batch_sizes={tuple(batch_sizes)}")
    if rounds < 1 or warmup < 0 or (threads is not None and threads < 1):
        raise ConfigError(
            f"`rounds` must be >= 1, `warmup` >= 0, `threads` >= 1 or None; got {rounds}, {warmup}, {threads}"
        )
