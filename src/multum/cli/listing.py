"""What there is: `multum methods` and `multum errors`."""

from __future__ import annotations

import inspect
from typing import Annotated

from typer import Argument

from .. import errors as kinds
from .options import Json
from .output import print_json, show


def methods(
    as_json: Json = False,
) -> None:
    """List all methods and their fields.

    Example: multum methods
    """
    from ..figures.formats import text_table
    from ..methods import catalogue

    if as_json:
        print_json(catalogue())
        return
    rows = [
        [e["name"], e["summary"], "\n".join(f"{f['name']}={f['default']}  {f['comment']}" for f in e["fields"])]
        for e in catalogue()
    ]
    show(text_table(["name", "what it is", "fields"], rows, row_lines=True))


def errors(
    name: Annotated[str | None, Argument(help="An error, as DataError; all of them by default")] = None,
) -> None:
    """Explain an error: what it means, its common causes and what to do.

    Example: multum errors DataError
    """
    if name is not None and name not in kinds.PAGES:
        suggestion = kinds.did_you_mean(name, kinds.PAGES)
        raise kinds.ConfigError(f"the name must be one of multum's errors; got {name!r}. {suggestion}")
    for each in kinds.PAGES if name is None else [name]:
        paragraphs = (inspect.getdoc(getattr(kinds, each)) or "").split("\n\n")
        show(each, *(" ".join(paragraph.split()) for paragraph in paragraphs), "")
