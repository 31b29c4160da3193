"""`multum.check`: proof that an ensemble keeps its promises, as a table; it raises where one is broken."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from .building import ensemble
from .ensemble import Ensemble
from .errors import CheckError
from .executors import EXECUTORS, REFERENCE
from .figures.formats import text_table
from .network.copies import run, two_rows
from .rewrite.walker import is_plain

TOLERANCE = 1e-9  # in float64, relative to the largest output
TRAINING_TOLERANCE = 1e-6  # batch norm amplifies rounding: on two rows of one pixel by many orders


@dataclass(frozen=True)
class Finding:
    """One promise, whether it holds, and what was measured."""

    promise: str
    holds: bool
    measured: str


def check(ens: Ensemble, x: Any, *, verbose: bool = True) -> list[Finding]:
    """Verify an ensemble's promises on a batch, in float64 and on a copy; print a table, raise if one is broken.

    - the shape law: outputs are [members, batch, ...]
    - executors agree: outputs, gradients and moved buffers
    - member(i) is row i
    - members are independent: changing what member i owns leaves every other output bitwise the same, and the gradient
      of member i's loss with respect to what others own is exactly 0
    - with one member the ensemble is the base network

    Members that are equal break no promise, but are told: together they are worth no more than one of them.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=4, classes=3)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 4))
    >>> all(finding.holds for finding in check(ens, torch.rand(2, 4), verbose=False))
    True
    """
    # Weights at their initial scale can hide a member behind another's rounding; float64 leaves no such doubt.
    trial = copy.deepcopy(ens).double().eval()
    x = tree_map_only(Tensor, lambda t: t.double() if t.is_floating_point() else t, two_rows(x))
    with torch.random.fork_rng():
        findings = list(_findings(trial, x))
    if verbose:
        _print(ens, findings)
    ens.warn_of_twins()
    broken = [f for f in findings if not f.holds]
    if broken:
        raise CheckError(
            f"{ens.method} breaks {len(broken)} of {len(findings)} promises:\n"
            + "\n".join(f"  - {f.promise}: {f.measured}" for f in broken)
        )
    return findings


def _findings(ens: Ensemble, x: Any) -> Iterator[Finding]:
    batch = next(t for t in tree_flatten(x)[0] if isinstance(t, Tensor)).shape[0]

    ens.executor = REFERENCE
    reference = ens(x).detach()
    lawful = reference.shape[:2] == (ens.members, batch)
    finite = bool(torch.isfinite(reference).all())
    yield Finding(
        "shape law: [members, batch, ...]",
        lawful and finite,
        f"{tuple(reference.shape)}" + ("" if finite else ", not all of them finite"),
    )
    if not (lawful and finite):
        return  # nothing else could be compared
    if len(ens.executors) == 1:
        refusals = "; ".join(f"{name}: {reason}" for name, reason in ens.refusals.items())
        yield Finding("executors agree", True, f"{REFERENCE} alone; {refusals}")
    else:
        yield _executors_agree(ens, x, training=False)
        yield _executors_agree(ens, x, training=True)
    yield _members_are_rows(ens, x, reference)
    if not ens.method.deterministic:
        again = [copy.deepcopy(ens)(x).detach() for _ in range(2)]
        yield Finding("the same generators give the same draws", torch.equal(*again), f"{_distance(*again):.1e}")
    for executor in ens.executors:
        ens.executor = executor
        if ens.members > 1 and ens.own:
            yield _perturbed(ens, x, executor)
            yield _gradients(ens, x, executor)
    yield from _alone(ens, x)


def _executors_agree(ens: Ensemble, x: Any, training: bool) -> Finding:
    """The same outputs, gradients and moved buffers from the reference and from every other executor."""
    promise = f"executors agree, {'training' if training else 'eval'}"
    others = [name for name in ens.executors if name != REFERENCE]
    if training and ens.pooled:
        pooling = [name for name in others if EXECUTORS[name].pools]
        others = [name for name in others if name not in pooling]
        if not others:
            reason = f"{', '.join(pooling)} pools the statistics of {ens.pooled[0]}, {REFERENCE} cannot"
            return Finding(promise, True, f"not compared: {reason}")
    if training and not torch.equal(*(_traces(ens, x, REFERENCE, training, seed)["output"] for seed in (0, 1))):
        return Finding(promise, True, "not compared: the network draws from torch's own generator (F.dropout, say)")
    reference = _traces(ens, x, REFERENCE, training, seed=0)
    distances: dict[tuple[str, str], float] = {}
    for executor in others:
        traces = _traces(ens, x, executor, training, seed=0)
        if reference.keys() != traces.keys():
            differs = sorted(reference.keys() ^ traces.keys())
            return Finding(promise, False, f"gradients for {differs} under {REFERENCE} or {executor} only")
        distances |= {(executor, name): _distance(traces[name], reference[name]) for name in traces}
    (executor, worst), distance = max(distances.items(), key=lambda pair: pair[1])
    tolerance = TRAINING_TOLERANCE if training else TOLERANCE
    return Finding(promise, distance <= tolerance, f"{distance:.1e} ({executor}, {worst})")


def _traces(ens: Ensemble, x: Any, executor: str, training: bool, seed: int) -> dict[str, Tensor]:
    """Everything that one run leaves behind: output, gradients, buffers."""
    trial = copy.deepcopy(ens).train(training)
    trial.executor = executor
    torch.manual_seed(seed)
    out = trial(x)
    if out.requires_grad:
        _weighted(out).backward()
    gradients = {f"gradient of {n}": p.grad for n, p in trial.named_parameters() if p.grad is not None}
    return {"output": out.detach(), **gradients, **dict(trial.named_buffers())}


def _members_are_rows(ens: Ensemble, x: Any, reference: Tensor) -> Finding:
    worst = 0.0
    for i in range(ens.members):
        member = ens.member(i)
        if not all(is_plain(m) for m in member.modules()):
            return Finding("member(i) is a plain network", False, f"member {i} has a multum layer in it")
        worst = max(worst, _distance(run(member, x), reference[i]))
    if not ens.method.deterministic:
        return Finding("member(i) is a plain network", True, "not compared: rows are random draws of it")
    return Finding("member(i) equals row i", worst <= TOLERANCE, f"{worst:.1e}")


def _perturbed(ens: Ensemble, x: Any, executor: str) -> Finding:
    """Change everything that member i owns; all other rows must keep every bit, row i must move."""
    trial = copy.deepcopy(ens)
    with torch.no_grad():
        before = trial(x)
        tensors = trial.tensors(trial.own)
        for i in range(trial.members):
            values = {name: t[i].clone() for name, t in tensors.items() if t.is_floating_point()}
            for name in values:
                tensors[name][i] += 0.1 + 0.1 * torch.rand_like(values[name])
            after = trial(x)
            for name, value in values.items():
                tensors[name][i] = value
            others = [j for j in range(trial.members) if j != i]
            if not torch.equal(after[others], before[others]):
                moved = [j for j in others if not torch.equal(after[j], before[j])]
                return Finding(f"members are independent ({executor})", False, f"changing member {i} moves {moved}")
            if torch.equal(after[i], before[i]):
                return Finding(f"members are independent ({executor})", False, f"member {i} ignores what it owns")
    return Finding(f"members are independent ({executor})", True, "other rows bitwise equal")


def _gradients(ens: Ensemble, x: Any, executor: str) -> Finding:
    """The gradient of member i's loss in training, with respect to what the others own, is exactly 0."""
    promise = f"gradients stay with their member ({executor})"
    # Statistics that the members share in training make every loss depend on every member, by the method's own design.
    trial = copy.deepcopy(ens).train(not ens.pooled)
    own = [p for name, p in trial.named_parameters() if name in set(trial.own) and p.requires_grad]
    if not own:
        return Finding(promise, True, "nothing trainable is own")
    out = trial(x)
    for i in range(trial.members):
        grads = torch.autograd.grad(_weighted(out[i]), own, retain_graph=True, allow_unused=True)
        present = [g for g in grads if g is not None]
        others = [j for j in range(trial.members) if j != i]
        if any(bool((g[others] != 0).any()) for g in present):
            return Finding(promise, False, f"the loss of member {i} has a gradient for what others own")
        if not any(bool((g[i] != 0).any()) for g in present):
            return Finding(promise, False, f"the loss of member {i} has no gradient for what it owns")
    return Finding(promise, True, f"exactly 0 for all others{', in eval: norms pool members' if ens.pooled else ''}")


