"""Lines and planes between members: the ends are the members, the middle is the mixture, and nothing is changed."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import multum
from multum.errors import ConfigError
from multum.inside import between
from multum.inside.between import ORIGIN
from multum.inside.landscape import interpolation, plane
from networks import DenseNetLike, DropoutNet

METHODS = {
    "deep": multum.Deep(members=3),
    "packed": multum.Packed(members=3, alpha=2),
    "batch-ensemble": multum.BatchEnsemble(members=3),
    "masksembles": multum.Masksembles(members=3),
    "mixture": multum.Mixture(members=3),
    "hypernet": multum.Hypernet(members=3, birth_epoch=0),
    "hypernet-shared-norm": multum.Hypernet(members=3, birth_epoch=0, norm="shared"),
    "multihead": multum.Multihead(members=3),
    "tree-net": multum.TreeNet(members=3),
}


class NormNet(nn.Module):
    """Convolutions with batch norm. Shape: [B, 3, 8, 8] -> [B, classes]."""

    def __init__(self, width: int = 12, classes: int = 5):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.conv1(x)).relu()
        return self.head(self.norm2(self.conv2(x)).relu().mean((2, 3)))


def batch(n: int = 12, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, 8, 8, generator=draw), torch.randint(5, (n,), generator=draw)


def build(method: multum.methods.Method, seed: int = 0) -> multum.Ensemble:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        ens = multum.ensemble(NormNet(), method, example=batch()[0], seed=seed)
        for p in ens.parameters():  # members far apart, norms that are not the identity
            if p.requires_grad:
                p.data += 0.1 * torch.randn_like(p)
    return ens


def measured(network: nn.Module, x: Tensor, y: Tensor, parts: int = 1) -> tuple[float, float]:
    """NLL and accuracy of a plain network whose batch norm uses each batch's statistics."""
    network = copy.deepcopy(network).eval()
    for module in network.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.train()
    with torch.no_grad():
        outputs = torch.cat([network(part) for part in x.tensor_split(parts)])
    return float(nn.functional.cross_entropy(outputs, y)), float((outputs.argmax(1) == y).double().mean())


@pytest.mark.parametrize("name", METHODS)
def test_the_ends_of_a_line_are_the_members(name):
    ens = build(METHODS[name])
    x, y = batch()
    found = interpolation(ens, (x, y), 0, 2, steps=3, batch_size=6)
    for end, member in ((0, 0), (-1, 2)):
        loss, accuracy = measured(ens.member(member), x, y, parts=2)
        assert float(found.loss[end]) == pytest.approx(loss, rel=1e-4)
        assert float(found.accuracy[end]) == accuracy


@pytest.mark.parametrize("name", ["deep", "mixture", "hypernet", "multihead"])
def test_half_way_lies_the_mean_of_the_weights_that_members_generate(name):
    ens = build(METHODS[name])
    x, y = batch()
    first, second = ens.member(0), ens.member(1)
    middle = copy.deepcopy(first)
    with torch.no_grad():
        for p, a, b in zip(middle.parameters(), first.parameters(), second.parameters(), strict=True):
            p.copy_((a + b) / 2)
    found = interpolation(ens, (x, y), steps=3)
    assert float(found.loss[1]) == pytest.approx(measured(middle, x, y)[0], rel=1e-4)


@pytest.mark.parametrize("name", ["deep", "batch-ensemble", "hypernet-shared-norm", "multihead", "tree-net"])
def test_points_do_not_hear_of_one_another(name, monkeypatch):
    ens, data = build(METHODS[name]), batch()
    together = interpolation(ens, data, steps=5)
    for executor in ("loop", "vmap"):
        monkeypatch.setattr(between, "default", lambda *_, executor=executor: executor)
        monkeypatch.setattr(between, "AT_ONCE", 2)
        torch.testing.assert_close(interpolation(ens, data, steps=5).loss, together.loss, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [*METHODS, "mimo"])
@pytest.mark.parametrize("training", [True, False])
def test_nothing_of_the_ensemble_is_changed(name, training):
    ens = build(METHODS.get(name, multum.Mimo(members=3))).train(training)
    before = {n: t.clone() for n, t in ens.state_dict().items()}
    flags = [m.training for m in ens.modules()]
    random = torch.get_rng_state()
    plane(ens, batch(), points=2)
    after = ens.state_dict()
    assert all(torch.equal(before[n], after[n]) for n in before) and before.keys() == after.keys()
    assert [m.training for m in ens.modules()] == flags
    assert torch.equal(torch.get_rng_state(), random)
    assert all(p.grad is None for p in ens.parameters())


