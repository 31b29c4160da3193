"""One ensemble in a run folder: `multum train`, `evaluate` and `predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from ..parsing import assignments
from .options import Conformal, Coverage, DataName, Json, ModelName, Risk, RunFolder, Settings, Threshold
from .output import print_json, show, stoppable, watched, without


def train(
    settings: Settings = None,
    data: DataName = "digits",
    model: ModelName = None,
    method: Annotated[str, Option(help="A method, with its fields after a colon")] = "packed:members=4,alpha=2",
    out: Annotated[Path, Option(help="The run folder")] = Path("runs/train"),
    resume: Annotated[bool, Option(help="Resume an interrupted run in that folder, or refuse to")] = True,
    devices: Annotated[int, Option(help="Processes on this machine; not needed under torchrun")] = 1,
    nodes: Annotated[int, Option(help="Machines")] = 1,
    accelerator: Annotated[str, Option(help="cpu, cuda, mps, or auto")] = "auto",
    checkpoint_seconds: Annotated[float, Option(help="The longest time between checkpoints")] = 60.0,
    tensorboard: Annotated[bool, Option("--tensorboard", help="Also write TensorBoard files.")] = False,
    find_lr: Annotated[bool, Option("--find-lr", help="Find a learning rate first, and train with it")] = False,
    temperature: Annotated[
        bool, Option("--temperature", help="Calibrate: fit a temperature on the validation set, used by predict")
    ] = False,
    threads: Annotated[int | None, Option(help="Threads; bit-identical results need the same number")] = None,
    as_json: Json = False,
) -> None:
    """Train one ensemble and write it to a run folder; the same command resumes an interrupted run.

    Example: multum train --data digits --method deep:members=4 --out runs/deep epochs=20
    """
    options = without(locals(), "settings", "as_json")
    from ..runs import train as training
    from ..training.devices import is_first

    with stoppable():
        trained = training.train(**options, overrides=assignments(settings or []), progress=watched(as_json))
    if is_first():
        print_json(trained) if as_json else print(training.summary(trained, out))


def evaluate(
    run: RunFolder,
    data: Annotated[str | None, Option(help="Other data to evaluate on; by default the run's own test set")] = None,
    ood: Annotated[list[str] | None, Option(help="An OOD data set; repeat for more")] = None,
    shift: Annotated[
        bool, Option("--shift", help="Also evaluate under the 15 corruptions of CIFAR-C, 5 severities each")
    ] = False,
    speed: Annotated[bool, Option("--speed", help="Also time predictions and measure memory")] = False,
    cost_ratio: Annotated[
        float | None, Option(help="For two classes: the cost of a missed positive, in false alarms")
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a trained ensemble: accuracy, calibration, uncertainty and cost.

    Example: multum evaluate runs/deep --ood mnist --ood kmnist

    Example: multum evaluate runs/churn --data csv:churn-2025.csv#target=left
    """
    from ..runs.evaluate import evaluate_run, tables

    options: dict[str, Any] = {"data": data, "shift": shift, "speed": speed, "cost_ratio": cost_ratio}
    numbers = evaluate_run(run, ood or [], **options, progress=watched(as_json))
    print_json(numbers) if as_json else show(*tables(numbers))


def predict(
    run: Annotated[Path, Argument(help="A run folder, a saved model (.safetensors), or an exported one (.onnx)")],
    file: Annotated[
        Path,
        Argument(help="A csv or parquet table, an npz or npy array, an image, or a folder of images; - for stdin"),
    ],
    out: Annotated[Path | None, Option(help="Write a .csv, .json or .parquet file instead of a table")] = None,
    coverage: Coverage = None,
    risk: Risk = None,
    conformal: Conformal = None,
    threshold: Threshold = None,
    temperature: Annotated[bool, Option("--temperature", help="Calibrate first, on the validation set")] = False,
    probabilities: Annotated[
        bool | None, Option(help="One column per class; by default in files and JSON, not in the printed table")
    ] = None,
    members: Annotated[bool, Option("--members", help="Also the answers of every member")] = False,
    as_json: Json = False,
) -> None:
    """Predict every row of a file: label, probabilities, uncertainty and abstention.

    The run folder is all it takes: thresholds and temperatures are fitted on what the run held out; an exported model
    has them inside. Rows are written as they are predicted, so that a file may be larger than the memory.

    Example: multum predict runs/deep new.csv --coverage 0.9 --out answers.csv

    Example: multum predict runs/deep new.csv --conformal 0.9 --members --out answers.parquet
    """
    options = without(locals(), "run", "file", "out", "as_json")
    from ..exporting.predicting import predict_frames
    from ..runs import predict as prediction

    if probabilities is None:
        options["probabilities"] = as_json or out is not None
    frames = predict_frames(run, file, **options, progress=watched(as_json))
    if out is not None:
        show(f"{prediction.write(frames, out)}; written: {out}", wrap=False, stderr=as_json)
    elif as_json:
        prediction.print_rows(frames, sys.stdout)
    else:
        show(prediction.table(frames))
