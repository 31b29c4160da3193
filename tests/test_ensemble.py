"""The ensemble as an object, and its executors: what they agree on, refuse, warn of, and leave alone."""

from __future__ import annotations

import copy
import io
import logging

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multum
import networks
from multum import Deep, Ensemble, Packed, Single
from multum.building import assembled
from multum.errors import ConfigError, ExampleError, ExecutorError, NetworkError
from multum.models import build
from multum.rewrite.walker import install

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
EXACT = {"rtol": 0, "atol": 1e-12}


def kind(method) -> str:
    return type(method).__name__


def mlp(**keywords) -> nn.Module:
    return build("mlp", in_features=6, classes=3, hidden=8, **keywords)


def by_hand(network: nn.Module, own: list[str], example: Tensor, members: int = 3) -> Ensemble:
    """An ensemble in which exactly `own` carries a member axis, with random values."""
    generator = torch.Generator().manual_seed(0)
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    install(
        network,
        {
            name: tensors[name].detach()
            + 0.3 * torch.randn(members, *tensors[name].shape, generator=generator, dtype=tensors[name].dtype)
            for name in own
        },
    )
    return assembled(network, own, members, Deep(members=members), example=example, seeds=list(range(members + 1)))


def warnings_of(caplog) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "multum" and r.levelno >= logging.WARNING]


# -- fall back to loop -------------------------------------------------------------------------------------------------


