"""All members in one module of plain layers: the ensemble's outputs, and nothing computed twice."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

import multum
from contract import test_contract as contract
from multum.optimizing.members import Members, folded
from multum.rewrite.dropout import Drawing
from multum.rewrite.folded import MimoHead
from multum.rewrite.walker import is_plain

CASES = [
    pytest.param(method, network, marks=() if network == "mlp" else pytest.mark.slow, id=f"{method}-{network}")
    for method, row in contract.METHODS.items()
    for network in row.only or contract.NETWORKS
    if network not in row.refuses and not row.random
]


def more_rows(x: Any) -> Any:
    return tree_map_only(Tensor, lambda t: torch.cat([t, t[:2]]), x)


@pytest.mark.parametrize(("method", "network"), CASES)
def test_folded_members_are_plain_and_give_the_ensembles_outputs(method, network):
    ens = contract.made(method, network, 5)
    x = contract.NETWORKS[network].example()
    ens = ens.eval()
    members = folded(ens)
    assert all(is_plain(m) or isinstance(m, MimoHead) for m in members.modules())
    assert not {t.data_ptr() for t in members.state_dict().values()} & {t.data_ptr() for t in ens.state_dict().values()}
    torch.testing.assert_close(members(x), ens(x).detach(), rtol=1e-5, atol=1e-5)
    ens = contract.make(method, network, 5).double().eval()
    torch.testing.assert_close(folded(ens)(contract.double(x)), ens(contract.double(x)).detach(), **contract.EXACT)


@pytest.mark.parametrize(
    "network", ["mlp", *(pytest.param(n, marks=pytest.mark.slow) for n in ("wrn-10-1", "small-vit"))]
)
@pytest.mark.parametrize("method", ["packed", "multihead", "mimo", "mc-dropout"])
def test_torch_traces_them_with_any_batch(method, network):
    members = folded(contract.made(method, network, 5).eval())
    x = contract.NETWORKS[network].example()
    rows = tree_map_only(Tensor, lambda t: {0: torch.export.Dim.DYNAMIC}, x)
    program = torch.export.export(members, (x,), dynamic_shapes=(rows,))
    for batch in (more_rows(x), x[:1]):
        torch.manual_seed(3)
        expected = members(batch)
        torch.manual_seed(3)
        torch.testing.assert_close(program.module()(batch), expected)


class DropoutMlp(nn.Module):
    """Shape: [B, 4] -> [B, 3]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.drop, self.head = nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(F.relu(self.stem(x))))


@pytest.mark.parametrize(
    "method", [multum.Multihead(members=3), multum.TreeNet(members=3), multum.McDropout(members=3)]
)
def test_what_the_members_share_is_computed_once(method, monkeypatch):
    x = torch.randn(5, 4)
    ens = multum.ensemble(DropoutMlp(), method, example=x).eval()
    members = folded(ens)
    calls = []
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: calls.append(self) or F.linear(x, self.weight, self.bias))
    out = members(x)
    assert out.shape == (3, 5, 3) and len(calls) == 1 + 3
    assert sum(p.numel() for p in members.parameters()) == sum(p.numel() for p in ens.parameters())
    assert not torch.equal(out[0], out[1])


class WritesIntoTheTrunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stem(x).add_(1))


def test_a_network_that_writes_into_what_the_trunk_gave_it_computes_it_for_each_member():
    x = torch.randn(5, 4)
    ens = multum.ensemble(WritesIntoTheTrunk(), multum.Multihead(members=3), example=x).eval()
    torch.testing.assert_close(folded(ens)(x), ens(x).detach())


def test_masked_channels_are_gone():
    x = torch.randn(2, 3, 8, 8)
    ens = multum.ensemble(multum.models.build("wrn-10-1", classes=5), multum.Masksembles(members=2), example=x).eval()
    members = folded(ens)
    smaller = sum(p.numel() for p in members.networks[0].parameters())
    assert smaller < sum(p.numel() for name, p in ens.named_parameters())
    torch.testing.assert_close(members(x), ens(x).detach(), rtol=1e-4, atol=1e-5)


def test_the_samples_of_mc_dropout_follow_torchs_generator():
    x = torch.randn(64, 4)
    ens = multum.ensemble(DropoutMlp(), multum.McDropout(members=200), example=x).eval()
    members = folded(ens)
    assert isinstance(members, Members) and not any(isinstance(m, Drawing) and not m.always for m in members.modules())
    torch.manual_seed(0)
    first = members(x)
    torch.manual_seed(0)
    torch.testing.assert_close(members(x), first)
    assert not torch.equal(members(x), first)
    theirs = ens(x)
    for moment in (torch.mean, torch.std):  # over 200 samples, of 64 * 3 outputs
        assert (moment(first, 0) - moment(theirs, 0)).abs().mean() < 0.1 * theirs.std()
