"""What stands in for operations that ONNX lacks gives what torch gives."""

from __future__ import annotations

import pytest
import torch

from multum.errors import ExportError
from multum.exporting.decompositions import ndtr, ndtri, searchsorted


def test_ndtri_is_torch_to_rounding():
    p = torch.cat([torch.linspace(1e-7, 1 - 1e-7, 4001, dtype=torch.float64), 10.0 ** -torch.arange(2.0, 300).double()])
    torch.testing.assert_close(ndtri(p), torch.special.ndtri(p), rtol=1e-12, atol=1e-14)


def test_ndtr_is_torch_to_float32():
    x = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    torch.testing.assert_close(ndtr(x), torch.special.ndtr(x), rtol=0, atol=1e-7)


@pytest.mark.parametrize("levels", [1, 2, 3, 8, 1000])
@pytest.mark.parametrize("right", [True, False])
def test_searchsorted_is_torch(levels, right):
    generator = torch.Generator().manual_seed(levels)
    table = torch.randint(0, 50, (4, levels), generator=generator).double().sort(1).values
    values = torch.randint(-2, 53, (4, 300), generator=generator).double()
    assert torch.equal(searchsorted(table, values, right=right), torch.searchsorted(table, values, right=right))
    assert torch.equal(searchsorted(table[0], values, right=right), torch.searchsorted(table[0], values, right=right))


def test_a_sorter_is_refused():
    with pytest.raises(ExportError, match="without a sorter"):
        searchsorted(torch.ones(2), torch.ones(2), sorter=torch.tensor([0, 1]))
