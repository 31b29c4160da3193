"""Counting on the meta device, where nothing is computed: one trace per network serves all of its ensembles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from multum.thinning import thin


@pytest.fixture(scope="module", autouse=True)
def shortcuts() -> Iterator[None]:
    """For modules that import it: networks are traced once."""
    trace, traced = thin.trace_channels, {}

    def trace_once(network, x):
        if network not in traced:
            traced[network] = trace(network, x)
        return traced[network]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thin, "trace_channels", trace_once)
        yield
