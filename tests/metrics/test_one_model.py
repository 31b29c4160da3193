"""Members that are copies of each other are one model by every measure; independent members are not."""

from __future__ import annotations

import pytest
import torch

import multum
from multum.comparing.trained import is_coarse, is_one_model
from multum.metrics.evaluate import measure
from multum.metrics.one_model import NOISE, own_noise
from multum.runs.cells import Finished


def ensemble(data: multum.Data, *, copies: bool, method: multum.methods.Method | None = None) -> multum.Ensemble:
    inputs = {"in_features": 10, "hidden": (16,)} if data.task == "regression" else {"in_channels": 1}
    net = multum.models.build(
        "mlp" if data.task == "regression" else "small-cnn", classes=2 if data.task == "regression" else 10, **inputs
    )
    ens = multum.ensemble(net, method or multum.Deep(members=3), example=data.example(), task=data.task, seed=0)
    if copies:
        with torch.no_grad():
            for name in ens.own:
                tensor = ens.get_parameter(name)
                tensor.copy_(tensor[:1].expand_as(tensor))
    return ens


@pytest.mark.parametrize("name", ["digits#test=80", "diabetes"])
@pytest.mark.parametrize("copies", [True, False])
def test_copies_are_one_model_and_independent_members_are_not(name: str, copies: bool) -> None:
    data = multum.load_data(name)
    cells = {}
    for seed in range(2):
        torch.manual_seed(seed)
        measured = measure(ensemble(data, copies=copies), data, batch_size=33)
        cells[seed] = Finished({"test_part": "same"}, measured.examples)
    assert is_one_model(cells) is copies
    assert is_one_model({0: cells[0]}) is copies  # one seed says so too
    assert not is_coarse(cells)  # copies are copies, whatever the noise


def test_the_noise_is_that_of_one_member() -> None:
    """By hand: passes of the first member on inputs that are shaken by a twentieth of each input's deviation."""
    data = multum.load_data("diabetes")
    ens = ensemble(data, copies=False)
    measured = own_noise(ens, data, batch_size=1000)
    x = data.prepare(data.test.drawn(1000, 0).x)
    draw = torch.Generator().manual_seed(0)
    shaken = [x + NOISE * x.std(0, correction=0) * torch.randn(x.shape, generator=draw) for _ in range(3)]
    with torch.no_grad():
        outputs = torch.stack([ens.member(0)(each) for each in shaken])
    torch.testing.assert_close(
        measured.examples["variance_of_one_member"].float(), outputs[..., 0].var(0, correction=0), rtol=1e-4, atol=1e-9
    )
    members = multum.predict(ens, x).epistemic
    torch.testing.assert_close(measured.examples["variance_of_members"].float(), members, rtol=1e-4, atol=1e-9)


def test_nothing_is_asked_of_one_member_or_of_random_draws() -> None:
    data = multum.load_data("digits#test=20")
    for method in (multum.Single(), multum.McDropout(members=2)):
        measured = measure(ensemble(data, copies=False, method=method), data)
        assert "information_of_members" not in measured.numbers
        assert is_one_model({0: Finished({"test_part": "same"}, measured.examples)}) is None
