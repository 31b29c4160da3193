"""TabM, held to the package `tabm` by stored numbers of it, and by the package itself where it is installed."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import multum
from methods import tabm_reference
from multum import TabM
from multum.errors import ConfigError, RewriteError
from multum.models.mlp import TabularMLP
from networks import ZOO

EXACT = {"rtol": 0, "atol": 1e-12}
REFERENCE = json.loads(tabm_reference.PATH.read_text())
INPUTS, WIDTH, OUTPUTS, MEMBERS = (getattr(tabm_reference, n) for n in ("INPUTS", "WIDTH", "OUTPUTS", "MEMBERS"))


def tensors(values: dict[str, Any]) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


class Embedding(nn.Module):
    """What rtdl_num_embeddings calls PiecewiseLinearEmbeddings, version B, without an activation."""

    def __init__(self) -> None:
        super().__init__()
        bins, size = len(tabm_reference.EDGES[0]) - 1, tabm_reference.EMBEDDING
        self.linear0 = nn.ParameterDict({name: torch.zeros(INPUTS, size) for name in ("weight", "bias")})
        self.linear = nn.ParameterDict({"weight": torch.zeros(INPUTS, bins, size)})

    def forward(self, x: Tensor) -> Tensor:
        edges = torch.tensor(tabm_reference.EDGES, dtype=x.dtype, device=x.device)
        positions = ((x[..., None] - edges[:, :-1]) / edges.diff(dim=1)).clamp(0, 1)
        linear = x[..., None] * self.linear0["weight"] + self.linear0["bias"]
        return (linear + torch.einsum("nfb,fbd->nfd", positions, self.linear["weight"])).flatten(1)


def network(embedded: bool) -> nn.Module:
    inputs = INPUTS * tabm_reference.EMBEDDING if embedded else INPUTS
    body = multum.models.build("mlp", in_features=inputs, classes=OUTPUTS, hidden=(WIDTH, WIDTH))
    return nn.Sequential(Embedding() if embedded else nn.Identity(), body)


def ours(name: str) -> str:
    """Where multum holds a tensor of tabm's."""
    for theirs, own in (("num_module.", "0."), ("backbone.affine.weight", "1.hidden.0.r"), ("output.", "1.fc.")):
        name = name.replace(theirs, own)
    return name.replace("backbone.blocks.0.0.", "1.hidden.0.").replace("backbone.blocks.1.0.", "1.hidden.2.")


def copied(case: str) -> tuple[multum.Ensemble, dict[str, Any], dict[str, Tensor]]:
    """An ensemble with the weights of a stored model, the stored numbers, and their gradients by our names."""
    form, embedded = case.split(",")[0], "embedded" in case
    stored = REFERENCE[case]
    x = torch.tensor(stored["x"], dtype=torch.float64)
    method = TabM(members=MEMBERS, form=form, plain=("0",) if embedded else ())
    ens = multum.ensemble(network(embedded).double(), method, example=x, seed=0).eval()
    there = dict(ens.network.named_parameters())
    gradients = {}
    for name, value in tensors(stored["state"]).items():
        turned = value.transpose(1, 2) if name == "output.weight" else value
        if "impl" not in name:  # the edges, as buffers
            with torch.no_grad():
                there[ours(name)].copy_(turned.reshape(there[ours(name)].shape))
    for name, value in tensors(stored["gradients"]).items():
        gradients[ours(name)] = value.transpose(1, 2) if name == "output.weight" else value
    assert gradients.keys() == there.keys()
    return ens, stored, gradients


@pytest.mark.parametrize("case", REFERENCE)
def test_layers_outputs_and_gradients_are_those_of_the_package(case: str) -> None:
    ens, stored, gradients = copied(case)
    numbers = {name: torch.tensor(stored[name], dtype=torch.float64) for name in ("x", "outputs", "weights_of_outputs")}
    layers = [torch.tensor(layer, dtype=torch.float64) for layer in stored["layers"]]
    for m in range(MEMBERS):
        member = ens.member(m).eval()
        z = member[0](numbers["x"])
        for k, wanted in enumerate(layers):  # a layer and its activation at a time
            z = member[1].hidden[2 * k : 2 * k + 2](z)
            torch.testing.assert_close(z, wanted[:, m], **EXACT)
    for executor in ens.executors:
        ens.executor = executor
        ens.zero_grad()
        outputs = ens(numbers["x"])
        torch.testing.assert_close(outputs, numbers["outputs"].transpose(0, 1), **EXACT)
        (outputs * numbers["weights_of_outputs"].transpose(0, 1)).sum().backward()
        for name, p in ens.network.named_parameters():
            torch.testing.assert_close(p.grad, gradients[name].reshape(p.shape), **EXACT)


