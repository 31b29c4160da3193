"""What an ensemble says about numbers: the mixture of Gaussians p(x) = 1/M sum_m N(mu_m(x), sigma_m^2(x)).

A regression network has two outputs for each of T targets, T means and then T raw variances; or one, the mean alone.
One-output ensembles hold ``noise`` in their ``state``, sigma^2 of each target: one constant for all examples, 0 until
training has fitted it. That it is there tells the two kinds apart, and both its length and half the width are T.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import ConfigError

MIN_VARIANCE = 1e-6
STEPS = 1000  # of the search for the noise, at most; each makes the targets likelier


def at_least_float32(tensor: Tensor) -> Tensor:
    """float16 and bfloat16 as float32, which logarithms and sums over members need; all others as they are.

    >>> at_least_float32(torch.zeros(2, dtype=torch.float16)).dtype
    torch.float32
    """
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def check_stacked(outputs: Tensor, law: str) -> None:
    """Refuse outputs without members, of too few axes, or that are no floating point numbers."""
    if outputs.ndim < 3 or outputs.shape[0] == 0:
        raise ConfigError(
            f"an ensemble's outputs must be {law} with at least one member; got shape {list(outputs.shape)}. "
            "For one network's outputs use outputs.unsqueeze(0)"
        )
    if not outputs.is_floating_point():
        raise ConfigError(
            f"an ensemble's outputs must be floating point; got {outputs.dtype}. Pass the network's outputs, not labels"
        )


@dataclass(frozen=True, eq=False, repr=False)
class RegressionPrediction:
    """The mixture of M Gaussians, p = 1/M sum_m N(mu_m, sigma_m^2), in full precision and computed when asked for.

    **Shape**: members ``[members, batch, 2, ...]`` = (mean, variance), variances positive; several targets are the next
    axis. Pairs in other units (standardised targets, say) can be given directly; :meth:`from_outputs` takes what a
    network puts out.

    >>> prediction = RegressionPrediction(torch.tensor([[[1.0, 0.5]], [[3.0, 1.5]]]))
    >>> prediction.mean, prediction.aleatoric, prediction.epistemic, prediction.variance
    (tensor([2.]), tensor([1.]), tensor([1.]), tensor([2.]))
    """

    members: Tensor  # (mu, sigma^2), [members, batch, 2, ...]

    @classmethod
    def from_outputs(cls, outputs: Tensor, noise: Tensor | None = None) -> RegressionPrediction:
        """A prediction from a network's outputs: (mu, raw) with sigma^2 = softplus(raw) + 1e-6, or mu and the noise.

        **Shape**: outputs ``[members, batch, 2 targets, ...]``, or ``[members, batch, targets, ...]`` with noise
        ``[targets]``; half precision becomes float32. Several targets come last but for further axes.

        >>> RegressionPrediction.from_outputs(torch.zeros(4, 32, 2))
        RegressionPrediction(members=4, batch=32)
        >>> RegressionPrediction.from_outputs(torch.zeros(4, 32, 1), noise=torch.tensor([0.25])).variance[:2]
        tensor([0.2500, 0.2500])
        """
        return cls(torch.stack(mean_and_variance(outputs, noise), dim=2))

    @cached_property
    def mean(self) -> Tensor:
        """1/M sum_m mu_m, ``[batch, ...]``."""
        return self.members.select(2, 0).mean(0)

    @cached_property
    def aleatoric(self) -> Tensor:
        """1/M sum_m sigma_m^2, the noise the members see in the data, ``[batch, ...]``."""
        return self.members.select(2, 1).mean(0)

    @cached_property
    def epistemic(self) -> Tensor:
        """1/M sum_m (mu_m - mean)^2, the members' disagreement, ``[batch, ...]``; 0 for one member."""
        return (self.members.select(2, 0) - self.mean).square().mean(0)

    @cached_property
    def variance(self) -> Tensor:
        """The mixture's variance, ``[batch, ...]``: aleatoric + epistemic."""
        # Equal to mean(sigma^2 + mu^2) - mean(mu)^2 (METHODS 1.16), which cancels when the means are large.
        return self.aleatoric + self.epistemic

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """The central interval of the mixture, not of one Gaussian with its moments: (1 - level) / 2 on each side.

        Exact: bisection on 1/M sum_m Phi((x - mu_m) / sigma_m) in float64, whatever the precision of the members.

        **Shape**: (low, high), each ``[batch, ...]``, float64.

        >>> far_apart = RegressionPrediction(torch.tensor([[[-9.0, 1.0]], [[9.0, 1.0]]]))
        >>> far_apart.interval(0.9)
        (tensor([-10.2816], dtype=torch.float64), tensor([10.2816], dtype=torch.float64))
        """
        if not 0 < level < 1:
            raise ConfigError(f"level must satisfy 0 < level < 1; got level={level}. For 95 % write 0.95")
        if level not in self._intervals:
            means, variances = self.members.double().unbind(2)
            # The upper end is the lower end of the mirrored mixture: Phi is precise in its lower tail only.
            both = _lower_quantile(torch.stack([means, -means], 1), variances.sqrt().unsqueeze(1), (1 - level) / 2)
            self._intervals[level] = both[0], -both[1]
        return self._intervals[level]

    @cached_property
    def _intervals(self) -> dict[float, tuple[Tensor, Tensor]]:
        return {}

    def to(self, device: torch.device | str) -> RegressionPrediction:
        """The same prediction on another device."""
        return RegressionPrediction(self.members.to(device))

    def __len__(self) -> int:
        return self.members.shape[1]

    def __repr__(self) -> str:
        members, batch = self.members.shape[:2]
        return f"RegressionPrediction(members={members}, batch={batch})"


