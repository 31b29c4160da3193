"""Training as a user meets it: every method learns, and what cannot end well is said before it begins."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import multum
from multum.data import augment
from multum.errors import ConfigError, MultumError, TrainingError
from multum.estimators.inputs import Examples, data_of
from multum.methods import METHODS, parse
from multum.runs.networks import builder_for
from multum.training import reporting
from multum.training import run as run_module
from multum.training.averaging import held_out_score
from multum.training.batches import Batches, Step, stream
from multum.training.devices import Place, open_fabric
from multum.training.optimizers import Optimizers
from multum.training.reporting import lost


def model_for(text: str, data: multum.Data, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(stream(seed, "model").initial_seed())
        return builder_for(text, data)()


# -- every method learns -----------------------------------------------------------------------------------------------

# The hypernetwork paper's rate never falls below half: new heads, which see a quarter of the last steps, need it.
LATE = {"epochs": 10, "batch_size": 16, "lr": 0.01, "schedule": "linear", "final": 0.5}
LEARNS = {name: (name, {"epochs": 5}) for name in METHODS} | {
    "fastgeometric": ("fastgeometric:members=3", {"epochs": 8}),
    "hypernet with new heads": ("hypernet:heads=reset", LATE),
    "masksembles": ("masksembles", {"epochs": 6}),
    "mcdropout": ("mcdropout:members=4", {"epochs": 6}),
    "mimo": ("mimo:members=2,repeats=2", {"epochs": 10}),
    "packed": ("packed:members=4,alpha=3", {"epochs": 6}),
    "snapshot": ("snapshot:members=3", {"epochs": 6}),
}


@pytest.mark.parametrize("model", ["mlp:hidden=64+64", pytest.param("small-cnn", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", LEARNS)
def test_every_method_learns_digits_in_seconds(name: str, model: str) -> None:
    text, fields = LEARNS[name]
    data = multum.load_data("digits")
    ens = multum.ensemble(model_for(model, data, 0), parse(text), example=data.example(), seed=0)
    history = multum.fit(ens, data, multum.Recipe(**{"lr": 0.02, "batch_size": 32, **fields}))
    found = multum.predict(ens, data.prepare(data.test.x))
    accuracy = float((found.labels == data.test.y).double().mean())
    print(f"{name}: {accuracy:.4f} after {len(history)} epochs, {sum(r['seconds'] for r in history):.1f} s")
    assert accuracy > 0.9
    assert ens.members == ens.method.members and found.members.shape[0] == ens.members


@pytest.mark.parametrize("text", ["deep:members=3", "packed:members=3,alpha=2", "mimo:members=2", "swag:members=3"])
def test_diabetes_trains_by_the_gaussian_likelihood(text: str) -> None:
    data = multum.load_data("diabetes")
    ens = multum.ensemble(model_for("mlp:hidden=50", data, 0), parse(text), example=data.example(), task="regression")
    history = multum.fit(ens, data, multum.Recipe(epochs=20, lr=0.01, batch_size=32))
    assert history[-1]["rmse"] < history[0]["rmse"] and "accuracy" not in history[0]
    found = multum.predict(ens, data.prepare(data.test.x))
    errors = found.mean * data.target_std + data.target_mean - data.test.y
    # Always answering the mean of the training part gives a spread of about 77 and an NLL of about 5.77.
    rmse = float(errors.square().mean().sqrt())
    log = torch.distributions.Normal(found.mean, found.variance.sqrt()).log_prob(data.targets(data.test.y))
    assert 45 < rmse < 68
    assert float(-log.mean()) + torch.tensor(data.target_std).log() < 5.72


def test_members_that_overfit_are_kept_at_their_best(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best epoch on the held-out part is what remains, norms included; epochs and scores by hand."""
    data = multum.load_data("digits")
    scores, seen = iter([3.0, 1.0, 2.0, 1.5]), []

    def scored(ensemble: multum.Ensemble, data: multum.Data, by: str, place, member) -> float:
        assert len(data.train) + len(data.validation) == 1258
        seen.append({n: t.clone() for n, t in ensemble.state_dict().items()})
        return next(scores)

    monkeypatch.setattr(run_module, "held_out_score", scored)
    ens = multum.ensemble(model_for("wrn-10-1", data, 0), multum.Single(), example=data.example(), seed=0)
    history = multum.fit(ens, data, multum.Recipe(epochs=4, batch_size=256, keep="best", validation=0.6))
    assert [row["validation_nll"] for row in history] == [3.0, 1.0, 2.0, 1.5]
    assert all(torch.equal(t, seen[1][n]) for n, t in ens.state_dict().items())
    assert not torch.equal(ens.state_dict()["fc.weight"], seen[3]["fc.weight"])


