"""Counting on the meta device, where nothing is computed: one trace per network serves all of its ensembles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from multum.executors import Executor
from multum.thinning import thin


@pytest.fixture(scope="module", autouse=True)
def shortcuts() -> Iterator[None]:
    """For modules that import it: networks are traced once, and on the meta device no executor is tried."""
    trace, traced = thin.trace_channels, {}

    def trace_once(network, x):
        if network not in traced:
            traced[network] = trace(network, x)
        return traced[network]

    refusal = Executor.refusal

    def refusal_of_real(self, network, *rest):
        meta = any(p.is_meta for p in network.parameters())
        return None if meta else refusal(self, network, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thin, "trace_channels", trace_once)
        patch.setattr(Executor, "refusal", refusal_of_real)
        yield
