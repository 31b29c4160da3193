"""The checker can fail: for every promise there is an ensemble that breaks it, and that it catches."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
import networks
from grids import grid
from multum import Deep, Ensemble, Packed
from multum.errors import CheckError
from multum.executors import EXECUTORS
from multum.models import build
from multum.models.resnet import Bottleneck, ResNet

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def ens() -> Ensemble:
    net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    return multum.ensemble(net, Deep(members=3), example=X, seed=0)


def broken(ens: Ensemble) -> set[str]:
    """The promises that the checker finds broken."""
    with pytest.raises(CheckError) as error:
        multum.check(ens, X, verbose=False)
    lines = str(error.value).splitlines()
    assert lines[0].startswith(f"{ens.method} breaks {len(lines) - 1} of ")
    return {line.removeprefix("  - ").split(":")[0] for line in lines[1:]}


@pytest.fixture
def patch(monkeypatch):
    """Replace what executors return, of one of them or of all."""

    def replace(change, *names: str) -> None:
        for name in names or EXECUTORS:
            run = EXECUTORS[name].run
            monkeypatch.setattr(EXECUTORS[name], "run", lambda *args, run=run: change(run(*args)))

    return replace


def test_a_sound_ensemble_passes_and_prints_a_table(ens, capsys):
    before = copy.deepcopy(ens.state_dict())
    state, training = torch.get_rng_state(), ens.training
    findings = multum.check(ens, X)
    assert len(findings) == 5 + 2 * len(EXECUTORS) and all(f.holds and f.measured for f in findings)
    assert "check of Deep, members=3" in capsys.readouterr().out
    assert torch.equal(torch.get_rng_state(), state) and ens.training is training
    assert all(torch.equal(t, before[n]) for n, t in ens.state_dict().items())
    assert ens.executor == "vmap"


def test_it_prints_before_it_raises(ens, patch, capsys):
    patch(lambda out: out * 1.001, "vmap")
    with pytest.raises(CheckError):
        multum.check(ens, X)
    assert "NO" in capsys.readouterr().out


def test_shape_law(ens, patch):
    patch(lambda out: out[:2])
    assert broken(ens) == {"shape law"}


def test_outputs_that_are_not_finite(ens, patch):
    patch(lambda out: out / 0)
    assert broken(ens) == {"shape law"}


def test_executors_that_differ_in_eval(ens, patch):
    patch(lambda out: out * (1 + 1e-8), "vmap")
    assert broken(ens) == {"executors agree, eval"}


def test_executors_that_differ_in_training(ens, patch):
    patch(lambda out: out * (1 + 1e-5), "vmap")
    assert broken(ens) == {"executors agree, eval", "executors agree, training"}


def test_executors_that_differ_in_their_gradients(ens, patch):
    patch(lambda out: out.detach() + 0.5 * (out - out.detach()), "vmap")
    assert broken(ens) == {"executors agree, eval", "executors agree, training"}


def test_executors_that_differ_in_the_statistics_they_leave(ens, monkeypatch):
    run = EXECUTORS["vmap"].run

    def forgets(network, stacked, *rest):
        kept = {name: t if isinstance(t, nn.Parameter) else t.clone() for name, t in stacked.items()}
        return run(network, kept, *rest)

    monkeypatch.setattr(EXECUTORS["vmap"], "run", forgets)
    assert broken(ens) == {"executors agree, training"}


def test_members_that_are_not_their_rows(ens, monkeypatch):
    member = Ensemble.member
    monkeypatch.setattr(Ensemble, "member", lambda self, i: member(self, (i + 1) % self.members))
    assert broken(ens) == {"member(i) equals row i"}


def test_members_with_a_layer_of_multum_in_them(ens, monkeypatch):
    monkeypatch.setattr(sys.modules["multum.ensemble"], "fold", lambda network: network)
    assert broken(ens) == {"member(i) is a plain network"}


def test_members_that_leak_into_each_other(ens, patch):
    patch(lambda out: out + 1e-13 * out.mean(0))  # far below any tolerance
    assert {"members are independent (loop)", "members are independent (vmap)"} <= broken(ens)


def test_members_that_leak_through_their_gradients_alone(ens, patch):
    patch(lambda out: out + 1e-9 * (out.sum(0) - out.sum(0).detach()))
    assert broken(ens) == {f"gradients stay with their member ({executor})" for executor in EXECUTORS}


def test_members_without_a_gradient(ens, patch):
    patch(lambda out: out.detach() + 0.0 * out)
    assert broken(ens) == {f"gradients stay with their member ({executor})" for executor in EXECUTORS}


def test_an_own_tensor_that_is_shared_by_a_hack(ens, monkeypatch):
    """All members run on the first one's tensors."""
    for executor in EXECUTORS.values():

        def hacked(network, stacked, *rest, run=executor.run):
            return run(network, {n: t[:1].expand_as(t).clone() for n, t in stacked.items()}, *rest)

        monkeypatch.setattr(executor, "run", hacked)
    found = broken(ens.eval())
    assert "member(i) equals row i" in found
    assert {"members are independent (loop)", "members are independent (vmap)"} <= found