def mean_and_variance(outputs: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """A regression network's outputs (mu, raw) as (mu, sigma^2), sigma^2 = softplus(raw) + 1e-6; or mu and the noise.

    **Shape**: ``[members, batch, 2, ...]`` to two of ``[members, batch, ...]``; of T targets ``[.., 2 T, ...]`` to two
    of ``[.., T, ...]``. With noise ``[T]``, outputs ``[.., T, ...]``. Half precision becomes float32.

    >>> mean, variance = mean_and_variance(torch.tensor([[[3.0, -200.0]]]))
    >>> mean.item(), f"{variance.item():.0e}"
    (3.0, '1e-06')
    """
    check_stacked(outputs, "[members, batch, outputs, ...]")
    width, full = outputs.shape[2], at_least_float32(outputs)
    if noise is not None:
        if len(noise) != width:
            raise ConfigError(
                f"a network of one output per target must have {len(noise)} on axis 2; got shape {list(outputs.shape)}"
            )
        variance = noise.clamp_min(MIN_VARIANCE).to(full).view(-1, *[1] * (full.ndim - 3)).expand_as(full)
        return (full, variance) if width > 1 else (full.squeeze(2), variance.squeeze(2))
    if width == 0 or width % 2:
        raise ConfigError(
            "a regression network must have 2 outputs on axis 2 for each target, its mean and its raw variance; got "
            f"shape {list(outputs.shape)}. Give its last layer two outputs per target"
        )
    mean, raw = full.unbind(2) if width == 2 else full.chunk(2, dim=2)
    return mean, F.softplus(raw) + MIN_VARIANCE


def fit_noise(means: Tensor, targets: Tensor) -> Tensor:
    """The constant variance of each target that makes the targets likeliest: sigma^2 of 1/M sum_m N(mu_m, sigma^2).

    For one member it is the mean squared residual; members that disagree explain a part of the residuals themselves, so
    that less is left for the noise. Found by expectation maximisation, from the mean of all squares downwards.

    **Shape**: means ``[members, examples, targets]``, targets ``[examples, targets]`` to ``[targets]``, float64.

    >>> fit_noise(torch.tensor([[[0.0], [0.0]]]), torch.tensor([[1.0], [-3.0]]))
    tensor([5.], dtype=torch.float64)
    """
    squares = (targets.double() - means.double()).square()
    noise = squares.mean((0, 1)).clamp_min(MIN_VARIANCE)
    for _ in range(STEPS):
        likely = (-0.5 * squares / noise).softmax(0)
        step = (likely * squares).sum(0).mean(0).clamp_min(MIN_VARIANCE)
        if bool(((step - noise).abs() <= 1e-10 * noise).all()):
            break
        noise = step
    return noise


def _lower_quantile(means: Tensor, stds: Tensor, tail: float) -> Tensor:
    """The x with 1/M sum_m Phi((x - mu_m) / sigma_m) = tail, ``[batch, ...]``."""
    # The mixture's quantile lies between its components' own: one member needs no search, and no bracket is guessed.
    components = means + NormalDist().inv_cdf(tail) * stds
    low, high = components.amin(0), components.amax(0)
    # 64 halvings leave 2^-64 of the bracket, below float64's resolution. A graph, which holds every step, gets 5 of 64
    # parts each: 2^-30.
    parts, steps = (64, 5) if torch.compiler.is_exporting() else (2, 64)
    shares = torch.arange(1, parts, dtype=means.dtype, device=means.device).view(-1, *[1] * low.ndim) / parts
    for _ in range(steps):
        cuts = low + (high - low) * shares
        below = (torch.special.ndtr((cuts.unsqueeze(1) - means) / stds).mean(1) < tail).sum(0, keepdim=True)
        ends = torch.cat([low.unsqueeze(0), cuts, high.unsqueeze(0)])
        low, high = (ends.gather(0, place).squeeze(0) for place in (below, below + 1))
    return high
