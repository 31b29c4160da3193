"""Both estimators: what they predict, what they take, and how they live with the rest of scikit-learn."""

from __future__ import annotations

import pickle
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

import multum
from multum import EnsembleClassifier, EnsembleRegressor
from multum.errors import ConfigError, DataError, FileError

QUICK: dict[str, Any] = {"members": 2, "network": "mlp:hidden=8", "epochs": 2, "random_state": 0}


def table(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, np.where(X[:, 0] > 0, "yes", "no")


def mixed(n: int = 120) -> pd.DataFrame:
    generator = np.random.default_rng(1)
    frame = pd.DataFrame({"age": generator.normal(40, 9, n), "kind": generator.choice(["a", "b", "c"], n)})
    return frame.assign(flag=generator.random(n) > 0.5).mask(generator.random((n, 3)) < 0.1)


@pytest.fixture(scope="module")
def classifier() -> EnsembleClassifier:
    X, y = table()
    return EnsembleClassifier("deep", **{**QUICK, "epochs": 15}, lr=0.05, validation_fraction=0.2).fit(X, y)


@pytest.fixture(scope="module")
def regressor() -> EnsembleRegressor:
    X, _ = table()
    return EnsembleRegressor("deep", **{**QUICK, "epochs": 15}, lr=0.05, validation_fraction=0.2).fit(
        X, 3 * X[:, 1] + 7
    )


def test_what_a_classifier_says(classifier: EnsembleClassifier) -> None:
    X, y = table()
    probs, members, sets = classifier.predict_proba(X), classifier.predict_members(X), classifier.predict_set(X, 0.9)
    assert classifier.classes_.tolist() == ["no", "yes"] and classifier.score(X, y) > 0.9
    np.testing.assert_allclose(members.mean(0), probs)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba(X)), probs)
    assert sets.dtype == bool and sets.shape == (120, 2) and sets.any(1).all()
    assert sets[np.arange(120), (y == "yes").astype(int)].mean() > 0.8
    total, aleatoric, epistemic = classifier.uncertainty(X)
    np.testing.assert_allclose(total, -(probs * np.log(probs)).sum(1), atol=1e-9)
    np.testing.assert_allclose(total, aleatoric + epistemic)
    assert (epistemic >= 0).all() and epistemic.max() > 0
    assert classifier.temperature_ != 1


def test_what_a_regressor_says(regressor: EnsembleRegressor) -> None:
    X, _ = table()
    y = 3 * X[:, 1] + 7
    mean, std = regressor.predict(X, return_std=True)
    means, stds = regressor.predict_members(X, return_std=True)
    assert regressor.score(X, y) > 0.9 and means.shape == (2, 120)
    np.testing.assert_allclose(means.mean(0), mean)
    total, aleatoric, epistemic = regressor.uncertainty(X)
    np.testing.assert_allclose(total, std**2)
    np.testing.assert_allclose(aleatoric, (stds**2).mean(0))
    np.testing.assert_allclose(epistemic, means.var(0), atol=1e-9)
    widths = []
    for coverage in (0.5, 0.9):
        low, high = regressor.predict_interval(X, coverage)
        assert np.mean((low <= y) & (y <= high)) >= coverage - 0.15
        widths.append((high - low).mean())
    assert widths[0] < widths[1]
    _, uncalibrated = clone(regressor).set_params(calibrate=False).fit(X, y).predict_members(X, return_std=True)
    np.testing.assert_allclose(stds, uncalibrated * regressor.temperature_)
    assert abs(regressor.temperature_ - 1) > 0.01


def test_several_targets() -> None:
    X, _ = table()
    Y = np.stack([X[:, 0], 100 * X[:, 1]], 1)
    model = EnsembleRegressor("deep", **QUICK).fit(X, Y)
    low, high = model.predict_interval(X, 0.8)
    assert model.predict(X).shape == low.shape == high.shape == Y.shape and (low < high).all()
    assert len(model.temperature_) == 2 and (high - low)[:, 1].mean() > 10 * (high - low)[:, 0].mean()


