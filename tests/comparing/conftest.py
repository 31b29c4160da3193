"""Comparisons inside a test draw nothing; those of a whole module, which are made before, draw everything."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quick(without_figures: None) -> None:
    pass