def test_the_held_out_score_is_the_nll_of_the_mixture() -> None:
    for name, model, task in (("digits", "small-cnn", "classification"), ("diabetes", "mlp", "regression")):
        data = multum.load_data(name).with_validation(0.3, seed=0)
        ens = multum.ensemble(model_for(model, data, 0), multum.Deep(members=3), example=data.example(), task=task)
        found = held_out_score(ens, data, "nll", lambda x: x, size=50)
        y = data.targets(data.validation.y)
        with torch.no_grad():
            outputs = ens.eval()(data.prepare(data.validation.x))
        if task == "classification":
            wanted = -outputs.softmax(2).mean(0)[torch.arange(len(y)), y].log().mean()
        else:
            variance = nn.functional.softplus(outputs[..., 1]) + 1e-6
            density = torch.distributions.Normal(outputs[..., 0], variance.sqrt()).log_prob(y).exp()
            wanted = -density.mean(0).log().mean()
        assert found == pytest.approx(float(wanted), rel=1e-5)


# -- what is said before training --------------------------------------------------------------------------------------


def net(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, outputs))


def given(n: int = 32) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


@pytest.mark.parametrize(
    ("method", "fields", "message"),
    [
        (multum.Snapshot(members=5), {"epochs": 4}, "5 members in 4 of 4 epochs"),
        (multum.Snapshot(members=3, cycles=False), {"epochs": 10}, "lower start"),
        (multum.FastGeometric(members=4), {"epochs": 6}, "7 epochs or more, or ask for members=3"),
        (multum.Hypernet(members=2, birth_epoch=4), {"epochs": 4}, "birth_epoch=4 of 4"),
        (multum.Hypernet(members=2), {"epochs": 1}, "born after 1 to 0 epochs"),
        (multum.Swag(), {"keep": "best"}, "gathers those of several epochs"),
        (multum.BatchEnsemble(), {"sequential": True}, "BatchEnsemble share weights"),
        (multum.Mimo(members=2), {"order": "own"}, "Mimo decides that itself"),
        (multum.Hypernet(members=2), {"order": "own"}, "Hypernet decides that itself"),
        (multum.Deep(members=2), {"crop": 2}, "which is a table"),
        (multum.Deep(members=2), {"randaugment": 2}, "which is a table"),
        (multum.Deep(members=2), {"precision": "16-true", "epochs": 0}, "epochs"),
    ],
)
def test_what_cannot_end_well_does_not_begin(method, fields: dict, message: str, monkeypatch) -> None:
    monkeypatch.setattr(Optimizers, "step", lambda *a, **k: pytest.fail("training began"))
    with pytest.raises(MultumError, match=message):
        multum.fit(
            multum.ensemble(net(), method, example=given()[0]), given(), multum.Recipe(**{"epochs": 5, **fields})
        )


