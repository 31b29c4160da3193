"""Tables of one's own: what a column becomes, what is guessed, what is fitted on what, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import multum
from multum.data.columns import as_numbers, as_words, fit_column
from multum.errors import DataError
from multum.runs import train as job
from multum.runs.folder import open_run

ROWS = 200


def people(seed: int = 0, rows: int = ROWS) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, rows).round(1),
            "job": rng.choice(["clerk", "cook", "smith"], rows),
            "member": rng.choice([True, False], rows),
            "price": [f"{v:,}" for v in rng.integers(1000, 90000, rows)],
            "sort": rng.choice(["no", "yes"], rows),
        }
    )
    frame.loc[rng.random(rows) < 0.2, "age"] = np.nan
    frame.loc[rng.random(rows) < 0.2, "job"] = None
    return frame


def saved(frame: pd.DataFrame, path: Path, **options) -> str:
    frame.to_csv(path, index=False, **options)
    return f"csv:{path}"


def rows_of(part_x: torch.Tensor, encoded: torch.Tensor) -> list[int]:
    """Which rows of a whole table these are; prices make every row different."""
    return [int((encoded == x).all(1).nonzero().item()) for x in part_x]


def test_what_a_table_becomes(tmp_path: Path) -> None:
    frame = people()
    data = multum.load_data(saved(frame, tmp_path / "p.csv") + "#target=sort", seed=1)
    table = data.table
    assert data.task == "classification" and data.classes == ("no", "yes") and data.outputs == 2
    assert table.names == (
        *("age", "age is missing", "job=clerk", "job=cook", "job=smith", "job=(missing)"),
        *("member=False", "member=True", "price"),
    )
    assert data.train.x.shape == (160, 9) and data.test.x.shape == (40, 9) and data.train.x.dtype == torch.float64
    train = frame.iloc[rows_of(data.train.x, table.encode(frame))]
    held = frame.iloc[rows_of(data.test.x, table.encode(frame))]
    assert len(set(train.index) | set(held.index)) == ROWS
    assert [data.classes[y] for y in data.train.y] == train["sort"].tolist()
    assert [data.classes[y] for y in data.test.y] == held["sort"].tolist()
    # Everything by hand from the training rows alone.
    age = train["age"].fillna(train["age"].median())
    prices = train["price"].str.replace(",", "").astype(float)
    seen = {
        "age is missing": train["age"].isna(),
        "job=cook": train["job"] == "cook",
        "job=(missing)": train["job"].isna(),
        "member=True": train["member"],
    }
    x = data.prepare(data.train.x)
    for name, values in {"age": age, "price": prices}.items():
        expected = torch.tensor(((values - values.mean()) / values.std()).to_numpy(), dtype=torch.float32)
        torch.testing.assert_close(x[:, table.names.index(name)], expected, atol=1e-4, rtol=1e-4)
    for name, flags in seen.items():
        assert torch.equal(x[:, table.names.index(name)], torch.tensor(flags.to_numpy(float), dtype=torch.float32))


def test_nothing_is_fitted_on_the_test_part(tmp_path: Path) -> None:
    frame, other = people(), people(seed=5, rows=50)
    saved(frame, tmp_path / "train.csv")
    saved(other, tmp_path / "test.csv")
    name = f"csv:{tmp_path}/train.csv#target=sort,test={tmp_path}/test.csv"
    one = multum.load_data(name)
    other.loc[:5, "job"], other["age"], other["price"] = "pilot", 999.0, 5
    saved(other, tmp_path / "test.csv")
    two = multum.load_data(name)
    assert one.table == two.table and torch.equal(one.train.x, two.train.x) and torch.equal(one.mean, two.mean)
    assert len(two.test) == 50 and not torch.equal(one.test.x, two.test.x)
    jobs = [i for i, n in enumerate(two.table.names) if n.startswith("job")]
    assert not two.test.x[:5, jobs].any()  # an unknown category is all zeros


def test_a_name_and_a_seed_give_the_same_data_and_new_rows_the_same_encoding(tmp_path: Path) -> None:
    name = saved(people(), tmp_path / "p.csv") + "#target=sort"
    a, b, c = (multum.load_data(name, seed=seed) for seed in (0, 0, 1))
    assert a.table == b.table and torch.equal(a.train.x, b.train.x) and torch.equal(a.test.y, b.test.y)
    assert a.train.x.shape == c.train.x.shape and not torch.equal(a.train.x, c.train.x)
    new = people(seed=9, rows=7).drop(columns="sort")
    saved(new, tmp_path / "new.csv")
    assert torch.equal(a.table.encode(next(a.table.frames(tmp_path / "new.csv"))), a.table.encode(new))
    assert a.table.encode(new.iloc[:, ::-1]).equal(a.table.encode(new))  # columns by name, not by place
    gaps = new.assign(age=np.nan, job=None)
    encoded = a.table.encode(gaps)
    assert torch.equal(encoded[:, 1], torch.ones(7)) and torch.equal(encoded[:, 5], torch.ones(7))
    with pytest.raises(DataError, match=r"they lack job. Did you mean jobs"):
        a.table.encode(new.rename(columns={"job": "jobs"}))
    with pytest.raises(DataError, match=r"'price' must hold numbers; got 'dear' in row 3"):
        a.table.encode(new.assign(price=["1", "2", "dear", "4", "5", "6", "7"]))


def test_separators_decimal_marks_and_parquet_give_the_same_table(tmp_path: Path) -> None:
    frame = people()
    frame["price"] = frame["price"].str.replace(",", "").astype(float) / 4
    expected = multum.load_data(saved(frame, tmp_path / "a.csv") + "#target=sort")
    names = [
        saved(frame, tmp_path / "b.csv", sep=";") + "#target=sort",
        saved(frame, tmp_path / "c.csv", sep=";", decimal=",") + "#target=sort,sep=;,decimal=,",
        saved(frame, tmp_path / "d.tsv", sep="\t") + "#sep=tab,target=sort",
        saved(frame, tmp_path / "e.csv.gz") + "#target=sort,sep=,",
        saved(frame.replace({"job": {None: "?"}}), tmp_path / "f.csv") + "#target=sort",
    ]
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_parquet(tmp_path / "a.bin")
    names += [f"csv:{tmp_path}/a.parquet#target=sort", f"parquet:{tmp_path}/a.bin#target=sort"]
    for name in names:
        again = multum.load_data(name)
        assert torch.equal(again.train.x, expected.train.x) and torch.equal(again.test.y, expected.test.y), name


@pytest.mark.parametrize(
    ("target", "task", "classes"),
    [
        (["a", "b", "c"] * 20, "classification", ("a", "b", "c")),
        ([True, False, True] * 20, "classification", ("False", "True")),
        ([10, 9, 2] * 20, "classification", ("2", "9", "10")),
        ([1.0, 2.0, np.nan] * 20, "classification", ("1", "2")),
        (list(range(60)), "regression", ()),
        ([0.5, 1.5, 2.0] * 20, "regression", ()),
        (["1,500", "2,500.5", "700"] * 20, "regression", ()),
    ],
)
def test_the_task_is_guessed_and_said(target: list, task: str, classes: tuple[str, ...], tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60), "y": target})
    data = multum.load_data(saved(frame, tmp_path / "t.csv") + "#target=y")
    assert (data.task, data.classes) == (task, classes)
    assert f"{task} of 'y'" in data.table.describe() and "guessed because" in data.table.describe()
    assert data.train.y.dtype == (torch.int64 if classes else torch.float64)
    if target[0] == "1,500":
        assert {*data.train.y.tolist()} == {1500.0, 2500.5, 700.0}
    if classes == ("2", "9", "10"):
        wanted = multum.load_data(f"csv:{tmp_path}/t.csv#target=y,task=regression")
        assert wanted.task == "regression" and {*wanted.train.y.tolist()} == {2.0, 9.0, 10.0}
        assert "as asked" in wanted.table.describe()


def test_the_description_tells_all(tmp_path: Path) -> None:
    frame = people().assign(always=7, void=np.nan, name=[f"n{i}" for i in range(ROWS)])
    frame.loc[:4, "sort"] = None
    frame.to_csv(tmp_path / "p.csv")  # with a nameless column of row numbers
    data = multum.load_data(f"csv:{tmp_path}/p.csv#target=sort,drop=price")
    assert data.table.left_out == {
        "always": "always 7",
        "void": "all missing",
        "name": f"{len(data.train)} different texts in {len(data.train)} rows",
        "price": "dropped",
        "Unnamed: 0": "it has no name",
    }
    text = data.table.describe()
    for part in (
        "p.csv: classification of 'sort' into 2 classes (no, yes), guessed because it is text",
        f"{len(data.train)} rows for training and {len(data.test)} for testing",
        "5 rows without a target are left out",
        "numbers (1): age",
        "categories (2): job (3), member (2)",
        "cells are missing in age, job",
        "always (always 7), void (all missing)",
        "8 inputs in all",
    ):
        assert part in text
    assert "\n" not in text and len(data.train) + len(data.test) == ROWS - 5


def test_names_of_columns_may_hold_commas_and_plus_signs(tmp_path: Path) -> None:
    frame = people().rename(columns={"sort": "sort, of all", "age": "a+b"})
    data = multum.load_data(saved(frame, tmp_path / "p.csv") + "#target=sort, of all,drop=a+b")
    assert data.table.target == "sort, of all" and "a+b" in data.table.left_out and len(data.table.columns) == 3


def table(**columns) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame({"x": rng.normal(size=40), "y": ["a", "b"] * 20, **columns})


@pytest.mark.parametrize(
    ("frame", "fields", "message"),
    [
        (table(), "", r"bad.csv. Add '#target=COLUMN', one of: x, y"),
        (table(), "#target=X", r"Did you mean x\?"),
        (table(), "#target=z", r"got 'z'. Known: x, y"),
        (table(), "#target=y,drop=xx", r"drop must name a column.*Did you mean x"),
        (table(), "#target=y,drop=y", r"drop must leave the target; got drop=y"),
        (table(), "#target=y,tsk=regression", r"Did you mean task"),
        (table(), "#target=y,task=regresion", r"Did you mean regression"),
        (table(), "#target=y,task=regression", r"'y' must hold numbers; got 'a' in row 1"),
        (table(), "#target=y,drop=x", r"the target is its only one"),
        (table(), "#target=y,target=x", r"target must be set once; got 'y' and 'x'"),
        (table(), "#target=y,drop=", r"must have a value; got drop="),
        (table(), "#target=x,task=classification", r"40 classes in 40 rows"),
        (table(y="a"), "#target=y", r"'y' is always a. Choose another"),
        (table()[:3], "#target=y", r"at least 10 rows with a target; got 3"),
        (table(y=[None, "a"] * 4 + [None] * 32), "#target=y", r"got 4 \(of 40\)"),
        (
            table(x=[np.inf] + [1.0, 2.0, 3.0] * 13),
            "#target=x",
            r"'x' must hold finite numbers; got .*inf.* in row 1\.",
        ),
        (table(x=[np.inf] * 20 + [1.0] * 20), "#target=y", r"x: \d+ infinite numbers"),
        (table(x=[1e200, -1e200] * 20), "#target=y", r"x: numbers as large as 1e\+200"),
        (table(x=5), "#target=y", r"a column to predict from; .*none: x \(always 5\)"),
        (
            table(d=["2024-01-31"] * 40, t=["1.2.2003", "31.12.99"] * 20),
            "#target=y",
            r"- d: dates.*\n.*- t.*\n.*drop=d\+t",
        ),
        (table(d=["12:30", "1:05:09"] * 20), "#target=y", r"dates or times, such as 12:30"),
    ],
)
def test_what_is_no_table_to_learn_from_is_refused(
    frame: pd.DataFrame, fields: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        multum.load_data(saved(frame, tmp_path / "bad.csv") + fields)


def test_too_many_categories_are_refused_with_the_fix(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.arange(1500.0), "code": [f"c{i % 300}" for i in range(1500)], "y": ["a", "b"] * 750})
    name = saved(frame, tmp_path / "c.csv") + "#target=y"
    with pytest.raises(DataError, match=r"code: 29\d different texts, more than 255.*\n.*drop=code"):
        multum.load_data(name)
    assert len(multum.load_data(f"{name},drop=code").table.names) == 1


def test_a_test_file_has_the_same_columns_and_classes(tmp_path: Path) -> None:
    saved(table(z=np.arange(40.0)), tmp_path / "train.csv")
    name = f"csv:{tmp_path}/train.csv#target=y,test={tmp_path}/test.csv"
    for other, message in (
        (table(w=1), "lacks z and has w besides"),
        (table(z=1).drop(columns="y"), "lacks y"),
        (table(z=1, y="c"), r"'y' is c in the test file alone"),
        (table(z="dear"), r"'z' must hold numbers; got 'dear' in row 1"),
        (table(z=np.inf), r"'z' must hold finite numbers"),
        (table(z=1, y=None), "got none in the test part"),
    ):
        saved(other, tmp_path / "test.csv")
        with pytest.raises(DataError, match=message):
            multum.load_data(name)
    assert len(multum.load_data(f"csv:{tmp_path}/train.csv#target=y,test={tmp_path}/train.csv").test) == 40


def test_files_that_are_no_tables_are_named(tmp_path: Path) -> None:
    (tmp_path / "junk.csv").write_bytes(b"a,b\n\xff\xfe\x00,1\n")
    (tmp_path / "long.csv").write_text("a,b\n1,2,3\n4,5,6\n")
    (tmp_path / "void.csv").write_text("")
    (tmp_path / "junk.parquet").write_bytes(b"junk")
    for file in ("junk.csv", "long.csv", "void.csv", "junk.parquet"):
        with pytest.raises(DataError, match=rf"{file} must be a table"):
            multum.load_data(f"csv:{tmp_path}/{file}#target=a")
    with pytest.raises(DataError, match="there is none at"):
        multum.load_data(f"csv:{tmp_path}/none.csv#target=a")
    pd.DataFrame([[1, 2]], columns=["a", "a "]).to_csv(tmp_path / "twice.csv", index=False)
    (tmp_path / "again.csv").write_text("a; b;a\n" + "1;2;3\n" * 20)
    for file in ("twice.csv", "again.csv"):
        with pytest.raises(
            DataError, match=rf"^every column must have a name of its own; .*{file} has more than one a"
        ):
            multum.load_data(f"csv:{tmp_path}/{file}#target=a")


def test_without_pyarrow_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    people().to_parquet(tmp_path / "p.parquet")
    for module in ("pyarrow", "pyarrow.parquet", "fastparquet"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=r"multum\[parquet\]"):
        multum.load_data(f"parquet:{tmp_path}/p.parquet#target=sort")


def test_words_and_numbers_of_any_type() -> None:
    codes, words = as_words(pd.Series([1.0, 2.5, None, 1.0]))
    assert words == ["1", "2.5"] and codes.tolist() == [0, 1, -1, 0]
    assert as_words(pd.Series([1, "1 ", None, "x"], dtype=object))[0].tolist() == [0, 0, -1, 1]
    numbers = as_numbers(pd.Series(["1,234.5", "-7", None, "1,23", "1e3"]))
    assert numbers.text.tolist() == [False, False, False, True, False]
    assert numbers.values[[0, 1, 4]].tolist() == [1234.5, -7.0, 1000.0] and np.isnan(numbers.values[[2, 3]]).all()
    assert as_numbers(pd.Series([1, None, 3], dtype="Int64")).values.tolist()[::2] == [1.0, 3.0]
    coded = fit_column("c", pd.Series([3, 10, 3, 10], dtype="category"))
    assert coded.categories == ("3", "10")  # categories by type, and in the order of numbers
    assert fit_column("b", pd.Series([True, None, False, True, False], dtype=object)).names == (
        *("b=False", "b=True", "b=(missing)"),
    )
    assert fit_column("n", pd.Series(["1", "NAN", "3"])).missing
    assert fit_column("n", pd.Series(["NAN", "nAn"])) == "all missing"
    with pytest.raises(DataError, match="lists"):
        fit_column("l", pd.Series([[1], [2]]))
    moments = pd.Series(pd.date_range("2020-01-01", periods=5))
    with pytest.raises(DataError, match="dates"):
        fit_column("d", moments)


def test_large_numbers_that_differ_little_stay_apart(tmp_path: Path) -> None:
    seconds = 1_700_000_000 + np.arange(60)
    data = multum.load_data(saved(pd.DataFrame({"s": seconds, "y": np.arange(60.0)}), tmp_path / "s.csv") + "#target=y")
    x = data.prepare(data.train.x)[:, 0]
    assert x.unique().numel() == len(data.train) and abs(float(x.std()) - 1) < 1e-3


def test_a_table_with_gaps_trains_from_its_name(tmp_path: Path) -> None:
    frame = people()
    frame["sort"] = np.where((frame["job"] == "cook") | frame["age"].isna(), "yes", "no")
    name = saved(frame, tmp_path / "p.csv") + "#target=sort"
    summary = job.train(name, None, "single", tmp_path / "run", {"epochs": 30, "batch_size": 32, "lr": 0.01})
    assert summary["model"] == "mlp" and summary["last"]["accuracy"] > 0.95
    ens, data, _ = open_run(tmp_path / "run")
    new = pd.DataFrame({"age": [40, None], "job": ["smith", "clerk"], "member": [True, False], "price": ["9,000", "5"]})
    labels = multum.predict(ens, data.prepare(data.table.encode(new))).labels
    assert [data.classes[k] for k in labels] == ["no", "yes"]


def test_ids_and_decimal_commas_are_pointed_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "row": range(1000, 1060),
            "customer_id": rng.permutation(10**6)[:60],
            "people": rng.permutation(10**6)[:60],  # all different too, and no id by its name
            "size": rng.normal(size=60).round(2),
            "y": rng.choice(["no", "yes"], 60),
        }
    )
    name = saved(frame, tmp_path / "a.csv", sep=";", decimal=",")
    description = multum.load_data(f"{name}#target=y").describe()
    assert [line.split(":")[0] for line in description.splitlines()[1:]] == [
        *("  look at row", "  look at customer_id", "  look at size")
    ]
    assert "drop=row unless" in description and "decimal=," in description
    assert "look at" not in multum.load_data(f"{name}#target=y,drop=row+customer_id,decimal=,").describe()
    with pytest.raises(DataError, match=r"'size' must be classes or numbers; .* decimal commas. Add decimal=,"):
        multum.load_data(f"{name}#target=size")
    assert multum.load_data(f"{name}#target=size,decimal=,").task == "regression"
    grouped = multum.load_data(f"{saved(people(), tmp_path / 'b.csv')}#target=sort").describe()
    assert "look at price" in grouped and "is read as" in grouped  # thousands between commas are numbers


@pytest.mark.parametrize("copy", ["sort.1", "Sort"])
def test_a_second_column_of_the_targets_name_is_refused(copy: str, tmp_path: Path) -> None:
    frame = people()
    name = saved(frame.assign(**{copy: frame["sort"]}), tmp_path / "a.csv")
    with pytest.raises(DataError, match=rf"target must be one column; got sort, {copy}.* drop={copy}, or rename"):
        multum.load_data(f"{name}#target=sort")
    assert copy not in multum.load_data(f"{name}#target=sort,drop={copy}").table.names
