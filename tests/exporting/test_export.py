"""Ensembles as files: what they say, what they hold, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn

import multum
from exporting.alone import answers_alone
from multum.errors import ConfigError, ExportError, FileError
from multum.exporting.describing import metadata
from multum.exporting.members import members_of
from multum.metrics import fit_sets
from multum.metrics.calibration import Temperature
from multum.metrics.selective import Abstention

OUTPUTS = ["probs", "labels", "confidence", "entropy", "mutual_information", "variation_ratio"]


def cnn(method: multum.methods.Method) -> multum.Ensemble:
    torch.manual_seed(0)
    x = torch.zeros(2, 1, 8, 8)
    net = multum.models.build("small-cnn", classes=4, in_channels=1)
    return multum.ensemble(net, method, example=x, seed=0).eval()


def mlp(method: multum.methods.Method, outputs: int = 3, task: str = "classification") -> multum.Ensemble:
    net = multum.models.build("mlp", in_features=3, hidden=6, classes=outputs, dropout=0.5)
    targets = outputs // 2 if task == "regression" else None
    return multum.ensemble(net, method, example=torch.zeros(2, 3), task=task, targets=targets, seed=0).eval()


def session_of(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def run(path: Path, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
    session = session_of(path)
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {name: x.numpy() for name, x in inputs.items()})
    return {name: torch.from_numpy(np.asarray(value)) for name, value in zip(names, values, strict=True)}


def assert_says(answers: dict[str, torch.Tensor], prediction: multum.Prediction, names: list[str] = OUTPUTS) -> None:
    for name in names:
        torch.testing.assert_close(answers[name], getattr(prediction, name), rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def heads(tmp_path_factory) -> tuple[multum.Ensemble, Path, dict]:
    """Members that share all but their heads, as ONNX."""
    path = tmp_path_factory.mktemp("onnx") / "heads.onnx"
    ens = cnn(multum.Multihead(members=3))
    return ens, path, multum.export(ens, path, each_member=True)


def test_a_file_takes_batches_and_images_of_any_size(heads):
    ens, path, about = heads
    assert about["image_size"] == "any"
    for rows, size in ((1, 8), (5, 8), (2, 13)):
        x = torch.randn(rows, 1, size, size)
        answers = run(path, x=x)
        assert list(answers) == [*OUTPUTS, "members"]
        assert_says(answers, multum.predict(ens, x), [*OUTPUTS, "members"])


def test_sizes_that_are_fixed_are_declared(tmp_path):
    net = nn.Sequential(nn.Flatten(), nn.Linear(48, 4))
    ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 3, 4, 4), seed=0)
    about = multum.export(ens, tmp_path / "m.onnx")
    session = session_of(tmp_path / "m.onnx")
    assert about["image_size"] == "as traced" and session.get_inputs()[0].shape == ["batch", 3, 4, 4]
    assert {o.name: o.shape for o in session.get_outputs()}["probs"] == ["batch", 4]


def test_what_members_share_is_computed_once(heads):
    _, path, _ = heads
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert kinds.count("Conv") == 3 and kinds.count("Gemm") + kinds.count("MatMul") == 3


def test_the_file_describes_itself_and_no_machine(heads):
    ens, path, about = heads
    assert metadata(path) == about and about["parity"]["differences"]["probs"] <= 1e-5
    assert about["method"] == json.loads(json.dumps(ens.method.as_dict())) and about["members"] == 3
    assert about["cost"]["params"] == sum(p.numel() for p in ens.parameters())
    assert str(Path(multum.__file__).parent).encode() not in path.read_bytes()


def test_torch_reads_it_without_multum(tmp_path):
    ens, x = mlp(multum.Deep(members=2)), torch.randn(5, 3)
    about = multum.export(ens, tmp_path / "model.pt2", members=1)
    np.save(tmp_path / "x.npy", x.numpy())
    answers = answers_alone(tmp_path / "model.pt2", tmp_path / "x.npy")
    expected = multum.Prediction.from_logits(ens(x)[:1].detach())
    assert_says({name: torch.from_numpy(value) for name, value in answers.items()}, expected)
    assert metadata(tmp_path / "model.pt2") == about and about["members"] == 1


def test_fitted_rules_are_inside(tmp_path):
    ens, x = mlp(multum.Deep(members=2)), torch.randn(40, 3)
    hot = Temperature(2.0)(ens(x).detach())
    sets = fit_sets(hot.probs, hot.labels, alpha=0.3, method="lac", allow_empty=False)
    rule = Abstention(threshold=float(hot.confidence.median()) + 1e-4, coverage=0.5, risk=0.0)
    multum.export(ens, tmp_path / "a.pt2", temperature=2.0, conformal=sets, abstention=rule, example=x)
    answers = torch.export.load(tmp_path / "a.pt2").module()(x)
    assert_says(answers, hot)
    assert torch.equal(answers["set"], sets(hot.probs)) and torch.equal(answers["abstain"], ~rule(hot.confidence))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
def test_a_regression_gives_its_intervals(tmp_path, suffix):
    ens, x = mlp(multum.Deep(members=3), outputs=4, task="regression"), torch.randn(7, 3)
    multum.export(ens, tmp_path / f"a.{suffix}", level=0.8, example=x)
    answers = run(tmp_path / "a.onnx", x=x) if suffix == "onnx" else torch.export.load(tmp_path / "a.pt2").module()(x)
    prediction = multum.predict(ens, x)
    assert_says(answers, prediction, ["mean", "variance", "aleatoric", "epistemic"])
    for name, end in zip(("low", "high"), prediction.interval(0.8), strict=True):
        torch.testing.assert_close(answers[name], end, rtol=1e-5, atol=1e-5)


def test_samples_under_dropout_are_fixed_draws(tmp_path):
    ens = mlp(multum.McDropout(members=400)).double()
    x = torch.randn(6, 3).double()
    members = members_of(ens, None, x)
    drawn = members(x).softmax(2).detach()
    assert torch.equal(drawn, members(x).softmax(2))
    first = x[:2]
    assert torch.equal(drawn[:, :2], members(torch.cat([first, first, first])).softmax(2)[:, :2])  # whatever is beside
    torch.testing.assert_close(drawn[:, :2], members(first).softmax(2), rtol=0, atol=1e-14)  # summed in another order
    # Each example sees as many independent masks as before: the means agree within their errors.
    free = multum.predict(ens, x).members
    error = (drawn.var(0) / 400 + free.var(0) / 400).sqrt()
    assert ((drawn.mean(0) - free.mean(0)).abs() < 5 * error).all() and (drawn.var(0) > 0).all()


def test_mimo_stays_one_pass(tmp_path):
    ens, x = mlp(multum.Mimo(members=3)), torch.randn(4, 3)
    multum.export(ens, tmp_path / "a.pt2", example=x)
    program = torch.export.load(tmp_path / "a.pt2")
    linears = [node for node in program.graph.nodes if node.op == "call_function" and "linear" in str(node.target)]
    assert len(linears) == len([m for m in ens.network.modules() if isinstance(m, nn.Linear)]) - 1 + 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"members": 3}, "1 <= members <= 2"),
        ({"format": "onx"}, "must be onnx or torch; got 'onx'"),
        ({"coverage": 0.9}, "got 'coverage'"),
        ({"conformal": 0.9}, "must be a fitted rule"),
    ],
)
def test_what_an_ensemble_cannot_be_exported_with(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        multum.export(mlp(multum.Deep(members=2)), tmp_path / "a.onnx", **options)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="a folder that exists"):
        multum.export(mlp(multum.Deep(members=2)), tmp_path / "none" / "a.onnx")


def test_half_precision_is_refused(tmp_path):
    with pytest.raises(ExportError, match="must be of float32"):
        multum.export(mlp(multum.Deep(members=2)).half(), tmp_path / "a.onnx")


class Unsayable(nn.Module):
    """What ONNX has no operation for."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        return torch.special.bessel_j0(self.layer(x))


class Counting(nn.Module):
    """Another answer at every call, which no file gives."""

    calls = 0

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        Counting.calls += 1
        return self.layer(x) + 1e-3 * Counting.calls * torch.arange(3)


@pytest.mark.slow
def test_an_operation_that_onnx_lacks_is_named(tmp_path):
    ens = multum.ensemble(Unsayable(), multum.Deep(members=2), example=torch.zeros(2, 3))
    with pytest.raises(ExportError, match="bessel_j0"):
        multum.export(ens, tmp_path / "a.onnx")
    assert multum.export(ens, tmp_path / "a.pt2")["parity"]["differences"]["probs"] <= 1e-5


def test_a_file_that_says_something_else_is_not_written(tmp_path):
    ens = multum.ensemble(Counting(), multum.Single(), example=torch.zeros(2, 3))
    with pytest.raises(ExportError, match="must say what multum says"):
        multum.export(ens, tmp_path / "a.pt2")
    assert not list(tmp_path.iterdir())


def test_metadata_of_what_is_no_export(tmp_path):
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(FileError, match=r"must be a \.onnx or \.pt2 file"):
        metadata(tmp_path / "a.txt")
