"""Items that need no training: our numbers beside the printed ones, to the last digit, and what is wrong with which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import models
from ..building import ensemble
from ..errors import ConfigError
from ..executors import REFERENCE
from ..methods import Packed
from .base import Item, Run
from .counting import COLUMNS, build, cost_of
from .results import CUT, Line, Printed, Result

EXACT = 1e-12  # in float64


def has_exact(item: Item) -> bool:
    """Whether some of the item needs no training."""
    printed = item.run("paper").printed
    return item.exact is not None or any(column in COLUMNS for cells in printed.values() for column in cells)


def exact(item: Item) -> Result:
    """All of an item that needs no training.

    >>> from multum.papers import find
    >>> result = exact(find("mimo/footnote2"))
    >>> [(line.ours, line.printed, line.agrees) for line in result.lines][0]
    (36.479194, '36.479', True)
    """
    run = item.run("paper")
    lines = [*_costs(run), *(item.exact(run) if item.exact else ())]
    if not lines:
        raise ConfigError(f"an exact item must train nothing; got {item.id}, which needs {item.needs}. See its plan")
    return Result(item.id, tuple(lines), departs=run.departs)


def _costs(run: Run) -> Iterator[Line]:
    """The printed columns that follow from the networks alone."""
    for row in run.rows:
        for column, printed in run.printed.get(row.label, {}).items():
            if column in COLUMNS:
                ours = COLUMNS[column](row, run.rows[0])
                how = printed.agreement(ours)
                remark = run.remarks.get((row.label, column), CUT if how == "cut off" else "")
                remark = remark.format(ours=ours, off=abs(ours - printed.value))
                yield Line(row.label, column, ours, printed.text, bool(how), remark)


def params(run: Run) -> Iterator[Line]:
    """Parameters and mult-adds that the paper does not print."""
    for row in run.rows:
        yield Line(row.label, "Params", cost_of(row).params)
        yield Line(row.label, "Mult-adds", cost_of(row).macs)


def settings(run: Run) -> Iterator[Line]:
    """Table 4, against the recipes that are trained."""
    for row in run.rows:
        milestones = {f"milestone {i}": epoch for i, epoch in enumerate(row.recipe["milestones"], 1)}
        for column, printed in run.printed[row.label].items():
            ours = {**row.recipe, **milestones}[column]
            yield Line(row.label, column, ours, printed.text, ours == printed.value)


def divergences() -> Iterator[tuple[float, float, float, float]]:
    """Figure 5 of Packed-Ensembles: sigma, p, the divergence and its bound; w = mu = 0.1, 100 inputs."""
    values = torch.full((100,), 0.1, dtype=torch.float64)
    for sigma in (0.5, 1.0, 2.0):
        for p in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0):
            kl, bound = (float(f(p, values, values, sigma)) for f in (masking_kl, masking_kl_bound))
            yield sigma, p, kl, bound


def divergence(run: Run) -> Iterator[Line]:
    """Every number of `divergences`."""
    for sigma, p, kl, bound in divergences():
        yield Line(f"sigma = {sigma:g}, p = {p:g}", "KL (17)", kl, agrees=kl >= 0)
        yield Line(f"sigma = {sigma:g}, p = {p:g}", "bound (8)", bound, agrees=bound >= kl)


def grouped(run: Run) -> Iterator[Line]:
    """Figures 3 and 4 as equalities, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x = torch.randn(4, 3, 16, 16, dtype=torch.float64)
        network = models.build("small-cnn").double()
        ens = ensemble(network, Packed(members=3, alpha=1), example=x, seed=0).eval()
        with torch.no_grad():
            apart = torch.stack([ens.member(i)(x) for i in range(3)])  # (a)
            ens.executor = next(name for name in ens.executors if name != REFERENCE)
            stacked = ens(x.expand(3, *x.shape), per_member=True)  # (b)
            common = ens(x)  # (c)
        for name, a, b in (("(a) = (b)", apart, stacked), ("(b) = (c)", stacked, common)):
            yield _equal(f"Figure 3 {name}", a, b)
        for gamma in (1, 2):
            packed = Packed(members=2, alpha=2, gamma=gamma, min_channels=1)
            weight = ensemble(network, packed, example=x, seed=0).network.get_parameter("conv2.weight").detach()
            yield from _mask(f"Figure 4, M = 2, gamma = {gamma}", weight, gamma)


def _mask(name: str, weight: Tensor, gamma: int) -> Iterator[Line]:
    """Members' convolutions, each on its own channels, against one dense convolution whose weight is masked."""
    members, outputs, inputs = weight.shape[0], weight.shape[1], weight.shape[2] * gamma
    groups, kernel = members * gamma, weight.shape[3:]
    h = torch.randn(2, members * inputs, 8, 8, dtype=weight.dtype)
    apart = [F.conv2d(part, w, groups=gamma) for part, w in zip(h.chunk(members, 1), weight, strict=True)]
    rows = torch.arange(members * outputs) * groups // (members * outputs)
    columns = torch.arange(members * inputs) * groups // (members * inputs)
    mask = (rows[:, None] == columns[None, :]).to(weight.dtype)[..., None, None]
    repeated = weight.flatten(0, 1).repeat(1, groups, *(1 for _ in kernel))  # each group's weight in every column
    yield _equal(name, torch.cat(apart, 1), F.conv2d(h, repeated * mask))
    density = float(mask.mean())
    yield Line(name, "density of ones", density, agrees=density == 1 / groups)


def _equal(row: str, a: Tensor, b: Tensor) -> Line:
    largest = float((a - b).abs().max())
    return Line(row, "largest difference", largest, agrees=largest <= EXACT)


