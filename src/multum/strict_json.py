"""JSON that every reader takes: NaN and infinity, which JSON does not have, become null."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["dumps", "plain"]


def plain(value: Any) -> Any:
    """The value in dicts, lists, strings and finite numbers.

    >>> plain({"nll": float("nan"), "at": (1, 2.5)})
    {'nll': None, 'at': [1, 2.5]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def dumps(value: Any) -> str:
    """The value as indented JSON text.

    >>> dumps([float("inf")])
    '[\\n  null\\n]'
    """
    return json.dumps(plain(value), indent=2, allow_nan=False)
