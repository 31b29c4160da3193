"""Two processes of a Trainer give what one gives on the same global batches, and what `multum.fit` gives on two.

Tolerance: as in test_distributed.py, where batch norm and dropout are the exceptions, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open

import multum
from multum.errors import ConfigError
from multum.lightning.module import check_processes
from training import ddp_job
from training.test_distributed import ENVIRONMENT, result, run

from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy  # isort: skip

pytestmark = [  # of Lightning itself, as in test_lightning.py
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*(num_workers|log_every_n_steps|exists and is not empty|no `val_dataloader`)"),
]

SCRIPT = Path(__file__).parent / "lightning_job.py"
OWN = ("own deep", "own batchensemble", "own snapshot", "own swag")
FAST = ("deep", "batch norm", "hypernet", "swag", "own snapshot", "hypernet killed")


def losses(folder: Path, name: str, rank: int) -> list[float]:
    with safe_open(folder / f"{name}-{rank}.safetensors", framework="pt") as file:
        return json.loads(file.metadata()["losses"])


def compare(alone: Path, both: Path, names: Iterable[str]) -> None:
    """Processes agree to the bit; they give what one gives; one that was killed ends as the one that was not."""
    for name in names:
        (first, log), (second, _) = result(both, name, 0), result(both, name, 1)
        assert all(torch.equal(first[k], second[k]) for k in first), f"{name}: the processes differ"
        if name in ddp_job.APART:
            continue
        if "killed" in name:
            whole, whole_log = result(both, name.partition(" ")[0], 0)
            assert first.keys() == whole.keys() and all(torch.equal(first[k], whole[k]) for k in whole)
            values, wanted = losses(both, name, 0), losses(both, name.partition(" ")[0], 0)
            assert log == whole_log and 0 < len(values) < len(wanted) and values == wanted[-len(values) :]
            continue
        wanted, wanted_log = result(alone, name, 0)
        assert first.keys() == wanted.keys()
        for k, value in wanted.items():
            torch.testing.assert_close(first[k], value, rtol=0, atol=1e-10, msg=lambda m, n=f"{name} {k}": f"{n}: {m}")
        assert losses(both, name, 0) == pytest.approx(losses(alone, name, 0), abs=1e-9)
        for row, other in zip(log, wanted_log, strict=True):
            assert row == pytest.approx(other, abs=1e-9)


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    from training import lightning_job

    names = [name for name in FAST if "killed" not in name and name not in ddp_job.APART]
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    lightning_job.main(tmp_path / "one", 1, names)
    run(str(SCRIPT), str(tmp_path / "two"), "2", *FAST)
    compare(tmp_path / "one", tmp_path / "two", FAST)


@pytest.mark.slow
def test_every_method_gives_what_one_process_gives_and_what_fit_gives_on_two(tmp_path: Path) -> None:
    from training import lightning_job

    methods = {type(method) for method, _ in lightning_job.EVERY.values()}
    assert methods == {*multum.methods.METHODS.values()}
    for folder in ("one", "two", "fit"):
        (tmp_path / folder).mkdir()
    names = [*lightning_job.EVERY, *OWN]
    lightning_job.main(tmp_path / "one", 1, [name for name in names if name not in ddp_job.APART])
    run(str(SCRIPT), str(tmp_path / "two"), "2", *names)
    compare(tmp_path / "one", tmp_path / "two", names)
    run(str(Path(ddp_job.__file__)), str(tmp_path / "fit"), "2")
    for name in ddp_job.JOBS:
        (ours, log), (theirs, their_log) = result(tmp_path / "two", name, 0), result(tmp_path / "fit", name, 0)
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours), name
        assert log == their_log


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hypernet", "swag", "deep"])
def test_processes_that_are_killed_go_on_from_their_checkpoint(name: str, tmp_path: Path) -> None:
    import subprocess
    import sys

    killed = f"{name} killed by force"
    command = [sys.executable, str(SCRIPT), str(tmp_path), "2", killed]
    ended = subprocess.run(command, capture_output=True, env=ENVIRONMENT, timeout=900, check=False)
    assert ended.returncode < 0 and (tmp_path / f"{killed}.ckpt").is_file()
    run(str(SCRIPT), str(tmp_path), "2", killed, name)
    compare(tmp_path, tmp_path, [killed])


def test_what_would_train_otherwise_is_refused() -> None:
    spawned, synced, other = (DDPStrategy(start_method="spawn"), DDPStrategy(), SingleDeviceStrategy("cpu"))
    synced._layer_sync = object()
    for strategy, world, message in (
        (spawned, 2, r"must be started as scripts.* got DDPStrategy. Use Trainer\(strategy='ddp'\)"),
        (other, 2, "got SingleDeviceStrategy"),
        (synced, 2, "got sync_batchnorm=True. Leave it out"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_processes(SimpleNamespace(strategy=strategy, world_size=world))
    check_processes(SimpleNamespace(strategy=DDPStrategy(), world_size=2))