def test_data_that_do_not_fit_are_refused() -> None:
    ens = multum.ensemble(net(), multum.Deep(members=2), example=given()[0])
    with pytest.raises(TrainingError, match="regression and classification"):
        multum.fit(ens, multum.load_data("diabetes"))
    with pytest.raises(TrainingError, match="two examples per process"):
        multum.fit(ens, given(1))
    two = multum.ensemble(net(2), multum.Deep(members=2), example=given()[0], task="regression")
    with pytest.raises(TrainingError, match="must be 0 in regression"):
        multum.fit(two, (given()[0], torch.randn(32)), multum.Recipe(mixup=0.2))
    with pytest.raises(TrainingError, match="accelerator='abacus'"):
        multum.fit(ens, given(), accelerator="abacus")


def test_a_last_batch_of_one_row_is_left_out() -> None:
    ens = multum.ensemble(net(), multum.Deep(members=2), example=given()[0])
    assert len(multum.fit(ens, given(33), multum.Recipe(epochs=1, batch_size=16, average_from=0.0))) == 1
    few = multum.ensemble(net(), multum.Deep(members=2), example=given()[0])
    assert len(multum.fit(few, given(5), multum.Recipe(epochs=2, batch_size=16))) == 2


# -- the loss is lost --------------------------------------------------------------------------------------------------


def test_nan_stops_with_step_member_and_rows() -> None:
    x, y = given()
    x[13, 2] = float("nan")
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    ens = multum.ensemble(plain, multum.Deep(members=2), example=given()[0], seed=0)
    with pytest.raises(TrainingError) as caught:
        multum.fit(ens, (x, y), multum.Recipe(epochs=2, batch_size=8, order="same"))
    text = str(caught.value)
    order = torch.randperm(32, generator=stream(0, "order", 0)).tolist()
    assert f"epoch 1, step {order.index(13) // 8 + 1}" in text
    assert "0 (nan), 1 (nan)" in text and "worst rows of the training part: 13, " in text
    assert "the input itself holds NaN" in text and "Lower lr" in text


def test_nan_of_a_method_that_mixes_rows_names_some_of_the_batch() -> None:
    x, y = given()
    x[13] = float("nan")
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    ens = multum.ensemble(plain, multum.Mimo(members=2, repeats=2), example=given()[0], seed=0)
    with pytest.raises(TrainingError, match=r"0 \(nan\), 1 \(nan\); some rows of the training part: \d+, "):
        multum.fit(ens, (x, y), multum.Recipe(epochs=2, batch_size=8))


def test_members_lost_together_name_the_worst_of_them() -> None:
    outputs = torch.zeros(2, 3, 2)
    outputs[0, 1, 0], outputs[1, 2, 0] = 1.5e8, 2.5e8
    step = Step(torch.zeros(3, 4), torch.ones(3, dtype=torch.long), False, torch.tensor([5, 6, 7]))
    text = str(lost(1.3e8, outputs, step, None, "cross_entropy", "step 1"))
    assert "member and its loss: 1 (8.333e+07)" in text and "worst rows of the training part: 7, " in text


