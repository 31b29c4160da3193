"""The catalogue, its runs at both scales, and their costs against golden.json."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import multum
from grids import grid
from meta_counts import shortcuts  # noqa: F401  (used by every test here)
from multum.errors import ConfigError
from multum.papers import ITEMS, catalogue, find
from multum.papers.base import SCALES, STATUSES, Item, Row, Run
from multum.papers.counting import COLUMNS, build, cost_of, plan, training_macs
from multum.papers.exact import exact, has_exact
from multum.papers.results import Printed, table
from multum.training.recipe import Recipe

GOLDEN = json.loads((Path(__file__).parents[1] / "golden.json").read_text())
EXACT = [id for id, item in ITEMS.items() if item.status == "exact"]

# golden.json's rows: the item and the row that they are here.
SAME: dict[str, tuple[str, str]] = {
    **{
        f"single/{net}/{data.lower()}": ("packed/table1-cost", f"Single Model, {data}, {net}")
        for net in ("R18", "R50")
        for data in ("C10", "C100")
    },
    **{
        f"single/WRN-28-10/meliketoy/{data.lower()}": ("packed/table1-cost", f"Single Model, {data}, WR")
        for data in ("C10", "C100")
    },
    **{
        f"packed(2,4,2)/{net}/{data.lower()}": ("packed/table1-cost", f"Packed-Ensembles, {data}, {net}")
        for net in ("R18", "R50")
        for data in ("C10", "C100")
    },
    "packed(2,4,2)/WRN-28-10/c10": ("packed/table1-cost", "Packed-Ensembles, C10, WR"),
    "packed(2,4,1)/WRN-28-10/c100": ("packed/table1-cost", "Packed-Ensembles, C100, WR"),
    "packed(2,4,1)/R50/c10": ("packed/table9", "PE ResNet-50"),
    **{
        f"mimo4/{net}/{data.lower()}": ("packed/table1-cost", f"MIMO, {data}, {net}")
        for net in ("R18", "R50")
        for data in ("C10", "C100")
    },
    "mimo4/WRN/meliketoy/c10": ("packed/table1-cost", "MIMO, C10, WR"),
    "batchensemble4/R18/c10/plain-shortcut": ("packed/table1-cost", "BatchEnsemble, C10, R18"),
    "batchensemble4/R18/c100/plain-shortcut": ("packed/table1-cost", "BatchEnsemble, C100, R18"),
    "batchensemble4/R50/c10/all": ("packed/table1-cost", "BatchEnsemble, C10, R50"),
    "batchensemble4/WRN/c10/bias/plain-shortcut": ("packed/table1-cost", "BatchEnsemble, C10, WR"),
    "batchensemble4/WRN/c10/edward2": ("mimo/table1-2", "BatchEnsemble (M = 4), C10"),
    "batchensemble4+ensembleBN/WRN/c10/edward2": ("mixture/table1-4", "BatchEnsembles + EnsembleBN, C10"),
    "batchensemble4/R50/imagenet/plain-shortcut": ("packed/table10", "BatchEnsemble, R50"),
    "batchensemble4/R50/imagenet/all": ("mixture/table5", "BatchEnsemble"),
    "batchensemble4/R50x4/imagenet/all": ("packed/table10", "BatchEnsemble, R50x4"),
    **{
        f"masks-after-conv/{net}/{data.lower()}": ("packed/table1-cost", f"Masksembles, {data}, {net}")
        for net in ("R18", "R50")
        for data in ("C10", "C100")
    },
    "masks-after-conv/WRN/c10": ("packed/table1-cost", "Masksembles, C10, WR"),
    **{f"masks-after-conv/{net}/imagenet": ("packed/table10", f"Masksembles, {net}") for net in ("R50", "R50x4")},
    **{f"single/{net}/imagenet": ("packed/table10", f"Single Model, {net}") for net in ("R50", "R50x4")},
    **{f"mimo4/{net}/imagenet": ("packed/table10", f"MIMO, {net}") for net in ("R50", "R50x4")},
    "packed(3,4,1)/R50/imagenet": ("packed/table10", "Packed-Ensembles, R50"),
    "packed(2,4,1)/R50x4/imagenet": ("packed/table10", "Packed-Ensembles, R50x4"),
    "mimo2/R50/imagenet": ("mimo/table3-4", "MIMO (M = 2)"),
    "mimo3/WRN/zagoruyko/c10": ("mimo/footnote2", "MIMO (M = 3)"),
    "single/WRN-28-10/zagoruyko/c10": ("hypernet/table1-2", "WRN (N=1), C10"),
    "single/WRN-28-10/zagoruyko/c100": ("hypernet/table1-2", "WRN (N=1), C100"),
    "multihead3/WRN/c10": ("mimo/table1-2", "Naive multihead (M = 3), C10"),
}
# What no table trains: settings that the counts were compared with.
NOT_TRAINED = {
    *("packed(2,4,1)/R18/c10", "packed(4,4,1)/R18/c10", "batchensemble4/R18/c10/all"),
    *("packed(2,4,2)/WRN-28-10/c10/nobias", "packed(2,4,1)/WRN-28-10/c100/nobias"),
    *("single/WRN-28-5/c10", "single/WRN-28-5/c100"),
    *("hypernet/WRN-28-10/c10", "mixture/WRN-28-10"),  # not one count each; below
}


# -- the catalogue -----------------------------------------------------------------------------------------------------


def test_the_catalogue_has_43_items_in_plain_values() -> None:
    rows = catalogue()
    assert len(rows) == len({row["id"] for row in rows}) == 43
    assert json.loads(json.dumps(rows)) == rows
    assert all(row["status"] in STATUSES and row["shows"] and row["needs"] for row in rows)
    assert {row["paper"] for row in rows} == {"packed", "mixture", "mimo", "hypernet"}


def test_an_unknown_item_names_the_closest() -> None:
    with pytest.raises(ConfigError, match=r"packed/table1-cost"):
        find("packed/table1-costs")
    with pytest.raises(ConfigError, match="scale must be one of"):
        find("packed/table1").run("gpu")


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("id", ITEMS)
def test_a_run_is_whole(id: str, scale: str) -> None:
    run = find(id).run(scale)
    assert (run.item, run.scale) == (id, scale)
    labels = {row.label for row in run.rows}
    if run.rows:
        assert set(run.printed) <= labels
    for row in run.rows:
        Recipe().with_overrides(row.recipe)
        row.method.check_epochs(row.epochs)
        assert row.seeds
    cells = run.cells()
    assert len({cell.name for cell in cells}) == len(cells)
    assert json.dumps([cell.settings() for cell in cells])
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.scale = "other"  # type: ignore[misc]


@pytest.mark.parametrize("id", [id for id, item in ITEMS.items() if item.status == "reduced"])
def test_what_is_reduced_is_told(id: str) -> None:
    run = find(id).run("cpu")
    fewer = min(row.trained_on for row in run.rows)
    assert any(s.startswith(f"training examples: {fewer:,} here, ") for s in run.reduced)
    assert find(id).run("paper").reduced == ()


@pytest.mark.parametrize("id", [id for id, item in ITEMS.items() if item.status == "full"])
def test_what_is_run_in_full_is_the_same_at_both_scales(id: str) -> None:
    paper, here = find(id).run("paper"), find(id).run("cpu")
    assert paper.rows == here.rows and here.reduced == ()


def test_items_share_the_cells_that_are_the_same() -> None:
    def names(id: str) -> set[str]:
        return {cell.name for cell in find(id).run("cpu").cells()}

    assert names("packed/table1") == names("packed/figure9") == names("packed/figure1")
    assert names("mimo/figure4-right") < names("mimo/table1-2")
    assert len(names("mixture/figure4") & names("mixture/table1-4")) == 2 * 3  # two sizes, three seeds


def test_a_run_refuses_equal_labels_and_remarks_on_nothing() -> None:
    row = find("mimo/footnote2").run("paper").rows[0]
    with pytest.raises(ConfigError, match="different labels"):
        Run(rows=(row, row))
    with pytest.raises(ConfigError, match="remarks must be on printed cells"):
        Run(rows=(row,), remarks={(row.label, "Params"): "why"})
    with pytest.raises(ConfigError, match="2 numbers"):
        table("A, B", ["row | 1"])


def test_a_printed_number_knows_its_digits() -> None:
    assert Printed("23.70").agrees(23.705252) and Printed("10.559").agrees(10.559616)
    assert not Printed("15.55").agrees(14.921232) and not Printed("11.24").agrees(11.193)
    assert Printed("-1.442±0.010").value == -1.442 and Printed("-1.442±0.010").spread == 0.010
    assert not Printed("36.49").agrees(36.4799)


# -- costs -------------------------------------------------------------------------------------------------------------


def test_every_golden_row_is_a_row_or_said_not_to_be() -> None:
    assert set(GOLDEN) == {*SAME, *NOT_TRAINED} and not set(SAME) & NOT_TRAINED


# Rows of one network and of Packed are counted by tests of that method too, and by the exact items below, as are those
# of ResNet-18 and of ResNet-50 on ImageNet; those with 100 classes differ from others by their heads alone.
AGAIN = re.compile(r"single/|packed\(|.*(/c100|/R50x4/|/R18/c10$|/R50/imagenet)|mimo4/R50")


@pytest.mark.parametrize(
    "golden",
    [
        pytest.param(g, marks=pytest.mark.slow) if AGAIN.match(g) else g  #
        for g in SAME
    ],
)
def test_the_cost_is_golden(golden: str) -> None:
    id, label = SAME[golden]
    row = find(id).run("paper").row(label)
    found, expected = cost_of(row), GOLDEN[golden]
    assert found.params == expected["params"]
    if "macs" in expected:  # golden.json counts one pass of BatchEnsemble
        assert found.macs == expected["macs"] * (4 if golden.startswith("batchensemble") else 1)


def test_hypernetworks_and_mixtures_cost_what_is_golden() -> None:
    sizes = GOLDEN["hypernet/WRN-28-10/c10"]["tableS1"]
    for n in (1, 10):
        assert cost_of(find("hypernet/table-s1").run("paper").row(f"N = {n}")).params == sizes[f"total_N{n}"]
    mixture = GOLDEN["mixture/WRN-28-10"]
    own = 4 * (mixture["coefficients_per_member"] + mixture["batchnorm_per_member"])
    row = find("mixture/table1-4").run("paper").row("MixtureEnsembles, C100")
    assert cost_of(row).params == mixture["weights_c100"] + 100 + own


def assert_costs_of_networks(row: Row, params: int, macs: int) -> None:
    """Independent networks cost as many times one of them; any other method costs no negligible part of it."""
    network = cost_of(replace(row, method=multum.Single()))
    if row.method.name == "deep":
        assert (params, macs) == (row.method.members * network.params, row.method.members * network.macs)
    else:
        assert params >= 0.05 * network.params and macs >= 0.05 * network.macs


REDUCED = [id for id, item in ITEMS.items() if item.status == "reduced"]
# They have the networks and methods of other tables, with other fields.
ALIKE = {f"packed/{id}" for id in ("table5", "figure1", "figure8", "table7")}
ALIKE |= {f"hypernet/{id}" for id in ("table-s3-s9", "table-s6-s11", "table-s12-s13")}


@pytest.mark.parametrize("id", grid(REDUCED, always=set(REDUCED) - ALIKE))
def test_every_reduced_row_builds_and_no_item_takes_more_than_three_hours(id: str) -> None:
    run = find(id).run("cpu")
    planned = plan(run)
    assert [row.label for row in planned.rows] == [row.label for row in run.rows]
    for row, costs in zip(run.rows, planned.rows, strict=True):
        assert_costs_of_networks(row, costs.params, costs.macs)
    assert 0 < planned.hours < 3


@pytest.mark.slow
@pytest.mark.parametrize("id", ITEMS)
def test_every_row_of_the_paper_builds(id: str) -> None:
    for row in find(id).run("paper").rows:
        costs = cost_of(row)
        assert_costs_of_networks(row, costs.params, costs.macs)
        repeats = row.method.as_dict().get("repeats", 1)
        assert training_macs(row) in (costs.macs, costs.macs // costs.members, costs.macs * repeats)


def test_costs_do_not_depend_on_how_a_method_is_trained() -> None:
    """What is left out of the key of a count changes no count."""
    methods = [
        (multum.Mimo(members=3), multum.Mimo(members=3, rho=0.5, repeats=4)),
        (multum.Deep(members=2), multum.Deep(members=2, init="pretrained")),
        (multum.BatchEnsemble(), multum.BatchEnsemble(init="normal")),
        (multum.Hypernet(members=3), multum.Hypernet(members=3, birth_epoch=0, sigma=1, heads="reset", nested=False)),
    ]
    for pair in methods:
        rows = [
            Row(label="", data="cifar10", model="wrn-10-1", method=method, recipe={}, seeds=(0,)) for method in pair
        ]
        sizes = [sum(p.numel() for p in build(row).parameters()) for row in rows]
        assert sizes[0] == sizes[1] == cost_of(rows[1]).params


# -- exact items and plans ---------------------------------------------------------------------------------------------


# Of the long tables by default the rows of one network at most; all of them in the slow suite.
LONG = ("packed/table1-cost", "packed/table10")
ROWS = [("packed/table1-cost", ", R18"), *((id, "") for id in EXACT)]


@pytest.mark.parametrize(("id", "rows"), grid(ROWS, always=lambda id, rows: bool(rows) or id not in LONG))
def test_exact_items_agree_or_say_why_not(id: str, rows: str) -> None:
    result = exact(with_rows(find(id), rows))
    assert result.lines and result.unexplained == ()
    document = json.loads(json.dumps(result.document()))
    committed = json.loads((Path(__file__).parents[2] / "docs" / "results" / f"{id}.json").read_text())
    assert document["lines"] == [
        {**line, "ours": pytest.approx(line["ours"], abs=1e-12), "difference": pytest.approx(line["difference"])}
        for line in committed["lines"]
        if line["row"].endswith(rows)
    ]


def with_rows(item: Item, ending: str) -> Item:
    """The item with those of its rows whose labels end so."""

    def make(scale: str) -> Run:
        run = item.make(scale)
        return dataclasses.replace(run, rows=tuple(row for row in run.rows if row.label.endswith(ending)))

    return dataclasses.replace(item, make=make)


@pytest.mark.slow
@pytest.mark.parametrize("id", [id for id, item in ITEMS.items() if id not in EXACT and has_exact(item)])
def test_the_exact_part_of_other_items(id: str) -> None:
    assert exact(find(id)).unexplained == ()


@pytest.mark.slow
def test_the_wrong_cells_of_table_1_are_named() -> None:
    wrong = {(line.row, line.column) for line in exact(find("packed/table1-cost")).lines if line.agrees is False}
    assert ("Packed-Ensembles, C100, R50", "Params (M)") in wrong and ("MIMO, C100, R18", "Params (M)") in wrong
    assert ("Packed-Ensembles, C10, WR", "Params (M)") not in wrong
    assert len([cell for cell in wrong if cell[1] == "Params (M)"]) == 12


def test_figure_5_is_the_formula() -> None:
    found = {(line.row, line.column): line.ours for line in exact(find("packed/figure5")).lines}
    assert round(found["sigma = 0.5, p = 0.5", "KL (17)"], 6) == 1.124112
    assert round(found["sigma = 1, p = 0.9", "bound (8)"], 6) == 0.011561


def test_nested_sgd_moves_what_is_shared_once_a_turn() -> None:
    found = {(line.row, line.column): line.ours for line in exact(find("hypernet/figure1")).lines}
    assert [found[f"nested SGD, after member {i}", "theta"] for i in range(4)] == pytest.approx([1, 1, 1, 0.45])
    assert [found[f"nested SGD, member {i}", "embedding"] for i in (1, 2, 3)] == pytest.approx([0.95, 1.9, -0.7])


def test_what_trains_is_not_exact() -> None:
    with pytest.raises(ConfigError, match="must train nothing"):
        exact(find("mimo/figure5"))
    assert not has_exact(find("mimo/figure5"))


def test_a_plan_counts_equal_cells_once() -> None:
    run = find("mimo/footnote2").run("paper")
    found = plan(run, rate=10, gpu_rate=1000)
    single, ours = run.rows
    expected = 3 * 3 * 50_000 * 250 * (cost_of(single).macs + 4 * cost_of(ours).macs)
    assert found.training == pytest.approx(expected) and found.cells == 6
    assert found.hours == pytest.approx(expected / 1e10 / 3600) and found.gpu_hours == pytest.approx(found.hours / 100)
    twice = plan(dataclasses.replace(run, rows=(single, dataclasses.replace(single, label="again"))), rate=10)
    assert twice.cells == 3 and twice.training == pytest.approx(3 * 3 * 50_000 * 250 * cost_of(single).macs)
    assert json.dumps(found.document())


def test_cost_columns_are_what_their_names_say() -> None:
    run = find("packed/table10").run("paper")
    mimo, first = run.row("MIMO, R50"), run.rows[0]
    assert COLUMNS["Mult-Adds (G)"](mimo, first) == pytest.approx(4.449427232)
    assert COLUMNS["Mult-Adds in M passes (G)"](mimo, first) == pytest.approx(4 * 4.449427232)
