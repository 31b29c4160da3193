"""Operations that ONNX has no word for, in operations that it has.

searchsorted   bisection: as many steps as the logarithm of the table's length
ndtri          Wichura's AS 241 (Applied Statistics 37, 1988), to 1e-16
ndtr           by the error function in float32, the only precision that ONNX Runtime has it in
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import ExportError

__all__ = ["DECOMPOSITIONS", "ndtr", "ndtri", "searchsorted"]

# Numerators and denominators of AS 241 from the constant term up: the middle, the tails, the far tails.
_MIDDLE = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3, 2.1213794301586595867e4,
     3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_TAIL = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1, 1.48103976427480074590e-1,
     1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
_FAR = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0, 2.96560571828504891230e-1,
     2.65321895265761230930e-2, 1.24266094738807843860e-3, 2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2, 7.86869131145613259100e-4,
     1.84631831751005468180e-5, 1.42151175831644588870e-7, 2.04426310338993978564e-15),
)  # fmt: skip


def ndtri(p: Tensor) -> Tensor:
    """The quantile of the standard normal distribution, in float64 inside.

    >>> ndtri(torch.tensor([0.5, 0.975], dtype=torch.float64))
    tensor([0.0000, 1.9600], dtype=torch.float64)
    """
    q = p.double() - 0.5
    middle = q * _ratio(_MIDDLE, 0.180625 - q * q)
    r = (-torch.minimum(p.double(), 1 - p.double()).log()).sqrt()
    tail = torch.where(r <= 5, _ratio(_TAIL, r - 1.6), _ratio(_FAR, r - 5.0))
    return torch.where(q.abs() <= 0.425, middle, torch.where(q < 0, -tail, tail)).to(p.dtype)


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], r: Tensor) -> Tensor:
    above, below = (_polynomial(each, r) for each in coefficients)
    return above / below


def _polynomial(coefficients: tuple[float, ...], r: Tensor) -> Tensor:
    value = torch.full_like(r, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        value = value * r + coefficient
    return value


def ndtr(x: Tensor) -> Tensor:
    """The distribution function of the standard normal distribution, to 1e-7.

    >>> ndtr(torch.tensor([0.0, 1.96]))
    tensor([0.5000, 0.9750])
    """
    return (0.5 * (1 + torch.erf((x * math.sqrt(0.5)).float()))).to(x.dtype)


def searchsorted(
    sorted_sequence: Tensor,
    values: Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """How many numbers of an ascending row come before each value.

    **Shape**: sorted_sequence ``[levels]`` or ``[..., levels]``, values ``[..., n]`` to ``[..., n]``.

    >>> searchsorted(torch.tensor([1.0, 2.0, 2.0, 3.0]), torch.tensor([0.0, 2.0, 9.0]), right=True)
    tensor([0, 3, 4])
    """
    if sorter is not None:
        raise ExportError("torch.searchsorted must be without a sorter to be exported to ONNX")
    levels = sorted_sequence.shape[-1]
    table = sorted_sequence if sorted_sequence.ndim > 1 else sorted_sequence.expand(*values.shape[:-1], levels)
    count = torch.zeros_like(values, dtype=torch.int64)
    step = 1 << (levels.bit_length() - 1)
    while step:
        ahead = count + step
        at = table.gather(-1, (ahead - 1).clamp(max=levels - 1))
        before = at <= values if right or side == "right" else at < values
        count = torch.where(before & (ahead <= levels), ahead, count)
        step //= 2
    return count.int() if out_int32 else count


DECOMPOSITIONS: dict[Callable[..., Any], Callable[..., Any]] = {
    torch.searchsorted: searchsorted,
    torch.special.ndtr: ndtr,
    torch.special.ndtri: ndtri,
}
