"""Files: bit for bit back, whole or not at all, never code, and clear errors for what cannot be read."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import multum
import networks
from multum import Deep, Packed, Single, files
from multum.errors import FileError, NetworkError
from multum.files import signature
from multum.models import build

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


def mlp(**keywords) -> nn.Module:
    return build("mlp", in_features=6, classes=3, hidden=8, **keywords)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "model.safetensors"


@pytest.fixture
def saved(path) -> Path:
    multum.save(multum.ensemble(mlp(), Packed(members=2), example=X, seed=0), path)
    return path


def header_of(path: Path) -> dict:
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["multum"])


def tensors_in(path: Path) -> dict[str, Tensor]:
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def rewrite(path: Path, header=None, tensors=None, **changes) -> None:
    """Write the file again with parts of it changed, and a checksum that fits, as a malicious author would."""
    old = tensors_in(path)
    new = old if tensors is None else tensors(old)
    header = {**header_of(path), **changes} if header is None else header
    if "checksum" in header:
        header["checksum"] = signature(header, new)
    save_file(new, path, metadata={"multum": json.dumps(header)})


# -- round trips -------------------------------------------------------------------------------------------------------


def test_training_goes_on_where_it_stopped(path):
    ens = multum.ensemble(mlp(dropout=0.5), Deep(members=3), example=X).train()
    for _ in range(3):
        ens(X)
    multum.save(ens, path)
    again = multum.load(path)
    for _ in range(3):
        assert torch.equal(again(X), ens(X))
    for executor in ("loop", "vmap"):
        again.executor = ens.executor = executor
        assert torch.equal(again(X), ens(X))


@pytest.mark.parametrize("training", [True, False])
def test_flags_come_back(path, training):
    network = build("wrn-10-1")
    network.layer1.requires_grad_(False)
    x = torch.randn(2, 3, 8, 8)
    ens = multum.ensemble(network, Deep(members=2, init="pretrained"), example=x, task="classification").train(training)
    ens.bn.train(not training)
    multum.save(ens, path)
    again = multum.load(path)
    assert {n: p.requires_grad for n, p in again.named_parameters()} == {
        n: p.requires_grad for n, p in ens.named_parameters()
    }
    assert not all(p.requires_grad for p in again.parameters())
    assert {n: m.training for n, m in again.named_modules()} == {n: m.training for n, m in ens.named_modules()}
    assert again.network.training is training


@pytest.mark.parametrize("method", [Single(), Deep(members=2)])
def test_tied_weights_stay_tied(path, method):
    ens = multum.ensemble(networks.TiedNet(), method, example=X)
    multum.save(ens, path)
    again = multum.load(path, network=networks.TiedNet)
    assert again.first.weight is again.second.weight
    assert torch.equal(again(X), ens(X))
    one = again.member(0)
    assert one.first.weight is one.second.weight


def test_any_example_comes_back(path):
    numbers, categories = networks.ZOO["two-input"][1]()
    for example in ((numbers, categories), {"x_num": numbers, "x_cat": categories}):
        ens = multum.ensemble(networks.TwoInputNet(), Deep(members=2), example=example)
        multum.save(ens, path)
        again = multum.load(path, network=networks.TwoInputNet)
        assert torch.equal(again(example), ens(example))
        assert type(again.example) is type(example)


def test_a_saved_ensemble_can_be_saved_again(saved, tmp_path):
    multum.save(multum.load(saved), tmp_path / "second")
    multum.save(multum.load(tmp_path / "second"), tmp_path / "third")
    assert (tmp_path / "second").read_bytes() == (tmp_path / "third").read_bytes()


def test_double_precision_and_channels_last(path):
    ens = multum.ensemble(build("small-cnn"), Deep(members=2), example=torch.randn(2, 3, 8, 8)).double()
    for p in ens.parameters():
        p.data = p.data.transpose(0, -1).contiguous().transpose(0, -1)  # not contiguous
    multum.save(ens, path)
    again = multum.load(path)
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), ens.parameters(), strict=True))
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    torch.testing.assert_close(again.eval()(x), ens.eval()(x))
    assert again(x).dtype == torch.float64


def test_neither_save_nor_load_touches_the_generator(path):
    ens = multum.ensemble(mlp(dropout=0.5), Packed(members=2), example=X)
    state = torch.get_rng_state()
    multum.save(ens, path)
    multum.load(path)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_network_given_to_load_is_left_alone(path):
    multum.save(multum.ensemble(networks.TiedNet(), Deep(members=2), example=X), path)
    network = networks.TiedNet(seed=1)
    before = {n: t.clone() for n, t in network.state_dict().items()}
    multum.load(path, network=network)
    assert all(torch.equal(t, before[n]) for n, t in network.state_dict().items())
    assert network.state_dict().keys() == before.keys()


# -- whole or not at all -----------------------------------------------------------------------------------------------


def test_an_interrupted_save_leaves_the_old_file_whole(saved, monkeypatch):
    before = saved.read_bytes()

    def interrupted(tensors, filename, metadata):
        Path(filename).write_bytes(b"half of")
        raise KeyboardInterrupt

    monkeypatch.setattr(files, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        multum.save(multum.ensemble(mlp(), Deep(members=2), example=X), saved)
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_a_save_leaves_one_file_that_others_may_read(saved):
    assert os.listdir(saved.parent) == [saved.name]
    (saved.parent / "plain").touch()
    assert stat.S_IMODE(saved.stat().st_mode) == stat.S_IMODE((saved.parent / "plain").stat().st_mode)


def test_a_file_holds_no_code(saved):
    """Safetensors: eight bytes of length, a JSON header, raw numbers up to the end."""
    content = saved.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    assert 8 + length + max(ends) == len(content)
    assert not content.startswith((b"PK", b"\x80"))
    assert "torch" not in json.loads(header["__metadata__"]["multum"])["network"]["class"]


@pytest.mark.parametrize("where", ["missing/model", "."])
def test_a_place_that_cannot_be_written(tmp_path, where):
    with pytest.raises(FileError, match=r"it is a folder|does not exist\. Make it first"):
        multum.save(multum.ensemble(mlp(), Single(), example=X), tmp_path / where)


# -- what cannot be read -----------------------------------------------------------------------------------------------


def test_no_file(tmp_path):
    with pytest.raises(FileError, match="there is none at"):
        multum.load(tmp_path / "nothing")


@pytest.mark.parametrize("keep", [0, 4, 100, -10])
def test_a_truncated_file(saved, keep):
    saved.write_bytes(saved.read_bytes()[:keep])
    with pytest.raises(FileError, match="truncated or of another kind: copy or save it again"):
        multum.load(saved)


def test_a_file_of_another_kind(path):
    torch.save(mlp().state_dict(), path)
    with pytest.raises(FileError, match="of another kind"):
        multum.load(path)


def test_a_file_without_multums_header(path):
    save_file({"a": torch.zeros(2)}, path)
    with pytest.raises(
        FileError, match=r"without multum's header; bare weights go into a network with its load_state_"
    ):
        multum.load(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "one"}', '{"format": null}'])
def test_a_header_that_is_not_ours(path, text):
    save_file({"a": torch.zeros(2)}, path, metadata={"multum": text})
    with pytest.raises(FileError, match=r"must be multum's JSON; got .*Save the ensemble again"):
        multum.load(path)


def test_a_newer_format(saved):
    rewrite(saved, format=99, versions={"multum": "7.0"})
    with pytest.raises(FileError, match=r"got format 99, written by multum 7\.0\. Upgrade multum"):
        multum.load(saved)


def test_an_incomplete_header(saved):
    header = header_of(saved)
    del header["own"], header["seeds"]
    rewrite(saved, header=header)
    with pytest.raises(FileError, match=r"got no own, seeds\. Save the ensemble again"):
        multum.load(saved)


def test_foreign_and_missing_tensors(saved):
    def swap(tensors):
        del tensors["fc.weight"]
        return {**tensors, "fc.strange": torch.zeros(2)}

    rewrite(saved, tensors=swap)
    with pytest.raises(FileError, match=r"got unknown fc.strange .*; missing fc.weight .*; give the network"):
        multum.load(saved)


def test_a_tensor_without_its_member_axis(saved):
    rewrite(saved, tensors=lambda tensors: {**tensors, "fc.weight": tensors["fc.weight"][:1].clone()})
    with pytest.raises(FileError, match=r"member axis of 2; got fc.weight: \(1, 3, 8\)\. Save it again"):
        multum.load(saved)


def test_a_tensor_of_another_width(saved):
    rewrite(saved, tensors=lambda tensors: {**tensors, "fc.weight": torch.zeros(2, 3, 5)})
    with pytest.raises(FileError, match=r"must fit its network; got .*; give the network that was saved"):
        multum.load(saved)


def test_an_unknown_method(saved):
    rewrite(saved, method={"name": "pakced", "members": 2})
    with pytest.raises(FileError, match=r"'pakced'\. Did you mean packed\? .*upgrade multum"):
        multum.load(saved)


def test_a_method_with_unknown_or_wrong_fields(saved):
    rewrite(saved, method={"name": "packed", "members": 2, "beta": 3})
    with pytest.raises(FileError, match=r"got beta\. Upgrade multum"):
        multum.load(saved)
    rewrite(saved, method={"name": "packed", "members": 2, "alpha": -1})
    with pytest.raises(FileError, match="alpha=-1"):
        multum.load(saved)


def test_an_unknown_recipe(saved):
    rewrite(saved, network={"class": "X", "recipe": {"name": "mpl", "keywords": {}}})
    with pytest.raises(FileError, match=r"Did you mean mlp\? Or give the network .*multum.load\(path, network="):
        multum.load(saved)


def test_an_edit_of_a_module_that_is_not_there(saved):
    rewrite(saved, edits=[{"path": "nowhere", "attributes": {}, "layer": None}])
    with pytest.raises(FileError, match="'nowhere'"):
        multum.load(saved)


NONSENSE = {
    "edits": [5, [5], [{"path": "fc"}], [{"path": "fc", "layer": None, "attributes": {"forward": 3}}]],
    "example": [5, {}, {"shape": [2, 6]}, {"shape": [2**40], "dtype": "float32"}, {"shape": [2, 6], "dtype": "load"}],
    "executors": [5, None, {"sleeping": "loop"}, {"eval": 5}],
    "folded": [0, None],
    "format": [0, -1, True, 2.5],
    "frozen": [5, [5]],
    "members": [0, 3, True, 2.0, 10**9],
    "method": [5, {}, {"name": ["packed"]}, {"name": "packed", "members": {"a": 1}}, {"name": "packed", "members": 3}],
    "network": [5, {}, {"class": "MLP", "recipe": 5}, {"class": "MLP", "recipe": {"name": 5, "keywords": {}}}],
    "other_mode": [5, ["nowhere"]],
    "own": [5, [["fc.weight"]], ["nowhere"]],
    "seeds": [5, [], [1, 2], [1, 2, -3], [1, 2, 2**70], [1, 2, "3"]],
    "task": ["ranking", None, ["classification"]],
    "training": [1, None],
    "versions": [5, {"multum": 5}],
    "surprise": [1],
}


@pytest.mark.parametrize("key", NONSENSE)
def test_a_header_with_nonsense_in_it(saved, key):
    whole = saved.read_bytes()
    for value in NONSENSE[key]:
        saved.write_bytes(whole)
        rewrite(saved, **{key: value})
        with pytest.raises(FileError):
            multum.load(saved)


# -- damage and malice -------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_refused(saved):
    whole, chance = saved.read_bytes(), random.Random(0)
    length = 8 + int.from_bytes(whole[:8], "little")
    places = [chance.randrange(length) for _ in range(150)] + [chance.randrange(length, len(whole)) for _ in range(100)]
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        saved.write_bytes(bytes(damaged))
        with pytest.raises(FileError):
            multum.load(saved)
    saved.write_bytes(whole)
    multum.load(saved)


def test_a_file_of_format_1_still_loads_with_a_warning(saved, caplog):
    wanted = multum.load(saved)(X)
    header = header_of(saved)
    del header["executors"]
    rewrite(saved, header={**header, "format": 2})
    assert torch.equal(multum.load(saved)(X), wanted) and not caplog.text
    del header["checksum"]
    rewrite(saved, header={**header, "format": 1})
    assert torch.equal(multum.load(saved)(X), wanted)
    assert "has no checksum" in caplog.text


def test_the_executor_of_a_file_is_a_hint_and_no_duty(saved):
    usual = multum.load(saved).executor
    other = next(name for name in multum.load(saved).executors if name != usual)
    rewrite(saved, executors={"eval": other, "training": "of tomorrow"})
    ens = multum.load(saved)
    assert (ens.eval().executor, ens.chosen) == (other, None) and ens.latest == {"eval": other}
    multum.save(ens, saved)
    assert multum.load(saved).latest == {"eval": other}


@pytest.fixture
def no_timm(monkeypatch):
    """timm as it would be reached by a file that gets through: a failure."""
    import multum.models.registry as registry

    monkeypatch.setattr(registry, "timm_model", lambda *a, **k: pytest.fail(f"timm was asked for {a} {k}"))


@pytest.mark.parametrize(
    ("name", "keywords"),
    [
        ("timm:resnet18", {"checkpoint_path": "weights.pth"}),
        ("timm:resnet18", {"pretrained": True}),
        ("timm:resnet18", {"pretrained_cfg": {"url": "http://example.com/weights.pth"}}),
        ("timm:resnet18", {"pretrained_cfg_overlay": {"file": "weights.pth"}}),
        ("timm:resnet18", {"cache_dir": "/tmp"}),
        ("timm:resnet18", {"global_pool": "http://example.com"}),
        ("timm:hf-hub:someone/model", {}),
        ("timm:local-dir:/tmp/model", {}),
        ("timm:../model", {}),
    ],
)
def test_a_file_cannot_make_timm_read_or_fetch(saved, no_timm, name, keywords):
    rewrite(saved, network={"class": "ResNet", "recipe": {"name": name, "keywords": keywords}})
    with pytest.raises(FileError, match="must be a plain architecture"):
        multum.load(saved)


def test_a_network_whose_recipe_load_would_refuse_is_a_users_class(path):
    network = mlp()
    network.recipe = {"name": "timm:resnet18", "keywords": {"checkpoint_path": "weights.pth"}}
    multum.save(multum.ensemble(network, Deep(members=2), example=X), path)
    assert header_of(path)["network"] == {"class": "MLP", "recipe": None}


class Work(TorchDispatchMode):
    """How many tensor operations were run, and how many values they made that take memory."""

    def __init__(self):
        super().__init__()
        self.operations = self.values = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operations += 1
        made = result if isinstance(result, tuple | list) else [result]
        self.values += sum(t.numel() for t in made if isinstance(t, torch.Tensor) and t.device.type != "meta")
        return result


MALICIOUS = {
    "a deep network": {"network": {"class": "X", "recipe": {"name": "wrn-60004-1", "keywords": {}}}},
    "a very deep network": {"network": {"class": "X", "recipe": {"name": "wrn-16000000-1", "keywords": {}}}},
    "a wide network": {
        "network": {
            "class": "X",
            "recipe": {"name": "mlp", "keywords": {"in_features": 6, "classes": 3, "hidden": [30000, 100000]}},
        }
    },
    "a number of many digits": {"network": {"class": "X", "recipe": {"name": "wrn-" + "9" * 5000, "keywords": {}}}},
    "a large bank": {"edits": [{"path": "bank", "attributes": {"shape": [2**20, 2**20]}, "layer": "Bank"}]},
    "many members": {"members": 10**6, "method": {"name": "packed", "members": 10**6}, "seeds": [1] * (10**6 + 1)},
    "a large example": {"example": {"shape": [2**20, 2**20], "dtype": "float32"}},
    "a long list": {"network": {"class": "X", "recipe": {"name": "mlp", "keywords": {"hidden": [1] * 10**6}}}},
}


@pytest.mark.parametrize("what", MALICIOUS)
def test_a_header_that_asks_for_too_much_is_refused_before_anything_large_is_built(saved, what):
    rewrite(saved, **MALICIOUS[what])
    with Work() as work, pytest.raises(FileError):
        multum.load(saved)
    assert work.operations < 10_000
    assert work.values < 100_000


@pytest.mark.parametrize("value", ["[" * 100_000 + "]" * 100_000, "[" * 500 + "]" * 500, "1" * 5000, "1" * 2**25])
@pytest.mark.parametrize("key", ["example", "format"])
def test_deep_and_long_json_is_refused(saved, key, value):
    text = json.dumps({**header_of(saved), key: "HERE"}).replace('"HERE"', value)
    save_file(tensors_in(saved), saved, metadata={"multum": text})
    with pytest.raises(FileError):
        multum.load(saved)


@pytest.mark.slow
def test_a_timm_network_comes_back_without_its_weights_being_fetched(path):
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    x = torch.randn(2, 3, 32, 32)
    network = build("timm:vit_tiny_patch16_224", classes=3, img_size=32, patch_size=8, depth=2)
    ens = multum.ensemble(network, Packed(members=2), example=x).eval()
    multum.save(ens, path)
    assert torch.equal(multum.load(path).eval()(x), ens(x))


# -- networks of the user ----------------------------------------------------------------------------------------------


def test_a_users_class_comes_from_the_user(path):
    ens = multum.ensemble(networks.TiedNet(), Packed(members=2), example=X)
    multum.save(ens, path)
    with pytest.raises(FileError, match=r"class TiedNet; give the network .*multum.load\(path, network=builder\)"):
        multum.load(path)
    for network in (networks.TiedNet, networks.TiedNet()):
        assert torch.equal(multum.load(path, network=network)(X), ens(X))
    with pytest.raises(NetworkError, match=r"must return an nn.Module; got int"):
        multum.load(path, network=lambda: 3)
    with pytest.raises(FileError, match="give the network that was saved"):
        multum.load(path, network=mlp)


@pytest.mark.parametrize("change", ["layer", "attribute"])
def test_a_known_network_that_was_changed_is_a_users_class(path, change):
    """Its recipe would build something else, of the same names and shapes."""
    network = build("small-cnn")
    if change == "layer":
        network.maxpool = nn.AvgPool2d(2)
    else:
        network.conv2.stride = (2, 2)
    x = torch.randn(2, 3, 16, 16)
    ens = multum.ensemble(network, Packed(members=2), example=x).eval()
    multum.save(ens, path)
    with pytest.raises(FileError, match="class SmallCNN; give the network"):
        multum.load(path)
    assert torch.equal(multum.load(path, network=network).eval()(x), ens(x))


# -- without multum ----------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
sys.modules["multum"] = None  # importing it is impossible
import torch
program, rows, result = sys.argv[1:]
torch.save(torch.export.load(program).module()(torch.load(rows)), result)
try:
    import multum
except ImportError:
    sys.exit(0)
sys.exit(1)
"""


@pytest.mark.slow  # tests/contract/test_contract.py exports a member of every method
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_an_exported_member_runs_where_multum_is_not_installed(tmp_path):
    x = torch.randn(2, 3, 8, 8)
    ens = multum.ensemble(build("wrn-10-1", variant="meliketoy"), Packed(members=2), example=x).eval()
    with torch.no_grad():
        torch.export.save(torch.export.export(ens.member(1), (x,)), tmp_path / "member.pt2")
    torch.save(x, tmp_path / "rows.pt")
    files = [str(tmp_path / name) for name in ("member.pt2", "rows.pt", "result.pt")]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *files], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    torch.testing.assert_close(torch.load(files[2]), ens(x)[1], rtol=1e-5, atol=1e-6)


def test_a_members_weights_go_into_the_thin_network_without_multum():
    ens = multum.ensemble(mlp(), Packed(members=2), example=X).eval()
    plain = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    weights: list[Tensor] = list(ens.member(0).state_dict().values())
    plain.load_state_dict(dict(zip(plain.state_dict(), weights, strict=True)))
    torch.testing.assert_close(plain(X), ens(X)[0])
