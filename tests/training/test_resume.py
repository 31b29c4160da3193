"""A run that is stopped at any moment and resumed ends as if nothing had happened, to the bit."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import multum
from grids import grid
from multum import files
from multum.errors import FileError, TrainingError
from multum.runs import train as job
from multum.runs.folder import open_run
from multum.training import checkpoint
from multum.training.optimizers import Optimizers
from training.noisy import Noisy

ZYGOTE = Path(__file__).with_name("zygote.py")


def tensors(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def rows(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in ("seconds", "waiting")} for line in lines]


def assert_same_run(a: Path, b: Path) -> None:
    assert rows(a) == rows(b)
    found, wanted = tensors(a), tensors(b)
    assert set(found) == set(wanted)
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


# -- kill -9, SIGTERM, Ctrl-C at random moments ------------------------------------------------------------------------

JOBS = {
    "packed": {
        "model": "mlp:hidden=24+24,dropout=0.2",
        "method": "packed:members=3,alpha=2",
        "recipe": {"epochs": 8, "batch_size": 16, "order": "own", "mixup": 0.3, "accumulate": 2, "keep": "best"},
    },
    "hypernet": {
        "model": "small-cnn",
        "method": "hypernet:members=3,birth_epoch=2",
        "recipe": {"epochs": 5, "batch_size": 32, "optimizer": "sgd", "lr": 0.05, "average_from": 0.6},
    },
    "swag": {
        "model": "wrn-10-1",
        "method": "swag:members=3,start=0.4",
        "recipe": {"epochs": 5, "batch_size": 32, "lr": 0.01, "crop": 1, "label_smoothing": 0.1},
    },
}


@pytest.fixture(scope="module")
def little_data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """200 digits: epochs short enough to be stopped many times."""
    import numpy as np

    digits = multum.load_data("digits")
    path = tmp_path_factory.mktemp("data") / "little.npz"
    parts = {"train": digits.train.rows(torch.arange(200)), "test": digits.test.rows(torch.arange(50))}
    arrays = {f"{k}_{name}": getattr(part, k).numpy() for name, part in parts.items() for k in ("x", "y")}
    np.savez(path, **arrays)
    return f"npz:{path}"


def stop_and_go(data: str, folder: Path, *attempts: tuple[str, list[int], int]) -> list[list[int]]:
    """Jobs by name, each stopped by these signals at moments drawn by this seed; their exit codes."""
    specs = []
    for i, (name, signals, seed) in enumerate(attempts):
        places = {"out": str(folder / f"{i}-stopped"), "whole": str(folder / f"{i}-whole")}
        specs.append({**JOBS[name], **places, "data": data, "signals": signals, "seed": seed})
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    command = [sys.executable, str(ZYGOTE), json.dumps(specs)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    print(done.stdout)
    found = json.loads(done.stdout.splitlines()[-1])
    for i, one in enumerate(found):
        assert one["last"] == 0, done.stderr[-3000:]
        assert_same_run(folder / f"{i}-stopped", folder / f"{i}-whole")
    return [one["codes"] for one in found]


def test_kill_9_sigterm_and_ctrl_c_at_random_moments(little_data: str, tmp_path: Path) -> None:
    kill, term, interrupt = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
    codes = stop_and_go(little_data, tmp_path, ("packed", [kill, term, interrupt], 1))
    assert codes == [[-kill, 128 + term, 128 + interrupt]]


@pytest.mark.slow
def test_eight_stops_by_three_signals(little_data: str, tmp_path: Path) -> None:
    kill, term, interrupt = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
    jobs = [("packed", [kill, kill], 1), ("hypernet", [kill, kill, term], 2), ("swag", [kill, kill, interrupt], 3)]
    codes = stop_and_go(little_data, tmp_path, *jobs)
    assert codes == [[-kill, -kill], [-kill, -kill, 128 + term], [-kill, -kill, 128 + interrupt]]


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_kill_9_twenty_times(name: str, little_data: str, tmp_path: Path) -> None:
    """Eight kills of each of three methods; every resumed run that nobody kills ends as the whole one did."""
    found = stop_and_go(little_data, tmp_path, *((name, [signal.SIGKILL] * 4, seed) for seed in range(2)))
    assert found == [[-signal.SIGKILL] * 4] * 2


# -- every setting, stopped at every kind of place ---------------------------------------------------------------------


def given(n: int = 60) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(n, 8, generator=g)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0).long()


def made(method: multum.methods.Method, net: type[nn.Module] = Noisy) -> multum.Ensemble:
    torch.manual_seed(0)
    return multum.ensemble(net(), method, example=given()[0][:4], seed=3)


class Crash(Exception):
    pass


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch) -> Iterator:
    """Make the optimizers' move number `k` (from now on) crash the run; 0 to let it go."""
    left = {"moves": 0}
    step = Optimizers.step

    def crashing(self: Optimizers, *args, **kwargs) -> None:
        if left["moves"]:
            left["moves"] -= 1
            if not left["moves"]:
                raise Crash
        step(self, *args, **kwargs)

    monkeypatch.setattr(Optimizers, "step", crashing)
    yield lambda k: left.update(moves=k)


