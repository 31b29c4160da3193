"""Wrong input gives an error of multum's own that states the rule, the value and the fix; odd input just works."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from torch import Tensor, nn

import multum
import networks
from multum import Deep, Packed, Single
from multum.errors import ConfigError, ExampleError, MultumError, NetworkError, RewriteError
from multum.models import build

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def mlp(**keywords) -> nn.Module:
    return build("mlp", **{"in_features": 6, "classes": 3, "hidden": 8, **keywords})


class Returns(nn.Module):
    """A network that makes something else of its outputs."""

    def __init__(self, change):
        super().__init__()
        self.fc, self.change = nn.Linear(6, 3), change

    def forward(self, x: Tensor):
        return self.change(self.fc(x))


def says(*parts: str) -> str:
    return ".*".join(re.escape(part) for part in parts)


# -- method configs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Deep, Packed, Single])
@pytest.mark.parametrize("members", [0, -1, 2.5, 4.0, True, "4", None])
def test_members_are_a_whole_number(kind, members):
    with pytest.raises(ConfigError, match=says("members must be a whole number >= 1; got members=", repr(members))):
        kind(members=members)


def test_single_is_one():
    with pytest.raises(ConfigError, match=says("one member; got members=2. Use Deep(members=...)")):
        Single(members=2)


@pytest.mark.parametrize("alpha", [0, -1, 4.5, float("nan"), float("inf"), True, "2", None])
def test_alpha_is_a_width_of_at_most_all_members(alpha):
    with pytest.raises(ConfigError, match=says("0 < alpha <= 4; got alpha=", "alpha=4 gives Deep")):
        Packed(members=4, alpha=alpha)


@pytest.mark.parametrize("field", ["gamma", "min_channels"])
@pytest.mark.parametrize("value", [0, -2, 1.5, True])
def test_counts_are_whole_numbers(field, value):
    with pytest.raises(ConfigError, match=says(f"{field} must be a whole number >= 1; got {field}={value}")):
        Packed(**{field: value})


@pytest.mark.parametrize("kind", [Deep, Packed, Single])
def test_init_is_a_known_word(kind):
    with pytest.raises(ConfigError, match=says("'fresh', 'pretrained'; got init='pretraned'. Did you mean pre")):
        kind(init="pretraned")


def test_configs_are_frozen_and_named():
    with pytest.raises(TypeError):
        Packed(4, 2)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Packed().alpha = 3  # type: ignore[misc]
    assert Packed(dense=["a"]) == Packed(dense=("a",)) == Packed(dense="a")
    assert hash(Packed()) == hash(Packed())


# -- multum.ensemble's own arguments -----------------------------------------------------------------------------------


def test_a_task_is_one_of_two():
    with pytest.raises(ConfigError, match=says("task must be", "got 'clasification'. Did you mean class")):
        multum.ensemble(mlp(), Deep(), example=X, task="clasification")


def test_a_class_is_no_config():
    with pytest.raises(ConfigError, match=r"got the class Deep\. Call it"):
        multum.ensemble(mlp(), Deep, example=X)


@pytest.mark.parametrize("method", ["deep", None, 4])
def test_a_method_is_a_config(method):
    with pytest.raises(ConfigError, match=says("such as multum.Deep(members=4); got ")):
        multum.ensemble(mlp(), method, example=X)


@pytest.mark.parametrize("network", [None, "resnet18", torch.zeros(3)])
def test_a_network_is_a_module_or_a_builder(network):
    with pytest.raises(NetworkError, match=says("an nn.Module or a function that builds one; got ")):
        multum.ensemble(network, Deep(), example=X)


def test_a_builder_builds_a_module():
    with pytest.raises(NetworkError, match=says("must return an nn.Module; got NoneType")):
        multum.ensemble(lambda: None, Deep(), example=X)


def test_a_builder_builds_the_same_network_every_time():
    widths = itertools.count(7)

    def builder() -> nn.Module:
        width = next(widths)
        return nn.Sequential(nn.Linear(6, width), nn.Linear(width, 3))

    with pytest.raises(NetworkError, match=says("the same network every time; got 0.weight as (8, 6) in member")):
        multum.ensemble(builder, Deep(members=2), example=X)


def test_an_ensemble_is_no_network():
    ens = multum.ensemble(mlp(), Deep(members=2), example=X)
    with pytest.raises(NetworkError, match=says("got an Ensemble. Use its member(i)")):
        multum.ensemble(ens, Deep(), example=X)
    assert multum.ensemble(ens.member(0), Deep(members=2), example=X)(X).shape == (2, 4, 3)


def test_a_builder_that_sets_its_own_seed_is_noticed(caplog):
    ens = multum.ensemble(networks.TiedNet, Deep(members=2), example=X)
    assert torch.equal(*ens(X))
    assert "all members start from the same weights" in caplog.text
    caplog.clear()
    multum.ensemble(mlp, Deep(members=2), example=X)
    multum.ensemble(networks.TiedNet(), Deep(members=2), example=X)
    assert not caplog.text


def test_a_network_can_be_copied():
    network = nn.Sequential(nn.utils.spectral_norm(nn.Linear(6, 4)), nn.Linear(4, 3))
    network(X)
    with pytest.raises(NetworkError, match=says("cannot be copied", "Use torch.nn.utils.parametrizations")):
        multum.ensemble(network, Deep(), example=X)


def test_lazy_parameters():
    network = nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3))
    with pytest.raises(NetworkError, match=says("got lazy ones: 0.weight, 0.bias. Run the network")):
        multum.ensemble(network, Deep(), example=X)
    network(X)
    assert multum.ensemble(network, Packed(members=2), example=X)(X).shape == (2, 4, 3)


# -- the example -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", [None, 5, "x", [], {}, [[1.0, 2.0]]])
def test_an_example_is_made_of_tensors(example):
    with pytest.raises(ExampleError, match=says("example must be a batch of tensors; got ", "without a tensor")):
        multum.ensemble(mlp(), Deep(), example=example)


@pytest.mark.parametrize("example", [torch.zeros(0, 6), torch.tensor(1.0)])
def test_an_example_has_a_row(example):
    with pytest.raises(ExampleError, match=says("at least one row; got shape ", str(tuple(example.shape)))):
        multum.ensemble(mlp(), Deep(), example=example)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_example_is_finite(value):
    x = X.clone()
    x[1, 2] = value
    with pytest.raises(ExampleError, match=says("finite numbers; got NaN or infinity. Give a real batch")):
        multum.ensemble(mlp(), Deep(), example=x)


@pytest.mark.parametrize("example", [torch.zeros(4, 5), torch.zeros(4, 6, dtype=torch.int64), (X, X)])
def test_an_example_fits_the_network(example):
    with pytest.raises(ExampleError, match=says("must run on the example; got ", "Error for shape (4, ")):
        multum.ensemble(mlp(), Deep(), example=example)


# -- what a network returns --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "kind"), [(lambda y: (y, y), "tuple"), (lambda y: {"logits": y}, "dict"), (lambda y: 1.0, "float")]
)
def test_a_network_returns_one_tensor(change, kind):
    with pytest.raises(NetworkError, match=says(f"one tensor; got {kind}; wrap it")):
        multum.ensemble(Returns(change), Deep(), example=X)


@pytest.mark.parametrize("change", [Tensor.mean, lambda y: y[:, 0], lambda y: y.T, lambda y: y.flatten()])
def test_a_network_keeps_its_rows(change):
    with pytest.raises(NetworkError, match=says("must give [batch, outputs]; got ", "for a batch of 4. Wrap it")):
        multum.ensemble(Returns(change), Deep(), example=X)


def test_a_network_returns_numbers_not_labels():
    with pytest.raises(NetworkError, match=says("floating point outputs; got torch.int64. Return logits")):
        multum.ensemble(Returns(lambda y: y.argmax(1, keepdim=True)), Deep(), example=X)


@pytest.mark.parametrize(("outputs", "targets", "fix"), [(3, None, "2 or 1"), (4, None, "2 or 1"), (3, 2, "4 or 2")])
def test_a_regression_has_two_outputs_per_target_or_one(outputs, targets, fix):
    said = says("two outputs per target, mean and raw variance", f"or one; got {outputs} for", f"last layer {fix}")
    with pytest.raises(NetworkError, match=said):
        multum.ensemble(mlp(classes=outputs), Deep(), example=X, task="regression", targets=targets)


def test_targets_are_for_regression_and_whole():
    with pytest.raises(ConfigError, match="targets must be for task='regression'; got targets=2"):
        multum.ensemble(mlp(classes=2), Deep(), example=X, targets=2)
    with pytest.raises(ConfigError, match="targets must be a whole number >= 1"):
        multum.ensemble(mlp(classes=2), Deep(), example=X, task="regression", targets=0)


def test_outputs_may_have_more_axes():
    network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 5, 1))  # segmentation
    x = torch.randn(2, 3, 8, 8)
    for method in (Deep(members=2), Packed(members=2)):
        ens = multum.ensemble(network, method, example=x)
        assert ens(x).shape == (2, 2, 5, 8, 8)
        multum.check(ens, x, verbose=False)


# -- widths ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "members", "alpha", "width"), [(7, 4, 2, 4), (7, 4, 1, 2), (1, 4, 1, 1), (5, 3, 0.1, 1)]
)
def test_odd_widths_round_up(hidden, members, alpha, width):
    ens = multum.ensemble(mlp(hidden=hidden), Packed(members=members, alpha=alpha), example=X)
    assert ens.network.hidden[0].out_features == width == ens.hidden.get_submodule("0").weight.shape[1]
    multum.check(ens, X, verbose=False)


@pytest.mark.parametrize("gamma", [3, 100])
def test_a_gamma_that_does_not_fit_is_lowered(gamma):
    x = torch.randn(2, 3, 8, 8)
    ens = multum.ensemble(build("small-cnn"), Packed(members=2, gamma=gamma, min_channels=2), example=x)
    assert ens.network.conv2.groups == {3: 2, 100: 8}[gamma]
    assert ens.network.conv1.groups == 1
    multum.check(ens, x, verbose=False)
    assert multum.ensemble(build("small-cnn"), Packed(members=2, gamma=gamma), example=x).network.conv2.groups == 1


# -- ties, frozen layers, other devices --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [Single(), Deep(members=2), Packed(members=2, alpha=1)])
def test_tied_weights_stay_tied(method):
    ens = multum.ensemble(networks.TiedNet(), method, example=X)
    assert ens.first.weight is ens.second.weight
    assert "second.weight" not in ens.own and len(list(ens.parameters())) == 7
    multum.check(ens, X, verbose=False)
    optimizer = torch.optim.SGD(ens.parameters(), lr=0.1)
    ens(X).sum().backward()
    optimizer.step()
    one = ens.member(0)
    assert one.first.weight is one.second.weight
    torch.testing.assert_close(one(X), ens(X)[0])


def frozen_network() -> nn.Module:
    network = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    nn.init.orthogonal_(network[0].weight, generator=torch.Generator().manual_seed(0))
    nn.init.zeros_(network[0].bias)
    network[0].requires_grad_(False)
    network[1].requires_grad_(False)
    network[1].running_mean.fill_(0.5)
    network[1].running_var.fill_(2.0)
    return network


@pytest.mark.parametrize("init", ["fresh", "pretrained"])
@pytest.mark.parametrize("given", ["network", "builder"])
def test_deep_keeps_what_is_frozen(init, given):
    network = frozen_network()
    source = network if given == "network" else frozen_network
    ens = multum.ensemble(source, Deep(members=3, init=init), example=X, seed=0)
    tensors = ens.state_dict()
    for name, tensor in network.state_dict().items():
        if name.startswith(("0.", "1.")) and name in ens.own:
            assert all(torch.equal(row, tensor) for row in tensors[name]), name
    assert {n for n, p in ens.named_parameters() if p.requires_grad} == {"3.weight", "3.bias"}
    assert torch.equal(tensors["3.weight"][0], tensors["3.weight"][1]) is (init == "pretrained")
    assert [p.requires_grad for p in ens.member(0).parameters()] == [p.requires_grad for p in network.parameters()]


def test_packed_cannot_keep_frozen_values_at_another_width():
    with pytest.raises(RewriteError, match=r"0\.weight: it is frozen, .*\n *fix: use init=\"pretrained\"") as error:
        multum.ensemble(frozen_network(), Packed(members=4), example=X)
    assert {"0.weight", "0.bias", "1.weight", "1.bias"} == {refusal.path for refusal in error.value.refusals}
    ens = multum.ensemble(frozen_network(), Packed(members=4, init="pretrained"), example=X)
    assert {n for n, p in ens.named_parameters() if p.requires_grad} == {"3.weight", "3.bias"}
    given = frozen_network()[0].weight
    assert all((given == row).all(1).any() for rows in ens.get_parameter("0.weight") for row in rows)


def test_a_network_on_meta_is_counted_not_run():
    with torch.device("meta"):
        network = build("resnet18")
    ens = multum.ensemble(network, Packed(members=4), example=torch.zeros(2, 3, 32, 32))
    assert all(t.is_meta for t in ens.parameters()) and ens.device.type == "meta"
    assert multum.cost(ens, example=torch.zeros(1, 3, 32, 32)).params == 11_190_440
    assert ens(torch.zeros(2, 3, 32, 32, device="meta")).shape == (4, 2, 10)
    assert ens.member(0).conv1.weight.is_meta


def test_every_error_is_multums_own():
    for error in (ConfigError, ExampleError, NetworkError, RewriteError):
        assert issubclass(error, MultumError)


def test_a_refused_network_lists_every_place():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.unused, self.head = nn.Linear(6, 8), nn.Linear(4, 4), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.first(x))

    with pytest.raises(RewriteError) as error:
        multum.ensemble(Two(), Packed(members=2), example=X)
    assert {r.path for r in error.value.refusals} == {"unused.weight", "unused.bias"}
    assert "refused at 2 places, nothing was changed" in str(error.value)
    assert str(error.value).count("fix: ") == 2
