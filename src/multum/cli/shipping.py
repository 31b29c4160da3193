"""A run that leaves the project: `multum export` and `card`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from .options import Conformal, Coverage, Json, Risk, RunFolder, Threshold
from .output import print_json, show, without


def export(
    run: Annotated[Path, Argument(help="A run folder written by `multum train`, or a saved model")],
    to: Annotated[Path, Option(help="The file to write: .onnx, or .pt2 for torch.export; with --serve a folder")],
    serve: Annotated[str | None, Option(help="litserve or triton: write a folder that this server runs")] = None,
    format: Annotated[str | None, Option(help="onnx or torch; by default from the ending of --to")] = None,
    members: Annotated[int | None, Option(help="Use only the first N members")] = None,
    each_member: Annotated[bool, Option("--each-member", help="Also output the answers of every member")] = False,
    level: Annotated[float, Option(help="The level of the intervals of a regression")] = 0.95,
    coverage: Coverage = None,
    risk: Risk = None,
    conformal: Conformal = None,
    threshold: Threshold = None,
    temperature: Annotated[
        bool | None, Option(help="Calibrate on the validation set; by default if training did")
    ] = None,
    card: Annotated[bool, Option(help="Also write a model card (.md) next to it")] = True,
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
    from ..exporting import describing, serving

    metadata, path = serving.write(run, to, **options)
    print_json(metadata) if as_json else show(describing.summary(metadata, path), wrap=False)


def card(
    run: RunFolder,
    to: Annotated[Path | None, Option(help="The folder to write to, or a .md file; by default the run folder")] = None,
    push: Annotated[
        str | None, Option(help="A repository on the Hugging Face hub, such as me/churn, to push card and model to")
    ] = None,
    private: Annotated[bool, Option("--private", help="With --push: create a private repository")] = False,
) -> None:
    """Write a model card: README.md in the format of the Hugging Face hub, with data, cost, metrics and a figure.

    With --push nothing is written locally: the card and all that predicting needs become one commit on the hub.

    Example: multum card runs/churn

    Example: multum card runs/churn --push me/churn --private
    """
    if push is not None:
        from ..exporting.hub import push_to_hub

        show(f"pushed: {push_to_hub(run, push, private=private)}", wrap=False)
        return
    from ..exporting.card import write_card

    show(f"written: {write_card(run, to)}", wrap=False)
