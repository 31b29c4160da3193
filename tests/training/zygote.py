"""Train one job again and again in child processes that are stopped at random moments, then let it end.

    python zygote.py SPECS     JSON: a list of {arguments of multum's job.train, out, whole, signals, seed}

The imports are paid once: children are forks of a process that has not computed anything yet. Prints, as JSON, for each
job the children's exit codes, the newest checkpoint after each, and how the last one ended, which nobody stopped.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401
import torch
import torch._dynamo  # what training imports when it begins

from multum.runs import train as job
from multum.training import checkpoint
from multum.training.interrupt import Stopped


def child(spec: dict[str, Any], out: Path) -> int:
    """Run the job in a fork; the child's exit code is 0, or 128 + the number of the signal that it obeyed."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        torch.set_num_threads(1)
        job.train(spec["data"], spec["model"], spec["method"], out, spec["recipe"], checkpoint_seconds=0.02)
        code = 0
    except Stopped as stop:
        code = 128 + stop.number
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def newest(out: Path) -> int:
    """The step of the newest checkpoint, -1 before there is one."""
    found = checkpoint.latest(out / "checkpoints")
    return -1 if found is None else int(found.stem.removeprefix("step-"))


def main(spec: dict[str, Any]) -> dict[str, Any]:
    out, whole = Path(spec["out"]), Path(spec["whole"])
    assert ended(child(spec, whole)) == 0
    steps, parts = newest(whole), len(spec["signals"]) + 1
    chance, found = random.Random(spec["seed"]), {"codes": [], "steps": []}
    for k, number in enumerate(spec["signals"]):
        before, pid = newest(out), child(spec, out)
        # Any place of its part of the run, and a little later: at, before, after or inside the next checkpoint. It has
        # written a checkpoint of its own by then, and so noted how it wants to be stopped.
        place = max(steps * (k + chance.uniform(0.0, 0.8)) / parts, before + 1)
        while newest(out) < place and os.waitpid(pid, os.WNOHANG) == (0, 0):
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.02))
        os.kill(pid, number)
        found["codes"].append(ended(pid))
        found["steps"].append(newest(out))
    found["last"] = ended(child(spec, out))
    return found


if __name__ == "__main__":
    print(json.dumps([main(spec) for spec in json.loads(sys.argv[1])]))