BASE = multum.Recipe(epochs=4, batch_size=16, optimizer="sgd", lr=0.1, seed=5)  # 4 steps an epoch, the last of 12 rows

SETTINGS = {
    "plain": (multum.Deep(members=2), {}),
    "adam": (multum.Packed(members=2, alpha=1), {"optimizer": "adam", "lr": 0.01}),
    "lamb": (multum.Deep(members=2), {"optimizer": "lamb", "lr": 0.01}),
    "accumulate": (multum.Deep(members=2), {"accumulate": 3}),
    "own order": (multum.Deep(members=3), {"order": "own"}),
    "mixup": (multum.BatchEnsemble(members=2), {"mixup": 0.4, "label_smoothing": 0.1}),
    "averaging": (multum.Deep(members=2), {"average_from": 0.25}),
    "best": (multum.Deep(members=2), {"keep": "best", "validation": 0.3}),
    "clip": (multum.Deep(members=2), {"clip": 0.5}),
    "sequential": (multum.Deep(members=2), {"sequential": True, "order": "own", "average_from": 0.5}),
    "sequential best": (multum.Deep(members=2), {"sequential": True, "keep": "best", "epochs": 3}),
    "ghost": (multum.Deep(members=2), {"ghost": 5}),
    "warm-up": (multum.Deep(members=2), {"warmup": 2.0, "schedule": "linear"}),
    "hypernet": (multum.Hypernet(members=3, birth_epoch=2), {}),
    "hypernet averaged": (multum.Hypernet(members=3, birth_epoch=1, nested=False), {"average_from": 0.5}),
    "mc dropout": (multum.McDropout(members=2), {"keep": "best", "validation": 0.3}),
    "mimo": (multum.Mimo(members=2), {}),
    "snapshot": (multum.Snapshot(members=2), {}),
    "averaged snapshots": (multum.Snapshot(members=2, cycles=False, start=0.5), {"average_from": 0.25}),
    "fast geometric": (multum.FastGeometric(members=2), {}),
    "swag": (multum.Swag(members=2, start=0.3), {}),
    "double": (multum.Deep(members=2), {"precision": "64-true"}),
}


# Settings that keep nothing between steps which these do not keep, too.
STATELESS = ("plain", "lamb", "clip", "warm-up", "sequential best", "hypernet averaged", "averaged snapshots", "double")


@pytest.mark.parametrize("name", grid(SETTINGS, always=set(SETTINGS) - set(STATELESS)))
def test_a_crash_anywhere_leaves_no_trace(name: str, crash, tmp_path: Path) -> None:
    """Crashes at the first move, inside an epoch, around the middle, and near the end; checkpoints after every move."""
    method, fields = SETTINGS[name]
    recipe = replace(BASE, **fields)
    whole = multum.fit(made(method), given(), recipe, out=tmp_path / "whole")
    for moves in (1, 2, 5, 3):
        crash(moves)
        torch.manual_seed(moves)  # whatever torch's own generator has done before
        with pytest.raises(Crash):
            multum.fit(made(method), given(), recipe, out=tmp_path / "crashed", checkpoint_seconds=0)
    crash(0)
    found = multum.fit(made(method), given(), recipe, out=tmp_path / "crashed", checkpoint_seconds=0)
    assert len(found) == len(whole)
    assert_same_run(tmp_path / "crashed", tmp_path / "whole")
    # A run that has ended already ends the same way again.
    multum.fit(made(method), given(), recipe, out=tmp_path / "crashed")
    assert_same_run(tmp_path / "crashed", tmp_path / "whole")


def test_training_does_not_depend_on_the_state_of_torch_and_leaves_it_alone(tmp_path: Path) -> None:
    class Global(Noisy):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + 0.1 * torch.randn_like(x))

    outcomes = []
    for seed in (1, 2):
        ens = made(multum.Single(), Global)
        torch.manual_seed(seed)
        expected = torch.rand(3, generator=torch.Generator().manual_seed(seed))
        multum.fit(ens, given(), BASE)
        assert torch.equal(torch.rand(3), expected)
        outcomes.append(ens.state_dict())
    assert all(torch.equal(outcomes[0][n], outcomes[1][n]) for n in outcomes[0])


