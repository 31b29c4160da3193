"""One report of everything for all tests that only read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from multum import reports
from reports import documents  # tests/reports, not multum.reports
from reports.answers import answered


@pytest.fixture(scope="session")
def document() -> dict:
    """Five methods of fourteen, to save time: one failed, one in part and with more members than the others."""
    names = ["single", "deep", "packed", "hypernet", "swag"]
    return answered(documents.classification(seeds=2, partly="swag", names=names))


@pytest.fixture(scope="session")
def folder(document: dict, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of its report."""
    out = tmp_path_factory.mktemp("report")
    reports.write(document, out)
    return out
