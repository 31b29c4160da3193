"""Tables that are larger than memory: encoded once, in parts, to the numbers that a table in memory gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import multum
from multum.data import big_frames as frames
from multum.data import maps
from multum.data.maps import Mapped
from multum.errors import DataError

ROWS = 200


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MULTUM_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "maps"


def frame() -> pd.DataFrame:
    """Every kind of column, also such as look like another kind in some of the parts."""
    rng = np.random.default_rng(0)
    n = np.arange(ROWS)
    return pd.DataFrame(
        {
            "whole": rng.integers(0, 50, ROWS),
            "real": np.where(n % 9 == 0, np.nan, rng.normal(size=ROWS)),
            "gap": np.where(n < 120, np.nan, rng.normal(size=ROWS)),
            "colour": rng.choice(["red", " blue", "green"], ROWS),
            "late": np.where(n < 150, "01", rng.choice(["x", "1"], ROWS)),
            "truth": rng.choice([True, False], ROWS),
            "doubt": np.where(n % 11 == 3, None, rng.choice([True, False], ROWS)),
            "money": [f"{k:,}" for k in rng.integers(0, 10**6, ROWS)],
            "same": 5,
            "ident": [f"id{k}" for k in n],
            "empty": np.full(ROWS, np.nan),
            "y": np.where(n % 13 == 5, None, rng.choice(["go", "stay"], ROWS)),
        }
    )


def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(maps, "IN_MEMORY", 400)


def assert_same(data: multum.Data, wanted: multum.Data) -> None:
    assert isinstance(data.train.x, Mapped) and isinstance(wanted.train.x, torch.Tensor)
    assert data.table.columns == wanted.table.columns and data.table.left_out == wanted.table.left_out
    assert data.table.describe() == wanted.table.describe()
    for part, other in ((data.train, wanted.train), (data.test, wanted.test)):
        assert torch.equal(part.x[:], other.x) and torch.equal(part.y, other.y)
    assert torch.equal(data.mean, wanted.mean) and torch.equal(data.std, wanted.std)
    assert torch.equal(data.example(5), wanted.example(5)) and data.classes == wanted.classes


@pytest.mark.parametrize("fields", ["#target=y", "#target=real,drop=y", "#target=whole,task=regression,drop=gap+late"])
def test_a_large_csv_is_the_one_in_memory(fields: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False)
    name = f"csv:{tmp_path}/a.csv{fields}"
    wanted = multum.load_data(name, seed=3)
    small_parts(monkeypatch)
    assert_same(multum.load_data(name, seed=3), wanted)


def test_a_large_csv_of_another_kind_with_a_test_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = frame()
    for name, rows in (("a", slice(0, 140)), ("b", slice(140, None))):
        whole.iloc[rows].to_csv(tmp_path / f"{name}.csv", index=False, sep=";", decimal=",")
    name = f"csv:{tmp_path}/a.csv#target=y,sep=;,decimal=,,test={tmp_path}/b.csv"
    wanted = multum.load_data(name)
    small_parts(monkeypatch)
    assert_same(multum.load_data(name), wanted)


def test_a_large_parquet_file_is_the_one_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    whole = frame()
    whole["doubt"] = whole["doubt"].astype("boolean")
    whole["whole"] = whole["whole"].where(whole["whole"] > 3).astype("Int64")
    whole["kind"] = pd.Categorical(np.random.default_rng(1).choice([3, 10, 2], ROWS))
    whole.to_parquet(tmp_path / "a.parquet", row_group_size=50)
    name = f"parquet:{tmp_path}/a.parquet#target=y"
    wanted = multum.load_data(name)
    small_parts(monkeypatch)
    assert_same(multum.load_data(name), wanted)


def test_a_large_table_is_written_once_and_again_if_its_content_is_another(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_parts(monkeypatch)
    path = tmp_path / "a.csv"
    frame().to_csv(path, index=False)
    first = multum.load_data(f"csv:{path}#target=y")
    before = {p: p.stat().st_mtime_ns for p in cache.iterdir()}
    path.touch()
    multum.load_data(f"csv:{path}#target=y")
    assert {p: p.stat().st_mtime_ns for p in cache.iterdir()} == before
    frame().assign(whole=frame()["whole"] + 1).to_csv(path, index=False)
    data = multum.load_data(f"csv:{path}#target=y")
    assert not torch.equal(data.train.x[:], first.train.x[:]) and len(list(cache.iterdir())) > len(before)


def test_training_on_a_large_table_is_training_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False)
    outputs = []
    for large in (False, True):
        if large:
            small_parts(monkeypatch)
        data = multum.load_data(f"csv:{tmp_path}/a.csv#target=y")
        torch.manual_seed(0)
        net = multum.models.build("mlp", in_features=data.train.x.shape[1], classes=2)
        ens = multum.ensemble(net, multum.Deep(members=2), example=data.example(), seed=0)
        multum.fit(ens, data, multum.Recipe(epochs=2, batch_size=16, keep="best"), warn=False)
        outputs.append(multum.evaluate(ens, data))
    assert outputs[0] == outputs[1]


def test_errors_of_a_large_table_are_those_of_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False)
    (tmp_path / "ragged.csv").write_text("a,y\n" + "1,2\n" * 300 + "1,2,3\n")
    wrong = frame()
    wrong["real"] = np.where(np.arange(ROWS) == 77, np.inf, wrong["real"])
    wrong.to_csv(tmp_path / "inf.csv", index=False)
    messages = []
    for large in (False, True):
        if large:
            small_parts(monkeypatch)
        for name in ("a.csv#target=z", "ragged.csv#target=y", "inf.csv#target=y", "a.csv"):
            with pytest.raises(DataError) as error:
                multum.load_data(f"csv:{tmp_path}/{name}")
            messages.append(str(error.value))
    assert messages[:1] + messages[2:4] == messages[4:5] + messages[6:]
    assert "every row as long as the line of names" in messages[1] and "every row as long" in messages[5]


def test_without_room_on_the_disk_a_large_table_is_refused_with_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame().to_csv(tmp_path / "a.csv", index=False)
    small_parts(monkeypatch)
    monkeypatch.setattr(frames, "has_room", lambda size: False)
    with pytest.raises(DataError, match=r"must fit twice on the disk as numbers, .* set MULTUM_DATA to another disk"):
        multum.load_data(f"csv:{tmp_path}/a.csv#target=y")
