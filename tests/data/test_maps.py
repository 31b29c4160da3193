"""Arrays that are larger than memory: the same numbers from the disk, read where they are asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import multum
from multum.data import maps
from multum.data.maps import Mapped, cached_array, digest_of, has_room, mapped_file
from multum.errors import DataError, FileError


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MULTUM_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache" / "maps"


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is too large for memory."""
    monkeypatch.setattr(maps, "IN_MEMORY", 100)
    monkeypatch.setattr(maps, "RESIDENT", 5000)


def arrays(kind: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shape = {"table": (6,), "gray": (8, 8), "last": (8, 8, 3), "first": (3, 8, 8)}[kind]
    x = rng.normal(size=(90, *shape)) if kind == "table" else rng.integers(0, 256, (90, *shape), dtype=np.uint8)
    y = rng.integers(0, 3, 90)
    return {"x_train": x[:60], "y_train": y[:60], "x_test": x[60:], "y_test": y[60:]}


@pytest.mark.parametrize("pack", [np.savez, np.savez_compressed], ids=["stored", "packed"])
@pytest.mark.parametrize("kind", ["table", "gray", "last", "first"])
def test_a_mapped_npz_is_the_one_in_memory(
    kind: str, pack: object, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack(tmp_path / "a.npz", **arrays(kind))
    name = f"npz:{tmp_path}/a.npz"
    wanted = multum.load_data(name)
    monkeypatch.setattr(maps, "IN_MEMORY", 100)
    monkeypatch.setattr(maps, "RESIDENT", 5000)  # its pages are given back several times
    data = multum.load_data(name)
    assert isinstance(data.train.x, Mapped) and isinstance(wanted.train.x, torch.Tensor)
    assert data.train.x.shape == wanted.train.x.shape and data.is_image == wanted.is_image
    rows = torch.randperm(60)[:20]
    for _ in range(3):
        assert torch.equal(data.train.x[rows], wanted.train.x[rows])
        assert torch.equal(data.train.x[:], wanted.train.x) and data.train.x[:].is_contiguous()
    assert torch.equal(data.mean, wanted.mean) and torch.equal(data.std, wanted.std)
    held, wanted_held = data.with_validation(0.3, 1), wanted.with_validation(0.3, 1)
    assert isinstance(held.validation.x, Mapped)
    assert torch.equal(held.validation.x[:], wanted_held.validation.x)
    assert len(list(cache.glob("*.npy"))) == (4 if pack is np.savez_compressed else 0)


@pytest.mark.usefixtures("tiny")
def test_a_packed_array_is_unpacked_once_and_again_if_it_is_another(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **arrays("table"))
    multum.load_data(f"npz:{path}")
    before = {p: p.stat().st_mtime_ns for p in cache.iterdir()}
    multum.load_data(f"npz:{path}")
    assert {p: p.stat().st_mtime_ns for p in cache.iterdir()} == before
    changed = arrays("table")
    changed["x_train"] = changed["x_train"] + 1
    np.savez_compressed(path, **changed)
    assert torch.equal(multum.load_data(f"npz:{path}").train.x[:], torch.from_numpy(changed["x_train"]))
    assert len(list(cache.iterdir())) == len(before) + 1


def test_training_from_a_map_is_training_from_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "a.npz", **arrays("last"))
    recipe = multum.Recipe(epochs=2, batch_size=16, crop=1, flip=True, keep="best")
    outputs = []
    for limit in (2**28, 100):
        monkeypatch.setattr(maps, "IN_MEMORY", limit)
        data = multum.load_data(f"npz:{tmp_path}/a.npz")
        net = multum.models.build("small-cnn", classes=3, in_channels=3)
        torch.manual_seed(0)
        ens = multum.ensemble(net, multum.Deep(members=2), example=data.example(), seed=0)
        multum.fit(ens, data, recipe, warn=False)
        outputs.append((ens(data.example()), multum.evaluate(ens, data)))
    assert torch.equal(outputs[0][0], outputs[1][0]) and outputs[0][1] == outputs[1][1]


@pytest.mark.usefixtures("tiny")
def test_not_finite_numbers_of_a_map_are_found(tmp_path: Path) -> None:
    bad = arrays("table")
    bad["x_train"][7, 2] = np.nan
    np.savez(tmp_path / "a.npz", **bad)
    with pytest.raises(DataError, match="got NaN or infinite ones in the training part"):
        multum.load_data(f"npz:{tmp_path}/a.npz")


@pytest.mark.usefixtures("tiny")
def test_an_array_by_columns_is_refused_with_its_fix(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{k: np.asfortranarray(v) for k, v in arrays("table").items()})
    with pytest.raises(DataError, match=r"numpy\.ascontiguousarray"):
        multum.load_data(f"npz:{tmp_path}/a.npz")


@pytest.mark.usefixtures("tiny")
def test_without_room_on_the_disk_a_packed_array_is_read_into_memory(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "has_room", lambda size: False)
    np.savez_compressed(tmp_path / "a.npz", **arrays("table"))
    assert isinstance(multum.load_data(f"npz:{tmp_path}/a.npz").train.x, torch.Tensor)
    assert not cache.exists()


def test_a_cached_array_is_whole_or_not_there(cache: Path) -> None:
    def fails(new: maps.NewFile) -> None:
        new.write(slice(None), np.ones((3, 2), dtype=np.uint8))
        raise KeyError("half-way")

    with pytest.raises(KeyError):
        cached_array("key", (3, 2), np.uint8, fails)
    assert list(cache.iterdir()) == []
    file = cached_array("key", (3, 2), np.uint8, lambda new: new.write(slice(None), np.full((3, 2), 7)))
    assert file.read(torch.tensor([1])).tolist() == [[7, 7]]
    assert mapped_file(cache / "key.npy").shape == (3, 2)
    with pytest.raises(FileError, match="must be readable"):
        mapped_file(cache / "other.npy")


def test_a_tensor_of_a_map_is_a_copy(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(6.0).reshape(3, 2))
    x = Mapped(mapped_file(tmp_path / "a.npy"))
    x[:].zero_()
    x[torch.tensor([0])].zero_()
    assert x[:].sum() == 15 and np.load(tmp_path / "a.npy").sum() == 15
    assert x.take(torch.tensor([2, 0]))[0].tolist() == [4, 5] and x.take(torch.tensor([True, False, True])).shape == (
        2,
        2,
    )


@pytest.mark.parametrize("resident", [1, 50, 2**26])
def test_any_rows_can_be_read_whatever_memory_holds(
    resident: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "RESIDENT", resident)
    monkeypatch.setattr(maps, "SCATTERED", 10)
    whole = torch.arange(600.0, dtype=torch.float64).reshape(100, 3, 2)
    np.save(tmp_path / "a.npy", whole.numpy())
    file = mapped_file(tmp_path / "a.npy")
    x = Mapped(file)
    for rows in (
        slice(3, 50),
        torch.randperm(100),
        torch.tensor([7]),
        torch.tensor([], dtype=torch.int64),
        slice(0, 0),
        5,
    ):
        assert torch.equal(x[rows], whole[rows])
    assert torch.equal(file.read(torch.tensor([2, 0]), place=9), whole[9, [2, 0]])
    assert torch.equal(torch.cat(list(x.split(33))), whole)


def test_digests_are_of_values_and_bytes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "b").write_bytes(b"2")
    digests = {digest_of(1), digest_of("1"), digest_of(1, file=tmp_path / "a"), digest_of(1, file=tmp_path / "b")}
    assert len(digests) == 4 and digest_of(1, file=tmp_path / "a") in digests
    assert has_room(1) and not has_room(2**80)