def nested_steps() -> dict[str, tuple[list[float], list[float]]]:
    """Figure 1 of the hypernetworks as numbers: what is shared after every member's step, and the embeddings.

    Three members with loss 1/2 (theta e - t)^2 take one turn at rate 0.1.
    """
    lr, targets = 0.1, torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    steps = {}
    for name, held_back in (("nested SGD", True), ("plain SGD", False)):
        theta = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
        members = [torch.tensor(e, dtype=torch.float64, requires_grad=True) for e in (1.0, 2.0, -1.0)]
        held = torch.zeros((), dtype=torch.float64)
        path = [1.0]
        for e, t in zip(members, targets, strict=True):
            to_theta, to_e = torch.autograd.grad((theta * e - t).square() / 2, (theta, e))
            with torch.no_grad():
                e -= lr * to_e
                held += to_theta
                if not held_back:
                    theta -= lr * to_theta
            path.append(theta.item())
        if held_back:
            path[-1] -= lr * float(held)
        steps[name] = (path, [e.item() for e in members])
    return steps


def nested(run: Run) -> Iterator[Line]:
    """Every number of `nested_steps`."""
    for name, (path, embeddings) in nested_steps().items():
        for step, value in enumerate(path):
            yield Line(f"{name}, after member {step}", "theta", value)
        for i, value in enumerate(embeddings, 1):
            yield Line(f"{name}, member {i}", "embedding", value)


CODE_STEM = 7  # templates of the stem in the authors' code


def hypernet_size(run: Run, text: Mapping[str, Printed]) -> Iterator[Line]:
    """The text's formula, from the table's counts: with the code's stem, unused biases, and a tied copy of a member."""
    single, ten = (cost_of(run.row(f"N = {n}")).params for n in (1, 10))
    own = (ten - single) // 9
    banks = [p for name, p in build(run.row("N = 1")).named_parameters() if name.endswith("bank.templates")]
    less = (
        len(banks[0]) - CODE_STEM
    )  # templates of the stem that the code does not have, and a member's entries for them
    biases = sum(len(bank) * bank.shape[1] for bank in banks) - less * banks[0].shape[1]
    as_code = single - own - less * banks[0][0].numel() + biases + (own - less)
    for row, shared, each in (("Table S1", single - own, own), ("the text's formula", as_code, own - less)):
        for column, ours in (("own parameters of a member", each), ("shared parameters", shared)):
            remark = run.remarks["N = 1", "Params"] if row == "Table S1" else ""
            yield Line(row, column, ours, text[column].text, ours == text[column].value, remark)


def allocation(run: Run) -> Iterator[Line]:
    """What a budget buys: parameters of all members, and the coefficients of one."""
    for row in run.rows:
        yield Line(row.label, "Params", cost_of(row).params)
        built = build(row)
        mixed = [p for name, p in built.named_parameters() if name.endswith("weight_coefficients")]
        yield Line(row.label, "coefficients of a member", sum(p.numel() for p in mixed) // built.members)


def masking_kl(p: Tensor | float, weights: Tensor, means: Tensor, std: Tensor | float) -> Tensor:
    """The divergence KL(z, z~) of a neuron z = sum_k w_k h_k from z~, which keeps each weight with probability p: (17).

    With mu = sum_k w_k mu_k and s = sum_k w_k^2 mu_k^2, z ~ N(mu, sigma^2) and z~ ~ N(p mu, v):

        v  = p (sigma^2 + (1 - p) s)
        KL = 1/2 {log(v / sigma^2) + (sigma^2 + (1 - p)^2 mu^2) / v - 1}

    **Shape**: weights and means of the inputs ``[..., inputs]``; p and std (sigma, of z) broadcast against ``[...]``.

    >>> w = torch.full((100,), 0.1, dtype=torch.float64)
    >>> round(masking_kl(0.5, w, w, 0.5).item(), 6), masking_kl(1.0, w, w, 0.5).item()
    (1.124112, 0.0)
    """
    p, mu, s, variance = _neuron(p, weights, means, std)
    masked = p * (variance + (1 - p) * s)
    kl = 0.5 * ((masked / variance).log() + (variance + ((1 - p) * mu).square()) / masked - 1)
    return kl.clamp_min(0)  # rounding can make it negative near p = 1


def masking_kl_bound(p: Tensor | float, weights: Tensor, means: Tensor, std: Tensor | float) -> Tensor:
    """The upper bound of :func:`masking_kl`, Proposition C.1, (8).

        KL <= 1/2 {p + 1/p - 2 + p (1 - p) s / sigma^2 + ((1 - p) mu)^2 / (p sigma^2)}

    **Shape**: as in :func:`masking_kl`.

    >>> w = torch.full((100,), 0.1, dtype=torch.float64)
    >>> round(masking_kl_bound(0.5, w, w, 0.5).item(), 6), masking_kl_bound(1.0, w, w, 0.5).item()
    (1.255, 0.0)
    """
    p, mu, s, variance = _neuron(p, weights, means, std)
    spread = (1 - p).square() / p  # p + 1/p - 2, without its cancellation near p = 1
    return 0.5 * (spread + p * (1 - p) * s / variance + ((1 - p) * mu).square() / (p * variance))


def _neuron(
    p: Tensor | float, weights: Tensor, means: Tensor, std: Tensor | float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    p, std = (torch.as_tensor(value, dtype=torch.float64, device=weights.device) for value in (p, std))
    if not ((p > 0) & (p <= 1)).all():
        raise ConfigError(f"p, the share of weights that stay, must satisfy 0 < p <= 1; got {p.tolist()}")
    if not ((std > 0) & std.isfinite()).all():
        raise ConfigError(f"std, of the neuron, must be positive; got {std.tolist()}")
    products = weights.double() * means.double()
    return p, products.sum(-1), products.square().sum(-1), std.square()
