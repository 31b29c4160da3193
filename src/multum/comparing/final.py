"""What comes after the advice: the folder of one comparison, and the chosen method trained on everything."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..data.names import selection
from ..data.sources import load_data
from ..errors import ConfigError, FileError
from ..files import plain, read_json, write_json
from ..runs.cells import Cell, Outcome, finished

__all__ = ["claim", "class_notes", "train_final"]

log = logging.getLogger("multum")

COMPARISON = "comparison.json"
SAME = ("data", "model", "tune", "budget", "ood", "shift", "recipe")  # methods and seeds may be added to a comparison


def claim(out: Path, settings: Mapping[str, Any]) -> None:
    """Make a folder that of this comparison; refuse one that holds another: two would be mixed in one report.

    Data that has become other data under the same name is said: its cells are run anew.
    """
    now = plain(settings)
    before = _settings(out)
    changed = {name: _change(before.get(name), now[name]) for name in SAME} if before is not None else {}
    if any(changed.values()):
        words = "; ".join(f"{name} {change}" for name, change in changed.items() if change)
        raise ConfigError(
            f"a folder must hold one comparison; got {out}, which holds another: {words}. Choose another --out"
        )
    if before is not None and before.get("fingerprint") != now["fingerprint"]:
        what = "examples, their order, targets or classes are others"
        if "fingerprint" not in before:
            what = "the multum 0.1 that began it kept no fingerprint of it"
        elif before.get("examples", now["examples"]) != now["examples"]:
            what = f"{before['examples']} examples are now {now['examples']}"
        log.warning("%s may not be what %s was begun with: %s; every cell is run anew", now["data"], out, what)
    write_json(out / COMPARISON, {name: now[name] for name in (*SAME, "fingerprint", "examples")})


def train_final(
    label: str | None, cells: Sequence[Cell], data: str, out: Path, run: Callable[[list[Cell]], Mapping[str, Outcome]]
) -> dict[str, Any] | None:
    """The chosen method on all of the data as it was named, with the first seed; None where none was chosen.

    Where no classes were held out, that is the comparison's own model, which is not trained again.
    """
    if label is None:
        return None
    chosen = next(cell for cell in cells if cell.label == label)
    cell = chosen
    if chosen.data != data:
        content = load_data(data, seed=chosen.parts_seed).arrangement
        cell = replace(chosen, data=data, fingerprint=content, ood=(), shift=(), shift_examples=None)
    reason = run([cell])[cell.name].reason
    result = None if reason else finished(cell, out)
    numbers = {} if result is None else result.result["numbers"]
    return {
        "label": label,
        "seed": cell.seed,
        "data": data,
        "folder": cell.name,
        "status": "failed" if result is None else "done",
        "reason": reason,
        "numbers": {key: numbers[key] for key in ("accuracy", "rmse", "nll") if key in numbers},
    }


def class_notes(name: str, label: str | None, final: Mapping[str, Any] | None, out: Path) -> list[str]:
    """What to know of classes that were held out, and of the model that was trained on everything."""
    _, choice, held = selection(name)
    notes = []
    if choice == "hold_out":
        classes = ", ".join(held)
        notes.append(f"None of the compared models knows the classes {classes}: they were held out as OOD data.")
        if final is None and label is not None:
            notes.append(f"--final (in Python, final=True) also trains {label} on all of the data.")
    if final is not None:
        model = f"The final model, {final['label']} on all of {final['data']},"
        numbers = ", ".join(_measured(key, value) for key, value in final["numbers"].items())
        done = f"lies in {out / final['folder']} ({numbers})."
        notes.append(f"{model} {done if final['status'] == 'done' else 'failed: ' + final['reason']}")
    return notes


def _measured(key: str, value: float) -> str:
    return f"accuracy {100 * value:.1f} %" if key == "accuracy" else f"{key.upper()} {value:.4g}"


def _settings(out: Path) -> dict[str, Any] | None:
    """What the comparison in a folder was begun with; None where there is none."""
    try:
        if (out / COMPARISON).is_file():
            return read_json(out / COMPARISON)
        return read_json(out / "report.json").get("settings") if (out / "report.json").is_file() else None
    except FileError:  # a damaged file says nothing, and is written anew
        return None


def _change(before: Any, now: Any) -> str:
    """What was and what is, of fields those that differ; a field that the older multum did not have is none of them."""
    if isinstance(before, dict) and isinstance(now, dict):
        names = [name for name, value in before.items() if name in now and now[name] != value]
        return ", ".join(f"{name}={before[name]} instead of {now[name]}" for name in names)
    return "" if before == now else f"{before!r} instead of {now!r}"
