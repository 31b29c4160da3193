"""The command line and the public names, from the code."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import multum

__all__ = ["command_line", "errors", "names"]

DOCS = Path(__file__).parents[1]


def command_line() -> str:
    """Every command with its arguments and options, as Markdown."""
    import typer

    from multum import cli

    group: Any = typer.main.get_command(cli.app)
    parts = []
    for name, command in group.commands.items():
        parts.append(f"## multum {name}\n\n{_paragraphs(command.help or '')}\n")
        parts.append("| Argument or option | Default | Meaning |\n|---|---|---|")
        for p in command.params:
            if p.name == "help":
                continue
            flags = " / ".join(f"`{flag}`" for flag in [*p.opts, *p.secondary_opts])
            words = flags if p.param_type_name == "option" else f"`{p.name}`"
            default = p.default() if callable(p.default) else p.default
            shown = "" if default in (None, False, ()) or p.required else f"`{default}`"
            parts.append(f"| {words} | {shown} | {(p.help or '').replace('|', chr(92) + '|')} |")
        parts.append("")
    return "\n".join(parts)


def _paragraphs(help_text: str) -> str:
    """Help as Markdown: examples become blocks of code."""
    parts = []
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        line = " ".join(paragraph.split())
        parts.append(f"```sh\n{line.removeprefix('Example: ')}\n```" if line.startswith("Example: ") else line)
    return "\n\n".join(parts)


def names() -> str:
    """A line for every public name, as Markdown."""
    lines = ["| Name | Description |", "|---|---|"]
    for name in multum.__all__:
        value = getattr(multum, name)
        if name != "__version__":
            first = (inspect.getdoc(value) or "").partition("\n")[0]
            target = f"[`{name}`](#multum.{name})" if not inspect.ismodule(value) else f"`{name}`"
            if name.lower() in multum.methods.METHODS:
                target = f"[`{name}`](../methods/{name.lower()}.md)"
                first = inspect.getdoc(inspect.getmodule(value)).partition("\n")[0]  # type: ignore[union-attr]
            lines.append(f"| {target} | {first.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def documented() -> str:
    """Every public name that is no module and no method, which has a page, for mkdocstrings."""
    elsewhere = {"__version__", *(kind.__name__ for kind in multum.methods.METHODS.values())}
    shown = [n for n in multum.__all__ if n not in elsewhere and not inspect.ismodule(getattr(multum, n))]
    return "\n\n".join(f"::: multum.{name}" for name in shown)


def errors() -> str:
    """Every error as `multum errors` explains it, with the page that has more, as Markdown."""
    from multum.errors import PAGES

    parts = []
    for name, page in PAGES.items():
        title = (DOCS / f"{page}.md").read_text().partition("\n")[0].removeprefix("# ")
        explained = inspect.getdoc(getattr(multum.errors, name))
        parts.append(f"## {name}\n\n{explained}\n\nSee also: [{title}](../{page}.md).\n")
    return "\n".join(parts)
