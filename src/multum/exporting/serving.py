"""Folders that other people's servers run: LitServe (Python, ONNX Runtime) and Triton. multum has no server of its own.

    litserve   model.onnx, server.py, requirements.txt, README.md     python server.py
    triton     NAME/config.pbtxt, NAME/1/model.onnx, README.md        tritonserver --model-repository FOLDER

Neither needs multum or torch.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..data.preparation import Preparation
from ..ensemble import Ensemble
from ..errors import ConfigError, check_known
from ..files import prepare_folder, write_text
from ..runs.examples import takes_image_files
from .card import write_card
from .export import export
from .onnx_file import OnnxModel

__all__ = ["SERVERS", "write"]

MOST_ROWS = 256  # of one batch in Triton
KINDS = {
    "tensor(float)": "TYPE_FP32",
    "tensor(double)": "TYPE_FP64",
    "tensor(uint8)": "TYPE_UINT8",
    "tensor(int64)": "TYPE_INT64",
    "tensor(int32)": "TYPE_INT32",
    "tensor(bool)": "TYPE_BOOL",
    "tensor(string)": "TYPE_STRING",
}


def write(
    run: Ensemble | str | Path, to: str | Path, *, serve: str | None = None, card: bool = True, **options: Any
) -> tuple[dict[str, Any], Path]:
    """Export a run or an ensemble as a file, or as a folder that a server runs; its metadata, and where the model is.

    Args:
        serve: "litserve" or "triton"; None for the file alone.
        options: as `multum.export` takes them.
    """
    to = Path(to)
    if serve is None:
        return export(run, to, card=card, **options), to
    check_known(serve, SERVERS, f"`serve` must be {' or '.join(SERVERS)}")
    if options.get("format", "onnx") != "onnx":
        raise ConfigError(f"a server must be given ONNX; got format={options['format']!r}. Leave it out")
    prepare_folder(to)
    about, model = SERVERS[serve](run, to, {**options, "format": "onnx", "card": False})
    if card and not isinstance(run, Ensemble) and Path(run).is_dir():
        write_card(run, to / "CARD.md")
    return about, model


def _litserve(run: Ensemble | str | Path, folder: Path, options: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    about = export(run, folder / "model.onnx", **options)
    write_text(folder / "server.py", Path(__file__).with_name("litserve_server.py.txt").read_text(encoding="utf-8"))
    data = about["preparation"] and Preparation.from_dict(about["preparation"])
    files = data is not None and takes_image_files(data)
    needs = ["litserve>=0.2.10", "onnxruntime>=1.18", "numpy>=1.24", *(["pillow>=9.1"] if files else [])]
    write_text(folder / "requirements.txt", "\n".join(needs) + "\n")
    taken = f"Rows are {about['reading'] or 'what the network takes'}."
    if data is not None and data.table is not None:
        taken = "A row has a value for every column; null where a cell is missing."
    taken += " The server does so with image files, as base64 text in the place of numbers." if files else ""
    write_text(folder / "README.md", LITSERVE.format(request=_request(about, files=files), taken=taken))
    return about, folder / "model.onnx"


def _request(about: Mapping[str, Any], *, files: bool) -> str:
    """A shell's command that prints a request of one row."""
    if files:  # a pipe: an argument of the command line holds no photograph
        return """(printf '{"rows": ["'; base64 < photo.jpg | tr -d '\\n'; printf '"]}')"""
    table = (about["preparation"] or {}).get("table")
    if not table:
        return """echo '{"rows": [[...]]}'"""
    row = {c["name"]: 0.0 if c["categories"] is None else c["categories"][0] for c in table["columns"]}
    return f"printf %s {shlex.quote(json.dumps({'rows': [row]}, ensure_ascii=False))}"


def _triton(run: Ensemble | str | Path, folder: Path, options: Mapping[str, Any]) -> tuple[dict[str, Any], Path]:
    name = re.sub(r"\W+", "_", folder.resolve().name) or "model"
    version = folder / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    about = export(run, version / "model.onnx", **options)
    write_text(folder / name / "config.pbtxt", _config(name, OnnxModel.open(version / "model.onnx")))
    write_text(folder / "README.md", TRITON.format(name=name, taken=about["reading"] or "what the network takes"))
    return about, version / "model.onnx"


def _config(name: str, model: OnnxModel) -> str:
    def tensor(value: Any) -> str:
        sizes = [size if isinstance(size, int) else -1 for size in value.shape[1:]]
        # Triton has no tensors of the batch alone: they are [batch, 1] outside and [batch] inside.
        dims = f"dims: {sizes}" if sizes else "dims: [1], reshape: { shape: [] }"
        return f"  {{ name: {json.dumps(value.name, ensure_ascii=False)}, data_type: {KINDS[value.type]}, {dims} }}"

    inputs, outputs = (",\n".join(map(tensor, ends)) for ends in (model.session.get_inputs(), _batched(model)))
    return (
        f'name: "{name}"\nplatform: "onnxruntime_onnx"\nmax_batch_size: {MOST_ROWS}\n'
        f"input [\n{inputs}\n]\noutput [\n{outputs}\n]\ndynamic_batching {{ max_queue_delay_microseconds: 2000 }}\n"
    )


def _batched(model: OnnxModel) -> list[Any]:
    """The outputs that have the batch first, which is all but the members' own."""
    return [value for value in model.session.get_outputs() if value.name != "members"]


SERVERS = {"litserve": _litserve, "triton": _triton}

LITSERVE = """# A model and its server

    pip install -r requirements.txt
    python server.py --port 8000

    {request} |
        curl -X POST localhost:8000/predict -H 'Content-Type: application/json' -d @-

{taken}

The answer holds one object for each row: label, probs, confidence, entropy, mutual_information (what the members
disagree about), abstain and set where they were fitted; of a regression mean, variance, low and high. Rows that cannot
be read are refused with status 422 and the reason, bodies above 32 MB with 413. CARD.md describes the model.
"""

TRITON = """# A model for Triton

    tritonserver --model-repository .

The model is `{name}`, version 1, run by Triton's ONNX Runtime backend with dynamic batching; its inputs and outputs are
listed in `{name}/config.pbtxt`. Inputs and outputs of one number for each row have the shape [batch, 1] in Triton. Rows
are {taken}. CARD.md describes the model.
"""