@pytest.mark.parametrize("case", [name for name in REFERENCE if "embedded" in name])
def test_our_encoding_computes_what_an_embedding_and_the_first_layer_compute(case: str) -> None:
    """Why tables need no further package: an embedding before a linear layer is a linear layer on our encoding."""
    ens, stored, _ = copied(case)
    x = torch.tensor(stored["x"], dtype=torch.float64)
    for m in range(MEMBERS):
        member = ens.member(m)
        embedding, first = member[0], member[1].hidden[0]
        plain = TabularMLP(in_features=INPUTS, classes=OUTPUTS, hidden=(WIDTH, WIDTH), dropout=0.0, bins=3).double()
        edges = torch.tensor(tabm_reference.EDGES, dtype=torch.float64)
        plain.encoding = Encoding(edges)
        blocks = first.weight.view(WIDTH, INPUTS, -1)
        linear = torch.einsum("ofd,fd->of", blocks, embedding.linear0["weight"])
        bins = torch.einsum("ofd,fbd->ofb", blocks, embedding.linear["weight"]).flatten(1)
        bias = first.bias + torch.einsum("ofd,fd->o", blocks, embedding.linear0["bias"])
        with torch.no_grad():
            plain.hidden[0].weight.copy_(torch.cat([linear, bins], 1))
            plain.hidden[0].bias.copy_(bias)
        plain.hidden[2].load_state_dict(member[1].hidden[2].state_dict())
        plain.fc.load_state_dict(member[1].fc.state_dict())
        torch.testing.assert_close(plain(x), member(x), **EXACT)


class Encoding(nn.Module):
    """The network's encoding with edges for each number."""

    def __init__(self, edges: Tensor):
        super().__init__()
        self.edges = edges

    def forward(self, x: Tensor) -> Tensor:
        from multum.models.mlp import PiecewiseLinear

        parts = []
        for i, edges in enumerate(self.edges):
            one = PiecewiseLinear((i,), bins=3)
            one.edges = tuple(edges.tolist())
            parts.append(one(x)[:, x.shape[1] :])
        return torch.cat([x, *parts], 1)


@pytest.mark.skipif(importlib.util.find_spec("tabm") is None, reason="the package tabm is not installed")
def test_the_stored_numbers_are_those_of_the_installed_package(tmp_path) -> None:
    path = tmp_path / "now.json"
    subprocess.run([sys.executable, tabm_reference.__file__, str(path)], check=True)
    now = json.loads(path.read_text())
    for case, stored in REFERENCE.items():
        outputs = (torch.tensor(each["outputs"], dtype=torch.float64) for each in (now[case], stored))
        torch.testing.assert_close(*outputs, **EXACT)


def made(**fields: Any) -> multum.Ensemble:
    net = multum.models.build("mlp", in_features=5, classes=3, hidden=(8, 8))
    return multum.ensemble(net, TabM(members=64, **fields), example=torch.zeros(2, 5), seed=0)


def test_how_members_start() -> None:
    ens = made()
    values = dict(ens.network.named_parameters())
    r = values["hidden.0.r"]
    assert {*r.flatten().tolist()} == {-1.0, 1.0} and abs(float(r.detach().mean())) < 0.2
    assert all(bool((values[n] == 1).all()) for n in ("hidden.0.s", "hidden.2.r", "hidden.2.s"))
    bias, head = values["hidden.0.bias"], values["fc.weight"]
    assert bias.shape == (64, 8) and bool((bias == bias[0]).all())  # one start for all, as in the package
    assert head.shape == (64, 3, 8) and not bool((head == head[0]).all())
    assert "hidden.0.weight" in ens.shared
    normal = dict(made(start="normal", form="mini").network.named_parameters())
    spread = normal["hidden.0.r"].detach()
    assert abs(float(spread.mean())) < 0.2 and abs(float(spread.std()) - 1) < 0.2
    assert {n for n in normal if n.endswith((".r", ".s"))} == {"hidden.0.r"} and normal["hidden.0.bias"].shape == (8,)
    alike = dict(made(chunks=(2, 3)).network.named_parameters())["hidden.0.r"]
    assert bool((alike[:, :1] == alike[:, :2]).all() and (alike[:, 2:3] == alike[:, 2:]).all())
    assert not bool((alike[:, 0] == alike[:, 2]).all())


def test_members_see_batches_of_their_own_where_asked() -> None:
    x = torch.randn(40, 5, generator=torch.Generator().manual_seed(0))
    net = multum.models.build("mlp", in_features=5, classes=2, hidden=(8,))
    ens = multum.ensemble(net, TabM(members=3, form="mini"), example=x[:2], seed=0)
    history = multum.fit(ens, (x, (x[:, 0] > 0).long()), multum.Recipe(epochs=8, lr=0.05, batch_size=8, order="own"))
    assert history[-1]["accuracy"] > 0.85


def test_factors_decay_as_weights_do() -> None:
    ens = made(form="mini")
    assert not ens.method.undecayed(ens)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"chunks must add up to the inputs of the first layer, hidden.0; got 4, not 5"
    ):
        made(chunks=(4,))
    with pytest.raises(ConfigError, match=r"chunks must be whole numbers from 1 on; got chunks=\(0,\)"):
        TabM(chunks=(0,))
    build, example = ZOO["lstm"]
    with pytest.raises(RewriteError, match=r'TabM\(plain=\("lstm"'):
        multum.ensemble(build(), TabM(members=2), example=example())


def test_a_head_that_cannot_be_owned_is_refused_with_a_fix_that_TabM_has() -> None:
    frozen = multum.models.build("mlp", in_features=5, classes=3)
    frozen.fc.requires_grad_(False)
    with pytest.raises(RewriteError, match=r"fc: .*frozen(.|\n)*or use Deep") as refused:
        multum.ensemble(frozen, TabM(members=2), example=torch.randn(2, 5))
    assert "Multihead" not in str(refused.value)
