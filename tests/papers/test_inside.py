"""What items measure inside trained networks, against calculations of our own on the same networks."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from multum import Deep, Ensemble, Hypernet, Mimo, Mixture, Multihead, Single
from multum import files as strict_json
from multum.inside.conditional_variance import conditional_variances
from multum.metrics.speed import compare_speed
from multum.papers import ITEMS, basins, inside, speed
from multum.papers.base import Row, Run
from multum.papers.bias import Estimate, decomposed
from multum.papers.measured import Trained
from multum.papers.packed import TABLES
from multum.papers.results import Extra, Line, Result
from multum.runs.cells import work
from multum.training.checkpoint import states

RECIPE = {"epochs": 2, "lr": 0.1, "batch_size": 64, "optimizer": "sgd", "weight_decay": 0.0}
IMAGES: dict[str, Any] = {"data": "digits", "examples": 400, "seeds": (0,)}
SINES: dict[str, Any] = {"data": "sines", "model": "mlp:hidden=16+16", "seeds": (0, 1, 2)}
ADAM = {"epochs": 10, "lr": 0.01, "optimizer": "adam", "weight_decay": 0.0, "batch_size": 64}
DEEP_MLP = "mlp:hidden=24+24+24"

RUNS = {
    "mimo/figure2": [
        Row(label=f"M = {m}", method=Mimo(members=m), recipe=ADAM, **SINES)  #
        for m in (1, 3)
    ],
    "mimo/figure3": [
        Row(label="MIMO (M = 3)", model="mlp", method=Mimo(members=3), recipe={**RECIPE, "states": 1}, **IMAGES),
        Row(label="Naive multihead (M = 3)", model="mlp", method=Multihead(members=3), recipe=RECIPE, **IMAGES),
    ],
    "mimo/figure4-left": [
        Row(label=f"MIMO (M = {m})", model="mlp", method=Mimo(members=m), recipe=RECIPE, **{**IMAGES, "seeds": (0, 1)})
        for m in (2, 3)
    ],
    "mimo/figure7-9": [
        Row(
            label=f"L1 = {l1:g}, M = 2",
            model="mlp",
            method=Mimo(members=2),
            recipe={**RECIPE, "l1": l1},
            varied={"L1": l1},
            **IMAGES,
        )
        for l1 in (1e-4, 1e-1)
    ],
    "mixture/figure4": [
        Row(label="P = 1x", model=DEEP_MLP, method=Mixture(members=2), recipe=RECIPE, **{**IMAGES, "seeds": (0, 1)}),
        Row(label="P = 2x", model=DEEP_MLP, method=Mixture(members=2, budget=2.0), recipe=RECIPE, **IMAGES),
    ],
    "hypernet/figure3": [
        Row(
            label="Ours",
            model=DEEP_MLP,
            method=Hypernet(members=3, sigma=0.5),
            recipe=RECIPE,
            **{**IMAGES, "seeds": (0, 1)},
        )
    ],
    "hypernet/table3": [
        Row(
            label="Ours",
            model="wrn-10-1",
            method=Hypernet(members=2, sigma=0.5, norm="shared", heads="copy", nested=False),
            recipe=RECIPE,
            **{**IMAGES, "examples": 150},  # one batch of statistics
        ),
        Row(label="SGD", model="mlp", method=Single(), recipe=RECIPE, **IMAGES),
    ],
    "packed/table8": [
        Row(label="MIMO", model="mlp", method=Mimo(members=2), recipe=RECIPE, **{**IMAGES, "seeds": (0, 1)}),
        Row(label="Single Model", model="mlp", method=Single(), recipe=RECIPE, **{**IMAGES, "seeds": (0, 1)}),
        Row(label="Deep Ensembles", model="mlp", method=Deep(members=4), recipe=RECIPE, **IMAGES),
    ],
}
RUNS["mimo/figure4-trajectories"] = RUNS["mimo/figure3"][:1]


def run_of(id: str) -> Run:
    columns = ("Accuracy", "NLL", "MNIST") if id == "hypernet/table3" else ()  # no row has MNIST
    return Run(
        rows=tuple(RUNS[id]), item=id, printed=TABLES["Table 8"] if id == "packed/table8" else {}, columns=columns
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("cells")
    for cell in {cell.name: cell for id in RUNS for cell in run_of(id).cells()}.values():
        assert work(cell, found / cell.name, threads=1).done
    return found


@pytest.fixture(scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        sizes = {"PLANE_POINTS": 5, "EMBEDDING_POINTS": 5, "TRAINING_EXAMPLES": 10_000, "ROUNDS": 2}
        for name, value in sizes.items():
            patch.setattr(inside if name == "ROUNDS" else basins, name, value)
        yield


def parts(extra: Extra) -> tuple:
    """Lines, pictures and orderings."""
    return extra.lines, extra.pictures, extra.orderings


@pytest.fixture(scope="module")
def trained(folder: Path, small: None) -> dict[str, Trained]:
    return {id: Trained.read(run_of(id), folder) for id in RUNS}


@pytest.fixture(scope="module")
def extra(trained: dict[str, Trained]) -> Callable[[str], tuple]:
    """What each item gives, measured once."""
    return functools.cache(lambda id: parts(ITEMS[id].extra(trained[id])))


def values(lines: list[Line], row: str) -> dict[str, float]:
    return {line.column: line.ours for line in lines if line.row == row}


def outputs(network: nn.Module, x: Tensor) -> Tensor:
    with torch.no_grad():
        return network.eval()(x)


def mean_network(networks: list[nn.Module]) -> nn.Module:
    """The network whose weights are the means of others'."""
    found = copy.deepcopy(networks[0])
    mean = {name: torch.stack([n.state_dict()[name] for n in networks]).mean(0) for name in found.state_dict()}
    found.load_state_dict(mean)
    return found


