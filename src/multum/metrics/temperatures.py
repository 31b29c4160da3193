"""One number per ensemble that makes it as sure as it is right, before ensembles are compared (Ashukha et al., 2020).

    classification   z_m / T           the temperature of every member's logits, before they are averaged
    regression       s sigma_m         one factor on every member's predicted standard deviation

Both are found by a one-dimensional search for the least sum of NLL over the examples, plus (log T)^2 / (2 PRIOR^2):
what few examples say is not taken to extremes (a validation part without a single error would ask for T = 0). Where no
examples were held out, each fold of the measured ones gets the number that the other folds ask for: no example has a
part in its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import torch
from torch import Tensor

BOUNDS = (0.01, 100.0)  # a network that is always right would ask for T = 0, random labels for T = inf
FOLDS = 5
PRIOR = 0.5  # standard deviation of log T before any example is seen: most temperatures are between 0.4 and 2.7
CELLS, LEVELS = 16, 3  # of the grids, each around the least losses of the one before
FITTED_ON = 2**21  # outputs that a number is fitted on at most, a seeded sample of the examples: half a second
MOST_SUBSETS = 20  # of one size; of more members, the windows of a circle of all

BY_VALIDATION, BY_TEST = "validation part", "cross-validation on the test part"


@dataclass(frozen=True, eq=False)
class Temperatures:
    """The fitted numbers: one for each size of ensemble, and one for each fold where examples are cross-validated.

    **Shape**: factors ``[sizes, folds]``; folds ``[examples]``, or None where one number serves all examples.
    """

    factors: Tensor
    folds: Tensor | None
    by: str

    @classmethod
    def on_held_out(
        cls, outputs: Tensor, targets: Tensor, task: str, sizes: Sequence[int], weights: Tensor | None = None
    ) -> Temperatures:
        """Fitted on examples that are not measured. Shape: as `flat` gives them; weights ``[examples]``."""
        chosen = sampled(targets.shape[0], outputs[:, :1].numel(), FITTED_ON)
        weights = None if weights is None else weights[chosen]
        return cls(_fitted(outputs[:, chosen], targets[chosen], task, sizes, None, weights), None, BY_VALIDATION)

    @classmethod
    def cross_validated(
        cls, outputs: Tensor, targets: Tensor, task: str, sizes: Sequence[int], folds: Tensor, at: Tensor | None = None
    ) -> Temperatures:
        """Fitted on the measured examples themselves, or on those of them that are `at` these places.

        **Shape**: outputs and targets as `flat` gives them; folds ``[examples]``, of all examples.
        """
        at = torch.arange(len(folds)) if at is None else at
        chosen = sampled(len(at), outputs[:, :1].numel(), FITTED_ON)
        return cls(_fitted(outputs[:, chosen], targets[chosen], task, sizes, folds[at[chosen]]), folds, BY_TEST)

    def of(self, rows: slice = slice(None)) -> Tensor:
        """The numbers of some examples, ``[sizes, examples]`` or, of one number for all, ``[sizes, 1]``."""
        return self.factors if self.folds is None else self.factors[:, self.folds[rows]]

    @property
    def temperature(self) -> float:
        """Of the whole ensemble: the last size's number, the geometric mean over examples."""
        return float(self.of()[-1].log().mean().exp())


def held_out_nll(outputs: Tensor, targets: Tensor, task: str) -> float:
    """The mean NLL on held-out examples after calibration by cross-validation among them; infinite for a diverged run.

    It is what settings are chosen by: a setting that is merely less sure of itself gains nothing.

    **Shape**: outputs ``[members, examples, classes]``, or means and variances ``[members, examples, 2, ...]`` of one
    or several targets, in the units of targets ``[examples, ...]``.

    >>> logits = torch.tensor([[[2.0, 0.0], [2.0, 0.0], [0.0, 2.0], [0.0, 2.0]]]).repeat(1, 500, 1)
    >>> labels = torch.tensor([0, 0, 0, 1]).repeat(500)  # three of four are right, so that T is 2 / log 3
    >>> round(held_out_nll(logits, labels, "classification"), 2)  # -3/4 log 3/4 - 1/4 log 1/4
    0.56
    """
    if not bool(outputs.isfinite().all()):
        return math.inf
    pairs = [(outputs, targets)]
    if task == "regression" and targets.ndim > 1:
        pairs = list(zip(outputs.unbind(3), targets.unbind(1), strict=True))
    sizes, losses = [len(outputs)], []
    for pair in pairs:
        members, truth = flat(*pair)
        temperatures = Temperatures.cross_validated(members, truth, task, sizes, fold_ids(len(truth), seed=0))
        losses.append(float(nll_of_sizes(scaled(members, truth, temperatures.of()[0], task), sizes).mean()))
    return sum(losses) / len(losses)


