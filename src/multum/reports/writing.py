"""The files of a report, each whole or not there at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ..figures.figure import png, svg
from ..files import dumps, explained, plain, write_bytes
from .charts import CHARTS, figures
from .markdown import markdown
from .page import page


def write(document: Mapping[str, Any], out: str | os.PathLike) -> list[Path]:
    """Write report.html, report.json, report.md and figures/*.png and *.svg into a folder.

    The same document gives the same bytes. Figures of an earlier report that this one has no data for are removed.

    Args:
        document: the comparison.
        out: the folder; it is created where it does not exist.
    """
    document, out = plain(document), Path(out)
    drawn = figures(document)
    files: dict[str, bytes] = {"report.json": (dumps(document) + "\n").encode()}
    drawings = {}
    for figure in drawn:
        drawing = figure.plot()
        drawings[figure.name] = svg(drawing)
        files[f"figures/{figure.name}.svg"] = drawings[figure.name].encode()
        files[f"figures/{figure.name}.png"] = png(drawing)
    files["report.md"] = markdown(document, drawn).encode()
    files["report.html"] = page(document, drawn, drawings).encode()
    with explained(f"{out}, the folder of a report, must be writable", "Use another folder", ConfigError):
        (out / "figures").mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            write_bytes(out / name, content)
        for name in CHARTS.keys() - drawings.keys():
            for kind in ("png", "svg"):
                (out / "figures" / f"{name}.{kind}").unlink(missing_ok=True)
    return [out / name for name in files]
