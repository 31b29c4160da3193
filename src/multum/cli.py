"""The command line. No logic here: every command calls a function of the library, and imports it when it is called."""

from __future__ import annotations

import contextlib
import logging
import shlex
import signal
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from .errors import ConfigError, MultumError
from .memory import keep_memory
from .parsing import assignments
from .version import __version__

__all__ = ["main"]

log = logging.getLogger("multum")

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,  # drawing help with rich takes longer than everything else before it
    pretty_exceptions_enable=False,
)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """A job that goes on later: Ctrl-C and SIGTERM end it with a message and the usual exit code."""
    from .training.devices import is_first
    from .training.interrupt import Stopped

    try:
        yield
    except KeyboardInterrupt as stop:
        if is_first():
            reason = str(stop) or "stopped by SIGINT"
            show(f"{reason}; the same command goes on from here", wrap=False, stderr=True)
        raise typer.Exit(128 + (stop.number if isinstance(stop, Stopped) else signal.SIGINT)) from None


def show(*parts: Any, wrap: bool = True, stderr: bool = False) -> None:
    """Print tables, and texts that are wrapped at words, or lines as they are."""
    from rich.console import Console

    Console(stderr=stderr).print(*parts, sep="\n", highlight=False, markup=False, soft_wrap=not wrap)


def watched(as_json: bool) -> bool:
    """Whether a person watches: progress is shown unless JSON or --quiet is asked for."""
    return not as_json and log.isEnabledFor(logging.WARNING)


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"multum {__version__}")
        raise typer.Exit


def without(options: dict[str, Any], *names: str) -> dict[str, Any]:
    """A command's options for the function of the library that takes them by the same names, but for some."""
    return {name: value for name, value in options.items() if name not in names}


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    from .files import dumps

    print(dumps(value))


# Options that several commands have.
Settings = Annotated[list[str] | None, Argument(help="Recipe fields, such as lr=0.01 batch_size=128")]
DataName = Annotated[
    str,
    Option(
        "--data",
        help="digits, diabetes, NAME in $MULTUM_DATA, npz:FILE, folder:DIR#size=64, csv:FILE#target=COLUMN, "
        "parquet:FILE#..., hf:NAME#image=COLUMN,label=COLUMN,config=NAME,split=NAME. Fields of a table, after commas: "
        "drop=A+B, task=regression, test=FILE, sep=;, decimal=, (a comma). Any may end in #hold_out=CLASS+CLASS, "
        "#only=..., #first=N",
    ),
]
ModelName = Annotated[
    str | None,
    Option("--model", help="small-cnn, resnet18, wrn-10-1, mlp, ..., timm:NAME, or your own as mynet.py:Net:width=16"),
]
RunFolder = Annotated[Path, Argument(help="A run folder that `multum train` left")]
Jobs = Annotated[int, Option(help="Cells at once, each in a process of its own")]
On = Annotated[str, Option(help="here, or ray")]
Address = Annotated[str | None, Option(help="Of an existing Ray cluster")]
Threads = Annotated[int | None, Option(help="Threads of a cell; the same number gives the same bits")]
Json = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]


@app.callback(epilog="Start with: multum compare --data digits --methods single,packed,deep --seeds 2")
def root(
    version: Annotated[
        bool, Option("--version", help="Print the version.", callback=print_version, is_eager=True)
    ] = False,
    quiet: Annotated[bool, Option("--quiet", help="Print results and errors alone: no progress, no remarks.")] = False,
    verbose: Annotated[
        bool, Option("--verbose", help="Also print what is decided on the way, and tracebacks.")
    ] = False,
) -> None:
    """Any PyTorch network as an ensemble, at about the price of one network.

    compare answers which ensemble suits your data and your budget, and writes a report. train
    makes one ensemble, evaluate measures what its uncertainty is worth, and predict uses it.

    Long jobs show their progress, survive Ctrl-C and kill -9, and go on with the same command. Exit codes: 0 success,
    1 some methods of a comparison failed, 2 an invalid command or data, 130 stopped.
    """
    if quiet and verbose:
        raise ConfigError("the command must be --quiet or --verbose; got both. Leave one out")
    logging.basicConfig(format="%(message)s")  # warnings look the same without it, and remarks need it
    log.setLevel(logging.ERROR if quiet else logging.INFO if verbose else logging.NOTSET)


