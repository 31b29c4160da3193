"""Differences of methods over seeds and examples: the formula by hand, and what intervals and tests are worth."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from multum.errors import MetricError
from multum.metrics.differences import Differences

METHODS = 14


def drawn(
    seeds: int, examples: int, effect: float, unequal: float, draw: torch.Generator, methods: int = METHODS
) -> Tensor:
    """NLL of equal methods: skewed over examples (most are easy), with effects of each training as large as `effect`.

    Each method has examples that suit it, each training too, and some methods' trainings vary more than others'.
    Shape: [methods, seeds, examples].
    """
    uniform = torch.rand(examples, generator=draw, dtype=torch.float64)
    easy = 2 * torch.tensor(stats.gamma.ppf(uniform.numpy(), 0.15))

    def effects(*shape: int) -> Tensor:
        return torch.exp(0.4 * torch.randn(*shape, generator=draw, dtype=torch.float64) - 0.08)

    sizes = effect * torch.exp(unequal * torch.randn(methods, 1, 1, generator=draw, dtype=torch.float64))
    training = 1 + sizes * torch.randn(methods, seeds, 1, generator=draw, dtype=torch.float64)
    return easy * effects(methods, 1, examples) * effects(methods, seeds, examples) * training


def compared(values: Tensor, *, same_examples: bool = True) -> Differences:
    return Differences(
        {str(m): {s: values[m, s] for s in range(values.shape[1])} for m in range(len(values))},
        same_examples=same_examples,
    )


def simulated(
    repeats: int, seeds: int, examples: int, effect: float, unequal: float, *, same_examples: bool = True
) -> tuple[float, float, float]:
    """Of equal methods: coverage of an interval; errors of a family against a fixed method, and against the best."""
    draw = torch.Generator().manual_seed(seeds * 10_000 + examples)
    covered = fixed = best = 0.0
    for _ in range(repeats):
        values = drawn(seeds, examples, effect, unequal, draw)
        if not same_examples:
            parts = [drawn(1, examples, effect, 0.0, draw) for _ in range(seeds)]
            values = torch.cat(parts, dim=1)
        methods = compared(values, same_examples=same_examples)
        alone = [methods.between(str(m), "0") for m in range(1, METHODS)]
        covered += sum(d.low <= 0 <= d.high for d in alone) / (METHODS - 1)
        fixed += any(d.estimate.p_value(METHODS - 1) < 0.05 for d in alone)
        lowest = str(int(values.mean((1, 2)).argmin()))
        others = [methods.between(str(m), lowest, family=methods.pairs) for m in range(METHODS) if str(m) != lowest]
        best += any(d.p < 0.05 for d in others)
    return covered / repeats, fixed / repeats, best / repeats


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("examples", [300, 3000])
@pytest.mark.parametrize(("effect", "unequal"), [(0.01, 0.0), (0.05, 0.7), (0.15, 0.0)])
def test_intervals_cover_and_families_err_as_often_as_they_say(
    seeds: int, examples: int, effect: float, unequal: float
) -> None:
    """The truth is 0: 95 % intervals must hold it in 93 % of cases at least, and a family must err in 6 % at most."""
    repeats = 600
    covered, fixed, best = simulated(repeats, seeds, examples, effect, unequal)
    chance = 2 * math.sqrt(0.05 * 0.95 / repeats)  # of a simulation of so many repeats
    assert covered >= 0.93 and max(fixed, best) <= 0.06 + chance


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [3, 5])
@pytest.mark.parametrize("effect", [0.01, 0.15])
def test_seeds_with_parts_of_their_own_cover_as_well(seeds: int, effect: float) -> None:
    covered, fixed, best = simulated(600, seeds, 1000, effect, 0.0, same_examples=False)
    assert covered >= 0.93 and max(fixed, best) <= 0.06 + 2 * math.sqrt(0.05 * 0.95 / 600)


def test_a_few_simulations_with_three_seeds() -> None:
    covered, fixed, best = simulated(60, seeds=3, examples=300, effect=0.15, unequal=0.0)
    assert covered > 0.9 and max(fixed, best) <= 0.1


def test_one_seed_is_the_paired_t_test_over_examples() -> None:
    draw = torch.Generator().manual_seed(0)
    values = drawn(1, 200, 0.1, 0.0, draw, methods=2)
    difference = compared(values).between("1", "0")
    test = stats.ttest_rel(values[1, 0].numpy(), values[0, 0].numpy())
    assert difference.p == pytest.approx(test.pvalue)
    low, high = test.confidence_interval(0.95)
    assert (difference.low, difference.high) == pytest.approx((low, high))
    assert difference.estimate.of_seeds == 0


def test_one_number_per_seed_is_the_t_test_of_welch() -> None:
    ours, theirs = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0.5, 0.25, 0.75])
    values = torch.stack([theirs, ours]).unsqueeze(2)
    estimate = compared(values).between("1", "0").estimate
    test = stats.ttest_ind(ours.numpy(), theirs.numpy(), equal_var=False)
    assert estimate.mean / estimate.error == pytest.approx(test.statistic)
    assert estimate.freedom == pytest.approx(max(2.0, test.df * 2 / 3))  # Satterthwaite's, reduced for three seeds
    paired = compared(values, same_examples=False).between("1", "0").estimate
    assert paired.mean / paired.error == pytest.approx(stats.ttest_rel(ours.numpy(), theirs.numpy()).statistic)
    assert paired.freedom == 2


def test_the_variance_by_hand() -> None:
    values = drawn(4, 30, 0.2, 0.0, torch.Generator().manual_seed(1), methods=2)
    estimate = compared(values).between("1", "0").estimate
    seeds = float(values.mean(2).var(1).sum()) / 4
    examples = float((values[1].mean(0) - values[0].mean(0)).var()) / 30
    rest = values - values.mean(1, keepdim=True) - values.mean(2, keepdim=True) + values.mean((1, 2), keepdim=True)
    both = float(rest.square().sum()) / (3 * 29) / (4 * 30)
    assert estimate.error**2 == pytest.approx(max(seeds + examples - both, seeds, examples))
    assert estimate.mean == pytest.approx(float(values[1].mean() - values[0].mean()))


def test_seeds_that_flip_the_sign_are_no_difference() -> None:
    """Three trainings that differ by more than the methods do: every example alone would be called significant."""
    draw = torch.Generator().manual_seed(2)
    noise = 0.01 * torch.randn(2, 3, 5000, generator=draw, dtype=torch.float64)
    shifts = torch.tensor([[0.0, 0.0, 0.0], [-0.1, 0.15, 0.05]]).unsqueeze(2)
    methods = compared(noise + shifts)
    assert methods.between("1", "0").p > 0.5
    pooled = (noise + shifts).mean(1)
    assert stats.ttest_rel(pooled[1].numpy(), pooled[0].numpy()).pvalue < 1e-9  # what ignoring seeds would say


def test_a_single_outlier_is_no_proof() -> None:
    """The mean is what is compared, and one example of many does not make it sure."""
    values = torch.zeros(2, 3, 400, dtype=torch.float64)
    values[1, :, 0] = 1e6
    difference = compared(values).between("1", "0")
    assert difference.low < 0 < difference.high and difference.p > 0.3


def test_a_family_has_wider_intervals_and_larger_p() -> None:
    methods = compared(drawn(3, 100, 0.1, 0.0, torch.Generator().manual_seed(3), methods=5))
    alone, together = methods.between("1", "0"), methods.between("1", "0", family=methods.pairs)
    assert methods.pairs == 10 and together.low < alone.low and together.high > alone.high and together.p > alone.p
    assert together.p == pytest.approx(1 - (1 - alone.p) ** 10)


def test_seeds_with_parts_of_their_own_are_compared_as_pairs() -> None:
    draw = torch.Generator().manual_seed(4)
    hard = torch.tensor([0.0, 5.0, -3.0]).reshape(1, 3, 1)  # parts of very different difficulty
    values = hard + 0.1 * torch.randn(2, 3, 50, generator=draw, dtype=torch.float64)
    values[1] += 0.2
    assert compared(values, same_examples=False).between("1", "0").p < 0.1
    assert compared(values).between("1", "0").p > 0.5  # as if the seeds' parts were one


def test_a_method_of_one_seed_among_others_of_three_is_no_surer_than_they_are() -> None:
    values = drawn(3, 100, 0.3, 0.0, torch.Generator().manual_seed(5), methods=3)
    table = {str(m): {s: values[m, s] for s in range(3)} for m in range(3)}
    whole = Differences(table).mean("2")
    table["2"] = {0: values[2, 0]}
    assert Differences(table).mean("2").error > whole.error / 3
    assert Differences(table).between("2", "0").estimate.of_seeds > 0


def test_equal_values_are_equal_and_unequal_sizes_are_refused() -> None:
    same = {"a": {0: torch.ones(5)}, "b": {0: torch.ones(5)}}
    difference = Differences(same).between("a", "b")
    assert (difference.mean, difference.low, difference.high, difference.p) == (0, 0, 0, 1)
    with pytest.raises(MetricError, match=r"on the same examples; got \[4, 5\] examples"):
        Differences({"a": {0: torch.ones(5)}, "b": {0: torch.ones(4)}})
    with pytest.raises(MetricError, match="must have a seed in common"):
        Differences({"a": {0: torch.ones(5)}, "b": {1: torch.ones(4)}}, same_examples=False).between("a", "b")