# -- what a folder allows ----------------------------------------------------------------------------------------------


def test_the_last_checkpoints_are_kept_and_hold_no_pickle(tmp_path: Path) -> None:
    multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path, checkpoint_seconds=0)
    files = sorted(f.name for f in (tmp_path / "checkpoints").iterdir())
    assert files == ["step-000000015.safetensors", "step-000000016.safetensors"]
    kept, header = checkpoint.read(tmp_path / "checkpoints" / files[-1])
    assert header["step"] == 16 and header["threads"] == torch.get_num_threads()
    assert {name.partition(".")[0] for name in kept} == {"net", "opt", "random", "torch"}


def test_other_settings_are_refused_in_a_used_folder(tmp_path: Path) -> None:
    multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path)
    with pytest.raises(TrainingError, match="got another recipe in"):
        multum.fit(made(multum.Deep(members=2)), given(), replace(BASE, lr=0.2), out=tmp_path)
    with pytest.raises(TrainingError, match="got another method, network in"):
        multum.fit(made(multum.Deep(members=3)), given(), BASE, out=tmp_path)
    with pytest.raises(TrainingError, match="got another data in"):
        multum.fit(made(multum.Deep(members=2)), given(50), BASE, out=tmp_path)
    with pytest.raises(TrainingError, match="got another data in"):
        multum.fit(made(multum.Deep(members=2)), (2 * given()[0], given()[1]), BASE, out=tmp_path)
    with pytest.raises(TrainingError, match="holds a run"):
        multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path, resume=False)


def test_another_thread_count_is_told(tmp_path: Path, crash, caplog: pytest.LogCaptureFixture) -> None:
    crash(3)
    with pytest.raises(Crash):
        multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path, checkpoint_seconds=0)
    crash(0)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with caplog.at_level("WARNING", logger="multum"):
            multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path)
    finally:
        torch.set_num_threads(before)
    assert f"resumed with {before + 1} threads, begun with {before}" in caplog.text


@pytest.mark.parametrize("place", ["below a file", "a file", "/proc/multum"])
def test_a_folder_that_cannot_be_written_is_an_error_before_training(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    out = {"below a file": tmp_path / "file" / "run", "a file": tmp_path / "file"}.get(place, Path(place))
    monkeypatch.setattr(Optimizers, "step", lambda *a, **k: pytest.fail("training began"))
    with pytest.raises(FileError, match="must be writable"):
        multum.fit(made(multum.Deep(members=2)), given(), BASE, out=out)


def test_a_disk_without_room_is_an_error_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(checkpoint.shutil, "disk_usage", lambda path: usage._replace(free=1000))
    monkeypatch.setattr(Optimizers, "step", lambda *a, **k: pytest.fail("training began"))
    with pytest.raises(TrainingError, match=r"room for 3 checkpoints, about \d+\.\d kB; got 1\.0 kB free"):
        multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path)


@pytest.mark.parametrize("where", ["save", "half", "fsync", "rename"])
def test_a_disk_that_fills_up_leaves_the_last_good_checkpoint(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path / "whole")
    calls = {"n": 0}

    def full(real):
        def write(*args, **kwargs):
            calls["n"] += 1
            if calls["n"] < 8:
                return real(*args, **kwargs)
            if where == "half":  # the file system itself refuses the second half of the file
                limits = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (sum(t.nbytes for t in args[0].values()) // 2, limits[1]))
                try:
                    return real(*args, **kwargs)
                finally:
                    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            raise OSError(28, "No space left on device")

        return write

    with monkeypatch.context() as patch:
        if where in ("save", "half"):
            patch.setattr(files, "save_file", full(save_file))
        else:
            name = {"fsync": "fsync", "rename": "replace"}[where]
            patch.setattr(files.os, name, full(getattr(os, name)))
        with pytest.raises(FileError, match=r"No space left|File too large"):
            multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path / "run", checkpoint_seconds=0)
    left = list((tmp_path / "run" / "checkpoints").iterdir())
    assert left and all(f.name.startswith("step-") for f in left)
    checkpoint.read(checkpoint.latest(tmp_path / "run" / "checkpoints"))
    multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path / "run")
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_broken_checkpoint_is_named(tmp_path: Path, crash) -> None:
    crash(4)
    with pytest.raises(Crash):
        multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path, checkpoint_seconds=0)
    crash(0)
    newest = checkpoint.latest(tmp_path / "checkpoints")
    newest.write_bytes(newest.read_bytes()[:100])
    with pytest.raises(TrainingError, match=rf"{newest.name}.*Remove it"):
        multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path)
    newest.unlink()
    multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path)
    multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path / "whole")
    assert_same_run(tmp_path, tmp_path / "whole")


