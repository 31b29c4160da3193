"""One file and one line make a method: the command line, the table and the library then know it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Optional

import pytest
import torch

import multum
from multum.errors import ConfigError
from multum.methods import METHODS, catalogue, parse
from multum.methods.base import Method, setting
from multum.methods.paths import module_path

TOY = '''
"""Toy: copies of the network, for a test."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Method, Remake, setting


@dataclass(frozen=True, kw_only=True)
class Toy(Method):
    colour: str = setting("red", "the colour of the toy")

    def birth(self, network, example, builder):
        return Remake(network, "fresh", builder)
'''

ASK = """
import json
from typer.testing import CliRunner
import multum
from multum import methods
from multum.cli import app
from multum.comparing.planning import chosen_methods
run = CliRunner().invoke
print(json.dumps({
    "json": json.loads(run(app, ["methods", "--json"]).output),
    "table": run(app, ["methods"], env={"COLUMNS": "200"}).output,
    "parsed": repr(methods.parse("toy:members=2,colour=blue")),
    "all": methods.__all__,
    "top": repr(multum.Toy(members=3)),
    "compared": [wanted.label for wanted in chosen_methods("all")],
}))
"""


def test_a_method_is_one_file_and_one_line(tmp_path: Path) -> None:
    package = tmp_path / "multum"
    shutil.copytree(Path(multum.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "methods" / "toy.py").write_text(TOY)
    listing = package / "methods" / "__init__.py"
    line = "from .tree_net import TreeNet as TreeNet\n"
    listing.write_text(listing.read_text().replace(line, f"from .toy import Toy as Toy\n{line}"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    seen = json.loads(done.stdout)
    toy = next(entry for entry in seen["json"] if entry["name"] == "toy")
    assert (toy["class"], toy["summary"]) == ("Toy", "Toy: copies of the network, for a test.")
    assert toy["fields"][1] == {"name": "colour", "type": "str", "default": "red", "comment": "the colour of the toy"}
    assert "toy" in seen["table"] and "the colour of the toy" in seen["table"]
    assert seen["parsed"] == "Toy(members=2, colour='blue')"
    assert seen["top"] == "Toy(members=3, colour='red')"
    assert "Toy" in seen["all"] and "toy" in seen["compared"]


def test_every_field_has_a_help_text() -> None:
    without = [(m["name"], f["name"]) for m in catalogue() for f in m["fields"] if not f["comment"]]
    assert not without
    assert "branch point" in next(f["comment"] for m in catalogue() for f in m["fields"] if f["name"] == "at")


def test_every_method_is_a_name_of_multum() -> None:
    for kind in METHODS.values():
        assert getattr(multum, kind.__name__) is kind and kind.__name__ in multum.__all__


BAD = [float("nan"), float("inf"), -float("inf"), -1, 0, 10**12, 0.5, True, None, "x", "", [], [1], {}, (), object()]


@pytest.mark.parametrize("name", METHODS)
def test_no_value_of_a_field_raises_anything_but_a_config_error(name: str) -> None:
    kind = METHODS[name]
    for field in dataclasses.fields(kind):
        for value in BAD:
            try:
                kind(**{field.name: value})
            except ConfigError as error:
                assert f"{field.name}=" in str(error) and " must " in str(error) and "; got " in str(error), str(error)


@pytest.mark.parametrize("value", [float("inf"), 3, ("conv1", 3), "", None])
def test_dense_is_a_tuple_of_texts(value) -> None:
    with pytest.raises(ConfigError, match=r"dense must be a tuple of texts; got dense=.*BasicBlock.conv1"):
        multum.Packed(dense=value)


@pytest.mark.parametrize("text", ["packd", "packed:alfa=2"])
def test_unknown_names_are_explained(text: str) -> None:
    with pytest.raises(ConfigError, match=r"must .*; got .*Did you mean (packed|alpha)"):
        parse(text)


def test_the_defaults_of_a_method_are_harmless() -> None:
    """What training, budgets and tables ask of any method."""
    method = Method(members=3)
    flags = (method.independent, method.arranges_batches, method.takes_turns, method.renews_norms)
    assert flags == (False, False, False, False)
    assert method.sized(0.5, 1.0) is None
    assert (method.shared_step_every(3), method.training_macs(12, 3), method.training_only) == (1, 12, ())
    assert method.give_birth(None) is None and method.birth_after(10) is None
    network = torch.nn.Linear(2, 1)
    assert method.unfold(network, 1) is network


def test_what_methods_say_of_themselves() -> None:
    def those(attribute: str) -> set[str]:
        return {name for name, kind in METHODS.items() if getattr(kind, attribute)}

    assert those("independent") == {"deep", "packed"}
    assert those("arranges_batches") == {"masksembles", "mimo"}
    assert those("takes_turns") == {"hypernet"}
    assert multum.Hypernet().shared_step_every(4) == 4 and multum.Hypernet(nested=False).shared_step_every(4) == 1
    assert multum.Hypernet().training_macs(40, 4) == multum.McDropout().training_macs(40, 4) == 10
    assert multum.Mimo(repeats=2).training_macs(40, 3) == 80
    assert multum.Packed(members=4).sized(0.5, None) == multum.Packed(members=4, alpha=2.0)
    assert multum.Mixture().sized(0.5, 3.0) == multum.Mixture(budget=1.5) and multum.Mixture().sized(0.5, None) is None
    for kind in METHODS.values():
        assert set(kind.training_only) <= {f.name for f in dataclasses.fields(kind)}


RULES = {
    "size": (int, setting(2, "", least=2), 1, "size must be a whole number >= 2; got size=1"),
    "rate": (float, setting(0.5, "", least=0, below=1), 1.0, "rate must be a number with 0 <= rate < 1; got rate=1.0"),
    "mode": (str, setting("a", "", choices=("a", "b")), "c", "mode must be one of 'a', 'b'; got mode='c'"),
    "fast": (bool, setting(True, ""), 1, "fast must be True or False; got fast=1"),
    "names": (tuple[str, ...], setting((), "", example="fc"), 3, "names must be a tuple of texts; got names=3"),
    "share": (float | None, setting(None, "", most=1), 2, "share must be a number with share <= 1; got share=2"),
    "limit": (Optional[float], setting(None, "", most=1), 2, "limit must be a number with limit <= 1; got limit=2"),  # noqa: UP045
    "head": ("str | None", setting(None, "", check=module_path), "", "head must be the path of a module, or None"),
}


@pytest.mark.parametrize("name", RULES)
def test_a_field_carries_the_rule_of_its_values(name: str) -> None:
    kind, field, wrong, error = RULES[name]
    method = dataclasses.make_dataclass("Own", [(name, kind, field)], bases=(Method,), frozen=True, kw_only=True)
    assert getattr(method(), name) == field.default
    assert name != "names" or method(names="fc").names == ("fc",)
    with pytest.raises(ConfigError, match=re.escape(error)):
        method(**{name: wrong})
    with pytest.raises(ConfigError, match="members must be a whole number >= 1; got members=0"):
        method(members=0)


@pytest.mark.parametrize("factor", [float("nan"), float("inf"), 0, -1, 1.5, "half", None, True, Fraction(3, 2)])
def test_a_factor_is_a_share(factor) -> None:
    with pytest.raises(ConfigError, match=r"factor must be a number with 0 < factor <= 1; got"):
        multum.thin(torch.nn.Linear(2, 2), factor, torch.zeros(1, 2))


VARIANTS = [(name, fields) for name, kind in METHODS.items() for fields in kind.variants]


@pytest.mark.parametrize(("name", "fields"), VARIANTS, ids=str)
def test_a_variant_is_another_config_that_builds(name: str, fields: dict) -> None:
    default = METHODS[name]()
    variant = dataclasses.replace(default, **fields)
    assert fields and all(
        getattr(variant, field) == value != getattr(default, field) for field, value in fields.items()
    )
    x = torch.randn(4, 1, 8, 8)
    ens = multum.ensemble(multum.models.build("small-cnn", classes=3, in_channels=1), variant, example=x, seed=0)
    assert ens(x).shape[1:] == (4, 3) and ens(x).isfinite().all()


def test_tuning_tries_few_variants() -> None:
    assert max(len(kind.variants) for kind in METHODS.values()) == 2
    tuned = {name: {field for fields in METHODS[name].variants for field in fields} for name, _ in VARIANTS}
    main = {"packed": {"alpha"}, "masksembles": {"scale"}, "mimo": {"rho", "repeats"}, "mcdropout": {"rate"}}
    assert main.items() <= tuned.items() and tuned["hypernet"] == {"birth_epoch"}
