"""Numbers of a table as normal ones, by their quantiles: no value is far out, however long a column's tail is.

    prepared = Phi^-1(F(x)),    F the distribution function of the column in the training part

It is scikit-learn's `QuantileTransformer` with a normal outcome, fitted with as many quantiles as TabM's authors take;
what it computes is computed here on tensors, so that a batch on any device is scaled as a table is. One thing differs:
a value that many rows share, such as 0, gets the middle of its levels also where it is the least or the largest, as
with the noise that others add for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

__all__ = ["Scaling", "fit_scaling"]

MOST_QUANTILES, FEWEST_QUANTILES = 1000, 10
ROWS_PER_QUANTILE = 30
LOOKED_AT = 200_000  # rows that stand for all where there are more
EDGE = 1e-7  # nearest that a share comes to 0 or 1, as in scikit-learn: 5.2 standard deviations


@dataclass(frozen=True, eq=False)
class Scaling:
    """Which columns are scaled, and their quantiles. Shape: `quantiles` [columns, levels], float64, ascending."""

    columns: tuple[int, ...]
    quantiles: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Raw rows with these columns scaled, the others as they are. Shape: [..., all columns], kept."""
        quantiles = self.quantiles.to(x.device)
        where = torch.tensor(self.columns, device=x.device)
        values = x.index_select(-1, where).double().movedim(-1, 0)
        flat = values.reshape(len(self.columns), -1).contiguous()
        # A value that stands for many quantiles gets the middle of their levels: from below and from above.
        share = (_share(quantiles, flat) + 1 - _share(-quantiles.flip(1), -flat)) / 2
        normal = torch.special.ndtri(share.clamp(EDGE, 1 - EDGE)).view(values.shape).movedim(0, -1)
        return x.double().index_copy(-1, where, normal)

    def as_dict(self) -> dict[str, Any]:
        """In plain values, to the bit."""
        return {"columns": list(self.columns), "quantiles": self.quantiles.tolist()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scaling:
        """What `as_dict` gave."""
        return cls(tuple(values["columns"]), torch.tensor(values["quantiles"], dtype=torch.float64))


def _share(quantiles: Tensor, x: Tensor) -> Tensor:
    """The level of each value, linear between quantiles. Shape: [columns, levels], [columns, n] -> [columns, n]."""
    levels = quantiles.shape[1]
    right = torch.searchsorted(quantiles, x, right=True).clamp(1, levels - 1)
    low, high = quantiles.gather(1, right - 1), quantiles.gather(1, right)
    part = torch.where(high > low, (x - low) / (high - low), (x >= high).double()).clamp(0, 1)
    return (right - 1 + part) / (levels - 1)


def fit_scaling(x: Any, numbers: list[int]) -> Scaling | None:
    """The quantiles of a training part's numbers; None where there are none, or too few rows to tell."""
    rows = len(x)
    if not numbers or rows < FEWEST_QUANTILES * ROWS_PER_QUANTILE:
        return None
    from sklearn.preprocessing import QuantileTransformer

    chosen = torch.arange(rows)
    if rows > LOOKED_AT:
        chosen = torch.randperm(rows, generator=torch.Generator().manual_seed(0))[:LOOKED_AT].sort().values
    values = x[chosen][:, numbers].double().numpy()
    count = max(FEWEST_QUANTILES, min(len(values) // ROWS_PER_QUANTILE, MOST_QUANTILES))
    fitted = QuantileTransformer(n_quantiles=count, output_distribution="normal", subsample=None).fit(values)
    return Scaling(tuple(numbers), torch.from_numpy(fitted.quantiles_.T.copy()).contiguous())
