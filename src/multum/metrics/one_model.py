"""Are the members one model? What they disagree about, beside what one member disagrees about with itself.

Members that share most of their weights can end up as copies of each other (arXiv 2601.16936 finds that for
BatchEnsemble on CIFAR, 2601.21581 the opposite on tables). The yardstick is the first member's own noise: as many
passes as there are members, each on the same inputs with Gaussian noise of `NOISE` of each input's standard deviation.
Where members are not further apart than that, the ensemble is one network that is run several times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..data.sources import Data
from ..ensemble import Ensemble
from ..outputs.prediction import Prediction, RegressionPrediction, eval_mode
from .streams import slices

NOISE = 0.05  # of trained networks on digits: a fortieth of the mutual information of independent members
MOST_EXAMPLES = 1000
MOST_NUMBERS = 2**25  # of inputs: 128 MB
MEMBERS, SELF = "of_members", "of_one_member"  # ends of the names of values per example


@dataclass(frozen=True, eq=False)
class OwnNoise:
    """Means by name, of the members and of one member's noise, and the values of every example they are means of.

    Classification: mutual information and disagreement (the share of pairs that predict another class). Regression: the
    variance of the means, in units of the standardised targets.
    """

    numbers: dict[str, Any]
    examples: dict[str, Tensor]


def own_noise(ensemble: Ensemble, data: Data, batch_size: int) -> OwnNoise | None:
    """Measured on the same test examples for every seed; None for one member, for members that are random draws of one
    network, and for inputs that are no floating point numbers.

    It costs the members' prediction twice, on at most 1,000 examples.
    """
    if ensemble.members == 1 or not ensemble.method.deterministic:
        return None
    room = max(2, MOST_NUMBERS // math.prod(data.test.x.shape[1:]))
    sample = data.test.drawn(min(MOST_EXAMPLES, room), 0)
    x = data.prepare(sample.x[0 : len(sample)])  # examples on the disk are read as they are indexed
    if not x.is_floating_point():
        return None
    spread = NOISE * x.std(0, correction=0)
    draw = torch.Generator().manual_seed(0)
    parts: dict[str, list[Tensor]] = {}
    with eval_mode(ensemble), torch.no_grad():
        for rows in slices(len(x), batch_size):
            batch = x[rows]
            shaken = [batch + spread * torch.randn(batch.shape, generator=draw) for _ in range(ensemble.members)]
            outputs = {
                MEMBERS: ensemble(batch.to(ensemble.device)),
                SELF: torch.stack([ensemble(each.to(ensemble.device), member=0) for each in shaken]),
            }
            for whose, each in outputs.items():
                for name, values in _apart(each, ensemble).items():
                    parts.setdefault(f"{name}_{whose}", []).append(values.double().cpu())
    examples = {name: torch.cat(values) for name, values in parts.items()}
    return OwnNoise({name: float(values.mean()) for name, values in examples.items()}, examples)


def _apart(outputs: Tensor, ensemble: Ensemble) -> dict[str, Tensor]:
    """How far apart outputs ``[members, batch, ...]`` are on every example, ``[batch]`` each."""
    if ensemble.task == "regression":
        values = {"variance": RegressionPrediction.from_outputs(outputs, ensemble.state.get("noise")).epistemic}
    else:
        votes = outputs.argmax(2)
        pairs = [(votes[i] != votes[j]).double() for i in range(len(votes)) for j in range(i)]
        information = Prediction.from_logits(outputs.double()).mutual_information
        values = {"information": information, "disagreement": torch.stack(pairs).mean(0)}
    return {name: each.reshape(len(each), -1).mean(1) for name, each in values.items()}