@app.command()
def compare(
    settings: Settings = None,
    data: DataName = "digits",
    model: ModelName = None,
    methods: Annotated[
        str, Option(help="all, or a list as single,packed:members=4,alpha=2,deep; see `multum methods`")
    ] = "all",
    seeds: Annotated[int, Option(help="Runs of every method")] = 3,
    epochs: Annotated[int | None, Option(help="Passes over the training part")] = None,
    tune: Annotated[
        int, Option(help="Learning rates that are tried for every method on the validation part, 0 for none")
    ] = 4,
    budget: Annotated[
        str | None, Option(help="1x, 2.5x, params=1e6 or macs=1e7: methods are made as large as fits")
    ] = None,
    plan: Annotated[
        str | None, Option(help="As params=1.2x,latency=5ms: of every method what `multum plan` proposes")
    ] = None,
    ood: Annotated[
        list[str] | None,
        Option(help="An OOD data set; repeat for more, or none. By default, classes that are held out"),
    ] = None,
    shift: Annotated[str, Option(help="Corrupted images: none, quick (4 kinds, 150 examples) or all (15)")] = "quick",
    out: Annotated[Path, Option(help="The folder of the report and all runs")] = Path("runs/compare"),
    jobs: Annotated[
        int | None, Option(help="Cells at once, each in a process of its own; by default as the machine allows")
    ] = None,
    on: On = "here",
    address: Address = None,
    threads: Threads = None,
    final: Annotated[bool, Option("--final", help="Then train the advised method on all classes, and keep it")] = False,
    as_json: Json = False,
) -> None:
    """Which ensemble for my data and my budget? Train and measure them all, and write a report.

    The same command goes on where it was stopped; what is done is not done again.

    Example: multum compare --data digits --methods single,packed,deep --seeds 2 --epochs 15

    Example: multum compare --data csv:churn.csv#target=left --budget 2x --out runs/churn
    """
    options = without(locals(), "settings", "ood", "plan", "as_json")
    from .comparing.compare import compare as compare_methods

    if plan is not None:
        from .plans.proposing import proposed

        options["methods"] = proposed(plan, data, model, methods, progress=watched(as_json))
    with stoppable():
        document = compare_methods(
            **options,
            ood=[] if ood == ["none"] else ood,
            recipe=assignments(settings or []),
            progress=watched(as_json),
            command=shlex.join(["multum", *sys.argv[1:]]),
        )
    from . import reports  # with matplotlib and pandas, which other commands need not wait for

    if as_json:
        print_json(document)
    else:
        show(reports.terminal(document), *reports.advice_lines(document))
        show("", *reports.model_lines(document), f"report: {out / 'report.html'}", wrap=False)
    if any(part["status"] != "done" for part in [*document["rows"], document["final"]] if part is not None):
        raise typer.Exit(1)


@app.command()
def train(
    settings: Settings = None,
    data: DataName = "digits",
    model: ModelName = None,
    method: Annotated[str, Option(help="A method, with fields behind a colon")] = "packed:members=4,alpha=2",
    out: Annotated[Path, Option(help="The run folder")] = Path("runs/train"),
    resume: Annotated[bool, Option(help="Go on with an interrupted run in that folder, or refuse it")] = True,
    devices: Annotated[int, Option(help="Processes on this machine; torchrun brings its own")] = 1,
    nodes: Annotated[int, Option(help="Machines")] = 1,
    accelerator: Annotated[str, Option(help="cpu, cuda, mps, or auto")] = "auto",
    checkpoint_seconds: Annotated[float, Option(help="The longest time between checkpoints")] = 60.0,
    tensorboard: Annotated[bool, Option("--tensorboard", help="Also write TensorBoard files.")] = False,
    find_lr: Annotated[bool, Option("--find-lr", help="Find a learning rate first, and train with it")] = False,
    temperature: Annotated[
        bool, Option("--temperature", help="Fit a temperature on the validation part, for predict to use")
    ] = False,
    threads: Annotated[int | None, Option(help="Threads; the same number gives the same bits")] = None,
    as_json: Json = False,
) -> None:
    """Train one ensemble and leave it in a run folder; the same command goes on with an interrupted run.

    Example: multum train --data digits --method deep:members=4 --out runs/deep epochs=20
    """
    options = without(locals(), "settings", "as_json")
    from .runs import train as training
    from .training.devices import is_first

    with stoppable():
        trained = training.train(**options, overrides=assignments(settings or []), progress=watched(as_json))
    if is_first():
        print_json(trained) if as_json else print(training.summary(trained, out))