@pytest.mark.parametrize("frames", ["pandas", "polars"])
def test_frames_of_categories_and_missing_cells(frames: str) -> None:
    frame = mixed()
    y = (frame["kind"] == "a").to_numpy() | (frame["age"] > 50).to_numpy()
    if frames == "polars":
        polars = pytest.importorskip("polars")
        frame = polars.DataFrame({name: [None if pd.isna(v) else v for v in frame[name]] for name in frame})
    model = EnsembleClassifier("deep", **{**QUICK, "epochs": 20}, lr=0.05).fit(frame, y)
    assert model.score(frame, y) > 0.9
    assert model.feature_names_in_.tolist() == ["age", "kind", "flag"]
    names = model.preparation_.table.names
    assert {"kind=a", "kind=(missing)", "age is missing", "flag=True"} <= {*names}
    if frames == "pandas":
        unseen = frame.head(2).assign(kind="never seen")
        assert model.predict_proba(unseen).shape == (2, 2)
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame[["kind", "age", "flag"]])


def test_images_get_a_convolutional_network() -> None:
    X, y = load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8)[:200]
    model = EnsembleClassifier("packed", members=2, epochs=1, random_state=0).fit(images, y[:200])
    assert any(isinstance(m, nn.Conv2d) for m in model.ensemble_.modules()) and model.n_features_in_ == 64
    assert (model.predict_proba(images[:3]) == model.predict_proba(images[:3, None])).all()
    with pytest.raises(ValueError, match=r"images of shape \[1, 8, 8\], as in training; got \[1, 4, 4\]"):
        model.predict(images[:3, :4, :4])
    with pytest.raises(DataError, match="X must hold images, as in training; got rows"):
        model.predict(X[:3])
    with pytest.raises(DataError, match="channels first"):
        EnsembleClassifier(**QUICK).fit(np.zeros((4, 8, 8, 3)), [0, 1, 0, 1])


def test_weights_of_zero_are_as_rows_that_are_not_there() -> None:
    X, y = table()
    weights = (np.arange(120) % 3 > 0).astype(float)
    left = EnsembleClassifier("deep", **QUICK).fit(X, y, sample_weight=weights)
    gone = EnsembleClassifier("deep", **QUICK).fit(X[weights > 0], y[weights > 0])
    assert (left.predict_proba(X) == gone.predict_proba(X)).all()
    ones = EnsembleClassifier("deep", **QUICK).fit(X, y, sample_weight=np.full(120, 5.0))
    assert (ones.predict_proba(X) == EnsembleClassifier("deep", **QUICK).fit(X, y).predict_proba(X)).all()
    with pytest.raises(ValueError, match="Negative values"):
        EnsembleClassifier(**QUICK).fit(X, y, sample_weight=weights - 1)


def test_class_weights_are_weights_of_examples() -> None:
    X, y = table()
    few = np.r_[np.flatnonzero(y == "yes")[:12], np.flatnonzero(y == "no")]
    X, y = X[few], y[few]
    balanced = EnsembleClassifier("deep", **QUICK, class_weight="balanced").fit(X, y)
    counts = {label: np.mean(y == label) for label in ("yes", "no")}
    weights = np.array([1 / counts[label] for label in y])
    by_example = EnsembleClassifier("deep", **QUICK).fit(X, y, sample_weight=weights)
    by_dict = EnsembleClassifier("deep", **QUICK, class_weight={k: 1 / v for k, v in counts.items()}).fit(X, y)
    np.testing.assert_allclose(balanced.predict_proba(X), by_example.predict_proba(X), rtol=1e-5)
    np.testing.assert_allclose(balanced.predict_proba(X), by_dict.predict_proba(X), rtol=1e-5)
    plain = EnsembleClassifier("deep", **QUICK).fit(X, y)
    assert (balanced.predict_proba(X)[:, 1] > plain.predict_proba(X)[:, 1]).all()


def test_an_eval_set_stops_and_calibrates() -> None:
    X, y = table(200)
    settings = {**QUICK, "epochs": 40}
    model = EnsembleClassifier("deep", **settings, lr=0.05, patience=2).fit(
        X[:120], y[:120], eval_set=(X[120:], y[120:])
    )
    assert 2 < model.n_iter_ <= 40 and "validation_nll" in model.history_[0]
    assert model._calibration.targets is not None and len(model._calibration.targets) == 80
    kept = EnsembleClassifier("deep", **QUICK).fit(X, y, eval_set=[(X[:20], y[:20])])
    assert len(kept._calibration.targets) == 20 and kept.preparation_.table.rows == (200, 0)


