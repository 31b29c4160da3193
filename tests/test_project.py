"""Promises of the project as a whole: import direction, sorted public names, and a README that runs."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import multum

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "multum"

# A part may import parts of its own level or lower ones. `errors`, `memory` and `version` are below everything.
LEVELS = {
    "errors": 0,
    "parsing": 0,
    "strict_json": 0,
    "memory": 0,
    "version": 0,
    "models": 1,
    "rewrite": 1,
    "executors": 2,
    "ensemble": 2,
    "building": 2,
    "methods": 3,
    "checking": 4,
    "saving": 4,
    "data": 4,
    "training": 4,
    "evaluation": 4,
    "reports": 5,
    "comparing": 6,
    "recipes": 7,
    "cli": 8,
    "__main__": 9,
    "__init__": 9,
}


def part_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_parts(file: Path) -> set[str]:
    """The parts of multum that a file imports, also inside functions."""
    package = ["multum", *file.relative_to(SOURCE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "multum" else [module]
        found |= {name.split(".")[1] for name in names if name.startswith("multum.")}
    return found


FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_point_downward(file: Path) -> None:
    part = part_of(file)
    assert part in LEVELS, f"{part} has no level: add it to LEVELS"
    upward = {other for other in imported_parts(file) if LEVELS[other] > LEVELS[part]}
    assert not upward, f"{part} (level {LEVELS[part]}) imports {upward} from above"


def test_the_import_walker_sees_every_form(tmp_path: Path) -> None:
    assert imported_parts(SOURCE / "methods" / "packed.py") >= {"errors", "rewrite", "methods"}
    assert "models" in imported_parts(SOURCE / "saving.py")


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


def modules() -> list[str]:
    return ["multum", *(m.name for m in pkgutil.walk_packages(multum.__path__, "multum.") if "__main__" not in m.name)]


@pytest.mark.parametrize("name", modules())
def test_all_is_sorted_and_true(name: str) -> None:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", None)
    if names is None:
        assert not any(not n.startswith("_") and getattr(o, "__module__", "") == name for n, o in vars(module).items())
        return
    # CONSTANTS, then Classes, then functions, as ruff sorts them.
    assert list(names) == sorted(names, key=lambda n: (0 if n.isupper() else 1 if n[0].isupper() else 2, n))
    assert len(set(names)) == len(names)
    assert all(hasattr(module, n) for n in names)


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
