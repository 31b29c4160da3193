"""A table as numpy arrays with the names of its columns, and numbers scaled by their quantiles."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import QuantileTransformer

import multum
from multum.data.preparation import Preparation, Scaling, fit_scaling
from multum.errors import DataError

META = {
    "num": ["age", "gain"],
    "cat": ["job"],
    "categories": {"job": ["?", "cook", "smith"], "_target": ["poor", "rich"]},
    "target": "income",
}


def arrays(rows: int = 400, **changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    gain = np.where(rng.random(rows) < 0.6, 0, rng.lognormal(5, 2, rows))
    x_num = np.stack([rng.normal(40, 10, rows), gain], 1).astype(np.float32)
    x_cat = rng.integers(0, 3, (rows, 1)).astype(np.uint8)
    y = (rng.random(rows) < 0.4).astype(np.uint8)
    part = np.arange(rows, dtype=np.uint8) % 4 % 3
    return {"x_num": x_num, "x_cat": x_cat, "y": y, "part": part, "meta": json.dumps(META), **changes}


def written(path: Path, **changes: Any) -> str:
    np.savez(path, **{k: v for k, v in arrays(**changes).items() if v is not None})
    return f"npz:{path}"


def test_columns_have_names_and_the_test_part_is_theirs(tmp_path: Path) -> None:
    there = arrays()
    data = multum.load_data(written(tmp_path / "people.npz"))
    assert data.table is not None and data.numbers == (0, 1)
    assert data.table.names == ("age", "gain", "job=cook", "job=smith", "job=(missing)")
    assert data.classes == ("poor", "rich") and data.task == "classification"
    test = there["part"] == 2
    assert len(data.test) == test.sum() and len(data.train) == (~test).sum()  # validation rows train too
    np.testing.assert_array_equal(data.test.x[:, :2], there["x_num"][test])
    codes = np.where(data.test.x[:, 4] == 1, 0, 1 + data.test.x[:, 3])
    np.testing.assert_array_equal(codes, there["x_cat"][test, 0])
    np.testing.assert_array_equal(data.test.y, there["y"][test])


def test_the_same_rows_of_a_csv_file_are_the_same_examples(tmp_path: Path) -> None:
    there = arrays()
    data = multum.load_data(written(tmp_path / "people.npz"))
    words = np.array(META["categories"]["job"])[there["x_cat"][:, 0]]  # type: ignore[index]
    frame = pd.DataFrame({"job": words, "gain": there["x_num"][:, 1], "age": there["x_num"][:, 0]})
    frame[there["part"] == 2].to_csv(tmp_path / "new.csv", index=False)
    assert data.table is not None
    torch.testing.assert_close(data.table.encode(next(data.table.frames(tmp_path / "new.csv"))), data.test.x)


def test_a_regression_and_codes_without_words(tmp_path: Path) -> None:
    meta = json.dumps({"num": ["a", "b"], "cat": ["c"]})
    data = multum.load_data(written(tmp_path / "r.npz", meta=meta, y=np.linspace(0, 1, 400)))
    assert data.table is not None and data.task == "regression" and data.table.targets == ("target",)
    assert data.table.names == ("a", "b", "c=0", "c=1", "c=2")


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ("{", "must be a JSON text"),
        ("[1]", "must be a JSON object"),
        (json.dumps(META | {"num": ["age"]}), "must name the 2 columns of x_num; got 1 names"),
        (json.dumps(META | {"num": "age"}), "'num' of meta must be list"),
        (json.dumps(META | {"num": ["age", "age"]}), "must have a name of its own; got age, age, job, income"),
        (json.dumps(META | {"target": "age"}), "must have a name of its own"),
        (json.dumps(META | {"categories": {"job": ["a", "b"]}}), "one for each of its 3 codes"),
        (json.dumps(META | {"categories": {"job": ["a", "b", "b"]}}), "one for each of its 3 codes"),
    ],
)
def test_what_meta_must_say(tmp_path: Path, meta: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        multum.load_data(written(tmp_path / "t.npz", meta=meta))


def test_numbers_are_scaled_as_scikit_learn_scales_them() -> None:
    rng = np.random.default_rng(1)
    x = np.stack([rng.normal(size=900), rng.integers(0, 4, 900), np.exp(3 * rng.normal(size=900))], 1)
    scaling = fit_scaling(torch.tensor(x), [0, 1, 2])
    assert scaling is not None and scaling.quantiles.shape == (3, 30)
    expected = QuantileTransformer(n_quantiles=30, output_distribution="normal", subsample=None).fit(x)
    new = np.concatenate([x * 1.1, [[-99, -99, -99], [99, 99, 1e9]], x])
    ours, theirs = scaling(torch.tensor(new)).numpy(), expected.transform(new)
    inner = np.isin(new[:, 1], [0, 3], invert=True)
    np.testing.assert_allclose(ours[:, [0, 2]], theirs[:, [0, 2]], atol=1e-8)
    np.testing.assert_allclose(ours[inner], theirs[inner], atol=1e-8)
    # Of a value that many rows share, the middle, at the ends too; scikit-learn has -5.2 there.
    middle = statistics.NormalDist().inv_cdf((x[:, 1] == 0).mean() / 2)
    np.testing.assert_allclose(ours[new[:, 1] == 0, 1], middle, atol=0.05)
    np.testing.assert_allclose(ours[new[:, 1] == 3, 1], -ours[new[:, 1] == 0, 1][0], atol=0.2)
    assert torch.equal(scaling(torch.tensor(new[5:7])), scaling(torch.tensor(new))[5:7])  # row by row
    read = Scaling.from_dict(json.loads(json.dumps(scaling.as_dict())))
    assert torch.equal(read(torch.tensor(new)), scaling(torch.tensor(new)))


def test_heavy_tails_are_no_outliers_and_zeros_and_ones_stay(tmp_path: Path) -> None:
    data = multum.load_data(written(tmp_path / "people.npz"))
    x = data.prepare(data.train.x)
    assert x.dtype == torch.float32 and x.abs().max() < 5.3 and float(data.train.x[:, 1].max()) > 5000
    assert abs(float(x[:, 0].mean())) < 0.05 and abs(float(x[:, 0].std()) - 1) < 0.1
    assert torch.equal(x[:, 2:], data.train.x[:, 2:].float())
    preparation = Preparation.from_dict(json.loads(json.dumps(data.preparation.as_dict())))
    assert torch.equal(preparation.prepare(data.test.x), data.prepare(data.test.x))
    assert preparation.numbers == (0, 1)


def test_few_rows_have_no_quantiles(tmp_path: Path) -> None:
    data = multum.load_data(written(tmp_path / "few.npz", **{k: v[:300] for k, v in arrays().items() if k != "meta"}))
    assert data.scaling is None and len(data.train) < 300
    x = data.prepare(data.train.x)
    torch.testing.assert_close(x[:, :2].std(0), torch.ones(2), atol=1e-4, rtol=0)
    assert fit_scaling(torch.zeros(500, 3), []) is None


def test_a_preparation_of_before_quantiles_is_read(tmp_path: Path) -> None:
    data = multum.load_data("diabetes")
    values = data.preparation.as_dict()
    del values["scaling"]
    assert torch.equal(Preparation.from_dict(values).prepare(data.test.x), data.prepare(data.test.x))
