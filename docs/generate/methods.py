"""What a method's page says about it, from the registry and from the method's own file."""

from __future__ import annotations

import inspect
import re
from functools import cache

import torch

import multum
from multum.methods import METHODS, catalogue

from .drawings import grown

__all__ = ["about", "costs", "fields", "table"]

BASE = "resnet18"


def _doc(name: str) -> str:
    return inspect.getdoc(inspect.getmodule(METHODS[name])) or ""


def about(name: str) -> str:
    """Paper, equation and shape, as the method's file has them; its first paragraph is the page's own."""
    lines = _doc(name).partition("\n\n")[2].splitlines()
    words = "\n".join(line if line.startswith("    ") else _cell(line) for line in lines)
    return re.sub(r"docs/(results/[\w/-]+\.md)", r"[our results](../\1)", words)


def fields(name: str) -> str:
    """The fields of a method, as Markdown."""
    entry = next(entry for entry in catalogue() if entry["name"] == name)
    lines = ["| Field | Default | Meaning |", "|---|---|---|"]
    for f in entry["fields"]:
        default = "+".join(map(str, f["default"])) if isinstance(f["default"], list) else f["default"]
        shown = f"`{default}`" if default != "" else "none"
        lines.append(f"| `{f['name']}` | {shown} | {_cell(f['comment'])} |")
    return "\n".join(lines)


def _cell(words: str) -> str:
    """Words in which Markdown finds nothing but code."""
    parts = words.split("`")
    return "`".join(part if i % 2 else re.sub(r"([*_|])", r"\\\1", part) for i, part in enumerate(parts))


@cache
def _count(name: str) -> tuple[int, int, int]:
    method = METHODS[name]()
    x = torch.zeros(1, 3, 32, 32)
    ens = grown(multum.models.build(BASE, classes=10), method, x)
    cost = multum.cost(ens, example=x)
    return ens.members, cost.params, cost.macs


def costs(*names: str) -> str:
    """Members, parameters and mult-adds with the default fields, counted on one network, as Markdown."""
    _, params, macs = _count("single")
    lines = ["| Method | Members | Parameters | Mult-adds per prediction |", "|---|---:|---:|---:|"]
    for name in names or METHODS:
        members, own_params, own_macs = _count(name)
        lines.append(
            f"| `{METHODS[name].__name__}()` | {members} | {own_params:,} ({own_params / params:.2f}x) "
            f"| {own_macs / 1e6:,.0f} M ({own_macs / macs:.2f}x) |"
        )
    return "\n".join(
        [*lines, "", f"Counted by `multum.cost` on `{BASE}` with 3x32x32 images, 10 classes and default fields."]
    )


def table() -> str:
    """Every method of the registry with its first sentence, as Markdown."""
    lines = ["| Method | Idea |", "|---|---|"]
    for entry in catalogue():
        page = f"{entry['name']}.md"
        lines.append(f"| [{entry['class']}]({page}) | {entry['summary'].partition(': ')[2].rstrip('.')} |")
    return "\n".join(lines)
