"""Members side by side in the channels: which networks run so, that they give what one member after another gives, and
what must not run so."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import multum
from contract import test_contract as contract
from multum.executors import REFERENCE
from multum.executors.wide import Wide, wide_of
from multum.executors.wide.products import WideConvolution

EXACT = {"rtol": 1e-10, "atol": 1e-10}
X = torch.randn(3, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def net(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*layers).double()


def deep(network: nn.Module, x: Any = X, **fields: Any) -> multum.Ensemble:
    ens = multum.ensemble(network, multum.Deep(members=3, **fields), example=x, seed=0)
    ens.executor = "grouped"
    return ens


def trace(ens: multum.Ensemble, executor: str, x: Any, training: bool, grad: bool = True) -> tuple[dict, Wide]:
    """Outputs, gradients and buffers of one step, with members that differ in everything."""
    trial = copy.deepcopy(ens).double().train(training)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for t in (*trial.parameters(), *trial.buffers()):
            if t.is_floating_point():
                t.add_(0.1 * torch.rand(t.shape, dtype=t.dtype, generator=generator))
    trial.executor = executor
    with torch.set_grad_enabled(grad):
        out = trial(x)
    if grad:
        contract.weighted(out).backward()
    gradients = {name: p.grad for name, p in trial.named_parameters()}
    return {"out": out.detach(), **gradients, **dict(trial.named_buffers())}, wide_of(trial.network)


def check_that_it_agrees(ens: multum.Ensemble, x: Any, runs: int, reference: str = REFERENCE) -> Wide:
    """In both modes, with and without gradients; `runs` says whether it must have run side by side."""
    for training, grad in ((True, True), (False, True), (False, False)):
        expected, _ = trace(ens, reference, x, training, grad)
        actual, wide = trace(ens, "grouped", x, training, grad)
        assert (wide.runs, bool(wide.refusal)) == (runs, not runs), wide.refusal
        for name, tensor in expected.items():
            torch.testing.assert_close(actual[name], tensor, **EXACT, msg=lambda m, n=name: f"{n}: {m}")
    return wide


# -- which networks ----------------------------------------------------------------------------------------------------

# Attention, tables with columns to choose, concatenation and what a module holds itself are vmap's.
SIDE_BY_SIDE = {
    "mlp": ("deep", "packed", "packed-grouped", "batch-ensemble", "masksembles", "mixture", "mixture-blob", "hypernet"),
    "small-cnn": ("deep", "packed", "batch-ensemble", "mixture", "hypernet", "multihead", "tree-net"),
    "wrn-10-1": ("deep", "packed", "packed-grouped", "batch-ensemble", "batch-ensemble-own", "hypernet", "multihead"),
    "convnext-like": ("multihead",),
}


FAST = {("deep", "mlp"), ("packed", "wrn-10-1"), ("batch-ensemble", "wrn-10-1"), ("masksembles", "mlp")}
FAST |= {("mixture", "small-cnn"), ("hypernet", "small-cnn"), ("tree-net", "small-cnn"), ("mixture-blob", "mlp")}
PAIRS = [(method, network) for network, methods in SIDE_BY_SIDE.items() for method in methods]


@pytest.mark.parametrize(
    ("method", "network"), [pytest.param(*p, marks=() if p in FAST else pytest.mark.slow) for p in PAIRS]
)
def test_methods_and_networks_that_run_side_by_side(method, network):
    """The contract holds `grouped` to the reference; here is which way it went, and a second batch size."""
    ens, x = contract.made(method, network, 5), contract.double(contract.NETWORKS[network].example())
    pooled = "vmap" if ens.pooled else REFERENCE
    check_that_it_agrees(ens, x, runs=1, reference=pooled)
    check_that_it_agrees(ens, x[:2], runs=1, reference=pooled)


LAYERS: dict[str, list[nn.Module]] = {
    "conv": [nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), nn.Conv2d(4, 6, 3, stride=2, dilation=2, groups=2)],
    "stem in groups": [nn.Conv2d(3, 6, 3, groups=3), nn.ReLU()],
    "transposed": [nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), nn.ConvTranspose2d(4, 6, 2, groups=2)],
    "batch norm": [nn.BatchNorm2d(3), nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, affine=False), nn.ReLU(inplace=True)],
    "no statistics": [nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, track_running_stats=False)],
    "group norm": [nn.GroupNorm(3, 3), nn.Conv2d(3, 6, 3), nn.GroupNorm(2, 6)],
    "pools": [nn.Conv2d(3, 6, 3), nn.MaxPool2d(3, 2, 1), nn.AdaptiveMaxPool2d(3), nn.Upsample(scale_factor=2)],
    "activations": [nn.Conv2d(3, 6, 1), nn.Hardswish(), nn.ELU(), nn.GELU(), nn.SiLU(), nn.Hardtanh(), nn.Softplus()],
    "dropout": [nn.Dropout(0.4), nn.Conv2d(3, 6, 1), nn.Dropout2d(0.4), nn.ReLU(), nn.Dropout(0.4)],
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    ens = deep(net(*LAYERS[name], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 5)))
    check_that_it_agrees(ens, X, runs=1)


WAYS = {"matrices": {"PLACES": 0, "PER_PLACE": 0}, "channels last": {"LAST": 0}, "norms apart": {"FOLDED": 10**9}}
WAYS["whole blocks"] = {"lanes": lambda dtype: 4, "MANY": 0}
CONVOLUTIONS: list[nn.Module] = [
    *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
    *(nn.Conv2d(8, 6, 1, stride=2), nn.BatchNorm2d(6, affine=False)),
    *(nn.Conv2d(6, 8, 3, stride=(1, 2), padding=(2, 1), dilation=(2, 1), bias=False), nn.BatchNorm2d(8), nn.ReLU()),
    *(nn.Conv2d(8, 8, 1, groups=2), nn.ConvTranspose2d(8, 4, 2), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)),
]


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_convolve(way, rows, monkeypatch):
    """Sizes choose between them; here each is made to run."""
    for name, value in WAYS[way].items():
        monkeypatch.setattr(f"multum.executors.wide.products.{name}", value)
    monkeypatch.setattr("multum.rewrite.norm.LARGE", 0)
    ens = deep(net(*CONVOLUTIONS, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)))
    check_that_it_agrees(ens, X[:rows], runs=1)


def test_zeros_fill_the_channels_of_a_member_where_that_is_worth_it(monkeypatch):
    groups, convolve = [], WideConvolution.convolve

    def seen(self, x, weight, bias, members):
        groups.append((x.shape[1] // members, len(weight) // members))
        return convolve(self, x, weight, bias, members)

    monkeypatch.setattr(WideConvolution, "convolve", seen)
    for name, value in WAYS["whole blocks"].items():
        monkeypatch.setattr(f"multum.executors.wide.products.{name}", value)
    layers = [nn.Conv2d(3, 8, 3), nn.Conv2d(8, 6, 3), nn.Conv2d(6, 8, 1), nn.Conv2d(8, 1, 1), nn.Flatten()]
    ens = deep(net(*layers, nn.Linear(16, 5)))
    ens.executor = "grouped"
    ens(X)
    assert groups[-4:] == [(3, 8 * ens.members), (8, 8), (8, 8), (8, 1)]


def test_the_norm_behind_a_convolution_is_folded_into_its_weight():
    ens = deep(net(*CONVOLUTIONS, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))).eval()
    with torch.no_grad():
        ens(X)
    wide = wide_of(ens.network)
    (verdict,) = wide.verdicts.values()
    assert verdict.proof.folding == {"0": "1", "3": "4", "5": "6"}  # not behind one that is transposed
    assert not any(layer.done for layer in wide.parts.layers.values())


def test_layer_norm_and_tokens():
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches, self.norm, self.mix = nn.Conv2d(3, 6, 4, 4), nn.LayerNorm(6), nn.Linear(6, 6)
            self.head = nn.Linear(6, 5)

        def forward(self, x: Tensor) -> Tensor:
            tokens = self.patches(x).flatten(2).transpose(1, 2)
            tokens = tokens + F.gelu(self.mix(self.norm(tokens)))
            return self.head(tokens[:, 1:].mean(1).squeeze(1))

    check_that_it_agrees(deep(net(Tokens())), X, runs=1)


def test_inputs_of_each_member():
    ens = deep(net(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5)))
    xs = torch.stack([X, 2 * X, X.flip(0)])
    outputs = []
    for executor in (REFERENCE, "grouped"):
        ens.executor = executor
        outputs.append(ens(xs, per_member=True))
    torch.testing.assert_close(*outputs, **EXACT)
    assert wide_of(ens.network).runs == 1


# -- what mixes members ------------------------------------------------------------------------------------------------


class Custom(nn.Module):
    """Two convolutions and a head, with something in between."""

    def __init__(self, between: Any):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 6, 1), nn.Linear(6, 5)
        self.between = [between]  # no child, no attribute that decides

    def forward(self, x: Tensor) -> Tensor:
        x = self.between[0](self.stem(x))
        return self.head(x.mean((2, 3)))


def shuffled(x: Tensor) -> Tensor:
    batch, channels, height, width = x.shape
    return x.view(batch, 3, channels // 3, height, width).transpose(1, 2).reshape(x.shape)


MIXING: dict[str, Any] = {
    "softmax over channels": lambda x: x.softmax(1),
    "a mean of channels": lambda x: x - x.mean(1, keepdim=True),
    "concatenation": lambda x: torch.cat([x[:, :3], x[:, 3:]], 1),
    "a channel shuffle in as many groups as members": shuffled,
    "a number of channels": lambda x: x / x.shape[1],
    "a number of channels as a tensor": lambda x: x / torch.tensor(float(x.shape[1])),
    "a vector for the channels": lambda x: x * torch.arange(6.0, dtype=x.dtype, device=x.device).view(-1, 1, 1),
    "a norm of everything": lambda x: x / x.square().sum().sqrt(),
    "a choice by the number of channels": lambda x: x if x.shape[1] > 6 else 2 * x,
    "a flip": lambda x: x.flip(1),
    "a sort": lambda x: x.sort(1).values,
}


@pytest.mark.parametrize("name", MIXING)
def test_what_mixes_members_is_left_to_vmap(name):
    check_that_it_agrees(deep(net(Custom(MIXING[name]))), X, runs=0)


def test_what_decides_by_a_value_of_the_input_is_left_to_vmap():
    class Decides(Custom):
        def forward(self, x: Tensor) -> Tensor:
            y = self.stem(x)
            return self.head((y.softmax(1) if float(x[0, 0, 0, 0]) > 100 else y).mean((2, 3)))

    ens = deep(net(Decides(None)))
    check_that_it_agrees(ens, X, runs=0)
    check_that_it_agrees(ens, X + 1000, runs=0)


def test_what_decides_by_a_value_of_a_member_is_refused_with_the_reason():
    network = net(Custom(lambda x: x if float(x.detach().sum()) > 0 else -x))
    with pytest.raises(multum.errors.ExecutorError, match=r"'grouped', which raises RuntimeError.*Use 'loop'"):
        deep(network)


def test_random_numbers_of_the_network_are_left_to_vmap():
    for draw in (lambda x: x + torch.rand_like(x), lambda x: x * random.random(), lambda x: F.dropout(x, 0.5)):
        ens = deep(net(Custom(draw)))
        torch.manual_seed(0)
        before = random.getstate()
        ens.train()(X)
        assert wide_of(ens.network).refusal and wide_of(ens.network).runs == 0
        random.setstate(before)


def test_what_a_network_keeps_of_a_run_is_no_matter_of_all_members():
    class Keeps(Custom):
        def forward(self, x: Tensor) -> Tensor:
            self.last = self.stem(x)
            return self.head(F.relu(self.last).mean((2, 3)))

    ens = deep(net(Keeps(None)))
    ens(X)
    assert "keeps what it computes" in wide_of(ens.network).refusal


def test_weights_that_are_read_elsewhere_are_left_to_vmap():
    class Tied(Custom):
        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x).mean((2, 3))
            return self.head(x) + F.linear(x, self.head.weight)

    check_that_it_agrees(deep(net(Tied(None))), X, runs=0)


# -- the network changes -----------------------------------------------------------------------------------------------


def test_a_tensor_that_is_needed_again_is_not_overwritten():
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm, self.relu = nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU()
            self.head = nn.Linear(6, 5)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            z = self.norm(y)
            return self.head((self.relu(z) + 0.1 * z + y).mean((2, 3)))

    check_that_it_agrees(deep(net(Block())), X, runs=1)


def test_what_is_used_once_is_overwritten():
    ens = deep(net(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5))).eval()
    with torch.no_grad():
        ens(X)
    (verdict,) = wide_of(ens.network).verdicts.values()
    assert {"1", "2"} <= verdict.proof.overwriting  # the norm writes into what the convolution gave, and so on


def test_a_changed_network_is_proved_again():
    class Switch(Custom):
        mixes = False

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            return self.head((x.softmax(1) if self.mixes else x).mean((2, 3)))

    ens = deep(net(Switch(None)))
    wide = wide_of(ens.network)
    ens(X), ens(X)
    assert (wide.runs, wide.proofs) == (2, 1)
    ens.network[0].mixes = True
    ens(X)
    assert (wide.runs, wide.proofs) == (2, 2) and "softmax" in wide.refusal
    check_that_it_agrees(ens, X, runs=0)
    ens.network[0].mixes = False
    ens.network.append(nn.Softmax(1))
    ens(X)
    assert (wide.runs, wide.proofs) == (2, 3) and "softmax" in wide.refusal


def test_tensors_that_move_train_and_load(tmp_path):
    ens = deep(net(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5))).eval()

    def check(x: Tensor = X, runs: bool = True) -> None:
        wide = wide_of(ens.network)
        before = wide.runs
        ens.executor = "grouped"
        with torch.no_grad():
            actual = ens(x)
            ens.executor = REFERENCE
            torch.testing.assert_close(actual, ens(x), rtol=1e-4, atol=1e-5)
        assert wide.runs == before + runs

    check()
    with torch.no_grad():
        for t in (*ens.parameters(), *ens.buffers()):
            t.mul_(2)
    check()
    ens.float()
    check(X.float())
    ens.load_state_dict({name: t * 0.5 for name, t in ens.state_dict().items()})
    check(X.float())
    ens.to(memory_format=torch.channels_last)
    check(X.float())
    ens.regrow({name: torch.cat([t, 3 * t]) for name, t in ens.tensors(ens.own).items()})
    check(X.float())
    ens = copy.deepcopy(ens)
    check(X.float())
    handle = ens.network[0].register_forward_hook(lambda *_: None)
    check(X.float(), runs=False)
    handle.remove()
    check(X.float())


def test_a_block_that_runs_again_in_backward_is_left_to_vmap():
    class Again(Custom):
        def forward(self, x: Tensor) -> Tensor:
            x = checkpoint(lambda x: F.relu(self.stem(x)), x, use_reentrant=False)
            return self.head(x.mean((2, 3)))

    ens = deep(net(Again(None)))
    ens(X)
    assert "checkpoints" in wide_of(ens.network).refusal
    with torch.no_grad():
        ens(X)
    assert wide_of(ens.network).runs == 1  # nothing runs again without gradients


def test_one_row_and_many_rows_are_proved_apart():
    class Squeezes(Custom):
        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x).mean((2, 3))
            return self.head(x.squeeze().view(-1, 6) if x.shape[0] == 1 else x)

    ens = deep(net(Squeezes(None)))
    wide = wide_of(ens.network)
    for rows in (3, 2, 1):
        ens(X[:rows])
    assert wide.proofs == 2 and wide.runs == 2  # `view(-1, 6)` would make rows of the members


def test_mixed_precision():
    ens = deep(net(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Linear(216, 5))).float()
    for training in (True, False):
        outputs = []
        for executor in (REFERENCE, "grouped"):
            trial = copy.deepcopy(ens).train(training)
            trial.executor = executor
            with torch.autocast("cpu", dtype=torch.bfloat16):
                outputs.append(trial(X.float()).float())
        assert wide_of(trial.network).runs == 1
        torch.testing.assert_close(*outputs, rtol=0.02, atol=0.02)
