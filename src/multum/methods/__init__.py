"""Every method, by the name that the command line and saved files use."""

from __future__ import annotations

from .base import Method
from .deep import Deep
from .packed import Packed
from .single import Single

__all__ = ["METHODS", "Deep", "Method", "Packed", "Single"]

METHODS: dict[str, type[Method]] = {cls.__name__.lower(): cls for cls in (Deep, Packed, Single)}
