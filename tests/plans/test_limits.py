from __future__ import annotations

import pytest

from multum.errors import ConfigError
from multum.plans.limits import Limits

SINGLE = {"params": 1000.0, "macs": 5000.0, "memory": 4e6, "latency": 0.01}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("params", "1.2x", 1200),
        ("params", "1e6", 1e6),
        ("params", 5e5, 5e5),
        ("macs", "2x", 10_000),
        ("latency", "5ms", 0.005),
        ("latency", "0.2s", 0.2),
        ("latency", "300us", 3e-4),
        ("latency", "1.5x", 0.015),
        ("memory", "200MB", 2e8),
        ("memory", "1.5 GB", 1.5e9),
        ("memory", "64MiB", 64 * 2**20),
        ("memory", "2x", 8e6),
    ],
)
def test_limits_are_read_in_their_units(name: str, text, value: float) -> None:
    assert getattr(Limits.parse(SINGLE, **{name: text}), name) == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "text"),
    [("params", "5ms"), ("latency", "5MB"), ("memory", "much"), ("macs", "0x"), ("params", "-1"), ("params", "1e999")],
)
def test_other_texts_are_refused_with_an_example(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"`{name}` must be a limit above 0, such as .*; got {name}='{text}'"):
        Limits.parse(SINGLE, **{name: text})


def test_what_is_broken_is_said_in_numbers() -> None:
    limits = Limits.parse(SINGLE, params="1.2x", latency="5ms")
    assert limits.broken(params=1210, macs=1e12, latency=0.004) is None  # 1 % is no second network
    assert limits.broken(params=1300) == "parameters 1.30 k, and 1.20 k are allowed"
    assert limits.broken(params=100, latency=0.0051) == "latency 5.1 ms, and 5 ms are allowed"
    assert limits.broken(latency=None) is None
    assert str(limits) == "parameters up to 1.20 k, latency up to 5 ms" and str(Limits()) == "no limits"
