from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import multum
from multum.cascades.bound import is_below, mean_bound
from multum.cascades.cascade import SCORES, Cascade
from multum.data.parts import Data
from multum.errors import ConfigError
from multum.executors import REFERENCE

METHODS = {
    "deep": multum.Deep(members=3),
    "packed": multum.Packed(members=3, alpha=2),
    "batchensemble": multum.BatchEnsemble(members=3),
    "masksembles": multum.Masksembles(members=3),
    "multihead": multum.Multihead(members=3),
    "treenet": multum.TreeNet(members=3),
    "mixture": multum.Mixture(members=3, budget=2.0),
}


class Net(nn.Module):
    """A convolution, a norm and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 12, 3), nn.BatchNorm2d(12)
        self.hidden, self.head = nn.Linear(12 * 4, 24), nn.Linear(24, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.norm(self.conv(x)).relu(), 2).flatten(1)
        return self.head(self.hidden(x).relu())


def images(rows: int = 40) -> Tensor:
    return torch.randn(rows, 1, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def made(method: str = "deep") -> multum.Ensemble:
    torch.manual_seed(0)
    ens = multum.ensemble(Net().double(), METHODS[method], example=images(2), seed=0)
    with torch.no_grad():
        for name, p in ens.named_parameters():
            if name in ("head.weight", "head.bias"):
                p.mul_(4)  # members that disagree, and are sure at times
    return ens


@pytest.mark.parametrize("name", METHODS)
def test_a_cascade_that_never_stops_is_predict_to_the_bit(name: str) -> None:
    ens, x = made(name), images()
    expected, voted = multum.predict(ens, x), Cascade(ens, math.inf)(x)
    assert (voted.voted == 3).all()
    for field in ("logits", "log_probs", "probs", "labels", "confidence", "entropy", "variation_ratio"):
        assert torch.equal(getattr(voted, field), getattr(expected, field)), field
    torch.testing.assert_close(voted.mutual_information, expected.mutual_information, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", METHODS)
def test_members_one_after_another_say_what_they_say_together(name: str) -> None:
    ens, x = made(name), images()
    ens.executor = REFERENCE
    expected, voted = multum.predict(ens, x), Cascade(ens, 2.0)(x)  # no confidence reaches 2
    assert torch.equal(voted.logits, expected.logits) and torch.equal(voted.probs, expected.probs)


def voting(ens: multum.Ensemble, x: Tensor, score: str = "confidence") -> tuple[float, Tensor, Tensor]:
    """A threshold at which examples of 1, 2 and 3 members occur, how many each needs, and log p after k of them."""
    every = multum.predict(ens, x).logits.log_softmax(2)
    running = torch.stack([every[:k].logsumexp(0) - math.log(k) for k in (1, 2, 3)])
    scores = torch.stack([SCORES[score](each) for each in running])
    for threshold in (scores[1].sort().values + 1e-6).tolist():
        voted = 1 + (scores[:2] < threshold).cumprod(0).sum(0)
        if set(voted.tolist()) == {1, 2, 3}:
            return threshold, voted, running
    raise AssertionError("the test needs examples of every kind")


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize(
    "name", [name for name in METHODS if name != "mixture"]
)  # whose members hardly differ at birth
def test_examples_stop_as_soon_as_the_score_is_reached(name: str, score: str) -> None:
    ens, x = made(name), images()
    threshold, expected, running = voting(ens, x, score)
    voted = Cascade(ens, threshold, score)(x, batch_size=16)
    assert torch.equal(voted.voted, expected)
    of_voted = running.gather(0, (expected - 1).view(1, -1, 1).expand(1, -1, 4))[0]
    torch.testing.assert_close(voted.log_probs, of_voted, rtol=1e-9, atol=1e-9)
    for i in (int((expected == k).nonzero()[0]) for k in (1, 2, 3)):
        alone = multum.Prediction.from_logits(voted.logits[: int(expected[i]), i : i + 1])
        for field in ("probs", "labels", "entropy", "mutual_information", "variation_ratio"):
            torch.testing.assert_close(getattr(voted, field)[i], getattr(alone, field)[0], rtol=1e-9, atol=1e-9)
        assert voted.logits[int(expected[i]) :, i].isnan().all()


@pytest.mark.parametrize("name", [name for name in METHODS if name != "mixture"])  # torch also counts its templates
def test_what_runs_is_what_is_counted(name: str) -> None:
    """Examples that stopped cost nothing, and what members share runs once."""
    ens, x = made(name), images()
    cascade = Cascade(ens, voting(ens, x)[0])
    with FlopCounterMode(display=False) as counter:
        voted = cascade(x)
    spent = sum(cascade.mult_adds[int(k) - 1] for k in voted.voted)
    assert counter.get_total_flops() == 2 * spent and len(set(voted.voted.tolist())) == 3
    assert cascade.saved(voted) == pytest.approx(1 - spent / (len(x) * multum.cost(ens, example=x).macs))


@pytest.mark.parametrize("name", METHODS)
def test_mult_adds_are_those_of_cost(name: str) -> None:
    ens = made(name)
    cascade = Cascade(ens, 0.6)
    first, second, third = cascade.mult_adds
    assert third - second == second - first and bool(cascade.trunk) == (name in ("multihead", "treenet"))
    assert cascade.all_members == multum.cost(ens, example=images(1)).macs
    # A masked stem belongs to its member, although its convolution does not depend on it.
    assert third > cascade.all_members if name == "masksembles" else third == cascade.all_members


@pytest.mark.parametrize("name", ["deep", "treenet"])
def test_the_ensemble_is_left_as_it_was(name: str) -> None:
    ens = made(name).train()
    Cascade(ens, 0.6)(images())
    assert ens.training and not any("forward" in vars(module) for module in ens.network.modules())


def labelled(ens: multum.Ensemble, rows: int = 3000) -> tuple[Tensor, Tensor]:
    """Labels that the mean of the members explains, so that stopping early loses something."""
    x = images(rows)
    probs = multum.predict(ens, x).probs
    return x, torch.multinomial(probs, 1, generator=torch.Generator().manual_seed(2))[:, 0]


def nll(prediction: Any, y: Tensor) -> Tensor:
    return -prediction.log_probs.gather(1, y.unsqueeze(1))[:, 0]


@pytest.mark.parametrize("score", [None, *SCORES])
def test_a_threshold_is_chosen_for_a_stated_loss(score: str | None) -> None:
    ens = made()
    x, y = labelled(ens)
    cascade = Cascade.choose(ens, (x, y), nll_loss=0.05, score=score)
    choice, voted = cascade.choice, cascade(x)
    assert choice is not None and choice.score == cascade.score and choice.examples == 3000
    lost = nll(voted, y) - nll(multum.predict(ens, x), y)
    assert (
        choice.nll_lost == pytest.approx(float(lost.mean()), abs=1e-6) and choice.nll_lost <= choice.nll_bound <= 0.05
    )
    assert choice.saved == pytest.approx(cascade.saved(voted), abs=1e-6) and choice.saved > 0
    logits = multum.predict(ens, x).logits
    fewer = [nll(multum.Prediction.from_logits(logits[:k]), y) - nll(multum.predict(ens, x), y) for k in (1, 2)]
    level = 0.95 if score else 0.975  # where the better of two scores is taken, each is surer
    bound = mean_bound(lost, float(torch.stack(fewer).max()), level)
    assert choice.nll_bound == pytest.approx(bound, rel=1e-5)


def test_a_larger_loss_saves_more_and_none_may_save_nothing() -> None:
    ens = made()
    data = labelled(ens)
    saved = [Cascade.choose(ens, data, nll_loss=loss).choice.saved for loss in (0.0, 0.02, 0.1, 10.0)]
    assert saved == sorted(saved) and saved[0] < saved[1] < saved[-1]
    assert saved[-1] == pytest.approx(2 / 3, abs=0.01)  # one member of three for all but a few


def test_the_score_that_saves_more_is_taken() -> None:
    ens = made()
    data = labelled(ens)
    each = {score: Cascade.choose(ens, data, 0.02, score=score, level=0.975).choice.saved for score in SCORES}
    assert Cascade.choose(ens, data, 0.02, level=0.95).choice.saved == max(each.values())  # one of two, each surer


def test_data_gives_its_validation_part() -> None:
    ens = made()
    x, y = labelled(ens)
    data = Data.given(x, y, "classification").with_validation(0.5, seed=0)
    part = data.validation
    assert part is not None
    assert (
        Cascade.choose(ens, data).choice
        == Cascade.choose(ens, part).choice
        == Cascade.choose(ens, (part.x, part.y)).choice
    )
    with pytest.raises(ConfigError, match="must be chosen on held-out data"):
        Cascade.choose(ens, Data.given(x, y, "classification"))


@pytest.mark.parametrize("name", ["deep", "treenet"])
def test_a_replay_of_logits_is_what_runs(name: str) -> None:
    ens, x = made(name), images()
    cascade = Cascade(ens, voting(ens, x)[0])
    replayed, voted = cascade.replay(multum.predict(ens, x).logits), cascade(x)
    assert torch.equal(replayed.voted, voted.voted)
    torch.testing.assert_close(replayed.logits, voted.logits, rtol=1e-12, atol=1e-12, equal_nan=True)


def test_the_bound_holds_for_losses_that_few_examples_make() -> None:
    """A loss of up to 5 nats that 2 of 1,000 examples make: its mean is 0.005."""
    generator, repeats, n = torch.Generator().manual_seed(0), 200, 300
    hit, size = torch.rand(2, repeats, n, generator=generator, dtype=torch.float64)
    samples = torch.where(hit < 0.002, 5 * size, 0)
    normal = samples.mean(1) + 1.645 * samples.std(1) / math.sqrt(n)
    assert (normal < 0.005).double().mean() > 0.4, "an interval of the normal distribution misses it"
    bounds = [mean_bound(x, most=5.0, level=0.95) for x in samples]
    assert sum(bound < 0.005 for bound in bounds) <= 0.05 * repeats
    for x, bound in zip(samples[:5], bounds, strict=False):
        assert is_below(bound * 1.001, x, 5.0, 0.95) and not is_below(bound * 0.999, x, 5.0, 0.95)


def test_the_bound_comes_near_the_mean_with_many_examples() -> None:
    x = torch.rand(100_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert float(x.mean()) < mean_bound(x, most=1.0, level=0.95) < 0.51


def test_too_few_examples_are_told(caplog) -> None:
    ens = made()
    x, y = labelled(ens, 60)
    cascade = Cascade.choose(ens, (x, y), nll_loss=0.001)
    assert cascade.threshold == math.inf and cascade.choice.saved == 0
    assert "the cascade never stops: 60 examples do not show" in caplog.text and "hold out more" in caplog.text


def test_one_member_is_asked_always() -> None:
    ens = multum.ensemble(Net().double(), multum.Single(), example=images(2))
    cascade = Cascade.choose(ens, (images(), torch.zeros(40, dtype=torch.int64)))
    assert cascade.choice.saved == 0 and (cascade(images()).voted == 1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": 0}, "threshold must be above 0"),
        ({"threshold": 0.9, "score": "luck"}, "score must be one of confidence, margin"),
        ({"threshold": 0.9, "method": multum.Mimo(members=2)}, "members that can run alone; got Mimo"),
        ({"threshold": 0.9, "task": "regression"}, "a cascade must be of classifiers; got task='regression'"),
    ],
)
def test_what_cannot_be_a_cascade_is_refused(options: dict[str, Any], message: str) -> None:
    network = nn.Sequential(nn.Linear(4, 12), nn.ReLU(), nn.Linear(12, 2))
    method, task = options.pop("method", multum.Deep(members=2)), options.pop("task", "classification")
    with pytest.raises(ConfigError, match=message):
        Cascade(multum.ensemble(network, method, example=torch.zeros(2, 4), task=task), **options)


def test_a_plain_network_and_a_negative_loss_are_refused() -> None:
    with pytest.raises(ConfigError, match="a cascade must be of an ensemble; got Linear"):
        Cascade(nn.Linear(2, 2), 0.9)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="`nll_loss` must be a number of nats"):
        Cascade.choose(made(), (images(), torch.zeros(40, dtype=torch.int64)), nll_loss=-1)