def test_refreshed_norms_are_those_of_the_training_items():
    x, y = batch(24, seed=1)
    data = multum.Data(
        "mine", "classification", multum.data.Part(x[:16], y[:16]), multum.data.Part(x[16:], y[16:]), 5, None, None
    )
    ens = build(METHODS["deep"])
    found = interpolation(ens, data, steps=2, norms="refresh", examples=8)
    rows = torch.randperm(16, generator=torch.Generator().manual_seed(0))[:8].sort().values
    for end in (0, 1):
        network = ens.member(end).train()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.reset_running_stats()
                module.momentum = None
        with torch.no_grad():
            network(data.train.x[rows])
            expected = nn.functional.cross_entropy(network.eval()(data.test.x), data.test.y)
        assert float(found.loss[end]) == pytest.approx(float(expected), rel=1e-5)
    by_batch = interpolation(ens, data, steps=2, examples=8)
    assert not torch.allclose(by_batch.loss, found.loss)


def test_coordinates_are_distances_between_weights():
    ens = build(METHODS["deep"])
    found = plane(ens, batch(), points=3, margin=0.0)
    vectors = torch.stack(
        [torch.cat([p.detach()[i].flatten() for p in ens.parameters()]).double() for i in range(ens.members)]
    )
    torch.testing.assert_close(torch.cdist(found.corners, found.corners), torch.cdist(vectors, vectors))
    from_origin = (found.corners - found.origin).square().sum(1) + found.origin_distance**2
    torch.testing.assert_close(from_origin, vectors.square().sum(1))
    assert found.x[0] == found.corners[:, 0].min() and found.y[-1] == found.corners[:, 1].max()


def test_every_point_of_a_plane_is_its_mixture_of_the_corners():
    ens, (x, y) = build(METHODS["deep"]), batch()
    found = plane(ens, (x, y), (2, 0, 1), points=3, margin=0.4)
    networks = [ens.member(i) for i in (2, 0, 1)]
    basis = found.corners[1:] - found.corners[0]
    for row, column in ((0, 0), (1, 2), (2, 1)):
        place = torch.stack([found.x[column], found.y[row]]) - found.corners[0]
        second, third = torch.linalg.solve(basis.T, place).tolist()
        mixed = copy.deepcopy(networks[0])
        with torch.no_grad():
            for p, *parts in zip(*(n.parameters() for n in (mixed, *networks)), strict=True):
                p.copy_((1 - second - third) * parts[0] + second * parts[1] + third * parts[2])
        loss, accuracy = measured(mixed, x, y)
        assert float(found.loss[row, column]) == pytest.approx(loss, rel=1e-3)
        assert float(found.accuracy[row, column]) == accuracy


def test_members_disagree_with_others_but_not_with_themselves():
    ens, data = build(METHODS["deep"]), batch(40)
    found = plane(ens, data, points=2, margin=0.0)
    assert found.disagreement.shape == (3, 2, 2)
    assert found.x[0] == 0 and found.y[0] == 0  # the first corner is a point of this grid
    assert found.disagreement[0, 0, 0] == 0
    with torch.no_grad():
        first, second = (ens.member(i).train()(data[0]).argmax(1) for i in (0, 1))
    assert found.disagreement[1, 0, 0] == (first != second).double().mean() > 0


def test_the_origin_is_a_corner_where_every_own_weight_is_zero():
    ens, (x, y) = build(METHODS["deep"]), batch()
    found = plane(ens, (x, y), (0, 1, ORIGIN), points=2, margin=0.0)
    assert found.origin_distance == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(found.origin, found.corners[2])
    line = interpolation(ens, (x, y), 0, ORIGIN, steps=2)
    assert float(line.loss[1]) == pytest.approx(np.log(5), rel=1e-6)  # all logits are 0


def test_a_subnetwork_of_mimo_is_its_blocks_of_the_first_and_last_layer_alone():
    ens = build(multum.Mimo(members=3))
    x, y = batch()
    found = interpolation(ens, (x, y), 1, 2, steps=2)
    ens.eval()
    for module in ens.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.train()
    for end, member in ((0, 1), (1, 2)):
        alone = torch.stack([x if m == member else torch.zeros_like(x) for m in range(3)])
        with torch.no_grad():
            expected = nn.functional.cross_entropy(ens(alone, per_member=True)[member], y)
        assert float(found.loss[end]) == pytest.approx(float(expected), rel=1e-4)