def test_partial_fit_goes_on_where_it_was() -> None:
    X, y = table(400)
    settings = {"lr": 0.02, "batch_size": 20, **QUICK}
    model = EnsembleClassifier("deep", **settings)
    for part in np.array_split(np.arange(400), 20):
        model.partial_fit(X[part], y[part], classes=["yes", "no"])
    assert model.n_iter_ == 20 and model.score(X, y) > 0.9
    steps = [t for name, t in model._memory.items() if name.endswith(".step")]
    assert steps and all(float(t) == 20 for t in steps)  # the optimizer remembers all calls
    with pytest.raises(ConfigError, match="this fit held out none"):
        model.predict_set(X)
    with pytest.raises(ValueError, match="classes of the first call"):
        model.partial_fit(X[:4], ["yes", "no", "maybe", "no"])
    again = pickle.loads(pickle.dumps(model))
    for each in (model, again):
        each.partial_fit(X[:40], y[:40])
    assert (model.predict_proba(X) == again.predict_proba(X)).all()
    regressor = EnsembleRegressor("deep", **QUICK).partial_fit(X, X[:, 0]).partial_fit(X[:50], X[:50, 0])
    assert regressor.n_iter_ == 2


def own_network(in_features: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(in_features, 6), nn.Tanh(), nn.Linear(6, outputs))


@pytest.mark.parametrize("network", [None, "mlp:hidden=8", own_network, own_network(3, 2)])
def test_pickles_files_and_copies_predict_to_the_bit(network: Any, tmp_path) -> None:
    X, y = table()
    model = EnsembleClassifier(multum.Deep(members=2), network, epochs=1, random_state=0, validation_fraction=0.2)
    model.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    frame = pd.DataFrame(X[:9], columns=["a", "b", "c"])
    model.save(tmp_path / "model.safetensors")
    joblib.dump(model, tmp_path / "model.joblib")
    needed = None if network is None or isinstance(network, str) else network
    copies = [
        pickle.loads(pickle.dumps(model)),
        joblib.load(tmp_path / "model.joblib"),
        EnsembleClassifier.load(tmp_path / "model.safetensors", network=needed),
    ]
    for each in copies:
        assert (each.predict_proba(frame) == model.predict_proba(frame)).all()
        assert (each.predict_set(frame) == model.predict_set(frame)).all()
        assert each.predict(frame).tolist() == model.predict(frame).tolist()
        assert each.feature_names_in_.tolist() == ["a", "b", "c"] and each.n_iter_ == 1
    assert copies[2].get_params()["method"] == model.method
    assert b"multum" in model.__getstate__()["ensemble_"][:3000]


def test_files_that_are_not_what_they_should_be(regressor: EnsembleRegressor, tmp_path) -> None:
    path = tmp_path / "model.safetensors"
    regressor.save(path)
    X, _ = table()
    low, high = regressor.predict_interval(X)
    again = EnsembleRegressor.load(path).predict_interval(X)
    assert (again[0] == low).all() and (again[1] == high).all()
    with pytest.raises(FileError, match="must hold an EnsembleClassifier of format 1; got EnsembleRegressor"):
        EnsembleClassifier.load(path)
    with pytest.raises(FileError, match="there is none at"):
        EnsembleRegressor.load(tmp_path / "nothing")
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileError, match="other bits"):
        EnsembleRegressor.load(path)
    own = EnsembleRegressor(network=own_network, members=2, epochs=1).fit(X, X[:, 0])
    own.save(path)
    with pytest.raises(FileError, match="must come with its network"):
        EnsembleRegressor.load(path)


def test_it_lives_in_pipelines_searches_and_joblib() -> None:
    X, y = table()
    pipe = make_pipeline(StandardScaler(), EnsembleClassifier("deep", **QUICK)).set_output(transform="pandas")
    pipe.fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    assert pipe[-1].feature_names_in_.tolist() == ["a", "b", "c"]
    search = GridSearchCV(EnsembleClassifier(**QUICK), {"members": [1, 2], "method": ["deep"]}, cv=2).fit(X, y)
    assert search.best_params_["members"] in (1, 2) and search.best_score_ > 0
    with joblib.parallel_config(backend="threading"):
        scores = cross_val_score(clone(pipe[-1]), X, y, cv=2, n_jobs=2, error_score="raise")
    assert (scores == cross_val_score(clone(pipe[-1]), X, y, cv=2, error_score="raise")).all()


