"""Counting on the meta device, where nothing is computed: one trace per network serves all of its ensembles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import multum
from multum.thinning import thin


@pytest.fixture(scope="module", autouse=True)
def shortcuts() -> Iterator[None]:
    """For modules that import it: networks are traced once, and those on the meta device are not tried under vmap."""
    trace, traced = thin.trace_channels, {}

    def trace_once(network, x):
        if network not in traced:
            traced[network] = trace(network, x)
        return traced[network]

    probe = multum.Ensemble._probe

    def probe_real(self, example, *args, **kwargs):
        meta = any(p.is_meta for p in self.parameters())
        return None if meta else probe(self, example, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thin, "trace_channels", trace_once)
        patch.setattr(multum.Ensemble, "_probe", probe_real)
        yield
