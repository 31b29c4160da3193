"""What tells examples and data sets apart: their content, not where they lie, when they were written or in what order.

an example    8 bytes of BLAKE2 over its numbers (or its file) and its target, by name where it is a class
a data set    SHA-256 over the sorted numbers of all examples, the task and the names of the classes
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .lazy import row_bytes

if TYPE_CHECKING:
    from .parts import Part


def example_ids(part: Part, class_names: Sequence[str]) -> Tensor:
    """A number per example, which another order or another split does not change. Shape: int64 [n].

    >>> from multum.data.parts import Part
    >>> x = torch.arange(6).view(3, 2)
    >>> a, b = example_ids(Part(x, torch.tensor([0, 1, 0])), "uv"), example_ids(Part(x[[2]], torch.tensor([1])), "vu")
    >>> a[2] == b[0]  # the same row of the class "u"
    tensor(True)
    """
    if part.ids is not None:
        return part.ids
    labels = not part.y.is_floating_point() and part.y.ndim == 1
    names = [f"{name}\0".encode() for name in class_names]
    targets = (names[k] for k in part.y.tolist()) if labels else row_bytes(part.y)
    contents = part.x.contents() if part.lazy else row_bytes(part.x)
    digests = (hashlib.blake2b(t + x, digest_size=8).digest() for t, x in zip(targets, contents, strict=True))
    return torch.from_numpy(np.frombuffer(b"".join(digests), np.int64).copy())


def fingerprint_of(ids: Iterable[Tensor], words: Sequence[str], *, ordered: bool = False) -> str:
    """One name for examples with these numbers, in any order or in this one, and for what else tells data apart."""
    numbers = torch.cat(list(ids))
    digest = hashlib.sha256(json.dumps(words).encode())
    digest.update((numbers if ordered else numbers.sort().values).numpy().tobytes())
    return digest.hexdigest()[:20]


def positions(wanted: Tensor, ids: Tensor) -> Tensor:
    """Where each wanted number stands among others; the k-th of equal ones at the k-th place, -1 where there is none.

    >>> positions(torch.tensor([7, 5, 7, 9]), torch.tensor([5, 7, 7, 7]))
    tensor([ 1,  0,  2, -1])
    """
    order = ids.argsort(stable=True)
    ordered = ids[order]
    # Equal numbers lie side by side: the place of the first, and how many of its like were wanted before.
    ranks = torch.empty_like(wanted)
    by_value = wanted.argsort(stable=True)
    values = wanted[by_value]
    ranks[by_value] = torch.arange(len(values)) - torch.searchsorted(values, values)
    place = torch.searchsorted(ordered, wanted) + ranks
    inside = place.clamp(max=max(len(ids) - 1, 0))
    known = (place < len(ids)) & (ordered[inside] == wanted) if len(ids) else torch.zeros_like(wanted, dtype=torch.bool)
    return torch.where(known, order[inside], -1) if len(ids) else torch.full_like(wanted, -1)
