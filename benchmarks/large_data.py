"""Training on data that is larger than the memory it may take: peak memory, and how long the loop waits.

    python benchmarks/large_data.py                 a csv file of two million rows, and 50,000 small images
    python benchmarks/large_data.py --rows 200000 --images 5000

Every set is trained in a process of its own, twice: the first run also encodes the table or decodes the images, the
second finds them on the disk. Peaks are of the whole process; "before" is what the imports take without any data.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

COLUMNS = 20
SIDE = 64


def write_csv(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    words = np.array(["red", "green", "blue", "black"])
    names = [*(f"x{i}" for i in range(COLUMNS - 2)), "colour", "y"]
    with open(path, "w") as file:
        file.write(",".join(names) + "\n")
        for start in range(0, rows, 50_000):
            n = min(50_000, rows - start)
            x = rng.normal(size=(n, COLUMNS - 2))
            y = np.where(x[:, 0] + x[:, 1] * x[:, 2] > 0, "yes", "no")
            numbers = np.char.mod("%.6f", x)
            lines = np.concatenate([numbers, rng.choice(words, (n, 1)), y[:, None]], axis=1)
            file.write("\n".join(map(",".join, lines)) + "\n")


def write_images(folder: Path, images: int) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    for label in range(10):
        (folder / f"class{label}").mkdir(parents=True, exist_ok=True)
    for i in range(images):
        small = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
        small[: i % 10] //= 2
        Image.fromarray(small).resize((SIDE, SIDE)).save(folder / f"class{i % 10}" / f"{i:06d}.jpg", quality=80)


def job(data: str, epochs: int) -> None:
    """One process: load, train, print what it took."""
    import resource

    import multum

    def peak() -> float:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    import lightning_fabric  # noqa: F401
    import pandas  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import torch

    before, began = peak(), time.perf_counter()
    source = multum.load_data(data)
    loaded, load_peak = time.perf_counter() - began, peak()
    torch.manual_seed(0)
    if source.is_image:
        net = multum.models.build("small-cnn", classes=source.outputs, in_channels=3)
    else:
        net = multum.models.build("mlp", in_features=source.train.x.shape[1], classes=source.outputs)
    ens = multum.ensemble(net, multum.Packed(members=2, alpha=1), example=source.example(), seed=0)
    history = multum.fit(
        ens, source, multum.Recipe(epochs=epochs, batch_size=64 if source.is_image else 256), warn=False
    )
    print(
        json.dumps(
            {
                "kind": type(source.train.x).__name__,
                "examples": len(source.train),
                "MB if in memory": int(np.prod(source.train.x.shape)) * (1 if source.is_image else 8) / 2**20,
                "before MB": before,
                "peak after loading MB": load_peak,
                "peak MB": peak(),
                "loading s": loaded,
                "epoch s": history[-1]["seconds"],
                "waiting": history[-1]["waiting"],
                "accuracy": history[-1]["accuracy"],
            }
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=None, help="where the data is made; by default a temporary one")
    parser.add_argument("--job", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        job(options.job, options.epochs)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        table, images = folder / f"table-{options.rows}.csv", folder / f"images-{options.images}"
        sets = []
        if options.rows:
            if not table.is_file():
                write_csv(table, options.rows)
            sets.append((f"csv:{table}#target=y", table.stat().st_size))
        if options.images:
            if not images.is_dir():
                write_images(images, options.images)
            sets.append((f"folder:{images}", sum(p.stat().st_size for p in images.rglob("*.jpg"))))
        env = {**os.environ, "MULTUM_DATA": str(folder / "cache")}
        for name, size in sets:
            print(f"{name.partition(':')[0]}: {size / 2**20:.0f} MB of files")
            for run in ("first", "second"):
                command = [sys.executable, __file__, "--job", name, "--epochs", str(options.epochs)]
                done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
                row = json.loads(done.stdout.splitlines()[-1])
                print(
                    f"  {run}: "
                    + ", ".join(f"{k} {v:,.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
                )


if __name__ == "__main__":
    main()
