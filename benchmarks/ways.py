"""What a convolution of members side by side costs by each way to compute it, and whether choosing for each one pays.

    OMP_NUM_THREADS=1 python benchmarks/ways.py --batch 1 16 64
    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 OMP_NUM_THREADS=1 python benchmarks/ways.py     another processor

Every convolution of a packed ResNet-18 (alpha 2, M 4) by itself, forward and with its gradients, in turns with its
other ways, least time of the process over the rounds: `groups` and `last` are one convolution in groups, channels first
and last; `matrices` a batched product; `filled` has channels of zeros up to whole blocks; `apart` is one convolution a
member. "By size" is what `grouped` takes. Then the whole pass or step, with its convolutions by size and each by the
way that was clearly the fastest by itself: medians of the process's time over interleaved rounds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import multum
from multum.executors.choosing import fixed
from multum.executors.wide.products import WideConvolution, lanes
from multum.figures.formats import markdown_table

CLEARLY = 0.9  # times the time by size
Ways = dict[str, Callable[[Tensor, Tensor], Tensor]]


def packed(batch: int, training: bool) -> tuple[multum.Ensemble, Tensor]:
    net = multum.models.build("resnet18", classes=10)
    x = torch.randn(batch, 3, 32, 32)
    ens = multum.ensemble(net, multum.Packed(members=4, alpha=2), example=x, seed=0).train(training)
    ens.executor = "grouped"
    return ens, x


def sizes(layer: WideConvolution, x: Tensor, weight: Tensor) -> tuple:
    return (*x.shape, *weight.shape, *layer.module.stride)


def convolutions(batch: int, training: bool) -> list[tuple[WideConvolution, Tensor, Tensor]]:
    """The wide convolutions of a pass whose input holds all members, with input and weights."""
    ens, x = packed(batch, training)
    seen: list[tuple[WideConvolution, Tensor, Tensor]] = []
    multiply = WideConvolution.multiply

    def noted(layer: WideConvolution, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not x.is_meta and layer.holds_members(x, layer.inputs):
            seen.append((layer, x.detach().clone(), weight.detach().clone()))
        return multiply(layer, x, weight, bias)

    WideConvolution.multiply = noted  # type: ignore[method-assign]
    try:
        with torch.set_grad_enabled(training), fixed():
            ens(x)
    finally:
        WideConvolution.multiply = multiply  # type: ignore[method-assign]
    for layer, *_ in seen:
        layer.norm = None
    return seen


def ways_of(layer: WideConvolution) -> Ways:
    """Every way to compute this convolution, of x and of each member's weight."""
    module, members = layer.module, layer.members
    where = module.stride, module.padding, module.dilation

    def in_groups(layout: torch.memory_format) -> Callable[[Tensor, Tensor], Tensor]:
        def run(x: Tensor, w: Tensor) -> Tensor:
            w = w.flatten(0, 1).contiguous(memory_format=layout)
            return F.conv2d(x.contiguous(memory_format=layout), w, None, *where, members).contiguous()

        return run

    def apart(x: Tensor, w: Tensor) -> Tensor:
        parts = zip(x.chunk(members, 1), w, strict=True)
        return torch.cat([F.conv2d(part, each, None, *where) for part, each in parts], 1)

    ways: Ways = {
        "by size": lambda x, w: layer.multiply(x, w, None),
        "groups": in_groups(torch.contiguous_format),
        "last": in_groups(torch.channels_last),
        "matrices": lambda x, w: layer.matrices(x, w, None),
        "apart": apart,
    }
    if lanes(torch.float32) > 1:
        ways["filled"] = lambda x, w: layer.filled(x, w, None, lanes(x.dtype))
    return ways


def seconds(layer: WideConvolution, x: Tensor, weight: Tensor, training: bool, rounds: int) -> dict[str, float]:
    """The least processor time of each way; all must give the same."""
    ways, least = ways_of(layer), dict[str, float]()
    x, weight = x.requires_grad_(training), weight.requires_grad_(training)
    expected = ways["groups"](x, weight)
    for number in range(rounds + 1):
        for name in list(ways)[:: -1 if number % 2 else 1]:
            run = ways[name]
            began = time.process_time()
            with torch.set_grad_enabled(training):
                out = run(x, weight)
                if training:
                    torch.autograd.grad(out, (x, weight), torch.ones_like(out))
            spent = time.process_time() - began
            if number == 0:
                torch.testing.assert_close(out, expected, rtol=1e-3, atol=1e-3)
            else:
                least[name] = min(spent, least.get(name, spent))
    return least


def whole(batch: int, training: bool, best: dict[tuple, str], rounds: int) -> float:
    """Seconds of a pass with each convolution by its best way, in units of the same pass by size; the median."""
    ens, x = packed(batch, training)
    multiply = WideConvolution.multiply

    def chosen(layer: WideConvolution, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        name = best.get(sizes(layer, x, weight)) if layer.norm is None or training else None
        return multiply(layer, x, weight, bias) if name is None else ways_of(layer)[name](x, weight)

    ratios = []
    with torch.set_grad_enabled(training), fixed():
        for number in range(rounds + 1):
            spent = {}
            for name, run in [("by size", multiply), ("best", chosen)][:: -1 if number % 2 else 1]:
                WideConvolution.multiply = run  # type: ignore[method-assign]
                began = time.process_time()
                out = ens(x)
                if training:
                    out.sum().backward()
                spent[name] = time.process_time() - began
            ratios.append(spent["best"] / spent["by size"])
    WideConvolution.multiply = multiply  # type: ignore[method-assign]
    return statistics.median(ratios[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--layers", action="store_true", help="every convolution, not only their sums")
    options = parser.parse_args()
    multum.keep_memory()
    rows = []
    for training in (False, True):
        for batch in options.batch:
            known: dict[tuple, dict[str, float]] = {}
            every = convolutions(batch, training)
            for layer, x, weight in every:
                key = sizes(layer, x, weight)
                if key not in known:
                    known[key] = seconds(layer, x, weight, training, options.rounds)
            spent = [known[sizes(layer, x, weight)] for layer, x, weight in every]
            names = list(spent[0])
            sums = {name: sum(each[name] for each in spent) for name in names}
            best = sum(min(each.values()) for each in spent)
            mode = "training" if training else "inference"
            cells = [f"{1e3 * sums[name]:.1f}" for name in names]
            clear = {key: min(each, key=each.__getitem__) for key, each in known.items()}
            clear = {key: name for key, name in clear.items() if known[key][name] < CLEARLY * known[key]["by size"]}
            ratio = whole(batch, training, clear, options.rounds)
            rows.append(
                [mode, str(batch), *cells, f"{1e3 * best:.1f}", f"{best / sums['by size']:.3f}", f"{ratio:.3f}"]
            )
            if options.layers:
                for key, each in known.items():
                    print(mode, key, {name: round(1e3 * value, 2) for name, value in each.items()})
    isa = torch.backends.cpu.get_cpu_capability()
    print(f"{isa}, {torch.get_num_threads()} threads, ms of all convolutions whose input holds all members")
    print(
        markdown_table(["mode", "batch", *names, "best of each", "best / by size", "whole, best / by size"], rows, "lr")
    )


if __name__ == "__main__":
    main()
