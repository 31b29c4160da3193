"""Texts that build networks: read from a file or a module, run as a module of their own, and kept in folders.

What is run is what is recorded: a text is known by its hash, and only read from disk once.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import logging
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError, FileError, first_line
from ..files import explained, read_json, write_json, write_text

log = logging.getLogger("multum")

NETWORK = "network.py"  # the copy of a text in a folder; network.json says where it came from
DIGITS = 12  # of the hash in a name


@dataclass(frozen=True)
class Source:
    """A text that builds networks, and where it came from.

    >>> Source("nets.py", Path("nets.py"), "import torch\\nfrom . import layers", ()).local_imports()
    ['.']
    """

    place: str  # mynet.py, or package.module
    file: Path
    text: str
    folders: tuple[str, ...]  # where its neighbours are, which it may import

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:DIGITS]

    @property
    def package(self) -> str:
        return "" if self.place.endswith(".py") else self.place.rpartition(".")[0]

    def local_imports(self) -> list[str]:
        """What the text imports from its neighbours, or from its own package: no hash covers them."""
        own = self.place.partition(".")[0] if not self.place.endswith(".py") else None
        names = set()
        for node in ast.walk(ast.parse(self.text)):
            if isinstance(node, ast.ImportFrom):
                names.add("." * node.level + (node.module or ""))
            elif isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
        return sorted(name for name in names if name[0] == "." or self._is_near(name.partition(".")[0], own))

    def _is_near(self, name: str, own: str | None) -> bool:
        places = [Path(folder) / name for folder in self.folders]
        return name == own or any(p.with_suffix(".py").is_file() or (p / "__init__.py").is_file() for p in places)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Lets the text import what lies beside its file; what it prints is no part of a command's answer."""
        before = list(sys.path)
        sys.path[:0] = self.folders
        try:
            with redirect_stdout(sys.stderr):
                yield
        finally:
            sys.path[:] = before

    def module(self) -> types.ModuleType:
        """The text, run once in this process as a module of its own."""
        name = ".".join(filter(None, (self.package, f"multum_network_{self.digest}")))
        if name in sys.modules:
            return sys.modules[name]
        module = sys.modules[name] = types.ModuleType(name)
        module.__package__, module.__file__ = self.package, str(self.file)
        try:
            with self.running():
                if any(name.startswith(".") for name in self.local_imports()):
                    importlib.import_module(self.package)
                exec(compile(self.text, str(self.file), "exec"), module.__dict__)
        except (Exception, SystemExit) as error:  # a script that reads its arguments ends where they are not its own
            del sys.modules[name]
            raise ConfigError(
                f"{self.place} must be importable; got {mistake(error)}. Mend it, or {_help(error)}"
            ) from error
        return module


SOURCES: dict[str, Source] = {}  # texts that this process has read, by hash


def read_source(place: str) -> Source:
    """The text of a file or module."""
    if place.endswith(".py"):
        path = Path(place).expanduser()
        if not path.is_file():
            raise ConfigError(f"a network's file must exist; got {place}. Write its path, as in nets/mynet.py:Net")
        source = Source(path.name, path.absolute(), read_text(path), (str(path.absolute().parent),))
    else:
        path = _module_file(place)
        source = Source(place, path, read_text(path), (str(path.absolute().parents[place.count(".")]),))
    try:
        ast.parse(source.text)
    except (SyntaxError, ValueError) as error:
        raise ConfigError(f"{place} must be Python; got {mistake(error)}. Mend it") from error
    return source


def remember(source: Source) -> None:
    """Know the text by its hash; what it imports from its neighbours is said once."""
    if source.digest in SOURCES:
        return
    SOURCES[source.digest] = source
    near = source.local_imports()
    if near:
        log.warning(
            "%s imports %s: only %s is recorded and copied into run folders, so that changes of the others are not "
            "noticed, and a folder that is moved to another machine needs them beside its %s",
            *(source.place, ", ".join(near), source.place, NETWORK),
        )


def keep(digest: str, folder: Path) -> None:
    """Write the text of that hash into a folder, which then can build its networks."""
    source = SOURCES[digest]
    write_text(folder / NETWORK, source.text)
    origin = {"place": source.place, "folders": list(source.folders), "imports": source.local_imports()}
    write_json(folder / "network.json", {**origin, "sha256": hashlib.sha256(source.text.encode()).hexdigest()})


def recall(folder: Path) -> Source | None:
    """Take the text that a folder keeps; None where it keeps none."""
    if not (folder / NETWORK).is_file():
        return None
    text = read_text(folder / NETWORK)
    origin = read_json(folder / "network.json") if (folder / "network.json").is_file() else {}
    folders = origin.get("folders", [])
    if not isinstance(folders, list) or not isinstance(origin.get("place", NETWORK), str):
        raise FileError(f"{folder / 'network.json'} must say where {NETWORK} came from; got {origin}. Remove it")
    every = (str(folder.absolute()), *map(str, folders))
    source = Source(origin.get("place", NETWORK), folder.absolute() / NETWORK, text, every)
    SOURCES.setdefault(source.digest, source)
    return source


def _module_file(place: str) -> Path:
    try:
        sys.path.insert(0, "")
        spec = importlib.util.find_spec(place)
    except Exception as error:  # whatever the packages above it raise
        raise ConfigError(f"a network's module must be importable; got {place}: {mistake(error)}") from error
    finally:
        sys.path.remove("")
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise ConfigError(
            f"a network must be FILE.py:NAME or package.module:NAME; got {place}, which is no module that can be "
            "imported from here. For a file, write its .py"
        )
    return Path(spec.origin)


def read_text(path: Path) -> str:
    """A file of text."""
    with explained(f"{path} must be readable as UTF-8", "Save it so", ConfigError, (OSError, UnicodeDecodeError)):
        return path.read_bytes().decode("utf-8-sig")


def mistake(error: BaseException) -> str:
    """What went wrong in a text, in one line.

    >>> mistake(ZeroDivisionError("division by zero"))
    'ZeroDivisionError: division by zero'
    """
    line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    return f"{type(error).__name__}{line}: {first_line(error)}"


def _help(error: BaseException) -> str:
    if isinstance(error, ImportError):
        return "put what it imports beside it, or install it"
    return "try it with `python FILE.py`"