class DataDependent(nn.Module):
    """A Python branch on a value that depends on the member, after a norm that has moved by then."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm, self.head = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.stem(x))
        return self.head(x) if x.sum() > 0 else -self.head(x)


FALLBACKS = {
    "lstm": (networks.LstmNet, torch.randn(3, 7, 6)),
    "data-dependent": (DataDependent, X),
    "rrelu": (lambda: nn.Sequential(nn.Linear(6, 8), nn.RReLU(), nn.Linear(8, 3)), X),
    "spectral norm": (
        lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3)),
        X,
    ),
}


@pytest.mark.parametrize("name", FALLBACKS)
def test_what_vmap_cannot_run_is_found_at_construction_and_said_once(name, caplog):
    builder, x = FALLBACKS[name]
    ens = multum.ensemble(builder(), Deep(members=3), example=x)
    assert ens.executor == "loop"
    (message,) = warnings_of(caplog)
    assert ens.refusals["vmap"] in message and "'loop'" in message and "vmap" not in ens.executors
    assert "file" not in message and "\n" not in message
    for training in (True, False):
        assert ens.train(training)(x).shape[:2] == (3, len(x))
    multum.check(ens, x, verbose=False)
    with pytest.raises(ExecutorError, match=r"got 'vmap', .* Use 'loop'") as error:
        ens.executor = "vmap"
    assert ens.refusals["vmap"] in str(error.value)
    assert ens.executor == "loop" and len(warnings_of(caplog)) == 1


def test_one_member_has_no_choice_and_no_warning(caplog):
    assert multum.ensemble(networks.LstmNet(), Single(), example=FALLBACKS["lstm"][1]).members == 1
    assert not warnings_of(caplog)


def test_a_failed_probe_moves_nothing():
    network = DataDependent()
    ens = multum.ensemble(network, Deep(members=2, init="pretrained"), example=X, seed=0)
    assert ens.refusals
    for model in (network, ens):
        assert not model.norm.running_mean.any() and not model.norm.num_batches_tracked.any()


# -- construction leaves everything alone ------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [Single(), Deep(members=2), Packed(members=2, alpha=1)], ids=kind)
def test_construction_changes_neither_the_network_nor_the_generator(method):
    network = build("wrn-10-1", variant="meliketoy")
    network.layer1.requires_grad_(True).eval()
    calls: list[int] = []
    network.fc.register_forward_hook(lambda *_: None)
    before = {n: (id(t), t.clone()) for n, t in network.state_dict(keep_vars=True).items()}
    flags = {n: (m.training, type(m), len(m._forward_hooks)) for n, m in network.named_modules()}
    state = torch.get_rng_state()
    multum.ensemble(network, method, example=IMAGES, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert {n: (m.training, type(m), len(m._forward_hooks)) for n, m in network.named_modules()} == flags
    for name, tensor in network.state_dict(keep_vars=True).items():
        assert id(tensor) == before[name][0] and torch.equal(tensor, before[name][1])
        assert tensor.grad is None
    assert not calls

    torch.randint(2**62, ())
    drawn = torch.get_rng_state()
    torch.set_rng_state(state)
    multum.ensemble(network, method, example=IMAGES)
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_builder_runs_under_the_seed():
    state = torch.get_rng_state()
    one, two = (multum.ensemble(mlp, Single(), example=X, seed=1) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one(X), two(X))


def test_the_default_seed_follows_torch():
    outputs = []
    for _ in range(2):
        torch.manual_seed(4)
        outputs.append(multum.ensemble(mlp(), Deep(members=2), example=X)(X))
    assert torch.equal(*outputs)


# -- shared norms and trunks -------------------------------------------------------------------------------------------


def shared_norm_network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5))
    return nn.Sequential(*layers).double()


def test_vmap_pools_shared_statistics_like_one_batch_of_all_members():
    network = shared_norm_network()
    norm, head = copy.deepcopy(network[1]), copy.deepcopy(network[4])
    ens = by_hand(network, ["0.weight", "0.bias"], IMAGES.double()).train()
    assert ens.pooled == ("1",)
    ens.executor = "vmap"
    own = {n: ens.get_parameter(n).detach().clone().requires_grad_() for n in ens.own}
    for x in (IMAGES.double(), IMAGES.double() * 2 + 1):
        features = torch.cat([F.conv2d(x, w, b) for w, b in zip(own["0.weight"], own["0.bias"], strict=True)])
        expected = head(norm(features).relu().flatten(1)).view(3, 4, 5)
        torch.testing.assert_close(ens(x), expected, **EXACT)
    for name, buffer in norm.named_buffers():
        torch.testing.assert_close(ens.get_buffer(f"1.{name}"), buffer, **EXACT)
    weights = torch.rand(3, 4, 5, dtype=torch.float64)
    (ens(x) * weights).sum().backward()
    (head(norm(torch.cat([F.conv2d(x, *wb) for wb in zip(*own.values(), strict=True)])).relu().flatten(1)).view(3, 4, 5)
     * weights).sum().backward()  # fmt: skip
    for name, tensor in own.items():
        torch.testing.assert_close(ens.get_parameter(name).grad, tensor.grad, **EXACT)
    torch.testing.assert_close(ens.get_submodule("1").weight.grad, norm.weight.grad, **EXACT)


def test_loop_cannot_pool_and_says_so_once(caplog):
    ens = by_hand(shared_norm_network(), ["0.weight", "0.bias"], IMAGES.double())
    ens.executor = "loop"
    ens.eval()(IMAGES.double())
    assert not warnings_of(caplog)
    for _ in range(2):
        ens.train()(IMAGES.double())
    (message,) = warnings_of(caplog)
    assert "(1)" in message and "vmap" in message
    assert ens.get_submodule("1").num_batches_tracked == 2


def test_own_norms_and_trunk_norms_need_no_warning(caplog):
    own = multum.ensemble(build("wrn-10-1"), Deep(members=2), example=IMAGES)
    trunk = by_hand(shared_norm_network(), ["4.weight", "4.bias"], IMAGES.double())
    for ens, x in ((own, IMAGES), (trunk, IMAGES.double())):
        ens.executor = "loop"
        ens.train()(x)
        assert not ens.pooled
    assert not warnings_of(caplog)


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_the_buffers_of_a_shared_trunk_move_once_per_step(executor):
    network = shared_norm_network()
    alone = copy.deepcopy(network).train()
    ens = by_hand(network, ["4.weight", "4.bias"], IMAGES.double()).train()
    ens.executor = executor
    assert ens.has_trunk
    for x in (IMAGES.double(), IMAGES.double() * 2 + 1):
        ens(x)
        alone(x)
    for name, buffer in alone[1].named_buffers():
        torch.testing.assert_close(ens.get_buffer(f"1.{name}"), buffer, **EXACT)
    assert ens.get_submodule("1").num_batches_tracked == 2


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_a_trunk_that_trains_inside_a_network_in_eval_mode_moves_once(executor):
    ens = by_hand(shared_norm_network(), ["4.weight", "4.bias"], IMAGES.double()).eval()
    ens.executor = executor
    ens.get_submodule("1").train()
    ens(IMAGES.double())
    assert ens.get_submodule("1").num_batches_tracked == 1


def test_a_trunk_has_one_dropout_mask_and_members_have_their_own():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(6, 50), nn.Dropout(0.5), nn.Linear(50, 50), nn.Dropout(0.5))
    ens = by_hand(network, ["2.weight", "2.bias"], X).train()
    assert ens.numbers == {"3.member"}
    found: dict[str, list] = {"loop": [], "vmap": []}
    for executor, seen in found.items():
        trial = copy.deepcopy(ens)
        trial.executor = executor
        trial.get_submodule("1").register_forward_hook(lambda _, args, out, seen=seen: seen.append(out))
        seen.append(trial(X))
    for mask in found["loop"][:3]:
        torch.testing.assert_close(mask, found["vmap"][0])
    torch.testing.assert_close(found["loop"][-1], found["vmap"][-1])
    zeros = found["loop"][-1] == 0
    assert not torch.equal(zeros[0], zeros[1])


def test_what_members_share_becomes_the_mean_of_what_they_would_make_of_it():
    """One after another: each member starts from the same statistics, and none of them has the last word."""
    x = IMAGES.double()
    ens = by_hand(shared_norm_network(), ["0.weight", "0.bias"], x).train()
    ens.executor = "loop"
    members = [ens.member(i).train() for i in range(3)]
    for _ in range(2):
        ens(x)
        for one in members:
            one(x)
        for name in ("running_mean", "running_var"):
            mean = torch.stack([one[1].get_buffer(name) for one in members]).mean(0)
            torch.testing.assert_close(ens.get_buffer(f"1.{name}"), mean, **EXACT)
            for one in members:
                assert not torch.allclose(one[1].get_buffer(name), mean, rtol=1e-3)
                one[1].get_buffer(name).copy_(mean)


# -- memory formats and empty batches ----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [Deep(members=2), multum.BatchEnsemble(members=2, init="normal")], ids=kind)
@pytest.mark.parametrize("weights", [False, True], ids=["inputs", "weights too"])
def test_channels_last_runs_wherever_the_plain_network_does(method, weights):
    layers = (nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    ens = multum.ensemble(nn.Sequential(*layers).double(), method, example=IMAGES.double(), seed=0)
    x = IMAGES.double().to(memory_format=torch.channels_last)
    if weights:
        for p in ens.parameters():
            if p.ndim == 4:
                p.data = p.data.to(memory_format=torch.channels_last)
    rows = torch.stack([x, x])
    for training in (True, False):
        expected = torch.stack([ens.train(training).member(i)(x) for i in range(2)])
        for executor in ens.executors:
            ens.executor = executor
            ens.zero_grad()
            out = ens(x)
            torch.testing.assert_close(out, expected, **EXACT)
            torch.testing.assert_close(ens(rows, per_member=True), expected, **EXACT)
            out.sum().backward()
            assert all(p.grad is not None and p.grad.shape == p.shape for p in ens.parameters())
    assert not ens.refusals


NORMED = {
    "rows": (lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)), X),
    "images": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 3)), IMAGES),
    "no statistics": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 3)),
        X,
    ),
}


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("rows", Deep(members=2)),
        ("rows", multum.Mimo(members=2)),
        ("images", Deep(members=2)),
        ("images", multum.BatchEnsemble(members=2)),
        ("no statistics", Deep(members=2)),
    ],
)
def test_an_empty_batch_trains_as_in_the_plain_network(name, method):
    builder, x = NORMED[name]
    network = builder().train()
    before = copy.deepcopy(network.state_dict())
    ens = multum.ensemble(network, method, example=x, seed=0).train()
    plain = network(x[:0])
    plain.sum().backward()
    for executor in ens.executors:
        trial = copy.deepcopy(ens)
        trial.executor = executor
        out = trial(x[:0])
        assert out.shape == (2, *plain.shape)
        out.sum().backward()
        assert all(p.grad is not None and not p.grad.any() for p in trial.parameters())
        for buffer, value in network.named_buffers():
            moved = trial.get_buffer(buffer) - ens.get_buffer(buffer)
            assert torch.equal(moved, (value - before[buffer]).expand_as(moved)), buffer


# -- buffers that a network assigns ------------------------------------------------------------------------------------


class Counting(nn.Module):
    """Assigns its buffers anew in every training step, one of them by what the member sees."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("average", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        if self.training:
            self.count = self.count + 1
            self.average = 0.9 * self.average + 0.1 * y.mean(0)
        return y - self.average.detach()


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_assigned_buffers_are_kept_per_member(executor):
    ens = multum.ensemble(Counting(), Deep(members=2), example=X, seed=0)
    assert not ens.count.any()
    members = [ens.member(i).train() for i in range(2)]
    ens.executor = executor
    for _ in range(3):
        out = ens(X)
        out.sum().backward()
        torch.testing.assert_close(out, torch.stack([one(X) for one in members]))
    assert ens.count.tolist() == [3, 3]
    torch.testing.assert_close(ens.average, torch.stack([one.average for one in members]))
    assert not ens.average.requires_grad and type(ens.average) is Tensor


