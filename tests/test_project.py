"""Promises of the project as a whole: import direction, sorted public names, and a README that runs."""

from __future__ import annotations

import ast
import importlib
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import multum
from multum.executors import EXECUTORS

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "multum"

# From the ground up: a part imports parts below its own floor, and no other part of the same floor.
FLOORS = (
    ("errors", "figures", "memory", "network", "operators", "processor", "version"),
    ("checks", "files", "parsing", "rewrite"),
    ("data", "executors", "reports", "thinning"),
    ("layout", "models", "outputs"),
    ("choice",),
    ("ensemble",),
    ("building", "inside", "optimizing"),
    ("checking", "methods"),
    ("saving",),
    ("metrics", "training"),
    ("cascades", "lightning", "runs"),
    ("comparing", "estimators", "exporting"),
    ("benching", "papers", "plans"),
    ("cli",),
    ("__init__", "__main__"),
)
LEVELS = {part: level for level, parts in enumerate(FLOORS) for part in parts}


def part_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(file: Path) -> set[str]:
    """The parts of multum that a file imports, also inside functions."""
    package = ["multum", *file.relative_to(SOURCE).parts[:-1]]
    parts = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "multum" else [module]
        parts |= {name.split(".")[1] for name in names if name.startswith("multum.")}
    return parts


FILES = sorted(SOURCE.rglob("*.py"))
PARTS = {part: [file for file in FILES if part_of(file) == part] for part in sorted({part_of(f) for f in FILES})}


@pytest.mark.parametrize("part", PARTS)
def test_imports_point_downward(part: str) -> None:
    assert part in LEVELS, f"{part} has no level: add it to LEVELS"
    for file in PARTS[part]:
        upward = {other for other in imported_parts(file) - {part} if LEVELS[other] >= LEVELS[part]}
        assert not upward, f"{file} (level {LEVELS[part]}) imports {upward} from its own floor or from above"


def test_no_part_stands_higher_than_it_must() -> None:
    needs: dict[str, set[str]] = {part: set() for part in LEVELS}
    for file in FILES:
        needs[part_of(file)] |= imported_parts(file) - {part_of(file)}
    for part, level in LEVELS.items():
        lowest = 1 + max((LEVELS[other] for other in needs[part]), default=-1)
        assert level == lowest or part in ("__init__", "__main__"), f"{part} stands on {level}, and could on {lowest}"


def test_the_import_walker_sees_every_form(tmp_path: Path) -> None:
    assert imported_parts(SOURCE / "methods" / "packed.py") >= {"checks", "thinning", "methods"}
    assert "models" in imported_parts(SOURCE / "saving" / "store.py")


@pytest.mark.parametrize("file", [f for f in FILES if f.parent.name == "methods"], ids=lambda f: f.name)
def test_no_method_imports_another(file: Path) -> None:
    if file.name == "__init__.py":
        return
    imports = {
        node.module
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
    }
    methods = {cls.__module__.rpartition(".")[2] for cls in multum.methods.METHODS.values()}
    assert not imports & methods


def names_in_code(file: Path) -> set[str]:
    """The string constants of a file, docstrings and the names that it exports left out."""
    tree = ast.parse(file.read_text())
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    exports = (n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__")
    left_out |= {id(node) for value in exports for node in ast.walk(value)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in left_out)
    return {node.value for node in constants if isinstance(node.value, str)}


def test_no_file_outside_executors_names_an_executor() -> None:
    named = {f: names_in_code(f) & set(EXECUTORS) for f in FILES if part_of(f) != "executors"}
    assert not {str(f.relative_to(SOURCE)): names for f, names in named.items() if names}


def test_the_search_for_names_sees_code_and_not_prose(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        '"""loop"""\n__all__ = ["loop"]\nif name == "vmap":\n    f(executor="grouped")\n'
    )
    assert names_in_code(tmp_path / "module.py") == {"vmap", "grouped"}
    assert names_in_code(SOURCE / "executors" / "loop.py") >= {"loop"}


SIDE_DOORS = r"getattr\((\w+\.)*method\b|type\((\w+\.)*method\)\.(?!__name__)"


@pytest.mark.parametrize("part", PARTS)
def test_methods_are_asked_by_the_front_door(part: str) -> None:
    classes = {cls.__name__ for cls in multum.methods.METHODS.values()}
    for file in PARTS[part]:
        text = file.read_text()
        assert not re.search(SIDE_DOORS, text), f"{file}: Method has an attribute or a hook for what is asked"
        if part == "methods" or "isinstance" not in text:
            continue
        calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
        asked = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "isinstance"]
        named = {ast.unparse(node).rpartition(".")[2] for call in asked for node in ast.walk(call.args[1])}
        assert not named & classes, f"{file} asks for a particular method: give Method a hook"


@pytest.mark.parametrize(
    "line",
    ['getattr(method, "init", None)', 'getattr(self.ens.method, "x", 1)', "type(method).turn is not Method.turn"],
)
def test_the_side_doors_are_seen(line: str) -> None:
    assert re.search(SIDE_DOORS, line) and not re.search(SIDE_DOORS, "type(ens.method).__name__")


READERS = {
    "endswith",
    "find",
    "index",
    "partition",
    "removeprefix",
    "removesuffix",
    "rpartition",
    "split",
    "startswith",
}


