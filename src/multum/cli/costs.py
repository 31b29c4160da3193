"""What ensembles cost before anything is trained: `multum bench` and `plan`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from .options import Json, ModelName
from .output import print_json, show, typed, watched, without


def bench(
    model: ModelName = None,
    methods: Annotated[str, Option(help="all, or a list such as single,packed:members=4,alpha=2,deep")] = "all",
    executors: Annotated[str, Option(help="all, or a list such as loop,vmap,auto; auto: the measured choice")] = "all",
    backends: Annotated[
        str,
        Option(
            help="Backends of multum.optimize: all, none, or a list such as optimized,inductor,onnxruntime,openvino"
        ),
    ] = "optimized",
    batch: Annotated[str, Option(help="Batch sizes")] = "1,16",
    shape: Annotated[str | None, Option(help="The shape of one example, such as 3x32x32")] = None,
    data: Annotated[
        str | None, Option(help="Take the shape and the number of outputs from this data set instead")
    ] = None,
    mode: Annotated[str, Option(help="inference, training, or both")] = "inference,training",
    rounds: Annotated[int, Option(help="How often each is timed, in turn")] = 5,
    threads: Annotated[int | None, Option(help="Threads of torch; by default all")] = None,
    peers: Annotated[bool, Option("--peers", help="Also measure torch-uncertainty and tabm")] = False,
    memory: Annotated[bool, Option(help="Also measure peak memory, each row in its own process")] = True,
    out: Annotated[Path | None, Option(help="A folder for JSON, Markdown and a figure")] = None,
    clear: Annotated[bool, Option("--clear", help="Delete the stored choice of executors, and exit")] = False,
    as_json: Json = False,
) -> None:
    """Measure time and memory of every method with every executor, in units of one network, on this machine.

    Ctrl-C shows the measurements so far; with --out the same command resumes from there.

    Example: multum bench --model resnet18 --methods packed,deep --batch 1,16,64

    Example: multum bench --data csv:churn.csv#target=left --mode training --out runs/bench
    """
    options = without(locals(), "batch", "shape", "mode", "clear", "as_json")
    if clear:
        from ..executors import remembered

        print(f"{remembered.clear()} measured choices of executors are forgotten")
        return
    from ..benching.bench import bench as run_bench
    from ..benching.report import terminal
    from ..benching.setting import listed

    document = run_bench(
        **options,
        **listed(batch, shape, mode),
        progress=watched(as_json),
        command=typed(),
    )
    print_json(document) if as_json else show(*terminal(document))
    if out is not None:
        show(f"written: {out}", wrap=False, stderr=as_json)
    if document["stopped"]:
        raise typer.Exit(128 + signal.SIGINT)


def plan(
    model: Annotated[str, Option("--model", help="resnet18, mlp, wrn-28-10, ..., timm:NAME, or mynet.py:Net:width=16")],
    params: Annotated[str | None, Option(help="Parameters of all members: 1.2x of one network, or 1e6")] = None,
    macs: Annotated[str | None, Option(help="Mult-adds per prediction: 1.1x, or 5e8")] = None,
    memory: Annotated[str | None, Option(help="Memory of weights and activations: 200MB, or 2x")] = None,
    latency: Annotated[str | None, Option(help="Time of one prediction: 5ms, or 1.5x")] = None,
    data: Annotated[str | None, Option(help="The data the network is for, as in `multum compare`")] = None,
    shape: Annotated[str | None, Option(help="Without --data: the shape of one example, such as 3x32x32 or 20")] = None,
    classes: Annotated[int | None, Option(help="Without --data: the number of classes")] = None,
    methods: Annotated[
        str, Option(help="all, or a list such as packed,deep:members=4; fields that are given are kept")
    ] = "all",
    batch_size: Annotated[int, Option(help="Examples per prediction")] = 1,
    backend: Annotated[str, Option(help="The backend for measuring latency: eager, onnxruntime, openvino")] = "eager",
    known: Annotated[
        Path | None, Option("--from", help="A folder written by `multum compare`: adds its measurements")
    ] = None,
    seconds: Annotated[
        float, Option(help="Time limit for measuring; other latencies are predicted. 0: no latencies")
    ] = 30.0,
    threads: Annotated[int | None, Option(help="Threads while measuring")] = None,
    as_json: Json = False,
) -> None:
    """Which ensembles of a network fit my limits on parameters, mult-adds, memory and latency?

    Nothing is trained: costs are counted exactly, and the latency of what fits is measured.

    Example: multum plan --model resnet18 --params 1.2x --latency 50ms --memory 200MB

    Example: multum plan --model small-resnet --data fashion_mnist --macs 1.1x --from runs/compare
    """
    options = without(locals(), "model", "as_json")
    from ..plans.plan import plan as plan_ensembles

    planned = plan_ensembles(model, **options, progress=watched(as_json))
    if as_json:
        print_json(planned.document())
        return
    from ..plans.show import lines, table

    show(table(planned), *lines(planned))
