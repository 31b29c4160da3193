"""Blocks of code that are run: those of one `session` share their names and a folder, as a reader who follows would."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from markdown_exec import formatter, validator

__all__ = ["run", "validator"]


def run(source: str, language: str, css_class: str, options: dict[str, Any], md: Any, **rest: Any) -> str:
    """markdown-exec's own formatter, in the folder of the session."""
    folder = Path(os.environ["MULTUM_DOCS"]) / (options.get("session") or "pages")
    folder.mkdir(parents=True, exist_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        return formatter(source, language, css_class, options, md, **rest)
    finally:
        os.chdir(before)
