"""Folders for servers: LitServe is started without multum and torch, and asked; files are looked at in test_runs.py."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from exporting.alone import BLOCK
from multum.errors import ConfigError
from multum.exporting.serving import write
from multum.runs import train as job
from multum.runs.predict import predict_run


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draw.normal(40, 9, 200).round(2), "plan": draw.choice(["basic", "pro"], 200)})
    frame["left"] = np.where((frame["age"] > 40) ^ (frame["plan"] == "pro"), "yes", "no")
    frame.loc[::9, "age"] = np.nan
    frame.to_csv(folder / "table.csv", index=False)
    frame.drop(columns="left").to_csv(folder / "new.csv", index=False)
    name = f"csv:{folder / 'table.csv'}#target=left"
    job.train(name, "mlp:hidden=4", "deep:members=2", folder / "run", {"epochs": 1}, progress=False)
    return folder


def test_what_no_server_can_be(tmp_path):
    with pytest.raises(ConfigError, match="`serve` must be litserve or triton; got 'litserv'"):
        write(tmp_path / "run", tmp_path / "a", serve="litserv")
    with pytest.raises(ConfigError, match="must be given ONNX"):
        write(tmp_path / "run", tmp_path / "a", serve="triton", format="torch")


def ask(url: str, body: bytes | None) -> tuple[int, Any]:
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture(scope="module")
def server(shop) -> Iterator[str]:
    pytest.importorskip("litserve")
    folder = shop / "server"
    write(shop / "run", folder, serve="litserve", card=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Workers import server.py anew, so that the block must stand in it.
    text = (folder / "server.py").read_text()
    _, doc, code = text.split('"""', 2)
    (folder / "alone.py").write_text(f'"""{doc}"""\n{BLOCK.format(names=("multum", "torch", "pandas"))}\n{code}')
    with (shop / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(folder / "alone.py"), "--port", str(port)],
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
        )
        url = f"http://127.0.0.1:{port}"
        try:
            for _ in range(240):
                try:
                    urllib.request.urlopen(f"{url}/health", timeout=5).read()
                    break
                except (urllib.error.URLError, ConnectionError):
                    assert process.poll() is None, (shop / "server.log").read_text()
                    time.sleep(0.5)
            yield f"{url}/predict"
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # LitServe's workers outlive a parent that is ended alone
            process.wait(30)


@pytest.mark.slow
def test_litserve_answers_as_multum_does_and_refuses_what_it_cannot_read(shop, server):
    rows = json.loads(pd.read_csv(shop / "new.csv").to_json(orient="records"))
    status, reply = ask(server, json.dumps({"rows": rows}).encode())
    assert status == 200
    expected = predict_run(
        shop / "run", shop / "new.csv", coverage=0.9, conformal=0.9, probabilities=True, progress=False
    )
    answers = pd.DataFrame(reply["answers"])
    assert answers["label"].tolist() == expected["label"].tolist() and "abstain" in answers and "set" in answers
    np.testing.assert_allclose([p["yes"] for p in answers["probs"]], expected["p_yes"], rtol=0, atol=1e-5)
    good = json.dumps({"rows": rows[:1]}).encode()
    for body, reason in {
        b'{"rows": []}': "1 to 1000",
        b'{"rows": 3}': "1 to 1000",
        b'{"rows": [{"age": 1}]}': "the column 'plan'",
        b'{"rows": [[1, 2]]}': "must be an object",
        b'{"rows": [{"age": "old", "plan": "pro"}]}': "finite numbers",
        b'{"rows": [{"age": NaN, "plan": "pro"}]}': "finite numbers",
        b'{"rows": [{"age": 1e999, "plan": "pro"}]}': "finite numbers",
        json.dumps({"rows": rows[:1] * 1001}).encode(): "1 to 1000",
        b"text": "JSON",
        b"": "",
        b'{"other": 1}': "Field required",
    }.items():
        status, reply = ask(server, body)
        assert status == 422 and reason.lower() in str(reply).lower(), (body[:60], status, reply)
        assert ask(server, good)[0] == 200, "the server lives"
    status, _ = ask(server, b'{"rows": "' + b"x" * (33 * 2**20) + b'"}')
    assert status == 413 and ask(server, good)[0] == 200