def alone(ens: Ensemble, i: int) -> nn.Module:
    """Member i of Mimo as the plane has it: its blocks of the first and the last layer, and no other input."""
    one, whole = copy.deepcopy(ens.member(i)), dict(ens.network.named_parameters())
    one.hidden[0].weight = nn.Parameter(whole["hidden.0.weight"][:, 64 * i : 64 * (i + 1)].detach().clone())
    return one


def percent_right(logits: Tensor, y: Tensor) -> float:
    return 100 * float((logits.argmax(1) == y).double().mean())


def nll(logits: Tensor, y: Tensor) -> float:
    return float(nn.functional.cross_entropy(logits.double(), y))


def without(found: Trained, kept: dict[str, tuple[int, ...]]) -> Trained:
    """The same run, with these rows and seeds done alone."""
    results = {row: {s: r for s, r in seeds.items() if s in kept.get(row, ())} for row, seeds in found.results.items()}
    return Trained(found.run, found.folder, results, {})


def test_every_extra_is_tested() -> None:
    assert {id for id, item in ITEMS.items() if item.extra} == set(RUNS)  # each is tested below


@pytest.mark.parametrize("id", sorted(RUNS))
def test_nothing_done_gives_nothing(id: str, tmp_path: Path) -> None:
    assert not any(parts(ITEMS[id].extra(Trained.read(run_of(id), tmp_path))))


@pytest.mark.parametrize("id", sorted(set(RUNS) - {"hypernet/table3", "packed/table8"}))
def test_pictures_can_be_saved_and_their_numbers_are_few(
    id: str, trained: dict[str, Trained], extra: Callable[[str], Extra]
) -> None:
    lines, pictures, _ = extra(id)
    assert "" in pictures or ITEMS[id].chart  # the first picture is of one or the other
    for picture in pictures.values():
        file = io.BytesIO()
        picture.drawing.savefig(file, format="svg")
        assert file.getvalue().count(b"<path") > 10
        assert picture.caption.endswith(".") and not picture.title.endswith(".")
    text = strict_json.dumps(Result(id, tuple(lines), pictures=pictures).document())
    assert len(text) < 120_000


