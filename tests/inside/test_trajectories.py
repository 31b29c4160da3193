"""Paths through function space: records in order, projections that keep what they promise, states as recorded."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor

import multum
from multum.errors import ConfigError
from multum.inside.trajectories import Trajectories

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] * X[:, 1] > 0).long()


def build(members: int = 3, method: multum.methods.Method | None = None, task: str = "classification"):
    net = multum.models.build("mlp", in_features=2, classes=2, hidden=(16,))
    return multum.ensemble(net, method or multum.Deep(members=members), example=X[:2], seed=0, task=task)


def trained(epochs: int = 6) -> tuple[Trajectories, dict[float, dict[str, Tensor]], multum.Ensemble]:
    ens, recorder, states = build(), Trajectories(X), {}
    for epoch in range(epochs):
        recorder.record(ens, epoch)
        states[epoch] = {n: t.clone() for n, t in ens.state_dict().items()}
        multum.fit(ens, (X, Y), multum.Recipe(epochs=1, lr=0.02, seed=epoch))
    return recorder, states, ens


@pytest.fixture(scope="module")
def run() -> tuple[Trajectories, dict[float, dict[str, Tensor]], multum.Ensemble]:
    return trained()


def test_a_record_is_every_members_probabilities_in_order(run):
    recorder, states, ens = run
    frame = recorder.project("pca").frame()
    assert list(frame) == ["member", "epoch", "x", "y"] and len(frame) == len(recorder) == 18
    assert frame["member"].tolist() == [0, 1, 2] * 6
    assert frame["epoch"].tolist() == [e for e in range(6) for _ in range(3)]
    again = copy.deepcopy(ens)
    again.load_state_dict(states[2])
    expected = multum.predict(again, X).members
    np.testing.assert_allclose(np.stack(recorder._records[6:9]), expected.flatten(1).numpy(), rtol=1e-6)


def test_pca_keeps_distances_within_its_plane(run):
    recorder, _, _ = run
    found = recorder.project("pca")
    rows = np.stack(recorder._records).astype(float)
    rows -= rows.mean(0)
    values = np.linalg.svd(rows, compute_uv=False) ** 2
    assert found.explained == pytest.approx(tuple(values[:2] / values.sum()))
    np.testing.assert_allclose((found.x**2).sum(), values[0], rtol=1e-8)
    np.testing.assert_allclose((found.y**2).sum(), values[1], rtol=1e-8)


def test_tsne_is_seeded_and_keeps_neighbours(run):
    recorder, _, _ = run
    found, again = recorder.project("tsne"), recorder.project("tsne")
    np.testing.assert_array_equal(found.x, again.x)
    assert found.explained is None and np.isfinite(found.x).all() and np.isfinite(found.y).all()
    # All members begin alike and end apart: an end is nearer to the epoch before it than to any beginning.
    places = np.stack([found.x, found.y], 1).reshape(6, 3, 2)
    for member in range(3):
        end = places[5, member]
        assert np.linalg.norm(end - places[4, member]) < np.linalg.norm(end - places[0], axis=1).min()


def test_saved_states_give_the_same_paths_and_leave_the_ensemble_alone(run):
    recorder, states, ens = run
    before = {n: t.clone() for n, t in ens.state_dict().items()}
    found = Trajectories.from_states(ens, states, X, batch_size=7)
    assert all(torch.equal(t, before[n]) for n, t in ens.state_dict().items())
    np.testing.assert_allclose(np.stack(found._records), np.stack(recorder._records), rtol=1e-5, atol=1e-7)


def test_members_may_be_born_between_two_records():
    ens = build(method=multum.Hypernet(members=3, birth_epoch=0.5))
    recorder = Trajectories(X)
    assert ens.members == 1
    for epoch in range(3):
        recorder.record(ens, epoch)
        if epoch == 1:
            multum.fit(ens, (X, Y), multum.Recipe(epochs=2))
    assert recorder._members == [0, 0, 0, 1, 2]


def test_a_regression_is_recorded_by_its_means():
    ens, recorder = build(task="regression"), Trajectories(X)
    recorder.record(ens, 0)
    found = multum.predict(ens, X)
    np.testing.assert_allclose(np.stack(recorder._records), found.members[:, :, 0].numpy(), rtol=1e-6)


def test_what_is_refused(run):
    recorder, states, ens = run
    with pytest.raises(ConfigError, match="got none in x"):
        Trajectories(X[:0])
    with pytest.raises(ConfigError, match="tsne or pca; got 'umap'"):
        recorder.project("umap")
    with pytest.raises(ConfigError, match="below the 18 records; got perplexity=18"):
        recorder.project(perplexity=18)
    with pytest.raises(ConfigError, match="at least 4 records; got 0"):
        Trajectories(X).project()
    with pytest.raises(ConfigError, match="with 2 members; got another for epoch 0"):
        Trajectories.from_states(build(members=2), states, X)
    still = Trajectories(X)
    single = build(method=multum.Single())
    for epoch in range(4):
        still.record(single, epoch)
    with pytest.raises(ConfigError, match="equal ones only"):
        still.project("pca")
    lost = copy.deepcopy(ens)
    next(lost.parameters()).data[1] = torch.nan
    with pytest.raises(ConfigError, match="from member 1 in epoch 9"):
        still.record(lost, 9)
