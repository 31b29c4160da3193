"""Options that several commands have, each with its help text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

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
RunFolder = Annotated[Path, Argument(help="A run folder written by `multum train`")]
Jobs = Annotated[int, Option(help="Training runs at a time, each in its own process")]
On = Annotated[str, Option(help="here, or ray")]
Address = Annotated[str | None, Option(help="The address of an existing Ray cluster")]
Threads = Annotated[int | None, Option(help="Threads per training run; bit-identical results need the same number")]
Coverage = Annotated[float | None, Option(help="Abstain so that this share of examples is answered")]
Risk = Annotated[float | None, Option(help="Abstain so that at most this share of the answers is wrong")]
Conformal = Annotated[
    float | None, Option(help="Add prediction sets, or intervals, that contain the truth with this probability")
]
Threshold = Annotated[
    str | None, Option(help="For two classes: choose labels to be best for f1, balanced_accuracy or cost=20")
]
Json = Annotated[bool, Option("--json", help="Print JSON instead of tables.")]
