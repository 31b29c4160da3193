"""Tests of the networks draw the same numbers in any order."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)
