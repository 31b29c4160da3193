"""Members one after another, and only as many as an example needs.

    p_k(x) = 1/k sum_{m <= k} p_m(x)          the mean of the members that voted so far
    stop after k members where score(p_k) >= threshold

    confidence    max_c p_k,c
    margin        the largest of p_k less the second largest

Both say how far the members that voted are from another label; which of them and which threshold save the most is found
on held-out data (`Cascade.choose`). Examples that have stopped leave the batch, so that they cost nothing more. What
members share is computed once, for the first of them.

A regression has no such rule: one member's own variance says nothing of how far the others are from its mean.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from ..data.parts import Data, Part
from ..ensemble import Ensemble
from ..errors import ConfigError, check_known
from ..metrics.cost import cost
from ..outputs.prediction import Prediction, batches_for, eval_mode, predict
from .bound import is_below, mean_bound
from .trunk import replayed, rows_of, trunk_of, zeros_for
from .voted import Voted

# Thresholds that are tried, from the strictest down; none is taken from the examples that judge it.
CANDIDATES = (1 - torch.logspace(-7, -0.01, 200, dtype=torch.float64)).float().tolist()

log = logging.getLogger("multum")


def _margin(log_probs: Tensor) -> Tensor:
    first, second = log_probs.topk(2, dim=1).values.exp().unbind(1)
    return first - second


SCORES: dict[str, Callable[[Tensor], Tensor]] = {  # of log p_k, [batch, classes] -> [batch]
    "confidence": lambda log_probs: log_probs.amax(1).exp(),
    "margin": _margin,
}


def running(logits: Tensor) -> Tensor:
    """log p_k for every k. Shape: logits [members, batch, classes], kept."""
    counts = torch.arange(1, len(logits) + 1, device=logits.device).view(-1, 1, 1)
    return logits.log_softmax(2).logcumsumexp(0) - counts.log()


class Choice(NamedTuple):
    """What a threshold cost and saved on the data that it was chosen on."""

    score: str
    threshold: float
    nll_lost: float  # nats per example, against all members
    nll_bound: float  # what it stays below on new examples with the stated probability
    saved: float  # share of the mult-adds of all members
    examples: int


class Cascade(nn.Module):
    """An ensemble of classifiers that runs its members one after another, until they are confident about an example.

    Args:
        threshold: of the score; `math.inf` never stops, and is `multum.predict` itself.
        score: "confidence" or "margin", of the mean of the members so far.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=4, classes=3)
    >>> cascade = Cascade(multum.ensemble(net, multum.Deep(members=5), example=torch.zeros(2, 4)), threshold=0.4)
    >>> prediction = cascade(torch.randn(8, 4))
    >>> prediction.probs.shape, prediction.voted.shape, cascade.saved(prediction) >= 0
    (torch.Size([8, 3]), torch.Size([8]), True)
    """

    mult_adds: tuple[int, ...]  # of one example, after 1, 2, ... members
    all_members: int  # mult-adds of `multum.predict`
    choice: Choice | None = None

    def __init__(self, ensemble: Ensemble, threshold: float, score: str = "confidence"):
        super().__init__()
        _check(ensemble, threshold, score)
        self.ensemble, self.threshold, self.score = ensemble, float(threshold), score
        self.trunk = trunk_of(ensemble)
        self.mult_adds = self._counted()
        self.all_members = cost(ensemble, example=zeros_for(ensemble)).macs

    @classmethod
    def choose(
        cls,
        ensemble: Ensemble,
        held_out: Data | Part | Sequence[Any],
        nll_loss: float = 0.01,
        *,
        score: str | None = None,
        level: float = 0.95,
        batch_size: int = 256,
    ) -> Cascade:
        """The cascade that saves the most mult-adds and loses no more than `nll_loss` nats per example.

        Thresholds are tried from the strictest down to the first whose loss is not surely below `nll_loss`
        (`mean_bound`), which takes examples: some 5,000 for 0.01 where single examples lose up to 10 nats. Where these
        are too few for any, the cascade never stops, and a warning says so.

        Args:
            held_out: data with a validation part; or examples as the network takes them, and labels.
            nll_loss: what a new example loses on average, at most; 0.01 of an NLL of 0.3.
            score: one of `SCORES`; None: the one that saves more.
            level: the probability of that, over examples to choose on; no example may lose more than the most that one
                of these would lose by stopping anywhere.
        """
        x, y = _examples(held_out)
        cascade = cls(ensemble, math.inf)
        logits = predict(ensemble, x, batch_size=batch_size).logits  # type: ignore[union-attr]
        best = cascade.choice_for(logits, y.to(logits.device), nll_loss, score=score, level=level)
        if best.threshold == math.inf and len(logits) > 1:
            log.warning(
                "the cascade never stops: %d examples do not show that any threshold loses less than %g nats. State a "
                "larger `nll_loss`, or hold out more examples",
                *(best.examples, nll_loss),
            )
        chosen = cls(ensemble, best.threshold, best.score)
        chosen.choice = best
        return chosen

    def choice_for(
        self, logits: Tensor, y: Tensor, nll_loss: float, *, score: str | None = None, level: float = 0.95
    ) -> Choice:
        """What `choose` takes where the members' logits are there. Shape: [members, n, classes], [n]."""
        if not 0 <= nll_loss < math.inf:
            raise ConfigError(f"`nll_loss` must be a number of nats >= 0; got nll_loss={nll_loss!r}. Use 0.01")
        scores = [score] if score is not None else list(SCORES)
        each_level = 1 - (1 - level) / len(scores)
        return max((self._best(logits, y, name, nll_loss, each_level) for name in scores), key=lambda c: c.saved)

    def forward(self, x: Any, batch_size: int | None = None) -> Voted:
        """The prediction for examples as `multum.predict` takes them; in eval mode and without gradients."""
        with eval_mode(self.ensemble), torch.no_grad():
            parts = [self._batch(part) for part in batches_for(self.ensemble, x, batch_size)]
        if not parts:
            raise ConfigError("a prediction must be of examples; got none")
        return Voted(torch.cat([p.logits for p in parts], 1), torch.cat([p.voted for p in parts]))

    def replay(self, logits: Tensor) -> Voted:
        """What `forward` would say where all members' logits are there. Shape: [members, batch, classes]."""
        goes_on = [SCORES[self.score](each) < self.threshold for each in running(logits)[:-1]]
        votes = torch.stack([torch.ones_like(logits[0, :, 0], dtype=torch.bool), *goes_on]).cumprod(0).bool()
        return Voted(logits.masked_fill(~votes.unsqueeze(2), math.nan), votes.sum(0))

    def saved(self, prediction: Voted) -> float:
        """The share of all members' mult-adds that this prediction did without."""
        spent = torch.tensor([0, *self.mult_adds], dtype=torch.float64)[prediction.voted.cpu()].mean()
        return float(1 - spent / self.all_members)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold:g}, score={self.score!r}"

    def _batch(self, x: Any) -> Voted:
        if self.threshold == math.inf:
            logits = Prediction.from_logits(self.ensemble(x)).logits
            return Voted(logits, torch.full((logits.shape[1],), len(logits), device=logits.device))
        rows = len(next(t for t in tree_leaves(x) if isinstance(t, Tensor)))
        left, voted = torch.arange(rows, device=self.ensemble.device), None
        logits, total = torch.empty(0), torch.empty(0)
        with replayed(self.ensemble.network, self.trunk) as replay:
            for member in range(self.ensemble.members):
                replay.begin(left)
                own = Prediction.from_logits(self.ensemble(rows_of(x, left), member=member).unsqueeze(0))
                if voted is None:
                    logits = own.logits.new_full((self.ensemble.members, *own.logits.shape[1:]), math.nan)
                    total, voted = own.logits.new_full(own.logits.shape[1:], -math.inf), torch.zeros_like(left)
                logits[member, left] = own.logits[0]
                total[left] = total[left].logaddexp(own.log_probs)
                voted[left] += 1
                stops = SCORES[self.score](total[left] - math.log(member + 1)) >= self.threshold
                left = left[~stops]
                if not len(left):
                    break
        assert voted is not None
        return Voted(logits, voted)

    def _counted(self) -> tuple[int, ...]:
        """By `multum.cost`: a layer of the trunk once, and any other for every member that runs."""
        parts = cost(self.ensemble.single(), example=zeros_for(self.ensemble)).parts  # of one member
        inside = [any(f"{part.path}.".startswith(f"{path}.") for path in self.trunk) for part in parts]
        once = sum(part.macs for part, shared in zip(parts, inside, strict=True) if shared)
        each = sum(part.macs for part in parts) - once
        return tuple(once + k * each for k in range(1, self.ensemble.members + 1))

    def _best(self, logits: Tensor, y: Tensor, score: str, nll_loss: float, level: float) -> Choice:
        """The threshold of one score, by what every number of members would have said of every example."""
        members = len(logits)
        log_probs = running(logits)
        nll = -log_probs.gather(2, y.view(1, -1, 1).expand(members, -1, 1)).squeeze(2).double()
        if members == 1:
            return Choice(score, math.inf, 0.0, 0.0, 0.0, len(y))
        scores = torch.stack([SCORES[score](each) for each in log_probs[:-1]]).double()
        spent = torch.tensor(self.mult_adds, dtype=torch.float64, device=logits.device)
        most = float((nll[:-1] - nll[-1]).max().clamp_min(1e-12))
        best, losses = Choice(score, math.inf, 0.0, 0.0, 0.0, len(y)), None
        # To the first that may lose too much: the best of all would be the luckiest of all.
        for threshold in CANDIDATES:
            stop = (scores < threshold).cumprod(0).sum(0)  # the members that voted, less one
            lost = nll.gather(0, stop.unsqueeze(0))[0] - nll[-1]
            if not is_below(nll_loss, lost, most, level):
                break
            saved = float(1 - spent[stop].mean() / self.all_members)
            best, losses = Choice(score, threshold, float(lost.mean()), nll_loss, saved, len(y)), lost
        return best if losses is None else best._replace(nll_bound=mean_bound(losses, most, level))


