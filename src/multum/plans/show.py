"""A plan for a person: a table of what is feasible, and a line for everything that is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from ..figures.formats import NOTHING, count, fixed_width, text_table
from .candidates import Candidate
from .limits import in_ms, size

if TYPE_CHECKING:
    from .plan import Plan


HEAD = ("method", "members", "params", "mult-adds", "memory", "latency")
PREDICTED = "~"
METRICS = {"calibrated_nll": "calibrated NLL", "nll": "NLL"}


def table(plan: Plan) -> RenderableType:
    """The feasible candidates for `Console.print`, the one network first."""
    head, *rows = _cells(plan)
    return text_table(head, rows, align="lr")


def text(plan: Plan) -> str:
    """The whole plan as plain text."""
    return "\n".join([*fixed_width(_cells(plan)), *lines(plan)])


def lines(plan: Plan) -> list[str]:
    """What the table's marks mean, what was excluded and why, and what was taken for granted."""
    feasible, excluded = plan.feasible, plan.excluded
    where = f"{plan.model or 'this network'}, batches of {plan.batch_size}"
    head = [f"{len(feasible)} of {len(plan)} fit: {plan.limits} ({where})"]
    if any(c.latency and not c.latency.measured for c in feasible):
        head.append(f"{PREDICTED} predicted from those that were measured")
    same = {c.method.name: c.alternatives for c in feasible if c.alternatives}
    if same:
        fields = [f"{name} {', '.join(map(_fields, variants))}" for name, variants in same.items()]
        head.append(f"at the same cost: {'; '.join(fields)}")
    return [*head, *_reasons(excluded), *(f"note: {note}" for note in plan.notes)]


def _cells(plan: Plan) -> list[list[str]]:
    knows = any(c.known for c in plan.feasible)
    rows = [
        ["one network", *_row(plan.single, plan.single)],
        *([c.label, *_row(c, plan.single)] for c in plan.feasible),
    ]
    head = list(HEAD)
    if knows:
        known = next(c.known for c in plan.feasible if c.known)
        head.append(f"{METRICS[known['metric']]} on {known['data']}")
        texts = [_known(c.known) for c in (plan.single, *plan.feasible)]
        rows = [[*row, words] for row, words in zip(rows, texts, strict=True)]
    return [head, *rows]


def _row(candidate: Candidate, single: Candidate) -> list[str]:
    counts, base = candidate.counts, single.counts
    assert counts is not None and base is not None
    pairs = ((counts.params, base.params), (counts.macs, base.macs))
    costs = [count(value) if candidate is single else f"{value / of:.2f}x" for value, of in pairs]
    memory = NOTHING if counts.memory is None else size(counts.memory)
    return [str(candidate.members), *costs, memory, _latency(candidate)]


def _latency(candidate: Candidate) -> str:
    if candidate.latency is None:
        return NOTHING
    return f"{'' if candidate.latency.measured else PREDICTED}{in_ms(candidate.latency.seconds)}"


def _known(known: Any) -> str:
    if not known:
        return NOTHING
    interval = "" if known["low"] is None else f" [{known['low']:.4f}, {known['high']:.4f}]"
    return f"{known['mean']:.4f}{interval}"


def _fields(values: dict[str, Any]) -> str:
    return ",".join(f"{name}={value}" for name, value in values.items())


def _reasons(excluded: Sequence[Candidate]) -> list[str]:
    """A line for every method and limit that some of its configs break, with the least of them."""
    groups: dict[tuple[str, str], list[Candidate]] = {}
    for candidate in excluded:
        assert candidate.reason is not None
        groups.setdefault((candidate.method.name, candidate.reason.split(" ")[0]), []).append(candidate)
    return [_excluded(candidates) for candidates in groups.values()]


def _excluded(candidates: Sequence[Candidate]) -> str:
    """
    >>> from multum.methods import Deep
    >>> _excluded([Candidate(Deep(members=m), reason=f"parameters {m} M, and 1 M are allowed") for m in (2, 4)])
    'excluded: deep:members=2 and 1 more: parameters 2 M, and 1 M are allowed'
    """
    first, *others = candidates
    reason = str(first.reason).partition("; got")[0]
    more = f" and {len(others)} {'larger' if first.counts else 'more'}" if others else ""
    return f"excluded: {first.label}{more}: {reason}"
