"""Folders for servers: LitServe is started without multum and torch, and asked; files are looked at in test_runs.py."""

from __future__ import annotations

import base64
import json
import math
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
import onnxruntime
import pandas as pd
import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from torch import nn

import multum
from exporting.alone import BLOCK
from multum.errors import ConfigError
from multum.exporting.serving import write
from multum.runs import train as job
from multum.runs.predict import predict_run


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    draw = np.random.default_rng(0)
    frame = pd.DataFrame({"age": draw.normal(40, 9, 200).round(2), 'the "plan"': draw.choice(["basic", "pro"], 200)})
    frame["left"] = np.where((frame["age"] > 40) ^ (frame['the "plan"'] == "pro"), "yes", "no")
    frame.loc[::9, "age"] = np.nan
    frame.to_csv(folder / "table.csv", index=False)
    frame.drop(columns="left").to_csv(folder / "new.csv", index=False)
    name = f"csv:{folder / 'table.csv'}#target=left"
    job.train(name, "mlp:hidden=4", "deep:members=2", folder / "run", {"epochs": 1}, progress=False)
    return folder


def triton_config(text: str) -> Any:
    """A config.pbtxt, read by Triton's own message definitions."""
    kept = json.loads(Path(__file__).with_name("triton_config.json").read_text())
    file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(kept["descriptor"]))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("inference.ModelConfig"))
    return text_format.Parse(text, kind(), descriptor_pool=pool)


# What Triton calls the types of arrays.
TRITON_KINDS = {"float32": "FP32", "float64": "FP64", "object": "STRING"} | {
    k: k.upper() for k in ("uint8", "int64", "bool")
}


def assert_describes(config: Any, model: Path) -> None:
    """The file takes and gives what is declared, by name, type and shape; `members` alone is left out."""
    kinds = config.input[0].DESCRIPTOR.fields_by_name["data_type"].enum_type.values_by_number
    arrays = {kind: name for name, kind in TRITON_KINDS.items()}

    def shape(each: Any) -> list[int]:
        dims = [*each.reshape.shape] if each.HasField("reshape") else [*each.dims]
        assert each.dims and len(each.dims) == max(len(dims), 1)
        return dims

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    rows = 5
    inputs = {}
    for each in config.input:
        kind = arrays[kinds[each.data_type].name.removeprefix("TYPE_")]
        sizes = [size if size > 0 else 9 for size in shape(each)]
        inputs[each.name] = np.full((rows, *sizes), "" if kind == "object" else 1, dtype=kind)
    assert [*inputs] == [value.name for value in session.get_inputs()]
    names = [value.name for value in session.get_outputs()]
    answers = dict(zip(names, session.run(names, inputs), strict=True))
    answers.pop("members", None)
    assert [each.name for each in config.output] == [*answers]
    for each in config.output:
        assert f"TYPE_{TRITON_KINDS[str(answers[each.name].dtype)]}" == kinds[each.data_type].name
        assert answers[each.name].shape == (rows, *shape(each)) and config.max_batch_size >= rows


def test_triton_gets_a_model_folder(shop):
    _, model = write(shop / "run", shop / "repository", serve="triton", card=False, each_member=True)
    assert model == shop / "repository" / "repository" / "1" / "model.onnx"
    config = triton_config((model.parents[1] / "config.pbtxt").read_text())
    assert config.name == "repository" and config.platform == "onnxruntime_onnx" and config.HasField("dynamic_batching")
    assert {each.name for each in config.input} == {"age", 'the "plan"'}
    assert_describes(config, model)


@pytest.mark.parametrize("free", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_triton_gets_images_of_any_size_or_of_one(tmp_path, free):
    name = "small-cnn" if free else "mlp"
    keywords = {"in_channels": 1} if free else {"in_features": 36}
    net = nn.Sequential(*([] if free else [nn.Flatten()]), multum.models.build(name, classes=3, **keywords))
    ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 1, 6, 6), seed=0)
    _, model = write(ens, tmp_path / "pics", serve="triton", card=False)
    config = triton_config((model.parents[1] / "config.pbtxt").read_text())
    assert_describes(config, model)
    assert [*config.input[0].dims] == ([1, -1, -1] if free else [1, 6, 6])


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
    first = rows[0]
    for bad, reason in [
        *(({"rows": []}, "1 to 1000"), ({"rows": 3}, "1 to 1000"), ({"rows": rows[:1] * 1001}, "1 to 1000")),
        *(({"rows": [{"age": 1}]}, "the column"), ({"rows": [[1, 2]]}, "must be an object")),
        *(
            ({"rows": [first | {"age": bad}]}, "'age' must hold numbers")
            for bad in ("old", math.nan, math.inf, 10**400)
        ),
        *(({"rows": [first | {'the "plan"': bad}]}, "must hold text") for bad in ({}, [1], "\ud800")),
        *((text, 'the body must be {"rows"') for text in (b"text", b"", {"other": 1}, [1])),
    ]:
        status, reply = ask(server, bad if isinstance(bad, bytes) else json.dumps(bad).encode())
        assert status == 422 and reason in " ".join(reply["detail"]), (str(bad)[:60], status, reply)
        assert ask(server, good)[0] == 200, "the server lives"
    status, _ = ask(server, b'{"rows": "' + b"x" * (33 * 2**20) + b'"}')
    assert status == 413 and ask(server, good)[0] == 200
