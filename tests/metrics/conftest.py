"""The peers that metrics are compared with."""

from __future__ import annotations

import sys
import warnings
from importlib.metadata import PackageNotFoundError
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def torchmetrics() -> ModuleType:
    """torchmetrics' functions, where it is installed.

    It imports torchvision, which none of them needs, wherever one is installed, and fails where that one is built for
    another torch: so torchvision is hidden meanwhile.
    """
    imports = pytest.importorskip("lightning_utilities.core.imports")
    real = imports._version

    def version(name: str) -> str:
        if name == "torchvision":
            raise PackageNotFoundError(name)
        return real(name)

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setattr(imports, "_version", version)
        patch.setitem(sys.modules, "torchvision", None)
        return pytest.importorskip("torchmetrics.functional.classification")