@pytest.mark.parametrize("file", [f for f in FILES if part_of(f) == "papers"], ids=lambda f: str(f.relative_to(SOURCE)))
def test_papers_find_what_they_draw_by_fields(file: Path) -> None:
    """No regular expression, and nothing is read out of the words of a label or a column."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            assert "re" not in {alias.name for alias in node.names}
        if isinstance(node, ast.Attribute) and node.attr in READERS:
            words = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            assert words not in ("label", "column"), f"line {node.lineno}: .{node.attr} of a {words}"
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
            assert getattr(node.comparators[0], "attr", "") not in ("label", "column"), (
                f"line {node.lineno}: in a label"
            )


@pytest.mark.parametrize("part", [part for part in PARTS if part != "__main__"])
def test_all_is_sorted_and_true(part: str) -> None:
    """A package lists what it offers; inside of it an underscore says what is a module's own."""
    for file in PARTS[part]:
        name = ".".join(["multum", *file.relative_to(SOURCE).with_suffix("").parts]).removesuffix(".__init__")
        module = importlib.import_module(name)
        names = getattr(module, "__all__", None)
        if names is None:
            own = [n for n, o in vars(module).items() if n[0] != "_" and getattr(o, "__module__", "") == name]
            assert not own or file.name != "__init__.py", f"{name} has public names and no __all__: {own}"
            continue
        # CONSTANTS, then Classes, then functions, as ruff sorts them.
        ordered = sorted(set(names), key=lambda n: (0 if n.isupper() else 1 if n[0].isupper() else 2, n))
        assert list(names) == ordered, name
        assert all(hasattr(module, n) for n in names), name


def foreign_names(text: str) -> set[str]:
    """The names with an underscore that a module takes from others of multum."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    inner = [node for node in imports if node.level or (node.module or "").partition(".")[0] == "multum"]
    names = {alias.name for node in inner for alias in node.names}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


@pytest.mark.parametrize("part", PARTS)
def test_what_begins_with_an_underscore_stays_in_its_module(part: str) -> None:
    taken = {str(file.relative_to(SOURCE)): foreign_names(file.read_text()) for file in PARTS[part]}
    assert not {file: names for file, names in taken.items() if names}


def test_the_search_for_foreign_names_sees_them() -> None:
    text = "from .a import _b, c\nfrom torch import _C\nfrom multum.d import _e\nfrom .version import __version__\n"
    assert foreign_names(text) == {"_b", "_e"}


def test_importing_multum_and_the_command_line_brings_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "pandas", "matplotlib", "sklearn", "lightning_fabric", "multum.papers", "multum.methods")
    for module in ("multum", "multum.cli"):
        code = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n", module


def test_training_measuring_and_reading_data_bring_neither_papers_nor_figures() -> None:
    apart = ("EnsembleClassifier", "EnsembleRegressor", "compare", "export", "plan", "reproduce")
    names = [name for name in multum.__all__ if name not in apart]
    light = ", ".join(["multum.data.sources", *(f"multum.figures.{name}" for name in ("formats", "palette"))])
    code = f"import sys, multum; [getattr(multum, name) for name in {names}]; import {light}; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = set(ran.stdout.split())
    assert "torch" in loaded, ran.stderr
    assert not loaded & {"pandas", "matplotlib", "sklearn", "PIL", "lightning_fabric", "multum.papers"}


def test_public_names_are_what_type_checkers_see() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.name: "multum" + (f".{node.module}" if node.module else "")
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {*declared, "__version__"} == set(multum.__all__) <= set(dir(multum))
    for name, home in declared.items():
        assert getattr(multum, name) is getattr(importlib.import_module(home), name)


def test_a_function_keeps_its_name_where_a_module_has_the_same() -> None:
    module = importlib.import_module("multum.ensemble")
    assert multum.ensemble is multum.building.ensemble and module.Ensemble is multum.Ensemble
    assert pickle.loads(pickle.dumps(multum.ensemble)) is multum.ensemble
    with pytest.raises(AttributeError, match="no attribute 'ensembel'"):
        multum.ensembel  # noqa: B018


def readme_blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.mark.parametrize("index", range(len(readme_blocks())))
def test_the_readme_runs(index: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict = {}
    exec(compile(readme_blocks()[index], f"README block {index + 1}", "exec"), space)
    if index == 0:
        assert capsys.readouterr().out.split() == ["8175784"]
        assert (space["again"].eval()(space["x"]) == space["ens"].eval()(space["x"])).all()


def test_the_first_screen_has_the_two_commands_and_a_short_example() -> None:
    screen = (ROOT / "README.md").read_text().splitlines()[:40]
    assert any(line.startswith("make demo") for line in screen)
    assert any(line.startswith("make test") for line in screen)
    code = [line for line in readme_blocks()[0].splitlines() if line.strip() and not line.startswith("import")]
    assert len(code) <= 10


def test_the_readme_lists_every_method_of_the_registry() -> None:
    table = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `")]
    named = {name for line in table for name in re.findall(r"`(\w+)[(`]", line.split("|")[1])}
    assert named == {cls.__name__ for cls in multum.methods.METHODS.values()}
