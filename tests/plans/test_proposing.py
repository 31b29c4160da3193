from __future__ import annotations

import pytest

from multum.errors import ConfigError
from multum.plans.plan import proposed


def test_the_largest_config_of_every_method_that_fits_is_proposed() -> None:
    assert proposed("params=1.2x", "diabetes", "mlp", "deep,mcdropout,multihead") == [
        "single",
        "mcdropout:members=8",
        "multihead:members=2",
    ]


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ("cost=2x", "`plan` must be limits on params, macs, memory, latency"),
        ("params=much", "`params` must be a limit above 0"),
        ("params=0.1x", "some method must keep to the limits"),
    ],
)
def test_limits_that_nothing_can_keep_are_refused(limits: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        proposed(limits, "diabetes", "mlp", "deep")
