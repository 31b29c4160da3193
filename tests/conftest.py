"""What tests of several folders share."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Iterator

import pytest

os.environ["MULTUM_AUTOTUNE"] = "0"  # also of the processes that tests start: bits must not depend on timings


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without drawings, which take most of the time of a short comparison.

    Drawings are looked at in tests/reports, and written by a comparison where a fixture of a whole module makes one.
    """
    monkeypatch.setattr("multum.reports.writing.figures", lambda document: [])


@pytest.fixture(scope="module", autouse=True)
def frozen_modules() -> None:
    """What has been imported is no garbage: looking through it at each birth of members took a third of a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def own_log_level() -> Iterator[None]:
    """A command that is run inside a test may set what is logged; the next test must not feel it."""
    log = logging.getLogger("multum")
    before = log.level
    yield
    log.setLevel(before)
