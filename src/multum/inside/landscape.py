"""Between the members: accuracy and loss along the line through two of them, and on the plane through three.

    line    w(t) = (1 - t) w_1 + t w_2
    plane   w = c_0 w_0 + c_1 w_1 + c_2 w_2 with c_0 + c_1 + c_2 = 1, in orthonormal coordinates x, y

w is what a member owns; what the members share stays. So one mechanism serves every method: all weights of Deep and
Packed, coefficients of Mixture and embeddings of Hypernet (whose weights are linear in both), heads of Multihead. A
member of Mimo owns its block of the first and of the last layer; it is run alone, the other inputs silent (zero).

Statistics of batch norm mean nothing between members (MixtureEnsembles, 5.3): every point normalises by its batches, or
by statistics computed anew from training examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..data import Data
from ..errors import ConfigError
from .between import Members, choose_examples, coordinates, corners_of, run_points

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Interpolation:
    """Accuracy and loss on the line from one member (t = 0) to another (t = 1).

    **Shape**: t, loss and accuracy ``[steps]``, float64; accuracy is None for regression.
    """

    members: tuple[int | str, int | str]
    t: Tensor
    loss: Tensor  # NLL in nats, mean over examples; of regression in the target's units
    accuracy: Tensor | None
    examples: int

    @property
    def barrier(self) -> float:
        """How far the loss rises above the straight line between its ends: 0 where both lie in one basin."""
        straight = self.loss[0] + self.t * (self.loss[-1] - self.loss[0])
        return float((self.loss - straight).amax())

    def frame(self) -> pd.DataFrame:
        """One row per step: t, accuracy (of classification), loss."""
        return _frame({"t": self.t, "accuracy": self.accuracy, "loss": self.loss})


@dataclass(frozen=True, eq=False)
class Plane:
    """Accuracy and loss on the plane through three members.

    Coordinates are distances between weights: the first member is at (0, 0), the second on the x axis.

    **Shape**: x and y ``[points]``; accuracy and loss ``[points, points]``, y first; corners ``[3, 2]``; float64.
    """

    members: tuple[int | str, ...]
    x: Tensor
    y: Tensor
    loss: Tensor
    accuracy: Tensor | None
    disagreement: Tensor | None  # with each corner: share of examples of another predicted class, [3, points, points]
    corners: Tensor
    origin: Tensor  # the foot of the weights' origin on the plane, [2]
    origin_distance: float  # from there to the origin itself, 0 where the plane contains it
    examples: int

    def frame(self) -> pd.DataFrame:
        """One row per point: x, y, accuracy, loss, and the disagreement with each corner."""
        y, x = torch.meshgrid(self.y, self.x, indexing="ij")
        columns: dict[str, Tensor | None] = {"x": x, "y": y, "accuracy": self.accuracy, "loss": self.loss}
        for k, member in enumerate(self.members if self.disagreement is not None else ()):
            columns[f"disagreement_{member}"] = self.disagreement[k]  # type: ignore[index]
        return _frame(columns)


def interpolation(
    ensemble: Members,
    data: Data | tuple[Tensor, Tensor],
    first: int | str = 0,
    second: int | str = 1,
    *,
    steps: int = 21,
    norms: str = "batch",
    part: str = "test",
    examples: int | None = 2048,
    batch_size: int = 256,
    seed: int = 0,
    network: nn.Module | None = None,
    advance: Callable[[int], None] = lambda points: None,
) -> Interpolation:
    """Accuracy and loss on the line between two members, w(t) = (1 - t) w_1 + t w_2; nothing is changed.

    Args:
        ensemble: an ensemble, or networks of one architecture, or state dicts of `network`.
        data: a data set, or a pair of tensors (inputs as the network takes them, targets).
        norms: "batch": batch norm uses each batch's statistics; "refresh": those of as many training examples, anew at
            every point.
        examples: how many, drawn under the seed; None for all.
        advance: called with the number of points done, for a progress bar.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=3, classes=2)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 3), seed=0)
    >>> x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    >>> line = interpolation(ens, (x, (x[:, 0] > 0).long()), steps=5)
    >>> line.t.tolist(), line.loss.shape
    ([0.0, 0.25, 0.5, 0.75, 1.0], torch.Size([5]))
    """
    if steps < 2:
        raise ConfigError(f"a line must have at least two steps, its ends; got steps={steps}")
    corners = corners_of(ensemble, (first, second), network)
    coordinates(corners, (first, second))  # refuses members that are equal
    t = torch.linspace(0, 1, steps, dtype=torch.float64)
    seen = choose_examples(ensemble, data, part, examples, batch_size, norms, seed)
    measured = run_points(corners, torch.stack([1 - t, t], 1), seen, None, advance)
    return Interpolation((first, second), t, measured.loss, measured.accuracy, len(seen.y))


def plane(
    ensemble: Members,
    data: Data | tuple[Tensor, Tensor],
    members: Sequence[int | str] = (0, 1, 2),
    *,
    points: int = 21,
    margin: float = 0.2,
    norms: str = "batch",
    part: str = "test",
    examples: int | None = 2048,
    batch_size: int = 256,
    seed: int = 0,
    network: nn.Module | None = None,
    advance: Callable[[int], None] = lambda points: None,
) -> Plane:
    """Accuracy, loss and disagreement on a grid of points of the plane through three members; nothing is changed.

    Args:
        members: three numbers of members; one of them may be `ORIGIN`, where every weight is 0.
        points: of each side of the grid.
        margin: around the corners, as a share of the longer side.

    The other arguments are those of `interpolation`.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=3, classes=2)
    >>> ens = multum.ensemble(net, multum.Deep(members=3), example=torch.zeros(2, 3), seed=0)
    >>> x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    >>> through = plane(ens, (x, (x[:, 0] > 0).long()), points=4)
    >>> through.accuracy.shape, through.corners[0].tolist(), through.frame().shape
    (torch.Size([4, 4]), [0.0, 0.0], (16, 7))
    """
    if len(members) != 3 or len(set(members)) != 3:
        raise ConfigError(f"a plane must go through three different members; got members={tuple(members)}")
    if points < 2 or not 0 <= margin < 100:
        raise ConfigError(f"a plane must have points >= 2 and 0 <= margin < 100; got {points} and {margin}")
    corners = corners_of(ensemble, members, network)
    places, origin, distance = coordinates(corners, members)
    low, high = places.amin(0), places.amax(0)
    around = margin * float((high - low).amax())
    x, y = (torch.linspace(a - around, b + around, points, dtype=torch.float64) for a, b in zip(low, high, strict=True))
    up, along = (t.flatten() for t in torch.meshgrid(y, x, indexing="ij"))
    third = up / places[2, 1]
    second = (along - third * places[2, 0]) / places[1, 0]
    seen = choose_examples(ensemble, data, part, examples, batch_size, norms, seed)
    there = run_points(corners, torch.eye(3, dtype=torch.float64), seen, None, lambda points: None)
    measured = run_points(corners, torch.stack([1 - second - third, second, third], 1), seen, there.votes, advance)
    shape = (points, points)
    return Plane(
        members=tuple(members),
        x=x,
        y=y,
        loss=measured.loss.view(shape),
        accuracy=None if measured.accuracy is None else measured.accuracy.view(shape),
        disagreement=None if measured.differ is None else measured.differ.view(3, *shape),
        corners=places,
        origin=origin,
        origin_distance=distance,
        examples=len(seen.y),
    )


def _frame(columns: Mapping[str, Tensor | None]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: t.flatten().numpy() for name, t in columns.items() if t is not None})