class TestBias:
    def test_the_parts_sum_to_the_error_without_noise(
        self, trained: dict[str, Trained], extra: Callable[[str], Extra]
    ) -> None:
        found = trained["mimo/figure2"]
        lines, _, _ = extra("mimo/figure2")
        for label in ("M = 1", "M = 3"):
            got, predicted, alone = values(lines, label), [], []
            for seed in (0, 1, 2):
                ens, data = found.open(label, seed)
                raw = outputs(ens, data.prepare(data.test.x))[:, :, 0].double().numpy()
                members = raw * data.target_std + data.target_mean
                predicted.append(members.mean(0))
                alone.append(np.mean((members - data.test.y.numpy()) ** 2))
            f, x, y = np.stack(predicted), data.test.x.numpy()[:, 0], data.test.y.numpy()
            true = x + 0.3 * np.sin(2 * np.pi * x) + 0.3 * np.sin(4 * np.pi * x)
            assert got["bias^2"] + got["variance"] == pytest.approx(np.mean((f - true) ** 2), rel=1e-9)
            assert got["bias^2"] == pytest.approx(np.mean((f.mean(0) - true) ** 2), rel=1e-6)
            assert got["test error"] == pytest.approx(np.mean((f - y) ** 2), rel=1e-6)
            assert got["members' test error"] == pytest.approx(np.mean(alone), rel=1e-6)
            noisy = got["bias^2 with the noise, as the paper's formula"]
            assert noisy + got["variance"] == pytest.approx(got["test error"], rel=1e-9)
            assert got["variance"] > 0
        mean = x + 0.3 * np.sin(2 * np.pi * x) * np.exp(-((0.04 * np.pi) ** 2) / 2)
        mean += 0.3 * np.sin(4 * np.pi * x) * np.exp(-((0.08 * np.pi) ** 2) / 2)  # of y over the noise, at every x
        [remark] = {line.remark for line in lines if line.column == "bias^2"}
        assert remark.startswith(f"{np.mean((mean - true) ** 2):.5f} ")
        assert values(lines, "M = 3")["members' test error"] > values(lines, "M = 3")["test error"]

    def test_the_error_is_that_of_the_cells(self, trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
        found = trained["mimo/figure2"]
        lines, _, _ = extra("mimo/figure2")
        measured = [found.results["M = 3"][seed]["numbers"]["rmse"] ** 2 for seed in (0, 1, 2)]
        line = next(li for li in lines if (li.row, li.column) == ("M = 3", "test error"))
        assert line.ours == pytest.approx(np.mean(measured), rel=1e-5)
        assert line.error == pytest.approx(np.std(measured, ddof=1) / 3**0.5, rel=1e-4)
        assert line.seeds == 3

    def test_seeds_that_are_not_done_are_left_out(
        self, trained: dict[str, Trained], extra: Callable[[str], Extra]
    ) -> None:
        whole = trained["mimo/figure2"]
        lines, pictures, _ = parts(ITEMS["mimo/figure2"].extra(without(whole, {"M = 1": (2,), "M = 3": (0, 2)})))
        assert set(values(lines, "M = 1")) == {"test error", "members' test error"}  # one set has no variance
        bias = next(li for li in lines if (li.row, li.column) == ("M = 3", "bias^2"))
        assert (bias.seeds, bias.error) == (2, None)
        drawn = pictures[""].numbers
        assert drawn[drawn["panel"] == "bias^2"]["x"].tolist() == [3]
        assert drawn[drawn["panel"] == "test error"]["x"].tolist() == [1, 3]

    def test_the_picture_has_the_data_of_one_set(
        self, trained: dict[str, Trained], extra: Callable[[str], Extra]
    ) -> None:
        found = trained["mimo/figure2"]
        numbers = extra("mimo/figure2")[1][""].numbers
        example = numbers[numbers["panel"] == "example"]
        assert set(example["series"]) == {"data", "function", "member 0", "member 1", "member 2"}
        data = found.open("M = 3", 0)[1]
        assert np.allclose(example[example["series"] == "data"]["y"], data.train.y.numpy(), atol=1e-6)

    def test_jackknife_of_variance_by_hand(self) -> None:
        f = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 7.0]])
        left = [np.delete(f.numpy(), i, axis=0).var(0).mean() for i in range(3)]
        expected = (2 / 3 * np.sum((np.array(left) - np.mean(left)) ** 2)) ** 0.5
        _, variance = decomposed(f, torch.zeros(2))
        assert variance.error == pytest.approx(expected, rel=1e-6) and variance.left_out == pytest.approx(left)
        assert Estimate.of(lambda rows: float(rows.mean()), torch.ones(4, 1)).error == 0