def test_a_shared_buffer_that_members_would_disagree_on_makes_vmap_refuse(caplog):
    ens = by_hand(Counting(), ["fc.weight", "fc.bias"], X)
    assert "vmap" in ens.refusals["vmap"] and len(warnings_of(caplog)) == 1
    before = ens.network.average
    ens.train()(X)
    assert ens.network.average is before and ens.average.any() and ens.count == 1


# -- names and flags ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [Deep(members=2), Packed(members=2)], ids=kind)
def test_a_single_layer_is_a_network(method):
    ens = multum.ensemble(nn.Linear(6, 3), method, example=X)
    assert ens.own == ("weight", "bias")
    multum.check(ens, X, verbose=False)
    assert type(ens.member(0)) is nn.Linear


@pytest.mark.parametrize("method", [Deep(members=2), Packed(members=2)], ids=kind)
def test_children_may_have_the_names_of_the_ensemble(method, tmp_path):
    names = ("members", "network", "own", "method", "executor", "example", "task", "edits", "shared", "device", "state")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            for name in names:
                self.add_module(name, nn.Linear(6, 6))

        def forward(self, x: Tensor) -> Tensor:
            for name in names:
                x = self._modules[name](x).relu() + x
            return x

    ens = multum.ensemble(Net(), method, example=X)
    multum.check(ens, X, verbose=False)
    assert list(ens.state_dict()) == list(Net().state_dict())
    for model in (ens, copy.deepcopy(ens)):
        assert model.members == 2 and model.method == method and model.task == "classification"
        model.executor = "loop"
        assert model.executor == model.chosen == "loop"
        assert isinstance(model.network, Net)
    ens.executor = None
    multum.save(ens, tmp_path / "model.safetensors")
    assert torch.equal(multum.load(tmp_path / "model.safetensors", network=Net)(X), ens(X))


