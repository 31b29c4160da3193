"""Two processes give what one gives, on the same global batches; where they cannot (batch norm, dropout), they agree.

Tolerance: 1e-10 in float64, from sums over rows in another order. Batch norm normalises by each process's rows, and
dropout draws masks for them, so there the result differs from one process's, by design.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch
from lightning_fabric import Fabric
from safetensors import safe_open
from torch import Tensor

import multum
from multum.errors import TrainingError
from multum.training import devices
from training import ddp_job

SCRIPT = Path(ddp_job.__file__)


# The child must import the multum that is tested, whatever is installed.
FOLDERS = [*map(str, SCRIPT.parents[:2]), str(Path(multum.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
PATHS = os.pathsep.join(FOLDERS)
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": PATHS}


def run(*command: str) -> subprocess.CompletedProcess:
    env = ENVIRONMENT
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=env, check=False, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def torchrun(*command: str) -> subprocess.CompletedProcess:
    return run("-m", "torch.distributed.run", "--nproc_per_node=2", f"--master_port={free_port()}", *command)


def result(folder: Path, name: str, rank: int) -> tuple[dict[str, Tensor], list[dict]]:
    with safe_open(folder / f"{name}-{rank}.safetensors", framework="pt") as file:
        return {k: file.get_tensor(k) for k in file.keys()}, json.loads(file.metadata()["log"])  # noqa: SIM118


def compare(alone: Path, both: Path, names: Iterable[str] = ddp_job.JOBS) -> None:
    for name in names:
        (wanted, log), (first, first_log) = result(alone, name, 0), result(both, name, 0)
        second, _ = result(both, name, 1)
        assert set(first) == set(second) == set(wanted)
        assert all(torch.equal(first[k], second[k]) for k in first), f"{name}: the processes differ"
        if name in ddp_job.APART:
            assert any((first[k] - wanted[k]).abs().max() > 1e-6 for k in wanted if wanted[k].is_floating_point())
            continue
        for k, value in wanted.items():
            torch.testing.assert_close(first[k], value, rtol=0, atol=1e-10, msg=lambda m, n=f"{name} {k}": f"{n}: {m}")
        for row, other in zip(first_log, log, strict=True):
            assert row == pytest.approx(other, abs=1e-9)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    ddp_job.main(folder, 1, [])
    return folder


SOME = ("deep", "batch norm")  # every job is run by two devices, below


def test_two_processes_of_torchrun_give_what_one_gives(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    ddp_job.main(tmp_path / "one", 1, list(SOME))
    torchrun(str(SCRIPT), str(tmp_path / "two"), "1", *SOME)
    compare(tmp_path / "one", tmp_path / "two", SOME)


@pytest.mark.slow
def test_processes_of_torchrun_end_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENVIRONMENT, "TO_THE_END", "1")
    for _ in range(3):
        torchrun(str(SCRIPT), str(tmp_path), "1", *SOME)


def test_processes_that_do_not_meet_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def launch(self: Fabric) -> None:
        raise torch.distributed.DistError("nobody came\nwith a second line")

    monkeypatch.setattr(Fabric, "launch", launch)
    message = "all 2 processes must start within 300 s of each other; process 0 waited in vain: nobody came. See why"
    with pytest.raises(TrainingError, match=message):
        devices.open_fabric(devices.Place("cpu", 2), "32-true")


LONELY = """
import sys, torch, multum
from multum.training import devices

devices.START_SECONDS = 2.0
try:
    devices.open_fabric(devices.Place("cpu"), "32-true")
except multum.errors.TrainingError as error:
    print(error)
    sys.exit(0)
sys.exit(1)
"""


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_whose_partner_died_while_starting_says_so(rank: int) -> None:
    """As torchrun starts it, with the other of two killed before they have met."""
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    place |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "TORCHELASTIC_RUN_ID": "alone"}
    done = subprocess.run(
        [sys.executable, "-c", LONELY], capture_output=True, text=True, env={**ENVIRONMENT, **place}, timeout=100
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"all 2 processes must start within 2 s of each other; process {rank} waited in vain" in done.stdout


@pytest.mark.slow
def test_two_devices_give_what_one_gives(alone: Path, tmp_path: Path) -> None:
    run(str(SCRIPT), str(tmp_path), "2")
    compare(alone, tmp_path)


@pytest.mark.slow
def test_the_command_line_trains_with_two_processes_either_way(tmp_path: Path) -> None:
    """float32: 1e-4 after an epoch of 20 steps. One process prints, one run folder, and a second call finds it done.

    A network without batch norm: each process would normalise its own half of the batch.
    """
    common = ["multum", "train", "--accelerator", "cpu", "--json", "--method", "packed:members=2,alpha=1", "epochs=1"]
    common += ["--model", "small-cnn", "lr=0.002"]
    run("-m", *common, "--out", str(tmp_path / "one"))
    with safe_open(tmp_path / "one" / "model.safetensors", framework="pt") as file:
        wanted = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    for name, done in (
        ("devices", lambda: run("-m", *common, "--devices", "2", "--out", str(tmp_path / "devices"))),
        ("torchrun", lambda: torchrun("-m", *common, "--out", str(tmp_path / "torchrun"))),
    ):
        printed = json.loads(done().stdout)
        assert printed["last"]["epoch"] == 1
        with safe_open(tmp_path / name / "model.safetensors", framework="pt") as file:
            for k, value in wanted.items():
                torch.testing.assert_close(file.get_tensor(k), value, rtol=0, atol=1e-4)
        assert json.loads(done().stdout) == printed


@pytest.mark.slow
def test_two_processes_resume_to_the_bit(tmp_path: Path) -> None:
    """SIGTERM to one of two processes stops both, with one checkpoint; the resumed run ends as the whole one."""
    import signal
    import time

    fields = ["epochs=6", "order=own", "batch_size=32", "accumulate=2"]
    common = ["multum", "train", "--accelerator", "cpu", "--json", "--devices", "2", "--checkpoint-seconds", "0.2"]
    common += ["--method", "deep:members=2", "--model", "mlp:dropout=0.2,hidden=16", *fields]
    run("-m", *common, "--out", str(tmp_path / "whole"))
    stopped = tmp_path / "stopped"
    process = subprocess.Popen(
        [sys.executable, "-m", *common, "--out", str(stopped)], env=ENVIRONMENT, stderr=subprocess.DEVNULL
    )
    while len(list(stopped.glob("checkpoints/step-*"))) < 2:
        time.sleep(0.01)
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=120) in (143, -9)  # Fabric may end its processes first
    assert not (stopped / "model.safetensors").exists()
    run("-m", *common, "--out", str(stopped))
    with (
        safe_open(stopped / "model.safetensors", framework="pt") as a,
        safe_open(tmp_path / "whole" / "model.safetensors", framework="pt") as b,
    ):
        for k in b.keys():  # noqa: SIM118
            assert torch.equal(a.get_tensor(k), b.get_tensor(k)), k
    logs = [(f / "log.jsonl").read_text().splitlines() for f in (stopped, tmp_path / "whole")]
    found, wanted = ([{**json.loads(line), "seconds": 0, "waiting": 0} for line in lines] for lines in logs)
    assert found == wanted