@pytest.mark.parametrize("label", ["MIMO (M = 3)", "Naive multihead (M = 3)"])
def test_plane_of_subnetworks(label: str, trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
    found = trained["mimo/figure3"]
    lines, pictures, _ = extra("mimo/figure3")
    got = values(lines, label)
    ens, data = found.open(label)
    x, y = data.prepare(data.test.x), data.test.y
    members = [ens.member(i) if ens.own else alone(ens, i) for i in range(3)]
    each = [outputs(member, x) for member in members]
    for i in range(3):
        assert got[f"accuracy of member {i} (%)"] == pytest.approx(percent_right(each[i], y), abs=0.2)
    centre = percent_right(outputs(mean_network(members), x), y)
    assert got["accuracy at the mean of their weights (%)"] == pytest.approx(centre, abs=0.2)
    lost = np.mean([percent_right(z, y) for z in each]) - centre
    assert got["accuracy lost there (%)"] == pytest.approx(lost, abs=0.4)
    differ = np.mean([(each[i].argmax(1) != each[j].argmax(1)).double().mean() for i, j in combinations(range(3), 2)])
    assert got["disagreement of the members (%)"] == pytest.approx(100 * differ, abs=0.4)
    assert got["disagreement of the members (%)"] > 0
    used = np.mean([percent_right(z, y) for z in outputs(ens, x)])
    assert got["accuracy of the members in use, mean (%)"] == pytest.approx(used, abs=0.01)
    frame = pictures["multihead" if "multihead" in label else ""].numbers
    assert len(frame) == 25 and {"accuracy", "disagreement_0", "disagreement_2"} <= set(frame)


def test_rows_that_are_not_done_have_no_picture(trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
    found = without(trained["mimo/figure3"], {"Naive multihead (M = 3)": (0,)})
    lines, pictures, _ = parts(ITEMS["mimo/figure3"].extra(found))
    assert {line.row for line in lines} == {"Naive multihead (M = 3)"}
    assert list(pictures) == ["multihead"]


def test_paths_through_function_space(trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
    found = trained["mimo/figure4-trajectories"]
    lines, pictures, _ = extra("mimo/figure4-trajectories")
    got = values(lines, "MIMO (M = 3)")
    ens, data = found.open("MIMO (M = 3)")
    x = data.prepare(data.test.x)
    saved = states(found.path("MIMO (M = 3)", 0))
    for epoch, when in {0: "at the beginning", 1: "after the first epoch", 2: "at the end"}.items():
        ens.load_state_dict(saved[epoch])
        votes = outputs(ens, x).argmax(2)
        differ = np.mean([(votes[i] != votes[j]).double().mean() for i, j in combinations(range(3), 2)])
        assert got[f"disagreement {when} (%)"] == pytest.approx(100 * differ, abs=1e-6)
    measured = found.results["MIMO (M = 3)"][0]["numbers"]["disagreement"]
    assert got["disagreement at the end (%)"] == pytest.approx(100 * measured, abs=1e-4)
    assert got["disagreement at the beginning (%)"] != got["disagreement at the end (%)"]
    assert set(pictures) == {"", "pca"}
    for picture in pictures.values():
        assert sorted(set(picture.numbers["epoch"])) == [0, 1, 2] and len(picture.numbers) == 9
    assert not np.allclose(pictures[""].numbers["x"], pictures["pca"].numbers["x"])


def test_units_that_listen_to_one_input(trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
    found = trained["mimo/figure4-left"]
    lines, pictures, orderings = extra("mimo/figure4-left")
    assert [(o.better, o.worse) for o in orderings] == [(f"MIMO (M = {m})", "half of the units") for m in (2, 3)]
    assert set(pictures) == {"", "mimo-m-3"}
    for name, label, members in (("", "MIMO (M = 2)", 2), ("mimo-m-3", "MIMO (M = 3)", 3)):
        shares = []
        for seed in (0, 1):
            units = conditional_variances(*found.open(label, seed)).frame()
            parts = units[[f"input_{m}" for m in range(members)]].to_numpy()
            shares.append((parts.max(1) / parts.sum(1))[parts.sum(1) > 0])
        got, share = values(lines, label), shares[0]
        assert got["separation"] == pytest.approx(np.mean([s.mean() for s in shares]), rel=1e-9)
        assert 1 / members < got["separation"] < 1
        alone = [100 * (s > 0.9).mean() for s in shares]
        assert got["units with more than 0.9 of one input (%)"] == pytest.approx(np.mean(alone))
        [of_units] = [o for o in orderings if o.better == label]
        assert of_units.ours == pytest.approx(np.mean(alone) - 50)
        reach = 12.706 * np.std(alone, ddof=1) / 2**0.5  # of Student's distribution with one degree of freedom
        assert (of_units.low, of_units.high) == pytest.approx((of_units.ours - reach, of_units.ours + reach), rel=1e-4)
        counts = pictures[name].numbers
        assert counts[[f"input_{m}" for m in range(members)]].to_numpy().sum() == len(share)
        high = counts[counts["from"] >= counts["from"].iloc[-5] - 1e-9]
        assert high[[f"input_{m}" for m in range(members)]].to_numpy().sum() == (share >= high["from"].min()).sum()


def test_sparsity_is_the_share_of_weights_near_zero(trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
    lines, pictures, _ = extra("mimo/figure7-9")
    found = trained["mimo/figure7-9"]
    for line in lines:
        layers = [m.weight for m in found.open(line.row)[0].network.modules() if isinstance(m, nn.Linear)]
        weights = torch.cat([weight.flatten() for weight in layers])
        assert line.ours == pytest.approx(100 * float((weights.abs() <= 1e-4).double().mean()))
    weak, strong = (line.ours for line in lines)
    assert weak < strong
    numbers = pictures["sparsity"].numbers
    assert numbers["zero weights (%)"].tolist() == [weak, strong] and numbers["curve"].tolist() == ["M = 2"] * 2
    accuracy = [found.results[line.row][0]["numbers"]["accuracy"] for line in lines]
    assert numbers["accuracy"].tolist() == accuracy


def test_lines_between_members(trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
    found = trained["mixture/figure4"]
    lines, pictures, orderings = extra("mixture/figure4")
    ends, middles, barriers = [], [], []
    for seed in (0, 1):
        ens, data = found.open("P = 1x", seed)
        x, y, members = data.prepare(data.test.x), data.test.y, [ens.member(0), ens.member(1)]
        first, second = (outputs(member, x) for member in members)
        ends.append((percent_right(first, y) + percent_right(second, y)) / 2)
        middle = outputs(mean_network(members), x)
        middles.append(percent_right(middle, y))
        barriers.append(nll(middle, y) - (nll(first, y) + nll(second, y)) / 2)
    got = {line.column: line for line in lines if line.row == "P = 1x"}
    assert got["accuracy at the ends (%)"].ours == pytest.approx(np.mean(ends), abs=0.2)
    assert got["accuracy half way (%)"].ours == pytest.approx(np.mean(middles), abs=0.2)
    lost = np.array(ends) - np.array(middles)
    assert got["accuracy lost half way (%)"].ours == pytest.approx(lost.mean(), abs=0.4)
    assert got["accuracy lost half way (%)"].error == pytest.approx(np.std(lost, ddof=1) / 2**0.5, abs=0.4)
    assert got["barrier of the loss (nats)"].ours >= np.mean(barriers) - 1e-4  # the middle is one of its points
    assert {line.seeds for line in got.values()} == {2}
    one, two, more = orderings
    assert (one.better, one.worse, one.ours) == ("P = 1x", "no loss", pytest.approx(lost.mean(), abs=0.4))
    assert (two.better, two.worse, two.verdict) == ("P = 2x", "no loss", "one seed")
    assert (more.better, more.worse) == ("P = 2x", "P = 1x")
    assert more.ours == pytest.approx(two.ours - lost[0], abs=0.4)  # over the seed that both have
    assert all(line.error is None and line.seeds == 1 for line in lines if line.row == "P = 2x")
    frame = pictures[""].numbers
    assert frame["row"].value_counts().to_dict() == {"P = 1x": 21, "P = 2x": 21}


def test_plane_of_embeddings(trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
    found = trained["hypernet/figure3"]
    lines, pictures, orderings = extra("hypernet/figure3")
    got = values(lines, "Ours")
    rows: dict[str, list[float]] = {}
    for seed in (0, 1):
        ens, data = found.open("Ours", seed)
        members = [ens.member(i) for i in range(3)]
        networks = (*members, mean_network(members))
        for part, split in (("test", data.test), ("training", data.train)):
            logits = [outputs(network, data.prepare(split.x)) for network in networks]
            for name, measure in (("accuracy", percent_right), ("NLL", nll)):
                *each, middle = (measure(z, split.y) for z in logits)
                rows.setdefault(f"{part} {name} of members", []).append(float(np.mean(each)))
                rows.setdefault(f"{part} {name} of their mean", []).append(middle)
                rows.setdefault(f"best {part} {name}", []).append(
                    max(*each, middle) if name == "accuracy" else min(*each, middle)
                )
    expected = {
        "accuracy of three members, mean (%)": "test accuracy of members",
        "accuracy at the mean of their weights (%)": "test accuracy of their mean",
        "NLL of three members, mean": "test NLL of members",
        "NLL at the mean of their weights": "test NLL of their mean",
        "training NLL of three members, mean": "training NLL of members",
        "training NLL at the mean of their weights": "training NLL of their mean",
    }
    for column, name in expected.items():
        assert got[column] == pytest.approx(np.mean(rows[name]), **({"abs": 0.2} if "%" in column else {"rel": 1e-4}))
    test, training = pictures[""].numbers, pictures["training"].numbers
    assert len(test) == len(training) == 25 and not np.allclose(test["loss"], training["loss"])
    lowest = min(test["loss"].min(), rows["best test NLL"][0])
    assert got["lowest NLL on the plane"] == pytest.approx(lowest, abs=1e-4)
    lowest = min(training["loss"].min(), rows["best training NLL"][0])
    assert got["lowest training NLL on the plane"] == pytest.approx(lowest, abs=1e-4)
    highest = max(100 * test["accuracy"].max(), rows["best test accuracy"][0])
    assert got["best accuracy on the plane (%)"] == pytest.approx(highest, abs=0.2)
    accuracy, loss = orderings
    assert (accuracy.column, loss.column) == ("Accuracy, Ours", "NLL, Ours")
    differences = np.subtract(rows["test NLL of their mean"], rows["test NLL of members"])
    assert loss.ours == pytest.approx(differences.mean(), abs=1e-4)
    assert loss.high - loss.low == pytest.approx(2 * 12.706 * np.std(differences, ddof=1) / 2**0.5, rel=1e-2)
    assert loss.better == accuracy.better == "the mean of three members' weights"


def test_members_with_statistics_of_their_own(trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
    lines, pictures, _ = extra("hypernet/table3")
    ens, data = trained["hypernet/table3"].open("Ours")
    x, y = data.prepare(data.test.x), data.test.y
    probabilities = []
    for i in range(2):
        network = ens.member(i)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 1.0
        with torch.no_grad():
            network.train()(data.prepare(data.train.x))
        probabilities.append(outputs(network, x).softmax(1))
    mean = sum(probabilities) / 2
    ours = values(lines, "Ours, own statistics")
    assert ours["Accuracy"] == pytest.approx(percent_right(mean, y), abs=0.2)
    assert ours["NLL"] == pytest.approx(nll(mean.log(), y), rel=1e-4)
    assert not pictures and set(ours) == {"Accuracy", "NLL"}
    assert {line.row for line in lines} == {"Ours, own statistics"}


def test_speeds_are_relative_to_one_network(
    trained: dict[str, Trained], extra: Callable[[str], Extra], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = []

    def noted(*args: Any, **kwargs: Any) -> Any:
        measured.append(compare_speed(*args, **kwargs))
        return measured[-1]

    monkeypatch.setattr(speed, "compare_speed", noted)
    found = trained["packed/table8"]
    lines, pictures, orderings = parts(ITEMS["packed/table8"].extra(found))
    assert not pictures
    by_cell = {(line.row, line.column): line for line in lines}
    rounds = {(row.name, row.batch_size): np.array(row.seconds) for row in measured[0].rows}
    for label in ("Single Model", "MIMO", "Deep Ensembles"):
        for size, column in ((128, "images/s relative"), (1, "images/s relative, one at a time")):
            assert by_cell[label, column].ours == pytest.approx(
                (rounds["Single Model", size] / rounds[label, size]).mean()
            )
    assert by_cell["Single Model", "images/s relative"].ours == 1
    seconds = {k: [r["seconds"]["training"] for _, r in sorted(v.items())] for k, v in found.results.items()}
    times = np.array(seconds["MIMO"]) / np.array(seconds["Single Model"])
    mimo = by_cell["MIMO", "training time relative"]
    assert (mimo.ours, mimo.seeds) == (pytest.approx(times.mean()), 2)
    assert mimo.error == pytest.approx(times.std(ddof=1) / 2**0.5)
    deep = by_cell["Deep Ensembles", "training time relative"]
    assert deep.ours == pytest.approx(seconds["Deep Ensembles"][0] / seconds["Single Model"][0])
    assert (deep.printed, by_cell["MIMO", "images/s relative"].printed) == ("3.92", "0.96")
    assert all(line.agrees is None for line in lines)
    times = {row.name: np.array(row.seconds) for row in measured[0].rows if row.batch_size == 128}
    assert [(o.better, o.worse) for o in orderings] == [
        ("Single Model", "MIMO"),
        ("Single Model", "Deep Ensembles"),
        ("MIMO", "Deep Ensembles"),
    ]
    gains = times["Single Model"] / times["MIMO"] - times["Single Model"] / times["Deep Ensembles"]
    assert (orderings[2].paper, orderings[2].ours) == pytest.approx((0.96 - 0.27, gains.mean()))
    shown = by_cell["MIMO", "images/s relative"].ours - by_cell["Deep Ensembles", "images/s relative"].ours
    assert orderings[2].ours == pytest.approx(shown)  # what is tabulated is what is ordered


def test_speeds_need_the_one_network(trained: dict[str, Trained], extra: Callable[[str], Extra]) -> None:
    found = without(trained["packed/table8"], {"MIMO": (0, 1), "Deep Ensembles": (0,)})
    assert ITEMS["packed/table8"].extra(found) == Extra()