def test_an_exploding_loss_stops_and_names_its_member(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    ens = multum.ensemble(plain, multum.Deep(members=3), example=given()[0], seed=0)
    with torch.no_grad():
        ens.tensors(["2.weight"])["2.weight"][1] *= 1e12
    with pytest.raises(TrainingError, match=r"step 1, lr 0.002; member and its loss: 1 \([\de.+]+\);"):
        multum.fit(ens, given())
    weights = ens.tensors(["2.weight"])["2.weight"]
    assert torch.isfinite(weights).all()  # nothing has moved
    hyper = multum.ensemble(plain, multum.Hypernet(members=3, birth_epoch=1), example=given()[0], seed=0)
    birth = multum.Hypernet.give_birth

    def poisoned(self, ensemble) -> None:
        birth(self, ensemble)
        with torch.no_grad():
            ensemble.tensors(["2.weight"])["2.weight"][2] *= float("inf")

    monkeypatch.setattr(multum.Hypernet, "give_birth", poisoned)
    with pytest.raises(TrainingError, match=r"epoch 2, step 7, .* member and its loss: 2 \(nan\)"):
        multum.fit(hyper, given(), multum.Recipe(epochs=3, batch_size=8))


# -- what is written ---------------------------------------------------------------------------------------------------


def test_a_run_folder_holds_the_log_the_model_and_checkpoints(tmp_path: Path) -> None:
    ens = multum.ensemble(
        lambda: multum.models.build("mlp", in_features=4, classes=3), multum.Deep(members=2), example=given()[0]
    )
    history = multum.fit(ens, given(), multum.Recipe(epochs=3, batch_size=16), out=tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert lines == history and [row["epoch"] for row in lines] == [1, 2, 3]
    assert {"epoch", "lr", "loss", "accuracy", "seconds", "waiting"} == set(lines[0])
    again = multum.load(tmp_path / "model.safetensors")
    assert torch.equal(again(given()[0]), ens(given()[0])) and not ens.training
    assert not [f for f in tmp_path.rglob("*") if f.suffix in (".pt", ".pkl", ".part")]


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=80, color_system=None)
    monkeypatch.setattr(reporting, "Console", lambda stderr: console)
    ens = multum.ensemble(net(), multum.Deep(members=2), example=given()[0])
    multum.fit(ens, given(), multum.Recipe(epochs=2, batch_size=16), progress=True)
    if terminal:
        line = r"Deep ━+ epoch 2/2 loss \d\.\d{4} accuracy \d\.\d{4} [\d,]+ examples/s 00:00 *\n"
        assert re.search(line, text.getvalue()), text.getvalue()
    else:
        lines = text.getvalue().splitlines()
        assert [line[:9] for line in lines] == ["epoch 1/2", "epoch 2/2"] and "accuracy" in lines[0]


def test_tensorboard_holds_the_log_and_a_resumed_run_writes_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    recipe = multum.Recipe(epochs=3, batch_size=8)

    def fit() -> list[dict]:
        ens = multum.ensemble(net(), multum.Deep(members=2), example=given()[0])
        return multum.fit(ens, given(), recipe, out=tmp_path, tensorboard=True, checkpoint_seconds=0)

    advance, steps = reporting.Bar.advance, []

    def crashing(self: reporting.Bar) -> None:
        steps.append(self.run.step)
        if len(steps) == 6:  # in the second epoch of four steps each
            raise KeyboardInterrupt
        advance(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(reporting.Bar, "advance", crashing)
        fit()
    history = fit()
    board = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    assert {"loss", "accuracy", "lr", "seconds"} <= set(board.Tags()["scalars"])
    for name in ("loss", "accuracy", "lr"):
        found = [(event.step, event.value) for event in board.Scalars(name)]
        assert found == [(row["epoch"], pytest.approx(row[name])) for row in history]


def test_tensorboard_needs_its_package_and_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ens = multum.ensemble(net(), multum.Deep(members=2), example=given()[0])
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ConfigError, match="pip install tensorboard"):
        multum.fit(ens, given(), multum.Recipe(epochs=2), out=tmp_path, tensorboard=True)
    with pytest.raises(ConfigError, match="out=None"):
        multum.fit(ens, given(), multum.Recipe(epochs=2), tensorboard=True)


@pytest.mark.parametrize("executor", ["loop", "vmap"])
def test_mixed_precision_multiplies_in_halves_and_keeps_whole_weights(executor: str) -> None:
    products: set[torch.dtype] = set()

    class Spy(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.bmm, torch.ops.aten.addmm):
                products.update(a.dtype for a in args if isinstance(a, Tensor))
            return func(*args, **(kwargs or {}))

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    ens = multum.ensemble(plain, multum.Deep(members=2), example=given()[0], seed=0)
    ens.executor = executor
    with Spy():
        history = multum.fit(ens, given(), multum.Recipe(epochs=30, batch_size=8, lr=0.03, precision="bf16-mixed"))
    assert products == {torch.bfloat16}
    assert all(t.dtype == torch.float32 for t in ens.state_dict().values())
    assert history[-1]["accuracy"] > 0.9


def test_rows_seen_do_not_depend_on_the_method_and_cover_the_data() -> None:
    data = multum.load_data("digits")
    recipe = multum.Recipe(batch_size=100, order="same", seed=4)
    seen = {}
    for method in (multum.Deep(members=2), multum.Mimo(members=2), multum.Single()):
        ens = multum.ensemble(model_for("small-cnn", data, 0), method, example=data.example(), seed=0)
        batches = Batches(data, recipe, ens, open_fabric(Place(), "32-true"))
        epochs = [torch.cat([s.rows for s in batches.epoch(e)]) for e in (0, 1, 0)]
        assert torch.equal(epochs[0], epochs[2]) and not torch.equal(epochs[0], epochs[1])
        assert torch.equal(epochs[0].sort().values, torch.arange(1258))
        tail = [s.rows for s in batches.epoch(0, first=11)]
        assert torch.equal(torch.cat(tail), epochs[0][1100:])
        seen[type(method)] = epochs[0]
    assert torch.equal(seen[multum.Deep], seen[multum.Mimo]) and torch.equal(seen[multum.Deep], seen[multum.Single])
    own = Batches(
        data,
        replace(recipe, order=None),  # the method's own, which Deep's paper says is each member's own
        multum.ensemble(model_for("small-cnn", data, 0), multum.Deep(members=3), example=data.example(), seed=0),
        open_fabric(Place(), "32-true"),
    )
    step = next(own.epoch(0))
    assert step.x.shape == (3, 100, 1, 8, 8) and step.per_member and step.rows.shape == (3, 100)
    assert torch.equal(step.x[1], data.prepare(data.train.x[step.rows[1]])) and torch.equal(
        step.y[2], data.train.y[step.rows[2]]
    )
    assert not torch.equal(step.rows[0], step.rows[1])


def test_after_each_epoch_one_may_look() -> None:
    data = multum.load_data("digits")
    looked: list[int] = []
    histories = []
    for look in (lambda epoch: (looked.append(epoch), ens.eval()), lambda epoch: None):  # noqa: B023
        net = multum.models.build("small-cnn", classes=10, in_channels=1)
        ens = multum.ensemble(net, multum.Deep(members=2, init="fresh"), example=data.example(), seed=0)
        history = multum.fit(ens, data, multum.Recipe(epochs=3, batch_size=400), after_epoch=look)
        histories.append([{k: v for k, v in row.items() if k not in ("seconds", "waiting")} for row in history])
    assert looked == [1, 2, 3] and histories[0] == histories[1]


# -- what a step does --------------------------------------------------------------------------------------------------


def batches_of(data: multum.Data, recipe: multum.Recipe, method: multum.methods.Method) -> Batches:
    ens = multum.ensemble(model_for("small-cnn", data, 0), method, example=data.example(), seed=0)
    return Batches(data, recipe, ens, open_fabric(Place(), "32-true"))


def test_members_have_the_order_of_their_methods_paper() -> None:
    data = multum.load_data("digits")
    orders = {name: parse(name).order for name in METHODS}
    assert [name for name, order in orders.items() if order == "own"] == ["deep"]
    packed = next(batches_of(data, multum.Recipe(), multum.Packed(members=2)).epoch(0))
    deep = next(batches_of(data, multum.Recipe(), multum.Deep(members=2)).epoch(0))
    assert packed.rows.ndim == 1 and deep.rows.ndim == 2 and not torch.equal(*deep.rows)


def test_every_step_draws_its_own_augmentation() -> None:
    """The same images twice in one epoch, in two steps, and in the next one: never moved the same way."""
    digits = multum.load_data("digits")
    same = digits.train.rows(torch.zeros(64, dtype=torch.long))
    batches = batches_of(replace(digits, train=same), multum.Recipe(batch_size=32, crop=2), multum.Single())
    first, second = (step.x for step in batches.epoch(0))
    again = next(batches.epoch(1)).x
    assert not torch.equal(first, second) and not torch.equal(first, again)
    assert torch.equal(first, next(batches.epoch(0)).x)


def test_random_crops_pad_with_black_as_if_before_standardising() -> None:
    digits = multum.load_data("digits")
    recipe = multum.Recipe(batch_size=64, crop=3, order="same", seed=2)
    step = next(batches_of(digits, recipe, multum.Single()).epoch(0))
    raw = digits.train.x[step.rows]
    assert float(digits.prepare(torch.zeros_like(raw[:1])).max()) < -0.1  # black is not the mean
    moved = augment.crop(raw, 3, augment.Draw(stream(2, "augment", 0, 0)))
    assert torch.equal(step.x, digits.prepare(moved))


PLAIN = multum.Recipe(epochs=1, batch_size=32, optimizer="sgd", lr=0.1, weight_decay=0.0, schedule="constant")


@pytest.mark.parametrize("apart", [False, True])
def test_fit_does_not_decay_what_a_method_keeps_from_decaying(apart: bool) -> None:
    ens = multum.ensemble(net(), multum.BatchEnsemble(members=2), example=given()[0], seed=0)
    undecayed = ens.method.undecayed(ens)
    before = {name: p.detach().clone() for name, p in ens.named_parameters()}
    with torch.no_grad():
        for p in ens.parameters():
            p.grad = torch.zeros_like(p)
    moving = Optimizers(ens, replace(PLAIN, weight_decay=0.5), open_fabric(Place(), "32-true"), apart=apart)
    moving.step(None)
    moved = {name for name, p in ens.named_parameters() if not torch.equal(p, before[name])}
    changes = {name for name, value in before.items() if bool(value.any())}  # zeros decay to zeros
    assert undecayed and moved == changes - undecayed and moved


@pytest.mark.parametrize("nesterov", [True, False])
def test_nesterov_is_torchs(nesterov: bool) -> None:
    recipe = replace(PLAIN, epochs=3, momentum=0.9, nesterov=nesterov, order="same")
    ens, twin = (multum.ensemble(net(), multum.Deep(members=2), example=given()[0], seed=0) for _ in "ab")
    multum.fit(ens, given(), recipe)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov)
    x, y = given()
    for epoch in range(3):
        rows = torch.randperm(32, generator=stream(0, "order", epoch))
        optimizer.zero_grad()
        multum.loss(twin.train()(x[rows]), y[rows], reduction="sum").backward()
        optimizer.step()
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(ens.state_dict()[name], value, rtol=1e-5, atol=1e-6)


