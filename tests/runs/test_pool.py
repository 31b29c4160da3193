"""Where cells run: what is sent to Ray and comes back, and what the end of a process means."""

from __future__ import annotations

import signal
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import multum
from multum.errors import ConfigError
from multum.runs import pool
from multum.runs.cells import RESULT, Cell, Outcome
from multum.training.interrupt import Stopped

CELLS = [Cell("single", seed, "digits", "small-cnn", multum.Single(), {}) for seed in range(3)]


class FakeRay:
    """A cluster whose workers run when they are waited for, the last first; tests/comparing asks the real one."""

    class RayError(Exception):
        pass

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(RayError=self.RayError)
        self.calls: list[str] = []
        self.options: dict[str, Any] = {}
        self.resources: dict[str, Any] = {}

    def init(self, **options: Any) -> None:
        self.options = options

    def remote(self, **resources: Any) -> Any:
        self.resources = resources
        return lambda task: SimpleNamespace(remote=partial(partial, task))

    def wait(self, waiting: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
        return waiting[-num_returns:], waiting[:-num_returns]

    def get(self, ready: Any) -> Any:
        return ready()

    def shutdown(self) -> None:
        self.calls.append("shutdown")


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    monkeypatch.setitem(sys.modules, "ray", FakeRay())
    return sys.modules["ray"]  # type: ignore[return-value]


def writing(cell: Cell, folder: Path, threads: int) -> Outcome:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RESULT).write_text(f"{cell.seed} with {threads}")
    (folder / "more.txt").write_text("more")
    return Outcome(cell.name)


@pytest.mark.parametrize("shared", [True, False])
def test_ray_leaves_every_cells_files_in_the_run_folder(
    ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    seen, begun, written = [], [], []

    def work(cell: Cell, folder: Path, threads: int) -> Outcome:
        seen.append(folder)
        return writing(cell, folder, threads)

    def write(path: Path, content: bytes) -> None:
        written.append(path.name)
        path.write_bytes(content)

    monkeypatch.setattr(pool, "work", work)
    monkeypatch.setattr(pool, "write_bytes", write)
    if not shared:  # a worker on another machine finds another folder, or none
        monkeypatch.setattr(ray, "get", lambda ready: ready.func(ready.args[0], "/none", *ready.args[2:]))
    runner = pool.runner_for("ray", 2, None)
    outcomes = list(runner(CELLS, tmp_path, 3, begun.append))
    assert [outcome.name for outcome in outcomes] == [cell.name for cell in CELLS[::-1]] and begun == CELLS
    for cell in CELLS:
        assert (tmp_path / cell.name / RESULT).read_text() == f"{cell.seed} with 3"
        assert (tmp_path / cell.name / "more.txt").read_text() == "more"
    assert all(folder.is_relative_to(tmp_path) for folder in seen) is shared
    assert written == ([] if shared else ["more.txt", RESULT] * 3)  # the result last: it says that all is there
    assert ray.resources["num_cpus"] == 3 and ray.options["num_cpus"] == 6 and ray.calls == ["shutdown"]
    assert ray.options["runtime_env"]["env_vars"] == {"OMP_WAIT_POLICY": "PASSIVE"}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(cell.name for cell in CELLS)


def test_a_task_that_ray_loses_fails_alone(ray: FakeRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(cell: Cell, folder: Path, threads: int) -> Outcome:
        if cell.seed == 1:
            raise FakeRay.RayError("the worker died\nand more")
        return writing(cell, folder, threads)

    monkeypatch.setattr(pool, "work", work)
    outcomes = list(pool.on_ray(CELLS, tmp_path, 1, lambda cell: None, None, "auto"))
    assert {o.name: o.reason for o in outcomes} == {
        CELLS[0].name: None,
        CELLS[1].name: "its Ray task failed: the worker died",
        CELLS[2].name: None,
    }
    assert ray.options["address"] == "auto" and "num_cpus" not in ray.options  # a cluster has the processors it has


def test_ray_that_is_not_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"must find the package ray, .* Run pip install 'multum\[ray\]'"):
        next(pool.runner_for("ray", 1, None)(CELLS, tmp_path, 1, lambda cell: None))


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (-signal.SIGKILL, "SIGKILL; out of memory is the usual cause"),
        (1, 'exit code 1; a script must begin its work below `if __name__ == "__main__":`'),
        (128 + signal.SIGTERM, None),
        (128 + signal.SIGINT, None),
    ],
)
def test_a_process_that_sends_nothing(code: int, reason: str | None) -> None:
    """Whoever stops a cell stops the whole run; what dies by itself is a cell that failed."""

    def recv() -> Outcome:
        raise EOFError

    process = SimpleNamespace(exitcode=code, join=lambda: None)
    if reason is None:
        with pytest.raises(Stopped) as stopped:
            pool._received(SimpleNamespace(recv=recv), process, CELLS[0])
        assert stopped.value.number == code - 128
    else:
        outcome = pool._received(SimpleNamespace(recv=recv), process, CELLS[0])
        assert outcome == Outcome(CELLS[0].name, f"its process ended with {reason}")