def begun(folder: Path, crash) -> Path:
    """A run that crashed, with its newest checkpoint."""
    crash(7)
    with pytest.raises(Crash):
        multum.fit(made(multum.Deep(members=2)), given(), BASE, out=folder, checkpoint_seconds=0)
    crash(0)
    return checkpoint.latest(folder / "checkpoints")


def nan_weights(tensors: dict[str, Tensor], header: dict) -> None:
    tensors["net.first.weight"][0, 0, 0] = float("nan")


def no_optimizer(tensors: dict[str, Tensor], header: dict) -> None:
    for name in [name for name in tensors if name.startswith("opt.")]:
        del tensors[name]


def less_optimizer(tensors: dict[str, Tensor], header: dict) -> None:
    tensors["opt.shared.0.momentum_buffer"] = tensors["opt.shared.0.momentum_buffer"][:1].clone()


CHANGES = {
    "a row for a matrix": (lambda t, h: t.update({"net.last.bias": t["net.last.bias"][:, :1].clone()}), "with shape"),
    "one member for two": (lambda t, h: t.update({"net.last.bias": t["net.last.bias"][:1].clone()}), "1 or 2 members"),
    "doubles": (lambda t, h: t.update({"net.last.bias": t["net.last.bias"].double()}), "float64 for torch.float32"),
    "no bias": (lambda t, h: t.pop("net.last.bias"), "0 or 2 members"),
    "no statistics": (lambda t, h: t.update({"net.other": t["net.last.bias"]}), "other names in the network: other"),
    "nan weights": (nan_weights, "NaN or infinity in first.weight"),
    "no optimizer": (no_optimizer, "no state of the optimizer"),
    "a part of a momentum": (less_optimizer, "of the optimizer with shape"),
    "no generator": (lambda t, h: t.pop("torch.cpu"), "no state of torch's generator"),
    "an unknown kind": (lambda t, h: t.update({"code.a": t["net.last.bias"]}), "unknown tensors code"),
    "an average of nothing": (lambda t, h: h.update(averaged=3), "an average of 3 epochs with 0 tensors"),
    "a late epoch": (lambda t, h: h.update(epoch=10**9), "epoch=1000000000"),
    "another step": (lambda t, h: h.update(step=h["step"] + 1), "in epoch 1"),
    "no place": (lambda t, h: h.pop("moves"), "no moves"),
    "a short history": (lambda t, h: h.update(history=[]), "a history of other than"),
    "sums of two": (lambda t, h: h.update(tally=2 * h["tally"]), "sums of 2 processes"),
}


def test_a_checkpoint_that_does_not_fit_is_named_before_anything_is_written(tmp_path: Path, crash) -> None:
    newest = begun(tmp_path, crash)
    whole = newest.read_bytes()
    for what, (change, message) in CHANGES.items():
        newest.write_bytes(whole)
        changed, header = checkpoint.read(newest)
        changed, header = {name: t.clone() for name, t in changed.items()}, dict(header)
        header.pop("checksum")
        change(changed, header)
        newest.unlink()
        checkpoint.write(newest.parent, int(newest.stem[5:]), changed, header)
        ens = made(multum.Deep(members=2))
        before = {name: t.clone() for name, t in ens.state_dict().items()}
        with pytest.raises(TrainingError, match=message) as error:
            multum.fit(ens, given(), BASE, out=tmp_path)
        assert newest.name in str(error.value) and "Remove it to go on from the one before" in str(error.value), what
        assert all(torch.equal(t, before[name]) for name, t in ens.state_dict().items()), what


GATHERED = {
    "another name": (lambda t: t.update({"state.code": t.pop("state.swag.count")}), "other names in what the method"),
    "a column less": (
        lambda t: t.update({"state.swag.columns.last.bias": t["state.swag.columns.last.bias"][:1].clone()}),
        r"swag.columns.last.bias of what the method gathered with shape \(1, 3\) for \(2, 3\)",
    ),
    "doubles": (
        lambda t: t.update({"state.swag.mean.last.bias": t["state.swag.mean.last.bias"].double()}),
        "as torch.float64 for torch.float32",
    ),
}


