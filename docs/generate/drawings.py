"""One drawing for each method, read off an ensemble that it makes of a small network: what is shared, what is owned.

Grey is shared by all members, a colour belongs to one of them. A box is a layer's weight, as high as one member's layer
is wide; small marks are the tensors that a member adds; a dashed box is a weight that is computed from others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import multum

from . import svg

__all__ = ["drawing", "grown"]

LAYERS = {"0": "first layer", "3": "convolution", "6": "convolution", "11": "last layer"}
NORMS = {"0": "1", "3": "4", "6": "7"}
SHOWN = {"weight_coefficients": "c", "weight_embedding": "e", "bias": "b"}
LANE, GAP, BOX, LEFT, TOP = 44, 10, 96, 92, 40
STEP = 158


def _network() -> nn.Module:
    def block(inputs: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]

    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)]
    return nn.Sequential(*block(3), *block(16), *block(16), *head)


def grown(network: nn.Module, method: multum.methods.Method, example: Any) -> multum.Ensemble:
    """An ensemble with the members that it has once training is over."""
    ens = multum.ensemble(network, method, example=example, seed=0)
    if method.birth_after(10) is not None:
        method.give_birth(ens, seed=0)
    elif ens.members < method.members:
        for epoch in range(1, 41):
            if method.collects(epoch, 40):
                method.collect(ens)
        method.conclude(ens)
    return ens


def drawing(name: str) -> str:
    """The picture of a method, as SVG."""
    torch.manual_seed(0)
    base = _network()
    kind = multum.methods.METHODS[name]
    members = 4 if kind().members > 1 else 1
    method = kind(members=members) if members > 1 else kind()
    example = torch.randn(2, 3, 16, 16)
    late = multum.ensemble(base, method, example=example, seed=0).members < members
    ens = grown(base, method, example)
    tensors = {**dict(ens.named_parameters()), **dict(ens.named_buffers())}
    height = ens.members * (LANE + GAP) - GAP
    shapes = [_lanes(ens.members)]
    for place, (path, words) in enumerate(LAYERS.items()):
        x = LEFT + place * STEP
        shapes.append(svg.text(x + BOX / 2, TOP - 12, words, "quiet", "middle"))
        shapes += _layer(path, x, height, ens, tensors, base)
        if path in NORMS:
            shapes += _norm(NORMS[path], x + BOX + 18, height, ens)
    bottom = TOP + height + 16
    bank = [t for n, t in tensors.items() if n.endswith("bank.templates")]
    if bank:
        shapes += _bank(bank, bottom)
        bottom += 40
    if late:
        shapes += _schedule(method, bottom + 8)
        bottom += 96
    shapes += _legend(bottom + 20, ens.members > 1)
    label = f"{kind.__name__}: what members share and what each of them owns"
    return svg.picture(LEFT + 4 * STEP, bottom + 36, label, shapes)


def _lanes(members: int) -> str:
    parts = []
    for m in range(members):
        y = TOP + m * (LANE + GAP) + LANE / 2
        parts.append(svg.line(LEFT - 18, y, LEFT + 3 * STEP + BOX + 22, y, f"wire own{m}"))
        parts.append(svg.text(LEFT - 24, y + 4, f"member {m + 1}" if members > 1 else "network", "", "end"))
    return svg.group(*parts)


def _layer(path: str, x: float, height: float, ens: Any, tensors: dict[str, Any], base: nn.Module) -> list[str]:
    own, given = set(ens.own), dict(base.named_parameters())[f"{path}.weight"]
    weight = tensors.get(f"{path}.weight")
    extra = [n for n in own if n.rpartition(".")[0] == path and not n.endswith((".weight", ".running_mean"))]
    shapes: list[str] = []
    if weight is None:  # made of templates: every member's own, computed
        shapes += [_box(x, m, 1, f"made own{m}", f"{path}.weight is computed for member {m + 1}") for m in _all(ens)]
    elif f"{path}.weight" in own:
        share = (
            weight.shape[1] / given.shape[0] if weight.shape[1] != given.shape[0] else weight.shape[2] / given.shape[1]
        )
        shapes += [_box(x, m, min(1, share), f"solid own{m}", f"{path}.weight of member {m + 1}") for m in _all(ens)]
        return shapes
    else:
        shapes.append(svg.rect(x, TOP, BOX, height, "shared", title=f"{path}.weight, shared"))
        if weight.shape[1] > given.shape[1]:
            shapes += [_slot(x - 5, m) for m in range(ens.members)]
        if weight.shape[0] > given.shape[0]:
            shapes += [_slot(x + BOX - 5, m) for m in range(ens.members)]
    marks = sorted((n.rpartition(".")[2] for n in extra), key=lambda n: (n == "bias", n))
    drawn = f"{path}.member" in tensors  # masks of dropout, another one at every call
    for m in _all(ens):
        y = TOP + m * (LANE + GAP)
        if "mask" in marks:
            shapes.append(_mask(x, y, [bool(v) for v in tensors[f"{path}.mask"][m].flatten()[:16]], f"solid own{m}"))
        elif drawn:
            generator = torch.Generator().manual_seed(7 * m + len(path))
            shapes.append(_mask(x, y, [bool(v) for v in torch.rand(16, generator=generator) > 0.3], f"made own{m}"))
        else:
            for i, mark in enumerate(marks):
                left = x + BOX / 2 + (i - (len(marks) - 1) / 2) * 26 - 11
                shapes.append(svg.rect(left, y + LANE / 2 - 11, 22, 22, f"solid own{m}", title=f"{path}.{mark}"))
                shapes.append(svg.text(left + 11, y + LANE / 2 + 4.5, SHOWN.get(mark, mark), "mark", "middle"))
    return shapes


def _all(ens: Any) -> range:
    return range(ens.members)


def _box(x: float, member: int, share: float, kind: str, title: str) -> str:
    y = TOP + member * (LANE + GAP)
    return svg.rect(x, y + LANE * (1 - share) / 2, BOX, LANE * share, kind, title=title)


def _slot(x: float, member: int) -> str:
    return svg.rect(x, TOP + member * (LANE + GAP) + 8, 10, LANE - 16, f"solid own{member}", 2)


def _mask(x: float, y: float, ones: list[bool], kind: str) -> str:
    """A row of channels: those that a member keeps are filled."""
    side = BOX / len(ones)
    cells = [svg.rect(x + i * side, y + LANE / 2 - 7, side - 1, 14, kind, 1) for i, one in enumerate(ones) if one]
    return svg.group(*cells)


def _norm(path: str, x: float, height: float, ens: Any) -> list[str]:
    if f"{path}.weight" in set(ens.own):
        share = dict(ens.named_parameters())[f"{path}.weight"].shape[1] / 16
        return [
            svg.rect(
                x, TOP + m * (LANE + GAP) + LANE * (1 - share) / 2, 10, LANE * share, f"solid own{m}", title="norm"
            )
            for m in _all(ens)
        ]
    return [svg.rect(x, TOP, 10, height, "shared", title="norm, shared")]


def _bank(banks: list[Any], y: float) -> list[str]:
    shapes = [svg.text(LEFT - 24, y + 19, "templates", "", "end")]
    x = LEFT
    for bank in banks:
        for _ in range(len(bank)):
            shapes.append(svg.rect(x, y, 34, 28, "shared", title=f"a template of shape {tuple(bank.shape[1:])}"))
            x += 40
        x += 24
    return shapes


def _schedule(method: Any, y: float, epochs: int = 40, per_epoch: int = 10) -> list[str]:
    """The learning rate through one training run by the method itself, and the epochs at which members are taken."""
    steps = epochs * per_epoch
    width, high = 3 * STEP + BOX, 60
    cosine = [0.5 * (1 + torch.cos(torch.tensor(torch.pi * s / steps)).item()) for s in range(steps)]
    rates = [method.learning_rate(cosine[s], s, steps, per_epoch, 1.0) for s in range(steps)]
    top = max(rates)
    points = [(LEFT + width * s / steps, y + high * (1 - rate / top)) for s, rate in enumerate(rates)]
    shapes = [svg.text(LEFT - 8, y + high / 2, "learning rate", "", "end"), svg.polyline(points, "rate")]
    shapes.append(svg.line(LEFT, y + high, LEFT + width, y + high, "axis"))
    shapes.append(svg.text(LEFT + width, y + high + 16, f"{epochs} epochs of one training run", "quiet", "end"))
    birth = method.birth_after(epochs)
    taken = [birth] if birth is not None else [e for e in range(1, epochs + 1) if method.collects(e, epochs)]
    for i, epoch in enumerate(taken):
        x, place = LEFT + width * epoch / epochs, points[min(epoch * per_epoch, steps) - 1][1]
        many = len(taken) > method.members
        shapes.append(
            svg.circle(x, place, 3.5 if many else 5, "taken" if many or birth is not None else f"solid own{i}")
        )
    if birth is not None:
        shapes.append(svg.line(LEFT + width * birth / epochs, y, LEFT + width * birth / epochs, y + high, "axis"))
        shapes.append(svg.text(LEFT + width * birth / epochs + 8, y + 10, "members are created", "quiet"))
    return shapes


def _legend(y: float, ensemble: bool) -> list[str]:
    shapes = [svg.rect(LEFT, y - 10, 14, 12, "shared"), svg.text(LEFT + 20, y, "shared" if ensemble else "one network")]
    if ensemble:
        shapes += [svg.rect(LEFT + 90, y - 10, 14, 12, "solid own0"), svg.text(LEFT + 110, y, "a member's own")]
        shapes += [
            svg.rect(LEFT + 230, y - 10, 14, 12, "made own0"),
            svg.text(LEFT + 250, y, "computed or sampled, not stored"),
        ]
    return shapes
