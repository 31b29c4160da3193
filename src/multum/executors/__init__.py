"""How the members are run: one after another (the reference) or at once. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Collection

from .base import Executor
from .grouped import Grouped
from .loop import Loop
from .vmap import Vmap

__all__ = ["EXECUTORS", "REFERENCE", "Executor", "default"]

EXECUTORS: dict[str, Executor] = {
    Loop.name: Loop(),
    Vmap.name: Vmap(),
    Grouped.name: Grouped(),
}
REFERENCE = Loop.name  # runs every network; the others are held to it


def default(device: str, training: bool, trunk: bool, refused: Collection[str] = ()) -> str:
    """The executor for a device type and mode: a fixed table, so that a reloaded ensemble gives the same bits.

    Args:
        trunk: whether some weighted layer is computed once for all members.
        refused: names of the executors that cannot run the network.
    """
    able = (name for name in EXECUTORS if name not in refused)
    return next((name for name in able if EXECUTORS[name].suits(device, training, trunk)), REFERENCE)
