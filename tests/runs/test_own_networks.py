"""Networks of the user's own, by file, by module and from Python: named, recorded, kept in the folder, refused."""

from __future__ import annotations

import json
import logging
import runpy
import shutil
import sys
import textwrap
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import multum
from multum import cli, models
from multum.data.sources import load_data
from multum.errors import ConfigError, FileError, TrainingError
from multum.models import sources
from multum.runs import train as job
from multum.runs.cells import Cell
from multum.runs.folder import open_run
from multum.runs.networks import builder_for, full_name
from multum.runs.predict import predict_run

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=10, width=8):
        super().__init__()
        self.f = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, x):
        return self.f(x)
"""
QUICK = {"epochs": 1, "batch_size": 256}

pytestmark = pytest.mark.usefixtures("without_figures")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    forget()
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return path


def images(folder: Path) -> Path:
    np.savez(folder / "new.npz", x=np.random.default_rng(0).integers(0, 256, (5, 1, 8, 8), dtype=np.uint8))
    return folder / "new.npz"


def forget() -> None:
    """As a new process: no text is known, and none has been run."""
    sources.SOURCES.clear()
    for name in [name for name in sys.modules if "multum_network_" in name]:
        del sys.modules[name]


def built(text: str, data: str = "digits") -> nn.Module:
    source = load_data(data)
    return builder_for(full_name(text, source, Path()), source)()


def test_a_file_a_module_and_keywords(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(here / "nets" / "mynet.py", NET)
    assert built("nets/mynet.py:Net").f[1].out_features == 8
    assert built("nets/mynet.py:Net:width=16").f[1].out_features == 16
    write(here / "package_of_nets" / "__init__.py", "")
    write(here / "package_of_nets" / "sizes.py", "WIDTH = 5")
    text = NET.replace("width=8", "width=WIDTH").replace("from torch", "from .sizes import WIDTH\nfrom torch")
    write(here / "package_of_nets" / "nets.py", text)
    assert built("package_of_nets.nets:Net").f[1].out_features == 5
    assert built("package_of_nets.nets:Net:width=6,thin=0.5").f[1].out_features == 3
    assert built("package_of_nets.nets:Net:width=6,wide=1.5").f[1].out_features == 9


def test_the_same_text_is_the_same_network_wherever_it_lies(here: Path) -> None:
    data = load_data("digits")
    files = [write(here / "mynet.py", NET), write(here / "other" / "mynet.py", NET)]
    files.append(write(here / "changed" / "mynet.py", NET + "#"))
    first, second, third = (full_name(f"{file}:Net:width=4", data, here) for file in files)
    assert first == second != third
    assert first.startswith("mynet.py@") and first.endswith(":Net:width=4")
    names = [Cell("single", 0, "digits", name, multum.Single(), {}).name for name in (first, second, third)]
    assert names[0] == names[1] != names[2]
    assert full_name("small-cnn", data, here) == "small-cnn" and full_name(None, data, here) == "cnn"


def test_what_is_known_of_the_data_comes_by_name(here: Path) -> None:
    write(
        here / "known.py",
        """
        from torch import nn

        def rows(in_features, outputs, *, input_shape=None):
            assert input_shape == (in_features,)
            return nn.Linear(in_features, outputs)

        def images(num_classes, in_chans, img_size, channels=7):
            assert channels == 7  # a width as likely as an input: never guessed
            whole = nn.Conv2d(in_chans, channels, img_size)
            return nn.Sequential(whole, nn.Flatten(), nn.Linear(channels, num_classes))

        def open_ended(**keywords):
            assert keywords == {"width": 3}
            return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
        """,
    )
    assert built("known.py:rows", "diabetes").weight.shape == (2, 10)
    assert built("known.py:images")[2].out_features == 10
    assert built("known.py:open_ended:width=3")[1].out_features == 10


MISTAKES = {
    "missing.py:Net": "must exist; got missing.py",
    "mynet.py": "must be written FILE.py:NAME",
    "mynet.py:width=3": "must be written FILE.py:NAME",
    "mynet.py:Met": "Did you mean Net",
    "mynet.py:Net:widht=3": "Did you mean width",
    "mynet.py:torch_version": "must build networks",
    "mynet.py:instance": "must build networks, one for each member; got Linear",
    "mynet.py:wrong": "must give 10 outputs for each example; got [2, 3]",
    "mynet.py:nothing": "must give an nn.Module; got int",
    "mynet.py:needs": "got no depth. Write mynet.py:needs:depth=",
    "mynet.py:rows": "must run on examples of shape [1, 8, 8]; got RuntimeError",
    "syntax.py:Net": "syntax.py must be Python; got SyntaxError in line 2",
    "raises.py:Net": "raises.py must be importable; got ZeroDivisionError",
    "imports.py:Net": "No module named 'nowhere'",
    "script.py:Net": "script.py must be importable; got SystemExit",
    "no.such.module:Net": "no.such.module",
    "math:sqrt": "math, which is no module",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_said_before_anything_is_written(text: str, here: Path) -> None:
    write(
        here / "mynet.py",
        NET
        + textwrap.dedent(
            """
            torch_version = "2"
            instance = nn.Linear(2, 2)

            def wrong():
                return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

            def nothing(classes):
                return classes

            def needs(depth, classes):
                return nn.Linear(depth, classes)

            def rows(in_features, classes):
                return nn.Linear(in_features, classes)
            """
        ),
    )
    write(here / "syntax.py", "\nclass Net:\n    def\n".replace("class", "klass"))
    write(here / "raises.py", "1 / 0")
    write(here / "imports.py", "import nowhere")
    write(here / "script.py", "import argparse, sys\nsys.exit('usage: script.py')")
    with pytest.raises(ConfigError, match="must") as caught:
        job.train("digits", text, "single", here / "run", QUICK)
    assert MISTAKES[text] in str(caught.value)
    assert not (here / "run").exists()


def test_a_run_folder_stands_alone(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(here / "code" / "mynet.py", NET)
    run = job.train("digits", "code/mynet.py:Net:width=16", "deep:members=2", here / "run", QUICK)
    digest = json.loads((here / "run" / "network.json").read_text())["sha256"]
    assert run["model"] == f"mynet.py@{digest[:12]}:Net:width=16"
    assert (here / "run" / "network.py").read_text() == NET
    before = predict_run(here / "run", images(here), progress=False)
    shutil.rmtree(here / "code")
    moved = (here / "run").rename(here / "elsewhere")
    forget()
    caplog.clear()
    after = predict_run(moved, here / "new.npz", progress=False)
    assert before.equals(after)
    assert [r.message for r in caplog.records if "network.py" in r.message] == [
        f"running {moved / 'network.py'}, the network of this run"
    ]


def test_a_saved_model_alone_runs_no_code(here: Path) -> None:
    write(here / "mynet.py", NET)
    job.train("digits", "mynet.py:Net", "single", here / "run", QUICK)
    write(here / "run" / "network.py", "raise SystemExit('this must not run')")
    with pytest.raises(FileError, match="network"):
        multum.load(here / "run" / "model.safetensors")
    with pytest.raises(FileError, match="another text"):  # a folder's text must be the one that was trained
        open_run(here / "run")


def test_a_changed_text_is_another_network(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(here / "mynet.py", NET)
    first = job.train("digits", "mynet.py:Net", "single", here / "run", QUICK)
    assert job.train("digits", "mynet.py:Net", "single", here / "run", QUICK) == first
    write(here / "mynet.py", NET.replace("ReLU", "GELU"))
    with pytest.raises(TrainingError, match="another model"):
        job.train("digits", "mynet.py:Net", "single", here / "run", QUICK)
    forget()
    network = open_run(here / "run")[0].member(0)
    assert isinstance(network.f[2], nn.ReLU)  # the copy, not the file
    assert f"{here / 'mynet.py'} has changed since, and is not used" in caplog.text


def test_neighbours_are_imported_and_said_to_be_uncovered(here: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(here / "code" / "neighbouring_width.py", "WIDTH = 7")
    write(here / "code" / "mynet.py", "from neighbouring_width import WIDTH\n" + NET.replace("width=8", "width=WIDTH"))
    job.train("digits", "code/mynet.py:Net", "single", here / "run", QUICK)
    assert "mynet.py imports neighbouring_width: only mynet.py is recorded" in caplog.text
    assert json.loads((here / "run" / "network.json").read_text())["imports"] == ["neighbouring_width"]
    shutil.move(here / "code" / "neighbouring_width.py", here / "run")
    shutil.rmtree(here / "code")
    forget()
    sys.modules.pop("neighbouring_width", None)
    assert open_run(here / "run")[0].member(0).f[1].out_features == 7
    (here / "run" / "neighbouring_width.py").unlink()
    shutil.rmtree(here / "run" / "__pycache__", ignore_errors=True)
    forget()
    sys.modules.pop("neighbouring_width", None)
    with pytest.raises(ConfigError, match="put what it imports beside it"):
        open_run(here / "run")


def test_the_command_line_predicts_with_the_copy(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
) -> None:
    def call(*arguments: str) -> str:
        """What it prints; what it says is logged."""
        forget()
        caplog.clear()
        monkeypatch.setattr(sys, "argv", ["multum", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
        printed = capsys.readouterr()
        assert printed.err == "" or arguments[0] == "train"
        return printed.out

    monkeypatch.setattr(logging.getLogger("multum"), "level", logging.NOTSET)  # as it will be left
    write(here / "mynet.py", NET)
    fields = ["epochs=1", "batch_size=256"]
    call("train", "--model", "mynet.py:Net:width=4", "--method", "deep:members=2", "--out", "run", *fields)
    images(here)
    (here / "mynet.py").unlink()
    assert len(json.loads(call("predict", "run", "new.npz", "--json"))) == 5
    assert caplog.messages == ["running run/network.py, the network of this run"]
    call("--quiet", "predict", "run", "new.npz", "--json")
    assert caplog.messages == []


COMPARED = {"seeds": 1, "epochs": 1, "shift": "none", "tune": 0, "ood": [], "threads": 1}
COMPARED["recipe"] = {"batch_size": 256}


def test_compare_by_file_in_one_process_and_in_several(here: Path) -> None:
    write(here / "mynet.py", NET)
    tables = []
    for jobs in (1, 2):
        out = here / f"{jobs}"
        document = multum.compare("digits", "mynet.py:Net", "single,deep:members=2", out=out, jobs=jobs, **COMPARED)
        assert [row["status"] for row in document["rows"]] == ["done", "done"]
        for folder in ("", *(cell["folder"] for cell in document["cells"])):
            assert (out / folder / "network.py").read_text() == NET
        timed = ("latency", "train_seconds")
        tables.append([{k: v for k, v in row["values"].items() if k not in timed} for row in document["rows"]])
    assert tables[0] == tables[1]


def test_a_budget_thins_it(here: Path) -> None:
    write(here / "mynet.py", NET)
    model = "mynet.py:Net:width=32"
    document = multum.compare("digits", model, "single,deep:members=2", out=here / "c", budget="1x", **COMPARED)
    assert [row["status"] for row in document["rows"]] == ["done", "done"]
    assert "thin=" in document["rows"][1]["label"]


class Tiny(nn.Module):
    """At the top of a file, as `multum.compare(model=...)` asks for."""

    def __init__(self, classes: int, width: int = 8):
        super().__init__()
        self.f = nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.f(x)


def test_compare_takes_a_class_and_a_partial(here: Path) -> None:
    document = multum.compare("digits", partial(Tiny, width=4), "single", out=here / "c", **COMPARED)
    assert document["rows"][0]["status"] == "done"
    folder = here / "c" / document["cells"][0]["folder"]
    assert document["settings"]["model"].endswith(":Tiny:width=4")
    assert "class Tiny" in (folder / "network.py").read_text()
    forget()
    assert open_run(folder)[0].member(0).f[1].out_features == 4


@pytest.mark.parametrize("model", [lambda: Tiny(10), Tiny(10), partial(Tiny, 10), partial(Tiny, width=object()), 3])
def test_compare_refuses_what_no_folder_can_keep(model: object, here: Path) -> None:
    with pytest.raises(ConfigError, match="must"):
        multum.compare("digits", model, "single", out=here / "c", **COMPARED)  # type: ignore[arg-type]


def test_a_script_that_does_things_when_imported_is_refused(here: Path) -> None:
    options = "out='c', seeds=1, epochs=1, tune=0, shift='none', recipe={'batch_size': 256}"
    script = NET + f"\nimport multum\nmultum.compare('digits', Net, 'single', {options})\n"
    write(here / "script.py", script)
    with pytest.raises(ConfigError, match='if __name__ == "__main__":'):
        runpy.run_path("script.py", run_name="__main__")  # as `python script.py`
    write(here / "script.py", script.replace("\nmultum.compare", "\nif __name__ == '__main__':\n    multum.compare"))
    runpy.run_path("script.py", run_name="__main__")
    assert (here / "c" / "network.py").is_file()


def test_what_a_text_prints_is_no_part_of_the_answer(here: Path, capsys: pytest.CaptureFixture) -> None:
    text = "\ufeffprint('imported')\n" + NET.replace("        super()", "        print('built')\n        super()")
    (here / "mynet.py").write_text(text, encoding="utf-8")
    job.train("digits", "mynet.py:Net", "single", here / "run", QUICK)
    forget()
    open_run(here / "run")
    printed = capsys.readouterr()
    assert printed.out == "" and "imported" in printed.err and "built" in printed.err


def test_a_builder_reads_the_file_of_a_name_without_hash(here: Path) -> None:
    write(here / "mynet.py", NET)
    assert models.builder("mynet.py:Net:width=3", (1, 8, 8), 10)().f[1].out_features == 3
    with pytest.raises(ConfigError, match="no text with the hash 000000000000"):
        models.builder("mynet.py@000000000000:Net", (1, 8, 8), 10)


def test_names_that_are_multums_stay_multums() -> None:
    assert models.own_name("mlp:hidden=8") is None and models.own_name("timm:resnet18") is None
    assert models.own_name("mlp:Net") is None and models.own_name("wrn-10-1:bias=none") is None
