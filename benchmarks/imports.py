"""How long a user waits before multum does anything: ratios of start-up times, each measured in a fresh process.

`import multum` is to take at most 1.3x the time of `import torch`, and `multum --help` at most 2x that of
`import typer, rich`. All commands take turns, so that a busy machine slows every one of them.

    python benchmarks/imports.py [ROUNDS]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

HELP = "import sys; sys.argv = ['multum', '--help']; from multum.cli import main; main()"
COMMANDS = {
    "import torch": "import torch",
    "import multum": "import multum",
    "import multum, build an ensemble": "import multum; multum.ensemble; multum.models; multum.Packed",
    "every public name": "from multum import *",
    "import typer, rich": "import typer, rich",
    "multum --help": HELP,
}
RATIOS = (
    ("import multum", "import torch", 1.3),
    ("import multum, build an ensemble", "import torch", 1.3),
    ("every public name", "import torch", None),
    ("multum --help", "import typer, rich", 2.0),
)


def seconds(code: str) -> float:
    """The wall time of a Python process that runs the code on a CPU."""
    started = time.perf_counter()
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - started


def main(rounds: int = 11) -> None:
    for code in COMMANDS.values():  # files into memory, bytecode onto the disk
        seconds(code)
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, code in COMMANDS.items():
            times[name].append(seconds(code))
    for name, measured in times.items():
        low, median, high = min(measured), statistics.median(measured), max(measured)
        print(f"{name:<34} {1000 * median:7.0f} ms  ({1000 * low:.0f} to {1000 * high:.0f}, {rounds} rounds)")
    for name, base, goal in RATIOS:
        ratios = sorted(a / b for a, b in zip(times[name], times[base], strict=True))
        text = f"{statistics.median(ratios):.2f}x  ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        print(f"{name} / {base}: {text}" + ("" if goal is None else f", goal {goal}x"))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
