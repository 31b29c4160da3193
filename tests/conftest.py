"""What tests of several folders share."""

from __future__ import annotations

import pytest


@pytest.fixture
def without_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without drawings, which take most of the time of a short comparison.

    Drawings are looked at in tests/reports, and written by a comparison where a fixture of a whole module makes one.
    """
    monkeypatch.setattr("multum.reports.writing.figures", lambda document: [])