def test_plain_networks_and_state_dicts_give_the_same_landscape():
    ens, data = build(METHODS["deep"]), batch()
    networks = [ens.member(i) for i in range(3)]
    expected = plane(ens, data, points=2)
    found = plane(networks, data, points=2)
    states = plane([n.state_dict() for n in networks], data, points=2, network=networks[0])
    for other in (found, states):
        torch.testing.assert_close(other.loss, expected.loss, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(other.corners, expected.corners)
    shared = [copy.deepcopy(networks[0]) for _ in range(2)]
    shared[1].head.weight.data += 1
    line = interpolation(shared, data, steps=2)
    assert float(line.loss[0]) == pytest.approx(measured(shared[0], *data)[0], rel=1e-5)


@pytest.mark.parametrize("network", [DenseNetLike, DropoutNet])
def test_networks_of_other_kinds(network):
    ens = multum.ensemble(network(), multum.Deep(members=2), example=batch()[0], seed=0)
    found = interpolation(ens, batch(), steps=3)
    assert found.loss.isfinite().all() and found.frame().shape == (3, 3)
    assert float(found.loss[0]) == pytest.approx(measured(ens.member(0), *batch())[0], rel=1e-4)


def test_a_regression_is_measured_in_the_targets_units():
    data = multum.load_data("diabetes")
    net = multum.models.build("mlp", in_features=10, classes=2)
    ens = multum.ensemble(net, multum.Deep(members=2), example=data.example(), task="regression", seed=0)
    found = interpolation(ens, data, steps=2, examples=None)
    alone = multum.ensemble(ens.member(1), multum.Single(), example=data.example(), task="regression")
    assert float(found.loss[1]) == pytest.approx(multum.evaluate(alone, data)["nll"], rel=1e-4)
    assert found.accuracy is None and list(found.frame()) == ["t", "loss"]


def test_the_barrier_is_the_rise_above_the_straight_line():
    found = interpolation(build(METHODS["deep"]), batch(), steps=3)
    bent = type(found)((0, 1), found.t, torch.tensor([1.0, 5.0, 3.0]), None, 12)
    assert bent.barrier == 3.0


def test_examples_are_drawn_under_the_seed_and_points_are_told():
    ens, data = build(METHODS["deep"]), multum.Data.given(*batch(64), "classification")
    data = multum.Data("mine", "classification", data.train, data.train, 5, None, None)
    told = []
    few = [interpolation(ens, data, steps=3, examples=16, seed=s, advance=told.append) for s in (0, 0, 1)]
    assert sum(told) == 9 and few[0].examples == 16
    assert torch.equal(few[0].loss, few[1].loss) and not torch.equal(few[0].loss, few[2].loss)
    assert len(plane(ens, data, points=2).frame()) == 4
    assert list(plane(ens, data, (0, 1, ORIGIN), points=2).frame().columns[-3:]) == [
        "disagreement_0",
        "disagreement_1",
        "disagreement_origin",
    ]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda e, d: interpolation(e, d, 0, 3), "number of a member, 0 to 2, or 'origin'; got 3"),
        (lambda e, d: interpolation(e, d, 0, -1), "got -1"),
        (lambda e, d: interpolation(e, d, 1, 1), "weights that are equal"),
        (lambda e, d: interpolation(e, d, steps=1), "steps=1"),
        (lambda e, d: interpolation(e, d, norms="eval"), "'batch' or 'refresh'; got 'eval'"),
        (lambda e, d: interpolation(e, d, norms="refresh"), "got a pair of tensors. Give a Data"),
        (lambda e, d: interpolation(e, d, batch_size=1), "batch_size=1"),
        (lambda e, d: interpolation(e, (d[0], d[1][:3])), "12 and 3"),
        (lambda e, d: interpolation(e, (d[0][:1], d[1][:1])), "at least two examples; got 1"),
        (lambda e, d: plane(e, d, (0, 1)), r"three different members; got members=\(0, 1\)"),
        (lambda e, d: plane(e, d, (0, 1, 1)), "three different"),
        (lambda e, d: plane(e, d, points=1), "points >= 2"),
        (lambda e, d: plane([e.member(0)] * 3, d), "got equal networks"),
        (lambda e, d: plane([e.member(0).state_dict()] * 3, d), "Give network="),
        (lambda e, d: interpolation([e.member(0), nn.Linear(2, 2)], d), "another conv1.weight in member 1"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(ConfigError, match=message):
        call(build(METHODS["deep"]), batch())


def test_members_on_one_line_and_members_that_own_nothing_are_refused():
    ens, data = build(METHODS["deep"]), batch()
    ens.regrow({n: torch.stack([t[0], t[1], (t[0] + t[1]) / 2]) for n, t in ens.tensors(ens.own).items()})
    with pytest.raises(ConfigError, match=r"weights that are on one line\. Train them first"):
        plane(ens, data)
    with pytest.raises(ConfigError, match="got McDropout, where members own none"):
        interpolation(multum.ensemble(DropoutNet(), multum.McDropout(members=3), example=data[0]), data)
