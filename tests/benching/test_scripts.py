"""benchmarks/bars.py and growth.py: what they measure, that they go on where they were stopped, and what they write."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

import multum
from multum.benching.setting import Setting
from multum.benching.subjects import INFERENCE, TRAINING

FOLDER = Path(__file__).parents[2] / "benchmarks"
SMALL = Setting("small-cnn:thin=0.25", (1, 8, 8))


def script(name: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", folder / "results.json")
    return module


@pytest.fixture
def bars(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    module = script("bars", monkeypatch, tmp_path)
    monkeypatch.setattr(module, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text(f"before\n{module.BEGIN}\nold\n{module.END}\nafter\n")
    return module


def test_every_bar_of_speed_is_there(bars: ModuleType) -> None:
    every = bars.bars()
    peers = [bar for name, bar in every.items() if name.startswith("packed-peer")]
    assert {(bar.mode, bar.batch, bar.limit) for bar in peers} == {
        (mode, batch, 1.0) for mode in (INFERENCE, TRAINING) for batch in (1, 16, 64)
    }
    limits = {name: every[name].limit for name in ("packed-inference", "packed-training", "deep", "mimo", "tabm")}
    assert limits == {"packed-inference": 1.1, "packed-training": 1.12, "deep": 0.97, "mimo": 1.03, "tabm": 0.6}
    assert every["deep"].times == 4 and every["mcdropout-head"].limit == 1.3 and every["packed-memory-64"].memory


def test_a_bar_is_the_ratio_of_the_fastest_of_both_sides(bars: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = multum.Deep(members=2)
    bar = bars.Bar("", 1.0, [bars.ours(deep, "loop"), bars.ours(deep, "vmap")], setting=SMALL, batch=2, times=2)
    seconds = {"one network": 1.0, "deep, loop": 3.0, "deep, vmap": 2.5}
    monkeypatch.setattr(bars, "Timed", lambda call: call)
    monkeypatch.setattr(
        bars, "in_turn", lambda timed, rounds, order: {s: [seconds[bars._label(s)]] * rounds for s in timed}
    )
    entry = bars.measured(bar, 3)
    assert entry["value"]["median"] == 1.25 and entry["of"] == "deep, vmap" and entry["refused"] == {}


def test_what_a_library_refuses_is_said(bars: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args) -> None:
        raise RuntimeError("no such kernel\nmore")

    monkeypatch.setattr(bars.Workshop, "call", refuse)
    entry = bars.measured(bars.Bar("", 1.0, [bars.ours(multum.Deep())], setting=SMALL), 1)
    assert entry["value"] is None and entry["refused"]["deep"] == "RuntimeError: no such kernel"


def test_bars_go_on_where_they_were_stopped(bars: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measured: list[str] = []

    def measure(bar, rounds):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.append(bar.measure)
        return {"value": {"median": 1.05, "lower": 0.99, "upper": 1.2}, "refused": {}}

    monkeypatch.setattr(bars, "measured", measure)
    monkeypatch.setattr(bars.torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(bars.multum, "keep_memory", lambda: True)
    monkeypatch.setattr(sys, "argv", ["bars.py", "--only", "deep", "mimo", "multihead"])
    with pytest.raises(KeyboardInterrupt):
        bars.main()
    assert [*json.loads((tmp_path / "results.json").read_text())["bars"]] == ["deep", "mimo"]
    measured.clear()
    bars.main()
    assert measured == ["Multihead(4) / one network, inference"]
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("before\n") and page.endswith("after\n") and "old" not in page
    assert "1.05 | 0.99-1.20 | no " in page and "within the spread" in page and "not measured yet" in page
    monkeypatch.setattr(sys, "argv", ["bars.py", "--only", "deep", "--again"])
    measured.clear()
    bars.main()
    assert len(measured) == 1
    monkeypatch.setattr(bars, "machine", lambda: {"processor": "another", "cores": 1, "flags": []})
    monkeypatch.setattr(sys, "argv", ["bars.py", "--list"])
    bars.main()


def test_points_of_growth_keep_the_parameters_and_are_drawn(
    bars: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    growth = script("growth", monkeypatch, tmp_path)
    every = list(growth.points(list(growth.AXES)))
    assert all(point.method.alpha**2 == pytest.approx(point.method.members) for point in every)
    batches = [point.batch for point in every if point.axis == "batch"]
    assert batches == [1, 16, 64, 256, 512] and growth.Point("members", 32).batch == 16
    assert growth.Point("image", 96).side == 96
    mode = {"seconds": {}, "ratio": {"median": 1.5, "lower": 1.4, "upper": 1.6}, "memory": 10, "memory_ratio": 1.2}
    kinds = {"convolution": 1.0, "norm": 1.0, "the rest": 1.0}
    row = {INFERENCE: mode, TRAINING: mode, "shares": {"one network": kinds, "packed": kinds}}
    found = {point.name: row for point in every}
    assert "1.50 (1.40-1.60)" in growth.table(found) and "training step, peak memory" in growth.figure(found)