def _alone(ens: Ensemble, x: Any) -> Iterator[Finding]:
    method = ens.method.alone()
    if method is None:
        return
    base = ens.member(0)
    outputs = run(base, x)
    noise = ens.state.get("noise")
    targets = None if ens.task == "classification" else outputs.shape[1] // (2 if noise is None else 1)
    alone = ensemble(base, method, example=x, task=ens.task, targets=targets, seed=0).eval()
    distance = _distance(alone(x)[0], outputs)
    yield Finding("one member is the base network", distance <= TOLERANCE, f"{distance:.1e}")


def _weighted(out: Tensor) -> Tensor:
    """A scalar to which every output contributes differently, at a scale where tanh is not flat."""
    out = out / out.detach().abs().max().clamp_min(1)
    weights = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype, device=out.device).view_as(out)
    return (out.tanh() * weights).sum()


def _distance(a: Tensor, b: Tensor) -> float:
    if a.shape != b.shape:
        return float("inf")
    a, b = a.detach().double(), b.detach().double()
    distance = float((a - b).abs().max() / b.abs().max().clamp_min(1)) if a.numel() else 0.0
    return distance if math.isfinite(distance) else float("inf")


def _print(ens: Ensemble, findings: list[Finding]) -> None:
    title = f"check of {type(ens.method).__name__}, members={ens.members}"
    rows = [(f.promise, Text("yes", "green") if f.holds else Text("NO", "red"), f.measured) for f in findings]
    Console().print(text_table(["promise", "holds", "measured"], rows, title=title))