def flat(outputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs ``[members, batch, classes, ...]`` as ``[members, examples, classes]``; targets ``[examples]``."""
    return outputs.movedim(2, -1).flatten(1, -2), targets.flatten()


def fold_ids(examples: int, seed: int, positions: int = 1) -> Tensor:
    """The fold of every example, at random and equally full; all positions (pixels) of an example are in one fold."""
    order = torch.randperm(examples, generator=torch.Generator().manual_seed(seed))
    return (order % FOLDS).repeat_interleave(positions)


def sampled(examples: int, numbers_each: int, most: int) -> Tensor:
    """The places of all examples, or of a seeded sample that holds so many numbers at most; sorted."""
    room = max(1, most // numbers_each)
    if examples <= room:
        return torch.arange(examples)
    return torch.randperm(examples, generator=torch.Generator().manual_seed(0))[:room].sort().values


def scaled(outputs: Tensor, targets: Tensor, factor: Tensor | float, task: str) -> Tensor:
    """The log-likelihood of the targets under each member, scaled; ``[members, examples]``, float64.

    **Shape**: outputs and targets as `flat` gives them; factor ``[examples]``, ``[1]`` or a number.
    """
    factor = torch.as_tensor(factor, dtype=torch.float64, device=outputs.device)
    if task == "classification":
        log_probs = (outputs.double() / factor.unsqueeze(-1)).log_softmax(-1)
        return log_probs.gather(-1, targets.long().expand(len(outputs), -1).unsqueeze(-1)).squeeze(-1)
    means, variances = outputs.double().unbind(-1)
    variances = variances * factor.square()
    return -0.5 * (math.log(2 * math.pi) + variances.log() + (targets.double() - means).square() / variances)


def nll_of_sizes(log_likelihoods: Tensor, sizes: Sequence[int]) -> Tensor:
    """Each example's NLL under ensembles of so many of the members, the mean over subsets of that size.

    **Shape**: ``[members, examples]`` to ``[sizes, examples]``.
    """
    rows = []
    for size in sizes:
        chosen = log_likelihoods[subsets(len(log_likelihoods), size).to(log_likelihoods.device)]
        rows.append(math.log(size) - chosen.logsumexp(1).mean(0))
    return torch.stack(rows)


@lru_cache(maxsize=256)
def subsets(members: int, size: int) -> Tensor:
    """All subsets of a size where they are few, else every window of that many neighbours on a circle of the members.

    >>> subsets(3, 2).tolist(), subsets(8, 4)[-1].tolist()
    ([[0, 1], [0, 2], [1, 2]], [7, 0, 1, 2])
    """
    if math.comb(members, size) <= MOST_SUBSETS:
        return torch.tensor(list(combinations(range(members), size)))
    return (torch.arange(members).unsqueeze(1) + torch.arange(size)) % members


def _fitted(
    outputs: Tensor,
    targets: Tensor,
    task: str,
    sizes: Sequence[int],
    folds: Tensor | None,
    weights: Tensor | None = None,
) -> Tensor:
    """The number of every size and fold, ``[sizes, folds]``."""

    def values(log_factor: float) -> Tensor:
        return nll_of_sizes(scaled(outputs, targets, math.exp(log_factor), task), sizes)

    usable = values(0.0).isfinite().all(0)  # a label of probability 0 has it at every temperature

    def losses(log_factor: float) -> Tensor:
        each = values(log_factor)[:, usable]
        each = each if weights is None else each * weights[usable].to(each)
        total = each.sum(1, keepdim=True)
        if folds is not None:
            total = total - each.new_zeros(len(sizes), FOLDS).index_add_(1, folds[usable].to(each.device), each)
        return (total + log_factor**2 / (2 * PRIOR**2)).cpu()

    return _least(losses).exp()


def _least(losses: Callable[[float], Tensor]) -> Tensor:
    """Where each of several losses of log T is least: on grids, then at the vertex of the parabola of three points."""
    low, high = (math.log(bound) for bound in BOUNDS)
    for _ in range(LEVELS):
        grid = torch.linspace(low, high, CELLS + 1, dtype=torch.float64)
        table = torch.stack([losses(x) for x in grid.tolist()])
        at, cell = table.argmin(0), float(grid[1] - grid[0])
        low, high = max(low, float(grid[at].min()) - cell), min(high, float(grid[at].max()) + cell)
    inner = at.clamp(1, CELLS - 1)
    before, middle, after = (table.gather(0, (inner + step).unsqueeze(0))[0] for step in (-1, 0, 1))
    bend = before - 2 * middle + after
    shift = torch.where(bend > 0, 0.5 * (before - after) / bend, torch.zeros_like(bend)).clamp(-1, 1)
    return torch.where(at == inner, grid[inner] + cell * shift, grid[at])
