"""What a served model bears: LitServe's folder of `multum export`, asked over loopback at rising rates.

Run: `python benchmarks/serving.py [--seconds 5] [--rates 25 50 100 200 400] [--out docs/benchmarks.md]` on a quiet
machine; it ends by itself. Two runs are trained for it, a table and images, and each is served from 127.0.0.1 by a
process that can import neither multum nor torch. Requests of one row are sent at fixed times, whether or not those
before them were answered, so that a server that falls behind shows in the latency; every answer is compared with what
`multum predict` says of that row. A request that takes longer than 10 s counts as lost.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import multum
from multum.data.sources import load_data
from multum.exporting.serving import write
from multum.figures.formats import markdown_table
from multum.runs import train as job
from multum.runs.predict import predict_run

TOLERANCE = 1e-5
WAITERS = 64  # requests under way at once, at most
HEAD = ["model", "requests/s sent", "answered/s", "p50", "p99", "wrong", "lost"]
BEGIN, END = "<!-- serving: written by benchmarks/serving.py -->", "<!-- end of serving -->"
ALONE = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("multum", "torch", "pandas"):
            raise ImportError(name + " is not there")
sys.meta_path.insert(0, Blocked())
"""


def table_run(folder: Path) -> tuple[Path, list[Any], pd.DataFrame]:
    """A run on rows of mixed types with missing cells; rows to ask for, and what multum says of them."""
    draw = np.random.default_rng(0)
    rows = 2000
    frame = pd.DataFrame({"age": draw.normal(40, 9, rows).round(2), "income": draw.exponential(1000, rows).round(2)})
    frame["plan"] = draw.choice(["basic", "pro", "team"], rows)
    frame["left"] = np.where((frame["age"] > 40) ^ (frame["plan"] == "pro"), "yes", "no")
    frame.loc[::9, "age"] = np.nan
    frame.loc[::11, "plan"] = np.nan
    frame.to_csv(folder / "table.csv", index=False)
    frame.drop(columns="left")[:1000].to_csv(folder / "new.csv", index=False)
    name = f"csv:{folder / 'table.csv'}#target=left"
    job.train(name, "tabular-mlp", "packed:members=4,alpha=2", folder / "run", {"epochs": 2}, progress=False)
    asked = json.loads(pd.read_csv(folder / "new.csv").to_json(orient="records"))
    return folder / "run", asked, predict_run(folder / "run", folder / "new.csv", probabilities=True, progress=False)


def image_run(folder: Path) -> tuple[Path, list[Any], pd.DataFrame]:
    """The same of images."""
    job.train("digits", "small-resnet", "packed:members=4,alpha=2", folder / "run", {"epochs": 2}, progress=False)
    images = load_data("digits", seed=0).train.x[:1000].numpy()
    np.save(folder / "new.npy", images)
    expected = predict_run(folder / "run", folder / "new.npy", probabilities=True, progress=False)
    return folder / "run", images.tolist(), expected


RUNS = {"table": table_run, "images": image_run}


@contextmanager
def served(folder: Path) -> Iterator[int]:
    """The port of a server that runs this folder."""
    text = (folder / "server.py").read_text()
    _, doc, code = text.split('"""', 2)
    (folder / "alone.py").write_text(f'"""{doc}"""\n{ALONE}\n{code}')  # workers import the file anew
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-W", "ignore", str(folder / "alone.py"), "--port", str(port)]
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, start_new_session=True)
        try:
            _wait(port, process, folder / "server.log")
            yield port
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # LitServe's workers outlive a parent that is ended alone
            process.wait(30)


def _wait(port: int, process: subprocess.Popen, log: Path) -> None:
    for _ in range(240):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        if process.poll() is not None:
            raise SystemExit(log.read_text())
        time.sleep(0.5)
    raise SystemExit("the server did not start within two minutes")


def is_right(answer: dict[str, Any], expected: dict[Any, Any], classes: Sequence[str]) -> bool:
    probs = [answer["probs"][name] for name in classes]
    truth = [expected[f"p_{name}"] for name in classes]
    # A label may be the other one where both are as likely, to rounding.
    same = answer["label"] == str(expected["label"]) or np.ptp(sorted(truth)[-2:]) < TOLERANCE
    return bool(same and np.allclose(probs, truth, rtol=0, atol=TOLERANCE))


def at_rate(port: int, bodies: list[bytes], rate: float, seconds: float) -> list[tuple[int, float, Any]]:
    """Row, seconds from the time at which it was due, and the answer, None where it was lost, of every request."""
    due: queue.Queue[tuple[int, float] | None] = queue.Queue()
    outcomes: list[tuple[int, float, Any]] = []
    count, start = int(rate * seconds), time.perf_counter() + 0.2

    def ask() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for row, when in iter(due.get, None):
            time.sleep(max(0.0, when - time.perf_counter()))
            try:
                connection.request("POST", "/predict", bodies[row], {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = json.loads(response.read()) if response.status == 200 else None
            except (OSError, http.client.HTTPException):
                connection.close()
                answer = None
            outcomes.append((row, time.perf_counter() - when, answer))

    for i in range(count):
        due.put((i % len(bodies), start + i / rate))
    threads = [threading.Thread(target=ask) for _ in range(min(WAITERS, count))]
    for thread in threads:
        due.put(None)
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


def measured(name: str, folder: Path, rates: Sequence[float], seconds: float) -> Iterator[list[str]]:
    run, rows, expected = RUNS[name](folder)
    about, _ = write(run, folder / "server", serve="litserve", card=False)
    classes, truths = about["classes"], expected.to_dict("records")
    bodies = [json.dumps({"rows": [row]}).encode() for row in rows]
    with served(folder / "server") as port:
        at_rate(port, bodies, 10, 2)  # the first requests prepare kernels
        for rate in rates:
            began = time.perf_counter()
            outcomes = at_rate(port, bodies, rate, seconds)
            spent = time.perf_counter() - began - 0.2
            answered = [(row, took, answer["answers"][0]) for row, took, answer in outcomes if answer is not None]
            wrong = sum(not is_right(answer, truths[row], classes) for row, _, answer in answered)
            p50, p99 = np.quantile([took for _, took, _ in answered], (0.5, 0.99)) if answered else (np.nan, np.nan)
            line = [name, f"{rate:g}", f"{len(answered) / spent:.0f}", f"{1e3 * p50:.1f} ms", f"{1e3 * p99:.1f} ms"]
            line += [f"{wrong} of {len(answered)}", str(len(outcomes) - len(answered))]
            print(*line, sep="  ", flush=True)
            yield line
            if p50 > 2:
                break  # it has fallen behind; a higher rate says nothing more


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=list(RUNS), choices=RUNS)
    parser.add_argument("--rates", type=float, nargs="+", default=[25, 50, 100, 200, 400])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--out", type=Path, help="the page whose table is written")
    options = parser.parse_args()
    lines: list[list[str]] = []
    for name in options.models:
        with tempfile.TemporaryDirectory(prefix="multum-") as folder:
            lines += measured(name, Path(folder), options.rates, options.seconds)
    if options.out:
        import litserve
        import onnxruntime

        versions = f"litserve {litserve.__version__}, onnxruntime {onnxruntime.__version__}, python "
        versions += f"{platform.python_version()}, multum {multum.__version__}"
        text = f"{markdown_table(HEAD, lines, 'lrrrrrr')}\n\n{options.seconds:g} s at each rate; {versions}."
        before, _, rest = options.out.read_text().partition(BEGIN)
        options.out.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