@app.command()
def evaluate(
    run: RunFolder,
    data: Annotated[
        str | None, Option(help="Other data to measure on, by name; by default the run's own test part")
    ] = None,
    ood: Annotated[list[str] | None, Option(help="An OOD data set; repeat for more")] = None,
    shift: Annotated[
        bool, Option("--shift", help="Also under the 15 corruptions of CIFAR-C, 5 severities each")
    ] = False,
    speed: Annotated[bool, Option("--speed", help="Also time predictions and measure memory")] = False,
    cost_ratio: Annotated[
        float | None, Option(help="Of two classes: what a missed positive costs, in false alarms")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure what a trained ensemble's uncertainty is worth.

    Example: multum evaluate runs/deep --ood mnist --ood kmnist

    Example: multum evaluate runs/churn --data csv:churn-2025.csv#target=left
    """
    from .runs.evaluate import evaluate_run, tables

    options: dict[str, Any] = {"data": data, "shift": shift, "speed": speed, "cost_ratio": cost_ratio}
    numbers = evaluate_run(run, ood or [], **options, progress=watched(as_json))
    print_json(numbers) if as_json else show(*tables(numbers))


@app.command()
def predict(
    run: Annotated[Path, Argument(help="A run folder, a saved model (.safetensors), or an exported one (.onnx)")],
    file: Annotated[
        Path,
        Argument(help="A csv or parquet table, an npz or npy array, an image, a folder of images; - for stdin"),
    ],
    out: Annotated[Path | None, Option(help="Write a .csv, .json or .parquet file instead of a table")] = None,
    coverage: Annotated[float | None, Option(help="Abstain so that this share of examples is answered")] = None,
    risk: Annotated[float | None, Option(help="Abstain so that at most this share of answers is wrong")] = None,
    conformal: Annotated[
        float | None, Option(help="Sets of classes, or intervals, that hold the truth with this probability")
    ] = None,
    threshold: Annotated[
        str | None, Option(help="Labels of two classes that are best for f1, balanced_accuracy or cost=20")
    ] = None,
    temperature: Annotated[bool, Option("--temperature", help="Calibrate first, on the validation part")] = False,
    probabilities: Annotated[
        bool | None, Option(help="A column per class; by default in files and JSON, not in the table")
    ] = None,
    members: Annotated[bool, Option("--members", help="Also what every member says")] = False,
    as_json: Json = False,
) -> None:
    """Label, probabilities, uncertainty and abstention for every row of a file.

    The run folder is all it takes: thresholds and temperatures are fitted on what the run held out; an exported model
    has them inside. Rows are written as they are predicted, so that a file may be larger than the memory.

    Example: multum predict runs/deep new.csv --coverage 0.9 --out answers.csv

    Example: multum predict runs/deep new.csv --conformal 0.9 --members --out answers.parquet
    """
    options = without(locals(), "run", "file", "out", "as_json")
    from .exporting.predicting import predict_frames
    from .runs import predict as prediction

    if probabilities is None:
        options["probabilities"] = as_json or out is not None
    frames = predict_frames(run, file, **options, progress=watched(as_json))
    if out is not None:
        show(f"{prediction.write(frames, out)}; written: {out}", wrap=False, stderr=as_json)
    elif as_json:
        prediction.print_rows(frames, sys.stdout)
    else:
        show(prediction.table(frames))


@app.command()
def export(
    run: Annotated[Path, Argument(help="A run folder that `multum train` left, or a saved model")],
    to: Annotated[Path, Option(help="The file to write: .onnx, or .pt2 for torch.export; with --serve a folder")],
    serve: Annotated[str | None, Option(help="litserve or triton: write a folder that this server runs")] = None,
    format: Annotated[str | None, Option(help="onnx or torch; by default what the ending of --to says")] = None,
    members: Annotated[int | None, Option(help="Use the first so many members alone")] = None,
    each_member: Annotated[bool, Option("--each-member", help="Also put out what every member says")] = False,
    level: Annotated[float, Option(help="Of the intervals that a regression gives")] = 0.95,
    coverage: Annotated[float | None, Option(help="Abstain so that this share of examples is answered")] = None,
    risk: Annotated[float | None, Option(help="Abstain so that at most this share of answers is wrong")] = None,
    conformal: Annotated[
        float | None, Option(help="Sets of classes, or intervals, that hold the truth with this probability")
    ] = None,
    threshold: Annotated[
        str | None, Option(help="Labels of two classes that are best for f1, balanced_accuracy or cost=20")
    ] = None,
    temperature: Annotated[
        bool | None, Option(help="Calibrate on the validation part; by default where training did")
    ] = None,
    card: Annotated[bool, Option(help="Also write a model card beside it, with the ending .md")] = True,
    as_json: Json = False,
) -> None:
    """Write a run as one file that runs without multum: raw examples in, predictions with their uncertainty out.

    Scaling, categories, members, temperature, conformal sets and abstention are inside. The file is run on the run's
    test examples before it is written, and must say what multum says. Where the run held examples out, --coverage and
    --conformal are 0.9 by default.

    Example: multum export runs/churn --to churn.onnx --coverage 0.95

    Example: multum export runs/deep --to deep.pt2 --members 2

    Example: multum export runs/churn --to server --serve litserve
    """
    options = {name: value for name, value in without(locals(), "run", "to", "as_json").items() if value is not None}
    from .exporting import describing, serving

    metadata, path = serving.write(run, to, **options)
    print_json(metadata) if as_json else show(describing.summary(metadata, path), wrap=False)


@app.command()
def bench(
    model: ModelName = None,
    methods: Annotated[str, Option(help="all, or a list as single,packed:members=4,alpha=2,deep")] = "all",
    executors: Annotated[str, Option(help="all, or a list as loop,vmap,auto; auto: as measured")] = "all",
    backends: Annotated[
        str, Option(help="Of multum.optimize: all, none, or a list as optimized,inductor,onnxruntime,openvino")
    ] = "optimized",
    batch: Annotated[str, Option(help="Batch sizes")] = "1,16",
    shape: Annotated[str | None, Option(help="Of one example, as 3x32x32")] = None,
    data: Annotated[str | None, Option(help="Take shape and outputs of this data set instead")] = None,
    mode: Annotated[str, Option(help="inference, training, or both")] = "inference,training",
    rounds: Annotated[int, Option(help="How often each is timed, all in turn")] = 5,
    threads: Annotated[int | None, Option(help="Threads of torch; by default as many as it has")] = None,
    peers: Annotated[bool, Option("--peers", help="Also torch-uncertainty's and tabm's twins")] = False,
    memory: Annotated[bool, Option(help="Also peak memory, each row in a process of its own")] = True,
    out: Annotated[Path | None, Option(help="A folder for JSON, Markdown and a figure")] = None,
    clear: Annotated[
        bool, Option("--clear", help="Forget which executors were measured as the fastest, and end")
    ] = False,
    as_json: Json = False,
) -> None:
    """How long and how much memory, in units of one network: every method by every executor, on this machine.

    Ctrl-C shows what is measured so far; with --out the same command goes on from there.

    Example: multum bench --model resnet18 --methods packed,deep --batch 1,16,64

    Example: multum bench --data csv:churn.csv#target=left --mode training --out runs/bench
    """
    options = without(locals(), "batch", "shape", "mode", "clear", "as_json")
    if clear:
        from .executors import remembered

        print(f"{remembered.clear()} measured choices of executors are forgotten")
        return
    from .benching.bench import bench as run_bench
    from .benching.setting import listed
    from .benching.tables import terminal

    document = run_bench(
        **options,
        **listed(batch, shape, mode),
        progress=watched(as_json),
        command=shlex.join(["multum", *sys.argv[1:]]),
    )
    print_json(document) if as_json else show(*terminal(document))
    if out is not None:
        show(f"written: {out}", wrap=False, stderr=as_json)
    if document["stopped"]:
        raise typer.Exit(128 + signal.SIGINT)


@app.command()
def plan(
    model: Annotated[str, Option("--model", help="resnet18, mlp, wrn-28-10, ..., timm:NAME, or mynet.py:Net:width=16")],
    params: Annotated[str | None, Option(help="Parameters of all members: 1.2x of one network, or 1e6")] = None,
    macs: Annotated[str | None, Option(help="Mult-adds of one prediction: 1.1x, or 5e8")] = None,
    memory: Annotated[str | None, Option(help="Of weights and activations: 200MB, or 2x")] = None,
    latency: Annotated[str | None, Option(help="Of one prediction: 5ms, or 1.5x")] = None,
    data: Annotated[str | None, Option(help="The data that the network is for, as `multum compare` takes it")] = None,
    shape: Annotated[str | None, Option(help="Without --data: of one example, as 3x32x32 or 20")] = None,
    classes: Annotated[int | None, Option(help="Without --data")] = None,
    methods: Annotated[str, Option(help="all, or a list as packed,deep:members=4, whose fields are kept")] = "all",
    batch_size: Annotated[int, Option(help="Examples of one prediction")] = 1,
    backend: Annotated[str, Option(help="What latency is measured with: eager, onnxruntime, openvino")] = "eager",
    known: Annotated[
        Path | None, Option("--from", help="A folder that `multum compare` left: what it measured of a candidate")
    ] = None,
    seconds: Annotated[
        float, Option(help="That measuring may take; what is left is predicted. 0: no latencies")
    ] = 60.0,
    threads: Annotated[int | None, Option(help="Threads while measuring")] = None,
    as_json: Json = False,
) -> None:
    """Which ensembles of a network fit the parameters, mult-adds, memory and latency that I have?

    Nothing is trained: costs are counted exactly, and the latency of what passes is measured.

    Example: multum plan --model resnet18 --params 1.2x --latency 50ms --memory 200MB

    Example: multum plan --model small-resnet --data fashion_mnist --macs 1.1x --from runs/compare
    """
    options = without(locals(), "model", "as_json")
    from .plans.plan import plan as plan_ensembles

    planned = plan_ensembles(model, **options, progress=watched(as_json))
    if as_json:
        print_json(planned.document())
        return
    from .plans.show import lines, table

    show(table(planned), *lines(planned))


@app.command()
def card(
    run: RunFolder,
    to: Annotated[Path | None, Option(help="The folder to write to, or a .md file; by default the run folder")] = None,
) -> None:
    """Write a model card: README.md in the layout of the Hugging Face hub, with data, cost, metrics and a figure.

    Example: multum card runs/churn
    """
    from .exporting.card import write_card

    show(f"written: {write_card(run, to)}", wrap=False)


@app.command()
def reproduce(
    item: Annotated[str | None, Argument(help="A table or figure, as packed/table1-cost; see --list")] = None,
    list_all: Annotated[bool, Option("--list", help="List all items and what can be run here.")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Show the plan: cells, mult-adds, hours.")] = False,
    scale: Annotated[str, Option(help="cpu (reduced so that two cores finish it) or paper")] = "cpu",
    seed: Annotated[list[int] | None, Option(help="One of the item's seeds; repeat for more, by default all")] = None,
    out: Annotated[Path, Option(help="The folder of the cells, shared by all items")] = Path("runs/reproduce"),
    pages: Annotated[Path | None, Option(help="Where JSON, page and figures go; by default --out")] = None,
    jobs: Jobs = 1,
    on: On = "here",
    address: Address = None,
    threads: Threads = None,
    gather: Annotated[bool, Option("--gather", help="Train nothing: write what is done.")] = False,
    as_json: Json = False,
) -> None:
    """Run a table or figure of the papers again, and print our numbers beside theirs.

    The same command goes on where it was stopped; items share what they train.

    Example: multum reproduce --list

    Example: multum reproduce packed/table1-cost

    Example: multum reproduce mimo/figure2 --jobs 2
    """
    options = without(locals(), "list_all", "dry_run", "seed", "as_json")
    from .papers import catalogue as catalogue_of_items
    from .papers import find
    from .papers import show as screen
    from .papers.plan import plan
    from .papers.reproduce import reproduce as run_item

    if list_all or item is None:
        print_json(catalogue_of_items()) if as_json else show(screen.listing())
        return
    if dry_run:
        planned = plan(find(item).run(scale))
        print_json(planned.document()) if as_json else show(screen.planned(planned, find(item), scale))
        return
    with stoppable():
        document = run_item(**options, seeds=seed, progress=watched(as_json))
    if as_json:
        print_json(document)
    else:
        show(screen.result(document))
        place = (pages or out) / item
        show(f"written: {place}.json, {place}.md", wrap=False)
    if any(cell["status"] == "failed" for cell in document["cells"]):
        raise typer.Exit(1)


@app.command()
def methods(
    as_json: Json = False,
) -> None:
    """List every method with its fields.

    Example: multum methods
    """
    from .figures.tables import text_table
    from .methods import catalogue

    if as_json:
        print_json(catalogue())
        return
    rows = [
        [e["name"], e["summary"], "\n".join(f"{f['name']}={f['default']}  {f['comment']}" for f in e["fields"])]
        for e in catalogue()
    ]
    show(text_table(["name", "what it is", "fields"], rows, row_lines=True))


def main() -> None:
    """Run the command line; multum's own errors are printed without a traceback."""
    keep_memory()
    try:
        app()
    except MultumError as error:
        from rich.text import Text

        if log.isEnabledFor(logging.INFO):
            traceback.print_exc()
        show(Text.assemble(("error", "red"), f": {error}"), wrap=False, stderr=True)
        sys.exit(2)