def _check(ensemble: Any, threshold: float, score: str) -> None:
    if not isinstance(ensemble, Ensemble):
        raise ConfigError(f"a cascade must be of an ensemble; got {type(ensemble).__name__}. Use multum.ensemble(...)")
    if ensemble.task != "classification":
        raise ConfigError(
            f"a cascade must be of classifiers; got task={ensemble.task!r}: one member's own variance says nothing of "
            "how far the others are from its mean. Use multum.predict"
        )
    if ensemble.folded:
        raise ConfigError(
            f"a cascade must be of members that can run alone; got {type(ensemble.method).__name__}, whose members are "
            "one pass of one network: nothing is saved by asking fewer. Use multum.predict"
        )
    check_known(score, SCORES, f"score must be one of {', '.join(SCORES)}")
    if not threshold > 0:
        raise ConfigError(f"threshold must be above 0; got threshold={threshold!r}. Use 0.9, or math.inf for no stop")


def _examples(held_out: Data | Part | Sequence[Any]) -> tuple[Any, Tensor]:
    if isinstance(held_out, Data):
        if held_out.validation is None:
            raise ConfigError(
                "a threshold must be chosen on held-out data; got data without a validation part. Use "
                "data.with_validation(0.1, seed=0) before training"
            )
        return held_out.prepare(held_out.validation.x[:]), held_out.validation.y
    x, y = (held_out.x, held_out.y) if isinstance(held_out, Part) else held_out
    return x, torch.as_tensor(y)