@pytest.mark.slow
def test_processes_of_joblib_fit_the_same() -> None:
    X, y = table()
    scores = [cross_val_score(EnsembleClassifier(**QUICK), X, y, cv=2, n_jobs=n, error_score="raise") for n in (1, 2)]
    assert (scores[0] == scores[1]).all()


@pytest.mark.parametrize("method", ["batchensemble", "mcdropout", "mimo", "packed", "single", "snapshot", "swag"])
def test_every_kind_of_method(method: str) -> None:
    X, y = table()
    members = {"single": 1}.get(method, 2)
    network = "mlp:hidden=16+16,dropout=0.1"
    model = EnsembleClassifier(method, network, members, epochs=4, random_state=0).fit(X, y)
    assert (model.predict_proba(X) == model.predict_proba(X)).all() and len(model.predict_members(X)) == members


def test_what_cannot_be_is_refused() -> None:
    X, y = table()
    with pytest.raises(ConfigError, match="got 'epochs'"):
        EnsembleClassifier(recipe={"epochs": 3}).fit(X, y)
    with pytest.raises(ConfigError, match="Did you mean packed"):
        EnsembleClassifier("paked").fit(X, y)
    with pytest.raises(ConfigError, match=r"`eval_set` must be \(X, y\)"):
        EnsembleClassifier(**QUICK).fit(X, y, eval_set=X)
    with pytest.raises(DataError, match="dates or times"):
        EnsembleClassifier(**QUICK).fit(pd.DataFrame({"when": pd.date_range("2020-01-01", periods=120)}), y)
    model = EnsembleRegressor(**QUICK).fit(X, X[:, 0])
    with pytest.raises(ConfigError, match="must have at least 99 held-out examples; got 24"):
        model.predict_interval(X, coverage=0.99)
    with pytest.raises(ConfigError, match="0 < coverage < 1"):
        model.predict_interval(X, coverage=90)
    with pytest.raises(ValueError, match="balanced"):
        EnsembleClassifier(class_weight="balanced", **QUICK).partial_fit(X, y)


@pytest.mark.slow
def test_the_defaults_do_well_on_small_tables() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    assert cross_val_score(EnsembleClassifier(random_state=0), X, y, cv=3).mean() > 0.95
    X, y = load_diabetes(return_X_y=True)
    assert cross_val_score(EnsembleRegressor(random_state=0), X, y, cv=3).mean() > 0.4


def test_the_global_generators_stay_where_they_are() -> None:
    X, y = table()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    EnsembleClassifier("deep", **QUICK).fit(X, y).predict(X)
    assert torch.equal(torch.get_rng_state(), before)


def test_classes_as_objects_and_lengths_of_time() -> None:
    X, _ = table()
    frame, y = pd.DataFrame({"a": X[:, 0], "b": pd.to_timedelta(X[:, 1], unit="h")}), X[:, 0] > 0
    before = frame.copy()
    model = EnsembleClassifier("deep", **QUICK).fit(frame, y.astype(int).astype(object))
    pd.testing.assert_frame_equal(frame, before)
    assert model.classes_.tolist() == [0, 1] and model.classes_.dtype == np.int64
    assert [column.categories for column in model.preparation_.table.columns] == [None, None]
    assert model.predict(frame.iloc[:1]).tolist() in ([0], [1])


def test_what_frames_cannot_hold_is_said_in_the_words_of_frames() -> None:
    X, y = table()
    frame, words = pd.DataFrame(X, columns=["a", "b", "c"]), y.astype(object)
    words[0] = 7
    lazy = pytest.importorskip("polars").DataFrame(X).lazy()
    for rows, targets, message in (
        (frame.assign(when=pd.date_range("2020-01-01", periods=len(X))), y, r"X.drop\(columns=\['when'\]\)"),
        (frame.set_axis(["a", "b", "a"], axis=1), y, "a name of its own; got a, b, a"),
        (lazy, y, r"got a lazy one. Use X.collect\(\)"),
        (frame, words, r"all words or all numbers; got both in y. Use y.astype\(str\)"),
        (frame.assign(a=np.where(X[:, 0] > 0, np.inf, 0.0)), y, "infinite numbers; empty the cells"),
    ):
        with pytest.raises(ValueError, match=message):
            EnsembleClassifier("deep", **QUICK).fit(rows, targets)