def test_buffers_outside_the_state_dict_stay_outside():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 3)
            self.register_buffer("table", torch.arange(6.0), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x + self.table)

    ens = multum.ensemble(Net(), Deep(members=2), example=X)
    assert list(ens.state_dict()) == list(Net().state_dict())
    assert "table" in ens.shared  # the same in all members, and never moved


def test_the_training_flag_is_one_flag():
    ens = multum.ensemble(mlp(dropout=0.5), Deep(members=2), example=X).train()
    multum.predict(ens, X)
    assert ens.training and ens.network.training
    ens.training = False
    assert not ens.network.training
    assert ens.eval() is ens


def test_flags_that_differ_from_the_networks_own_survive():
    network = build("wrn-10-1")
    network.bn.eval()
    ens = multum.ensemble(network, Deep(members=2), example=IMAGES)
    assert ens.training and not ens.bn.training
    before = ens.bn.running_mean.clone()
    ens(IMAGES)
    assert torch.equal(ens.bn.running_mean, before)


def test_parameters_move_to_the_optimizer_and_back():
    ens = multum.ensemble(mlp(), Deep(members=3), example=X)
    optimizer = torch.optim.Adam(ens.parameters())
    first = multum.loss(ens(X), torch.tensor([0, 1, 2, 0]))
    for _ in range(20):
        optimizer.zero_grad()
        value = multum.loss(ens(X), torch.tensor([0, 1, 2, 0]))
        value.backward()
        optimizer.step()
    assert value < first