def test_a_network_that_remembers_its_last_member():
    """Python state between two runs: vmap cannot do it, and under loop it leaks."""

    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.last = nn.Linear(6, 3), 0.0

        def forward(self, x: Tensor) -> Tensor:
            y = self.fc(x)
            out = y + self.last
            self.last = float(y.detach().mean())
            return out

    ens = multum.ensemble(Remembers(), Deep(members=2), example=X)
    assert "members are independent (loop)" in broken(ens)


def test_one_member_that_is_not_the_base_network(ens):
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Wrong(Deep):
        def alone(self):
            return dataclasses.replace(self, members=1, init="fresh")

    ens.method = Wrong(members=3)
    assert broken(ens) == {"one member is the base network"}


# -- what it must not mistake for a fault ------------------------------------------------------------------------------


def findings(network: nn.Module, method=Deep(members=2), x: Tensor = X) -> dict[str, str]:  # noqa: B008
    ens = multum.ensemble(network, method, example=x)
    return {f.promise: f.measured for f in multum.check(ens, x, verbose=False)}


def test_randomness_of_the_networks_own():
    class Functional(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(F.dropout(x, 0.5, self.training))

    assert "torch's own generator" in findings(Functional())["executors agree, training"]


def test_dropout_modules_are_compared():
    assert "e" in findings(build("mlp", in_features=6, classes=3, dropout=0.5))["executors agree, training"][:4]


def test_large_outputs():
    network = nn.Linear(6, 3)
    network.weight.data *= 1e6
    assert findings(network, Deep(members=2, init="pretrained"))  # a broken promise raises


def test_frozen_networks():
    found = findings(nn.Linear(6, 3).requires_grad_(False), Deep(members=2, init="pretrained"))
    assert found["gradients stay with their member (loop)"] == "nothing trainable is own"


def test_one_row_and_half_a_network():
    assert findings(nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3)), x=X[:1])


# -- the networks of the brief -----------------------------------------------------------------------------------------


def small_resnext() -> nn.Module:
    keywords = {"classes": 10, "in_channels": 3, "stem": "cifar", "width": 0.25, "inner": 2, "groups": 8}
    return ResNet(Bottleneck, (1, 1, 1, 1), **keywords)


METHODS = {"deep": Deep(members=2), "packed": Packed(members=2, alpha=1), "grouped": Packed(alpha=2, gamma=2)}
NETWORKS = {
    "resnet18": (lambda: build("resnet18", width=0.125), IMAGES),
    "small-resnext": (small_resnext, IMAGES),
    "lenet": (lambda: build("lenet"), torch.randn(2, 3, 32, 32)),
    **{name: (builder, example()) for name, (builder, example) in networks.ZOO.items()},
}


# Those that the contract does not have, each with the method that it is hardest for.
SOUND = [("small-resnext", "grouped"), ("lenet", "packed")]
SOUND += [("squeeze-excite", "packed"), ("tied", "packed"), ("two-input", "packed"), ("dropout", "deep")]
SOUND += [("lstm", "deep"), ("convnext-like", "grouped")]


@pytest.mark.parametrize(("name", "method"), grid(itertools.product(NETWORKS, METHODS), always=SOUND))
def test_sound_on(name, method, caplog):
    builder, x = NETWORKS[name]
    ens = multum.ensemble(builder(), METHODS[method], example=x)
    assert all(finding.holds for finding in multum.check(ens, x, verbose=False))
    assert len([r for r in caplog.records if r.name == "multum" and r.levelname == "WARNING"]) == (name == "lstm")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("resnet18", "packed"),
        ("resnet18", "deep"),
        ("resnext50", "packed"),
        ("resnext50", "deep"),
    ],
)
def test_sound_on_full_networks(name, method):
    ens = multum.ensemble(build(name), METHODS[method], example=IMAGES)
    multum.check(ens, IMAGES, verbose=False)
