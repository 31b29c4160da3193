"""One comparison a folder; classes that were held out are said; the final model; where every model lies."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import multum
from multum import reports
from multum.comparing.document import COMPARISON
from multum.errors import ConfigError
from multum.runs.cells import RESULT
from multum.runs.folder import open_run
from multum.runs.predict import predict_run

QUICK: dict[str, Any] = {"seeds": 1, "epochs": 1, "shift": "none", "tune": 0, "threads": 1}
QUICK["recipe"] = {"batch_size": 256}


def compared(out: Path, data: str = "digits", methods: str = "single", **changed: Any) -> dict[str, Any]:
    network = "mlp:hidden=16" if data == "diabetes" else "small-cnn"
    return multum.compare(data, network, methods, out=out, **{**QUICK, **changed})


def results(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in out.glob(f"*/{RESULT}")}


@pytest.fixture(scope="module")
def final(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    out = tmp_path_factory.mktemp("final") / "of two methods"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reports.writing, "figures", lambda document: [])
        return out, compared(out, methods="single,deep:members=2", final=True)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"data": "diabetes"}, "data 'digits#hold_out=8+9' instead of 'diabetes'"),
        ({"epochs": 2}, "recipe epochs=1 instead of 2"),
        ({"recipe": {"batch_size": 128}}, "batch_size=256 instead of 128"),
        ({"ood": []}, "data"),
        ({"shift": "quick"}, "shift []"),
        ({"budget": "1x"}, "budget None instead of '1x'"),
    ],
)
def test_another_comparison_asks_for_another_folder(final, changed: dict[str, Any], said: str) -> None:
    out, _ = final
    before, report = results(out), (out / "report.html").read_bytes()
    with pytest.raises(ConfigError, match="must hold one comparison") as caught:
        compared(out, **changed)
    assert said in str(caught.value) and "Choose another --out" in str(caught.value)
    assert results(out) == before and (out / "report.html").read_bytes() == report


def test_methods_and_seeds_may_be_added(tmp_path: Path) -> None:
    compared(tmp_path)
    before = results(tmp_path)
    document = compared(tmp_path, methods="single,deep:members=2", seeds=2)
    assert len(document["rows"]) == 2 and len(results(tmp_path)) == 4
    assert {name: when for name, when in results(tmp_path).items() if name in before} == before


def test_a_folder_of_the_older_multum_is_known_by_its_report(tmp_path: Path) -> None:
    compared(tmp_path)
    (tmp_path / COMPARISON).unlink()
    report = json.loads((tmp_path / "report.json").read_text())
    del report["settings"]["recipe"]["clip"]  # a field that it did not have
    (tmp_path / "report.json").write_text(json.dumps(report))
    with pytest.raises(ConfigError, match="epochs=1 instead of 2"):
        compared(tmp_path, epochs=2)
    assert compared(tmp_path)["rows"][0]["status"] == "done"


def test_held_out_classes_are_said(tmp_path: Path) -> None:
    document = compared(tmp_path)
    first, second = document["advice"]["notes"][-2:]
    assert first == "None of the compared models knows the classes 8, 9: they were held out as OOD data."
    assert "--final" in second and "single" in second and document["final"] is None
    assert "--final" not in " ".join(compared(tmp_path / "none", ood=[])["advice"]["notes"])


def test_the_final_model_knows_every_class(final) -> None:
    out, document = final
    ended, label = document["final"], document["advice"]["label"]
    assert (ended["label"], ended["status"], ended["data"]) == (label, "done", "digits")
    assert ended["folder"] not in {cell["folder"] for cell in document["cells"]}
    assert open_run(out / ended["folder"])[1].outputs == 10
    assert open_run(out / document["rows"][0]["folder"])[1].outputs == 8
    note = document["advice"]["notes"][-1]
    assert str(out / ended["folder"]) in note and "accuracy" in note and "%" in note
    before = results(out)
    again = compared(out, methods="single,deep:members=2", final=True)
    assert again["final"] == ended and results(out) == before


def test_where_nothing_was_held_out_the_final_model_is_there_already(tmp_path: Path) -> None:
    document = compared(tmp_path, "diabetes", final=True)
    assert document["final"]["folder"] == document["cells"][0]["folder"]
    assert len(results(tmp_path)) == 1 and "RMSE" in document["advice"]["notes"][-1]


def test_a_final_model_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from multum.runs import cells

    train_on = cells.train_on

    def failing(source: Any, data: str, *rest: Any, **options: Any) -> Any:
        if data == "digits":
            raise RuntimeError("made to fail")
        return train_on(source, data, *rest, **options)

    monkeypatch.setattr(cells, "train_on", failing)
    document = compared(tmp_path, final=True)
    assert document["final"]["status"] == "failed" and "made to fail" in document["advice"]["notes"][-1]


def test_every_report_has_the_command_that_predicts(final) -> None:
    out, document = final
    folders = [row["folder"] for row in document["rows"]] + [document["final"]["folder"]]
    commands = [f"multum predict {shlex.quote(str(out / folder))} FILE" for folder in folders]
    console = Console(file=io.StringIO(), width=60)
    console.print(*reports.model_lines(document), sep="\n", soft_wrap=True)
    printed = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    html, markdown = (out / "report.html").read_text(), (out / "report.md").read_text()
    for command in commands:
        assert any(line.endswith(command) for line in printed)
        assert f"`{command}`" in markdown
        assert command.replace("'", "&#39;") in html
    np.save(out / "new.npy", np.zeros((3, 1, 8, 8), dtype=np.uint8))
    _, _, folder, _ = shlex.split(commands[0])
    assert len(predict_run(folder, out / "new.npy", progress=False)) == 3