def test_it_can_be_pickled():
    ens = multum.ensemble(mlp(dropout=0.5), Deep(members=2), example=X).train()
    ens(X)
    file = io.BytesIO()
    torch.save(ens, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert torch.equal(again(X), ens(X))


def test_repr_says_what_it_is():
    text = repr(multum.ensemble(mlp(), Packed(members=4, alpha=2), example=X))
    assert text.startswith("Ensemble(") and "Packed(members=4, alpha=2" in text
    assert "members=4" in text and "own=4" in text and "Linear(in_features=6, out_features=4" in text


# -- several inputs, and wrong ones ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [Deep(members=2), Packed(members=2)], ids=kind)
def test_several_inputs_as_tuple_or_dict(method):
    network, (numbers, categories) = networks.TwoInputNet(), networks.ZOO["two-input"][1]()
    pair, named = (numbers, categories), {"x_num": numbers, "x_cat": categories}
    ens = multum.ensemble(network, method, example=pair, seed=0)
    same = multum.ensemble(network, method, example=named, seed=0)
    assert torch.equal(ens(pair), ens(named)) and torch.equal(ens(named), same(named))
    for x in (pair, named):
        multum.check(ens, x, verbose=False)
    for executor in ("loop", "vmap"):
        ens.executor = executor
        rows = tuple(t.expand(2, *t.shape) for t in pair)
        torch.testing.assert_close(ens(rows, per_member=True), ens(pair))
        torch.testing.assert_close(ens(dict(zip(named, rows, strict=True)), per_member=True), ens(pair))


def test_inputs_per_member_have_a_member_axis():
    ens = multum.ensemble(mlp(), Deep(members=3), example=X)
    with pytest.raises(ExampleError, match=r"members=3; got x.shape=\(4, 6\)"):
        ens(X, per_member=True)
    with pytest.raises(ConfigError, match="got member=1 as well"):
        ens(torch.stack([X] * 3), per_member=True, member=1)


@pytest.mark.parametrize("index", [3, -4, 1.5, "0", None])
def test_a_member_has_a_whole_number(index):
    ens = multum.ensemble(mlp(), Deep(members=3), example=X)
    with pytest.raises(ConfigError, match="whole number from 0 to 2; got member="):
        ens.member(index)


def test_executors_have_names():
    ens = multum.ensemble(mlp(), Deep(members=2), example=X)
    with pytest.raises(ConfigError, match=r"'loop', 'vmap', 'grouped' or None .*; got 'vmpa'\. Did you mean vmap"):
        ens.executor = "vmpa"
    assert (ens.train().executor, ens.eval().executor) == ("vmap", "loop")  # the table for a CPU
    ens.executor = "vmap"
    assert ens.executor == "vmap"
    ens.executor = None
    assert ens.executor == "loop"


def test_a_network_that_returns_more_in_training_is_refused():
    class Auxiliary(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(6, 3)

        def forward(self, x: Tensor):
            return (self.fc(x), x) if self.training else self.fc(x)

    with pytest.raises(NetworkError, match=r"got tuple in training mode\. Wrap it"):
        multum.ensemble(Auxiliary(), Deep(members=2), example=X)


def test_inference_mode_and_no_grad():
    ens = multum.ensemble(build("wrn-10-1"), Deep(members=2), example=IMAGES).eval()
    out = ens(IMAGES)
    for context in (torch.inference_mode, torch.no_grad):
        with context():
            for executor in ("loop", "vmap"):
                ens.executor = executor
                torch.testing.assert_close(ens(IMAGES), out)


# -- torch.compile -----------------------------------------------------------------------------------------------------


def compare_compiled(method, backend: str) -> None:
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    network = nn.Sequential(*layers, nn.Linear(8, 5)).double()
    ens, x = multum.ensemble(network, method, example=IMAGES.double(), seed=0), IMAGES.double()
    for executor in ens.executors:
        for training in (True, False):
            torch._dynamo.reset()
            eager, compiled = copy.deepcopy(ens).train(training), copy.deepcopy(ens).train(training)
            eager.executor = compiled.executor = executor
            fast = torch.compile(compiled, backend=backend)
            for _ in range(2):
                one, two = eager(x), fast(x)
                torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-9)
                one.square().sum().backward()
                two.square().sum().backward()
            for (name, a), b in zip(eager.named_parameters(), compiled.parameters(), strict=True):
                torch.testing.assert_close(a.grad, b.grad, rtol=1e-8, atol=1e-8, msg=lambda m, n=name: f"{n}: {m}")
            for a, b in zip(eager.buffers(), compiled.buffers(), strict=True):
                torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "method", [Deep(members=2), pytest.param(Packed(members=2, alpha=1), marks=pytest.mark.slow)], ids=kind
)
def test_compiled_is_eager(method):
    compare_compiled(method, "aot_eager")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", [Deep(members=2), Packed(members=2, alpha=1)], ids=kind)
def test_compiled_by_inductor_is_eager(method):
    compare_compiled(method, "inductor")


def test_a_segmentation_is_a_classification_of_every_pixel() -> None:
    net = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))
    x, y = torch.randn(6, 1, 8, 8), torch.randint(3, (6, 8, 8))
    ens = multum.ensemble(net, multum.Packed(members=4, alpha=2), example=x, task="segmentation", seed=0)
    before = multum.evaluate(ens, (x, y))["nll"]
    multum.fit(ens, (x, y), multum.Recipe(epochs=20, batch_size=6))
    prediction = multum.predict(ens.eval(), x)
    assert prediction.probs.shape == (6, 3, 8, 8) and prediction.mutual_information.shape == (6, 8, 8)
    pixels = -prediction.probs.log().gather(1, y.unsqueeze(1)).mean()
    assert multum.evaluate(ens, (x, y))["nll"] == pytest.approx(float(pixels), rel=1e-5)
    assert float(pixels) < before
