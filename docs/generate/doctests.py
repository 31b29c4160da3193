"""Examples of docstrings are blocks of code on the site."""

from __future__ import annotations

import re
from typing import Any

import griffe

__all__ = ["Doctests"]


class Doctests(griffe.Extension):
    """Puts fences around what begins with >>>, to the next empty line."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            fenced = re.sub(r"(?m)^>>> (?:.*\n?)*?(?=\n\s*\n|\Z)", r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = fenced
