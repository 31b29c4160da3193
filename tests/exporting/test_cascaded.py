"""Cascades as files: what `Cascade` says, and members that are not asked do not run."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

import multum
from multum.errors import ExportError
from multum.exporting.describing import metadata


def images(rows: int) -> torch.Tensor:
    return torch.randn(rows, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def cascade(method: multum.Method, score: str = "confidence") -> multum.Cascade:
    """Whose examples stop after one, two and three members: not every network has a threshold for that."""
    for seed in range(30):
        torch.manual_seed(seed)
        net = multum.models.build("small-cnn", classes=4, in_channels=1)
        ens = multum.ensemble(net, method, example=images(2), seed=seed).eval()
        with torch.no_grad():
            for name, p in ens.named_parameters():
                if name.startswith("fc"):
                    p.mul_(6)
        for threshold in np.linspace(0.02, 0.98, 49):
            made = multum.Cascade(ens, float(threshold), score)
            if len(set(made(images(40)).voted.tolist())) == 3:
                return made
    raise AssertionError("the test needs examples of every kind")


def run_file(path: Path, x: torch.Tensor) -> dict[str, torch.Tensor]:
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return {n: torch.as_tensor(v) for n, v in zip(names, session.run(names, {"x": x.numpy()}), strict=True)}


@pytest.mark.parametrize(
    ("method", "score"),
    [
        (multum.Deep(members=3), "confidence"),
        pytest.param(multum.Deep(members=3), "margin", marks=pytest.mark.slow),
        pytest.param(multum.Packed(members=3, alpha=2), "margin", marks=pytest.mark.slow),
        pytest.param(multum.BatchEnsemble(members=3), "confidence", marks=pytest.mark.slow),
    ],
)
def test_a_file_says_what_the_cascade_says(tmp_path, method, score):
    whole = cascade(method, score)
    path = tmp_path / "model.onnx"
    about = multum.export(whole, path)
    assert about["cascade"] == {"score": score, "threshold": whole.threshold} == metadata(path)["cascade"]
    for rows in (40, 1, 7):
        x = images(40)[:rows]
        expected, given = whole(x), run_file(path, x)
        assert torch.equal(given["voted"], expected.voted)
        for name in ("probs", "confidence", "entropy", "mutual_information", "variation_ratio"):
            torch.testing.assert_close(given[name], getattr(expected, name), rtol=0, atol=1e-5)
        assert torch.equal(given["labels"], expected.labels)


def test_a_member_that_is_not_asked_is_in_a_branch(tmp_path):
    """With its weights made NaN, an example that stops before it is still answered."""
    whole = cascade(multum.Deep(members=3))
    multum.export(whole, tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    branches = [node for node in graph.node if node.op_type == "If"]
    assert len(branches) == 2 and sum(node.op_type == "Conv" for node in graph.node) > 0
    inside = [{n.op_type for a in node.attribute for n in a.g.node} for node in branches]
    assert all("Conv" in kinds for kinds in inside)
    assert sum(node.op_type == "Conv" for node in graph.node) == sum(
        isinstance(m, torch.nn.Conv2d) for m in whole.ensemble.member(0).modules()
    ), "one member alone runs always"


def test_what_cannot_be_a_file_is_refused(tmp_path):
    example = torch.zeros(2, 4)

    def made(method: multum.Method) -> multum.Cascade:
        net = multum.models.build("mlp", in_features=4, classes=3)
        return multum.Cascade(multum.ensemble(net, method, example=example), 0.9)

    for whole, options, message in (
        (made(multum.Multihead(members=2)), {}, "members that share no layers; got multihead"),
        (made(multum.McDropout(members=2)), {}, "members that are networks; got mcdropout"),
        (made(multum.Deep(members=2)), {"members": 1}, "as it was chosen; got `members`"),
        (made(multum.Deep(members=2)), {"temperature": 1.5}, "as it was chosen; got `temperature`"),
    ):
        with pytest.raises(ExportError, match=message):
            multum.export(whole, tmp_path / "a.onnx", **options)
    with pytest.raises(ExportError, match="must be exported as ONNX; got torch"):
        multum.export(made(multum.Deep(members=2)), tmp_path / "a.pt2")


def test_a_cascade_that_never_stops_is_the_ensemble(tmp_path):
    whole = multum.Cascade(cascade(multum.Deep(members=3)).ensemble, math.inf)
    about = multum.export(whole, tmp_path / "a.onnx")
    assert about["parity"]["count"] == 64
    given = run_file(tmp_path / "a.onnx", images(5))
    assert (given["voted"] == 3).all()
    torch.testing.assert_close(given["probs"], multum.predict(whole.ensemble, images(5)).probs, rtol=0, atol=1e-5)