@pytest.mark.parametrize("what", GATHERED)
def test_what_a_method_gathered_must_fit_too(what: str, tmp_path: Path, crash) -> None:
    change, message = GATHERED[what]
    crash(4 * 3 + 2)  # in the last of four epochs: two have been gathered
    with pytest.raises(Crash):
        multum.fit(made(multum.Swag(members=2, start=0.25)), given(), BASE, out=tmp_path, checkpoint_seconds=0)
    crash(0)
    newest = checkpoint.latest(tmp_path / "checkpoints")
    tensors, header = checkpoint.read(newest)
    tensors = {name: t.clone() for name, t in tensors.items()}
    change(tensors)
    checkpoint.write(newest.parent, int(newest.stem[5:]), tensors, header)
    with pytest.raises(TrainingError, match=message):
        multum.fit(made(multum.Swag(members=2, start=0.25)), given(), BASE, out=tmp_path)


def test_flipped_bits_of_a_checkpoint_are_refused(tmp_path: Path, crash) -> None:
    newest = begun(tmp_path, crash)
    whole, chance = newest.read_bytes(), random.Random(0)
    length = 8 + int.from_bytes(whole[:8], "little")
    for _ in range(50):
        damaged = bytearray(whole)
        damaged[chance.randrange(length, len(whole))] ^= 1 << chance.randrange(8)
        newest.write_bytes(bytes(damaged))
        with pytest.raises(TrainingError, match=rf"{newest.name}.*damaged or changed\. Remove it"):
            checkpoint.read(newest)


def test_a_damaged_description_is_named(tmp_path: Path, crash) -> None:
    begun(tmp_path, crash)
    (tmp_path / "training.json").write_text("")
    with pytest.raises(FileError, match=r"training\.json must hold JSON"):
        multum.fit(made(multum.Deep(members=2)), given(), BASE, out=tmp_path)


@pytest.mark.parametrize("what", ["checkpoints", "log.jsonl", "states", "model.safetensors", "tensorboard"])
def test_a_folder_that_cannot_be_written_any_more_is_named(what: str, tmp_path: Path) -> None:
    """In the first epoch something else takes the place of a file or a folder."""

    def spoil(epoch: int) -> None:
        if epoch == 1:
            place = tmp_path / what
            if place.is_dir():
                shutil.rmtree(place)
                place.write_text("not a folder")
            else:
                place.unlink(missing_ok=True)
                (place / "full").mkdir(parents=True)

    if what == "tensorboard":
        pytest.importorskip("tensorboard")
        (tmp_path / "tensorboard").write_text("not a folder")
    ens = made(multum.Deep(members=2), lambda: multum.models.build("mlp", in_features=8, classes=3, hidden=4))
    recipe = replace(BASE, states=1)
    with pytest.raises(FileError, match=what):
        multum.fit(
            ens,
            given(),
            recipe,
            out=tmp_path,
            checkpoint_seconds=0,
            after_epoch=spoil,
            tensorboard=what == "tensorboard",
        )


def test_a_job_that_died_between_its_model_and_its_last_line_ends_properly(tmp_path: Path) -> None:
    fields = {"epochs": 1, "batch_size": 256}
    found = job.train("digits", None, "single", tmp_path / "run", fields)
    described = tmp_path / "run" / "run.json"
    described.write_text(json.dumps({**found, "last": None}))
    again = job.train("digits", None, "single", tmp_path / "run", fields)
    assert again["last"]["loss"] == found["last"]["loss"] and json.loads(described.read_text()) == again
    with pytest.raises(TrainingError, match="another recipe"):
        job.train("digits", None, "single", tmp_path / "run", {"epochs": 2})
    with pytest.raises(TrainingError, match="holds one already"):
        job.train("digits", None, "single", tmp_path / "run", fields, resume=False)


def test_states_are_left_at_the_beginning_and_by_epoch(tmp_path: Path) -> None:
    settings = {"epochs": 4, "states": 2, "batch_size": 256}
    job.train("digits#first=512", "small-cnn", "deep:members=2", tmp_path / "run", settings)
    found = checkpoint.states(tmp_path / "run")
    assert list(found) == [0, 2, 4]
    ens, _, _ = open_run(tmp_path / "run")
    last = {name: tensor for name, tensor in ens.state_dict().items() if name in found[4]}
    assert last and all(torch.equal(found[4][name], tensor) for name, tensor in last.items())
    assert any(not torch.equal(found[0][name], found[4][name]) for name in last)
    job.train("digits#first=512", "small-cnn", "deep:members=2", tmp_path / "none", {"epochs": 1, "batch_size": 256})
    with pytest.raises(TrainingError, match="states=1"):
        checkpoint.states(tmp_path / "none")