def test_a_methods_own_learning_rate_is_the_one_that_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    monkeypatch.setattr(Optimizers, "set_rate", lambda self, rate: rates.append(rate))
    method = multum.Snapshot(members=2)
    ens = multum.ensemble(net(), method, example=given()[0], seed=0)
    history = multum.fit(ens, given(), replace(PLAIN, epochs=4, batch_size=16))
    wanted = [method.learning_rate(0.1, step, 8, 2, 0.1) for step in range(8)]
    assert rates == pytest.approx(wanted) and len(set(rates)) > 2
    assert [row["lr"] for row in history] == pytest.approx(wanted[1::2])


def test_a_table_is_scaled_once_to_the_bits_of_every_batch():
    g = torch.Generator().manual_seed(0)
    frame = pd.DataFrame({"a": torch.randn(400, generator=g).exp().numpy(), "b": torch.rand(400, generator=g).numpy()})
    data = data_of(Examples(frame, torch.randn(400, generator=g).double()), None, "regression", (), 0.0, 0)
    ens = multum.ensemble(nn.Linear(2, 2), multum.Deep(members=2), example=data.example(), task="regression", seed=0)
    here = SimpleNamespace(world_size=1, global_rank=0, to_device=lambda x: x)
    batches = Batches(data, multum.Recipe(batch_size=64), ens, here)
    assert data.scaling is not None
    for epoch in range(2):
        for step in batches.epoch(epoch):
            assert torch.equal(step.x, data.prepare(data.train.x[step.rows]))
