"""`multum.reproduce`: one table or figure of a paper, run again, and set beside what was printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from matplotlib.figure import Figure as Drawing

from ..data.sources import load_data, load_examples
from ..errors import ConfigError, DataError
from ..figures.figure import png, svg
from ..files import locked, plain, prepare_folder, read_json, write_json
from ..runs.cells import Cell, Outcome, is_done
from ..runs.machine import machine, versions
from ..runs.pool import Runner, run_cells, runner_for
from . import find
from .base import NEEDS_IMAGENET, Item, Run
from .charts.drawings import ordering_chart
from .counting import plan
from .exact import exact, has_exact
from .headlines import NAME as HEADLINES
from .headlines import headlines
from .measured import Trained, lines, orderings, settings_of
from .pages import claims, write_pages
from .repeating import CELLS, repeated
from .results import Extra, Result


def reproduce(
    item: str,
    out: str | Path = "runs/reproduce",
    *,
    scale: str = "cpu",
    seeds: Sequence[int] | None = None,
    jobs: int = 1,
    on: str = "here",
    address: str | None = None,
    threads: int | None = None,
    gather: bool = False,
    repeat: int = 0,
    pages: str | Path | None = None,
    progress: bool = False,
) -> dict[str, Any]:
    """Run or resume an item and write its JSON, its page and its figures; returns the content of the JSON.

    Cells lie in `out/cells`, are shared between items, and are never trained twice. Where none of an item is there, but
    the JSON in `pages` is of the same rows and all of them were run, page and charts are made again from it.

    Args:
        item: a name, as `multum reproduce --list` gives them, or "headlines" for the papers' main claims.
        scale: "cpu", or "paper" for its exact setting.
        seeds: some of the item's own seeds; by default all.
        jobs: cells at once, each in a process of its own.
        on: "here", or "ray" (on this machine, or on the cluster at `address`).
        gather: train nothing; write what is done.
        repeat: instead of what is missing, run so many finished cells once more, drawn at random, and record whether
            weights and numbers are the same to the last bit.
        pages: the folder of PAPER/ITEM.json, .md, .png and .svg, and of the index; by default `out`. A page ends with
            ITEM.note.md, where someone wrote it.
    """
    out, runner = Path(out), runner_for(on, jobs, address)
    threads = threads or max(1, torch.get_num_threads() // jobs)
    if item == HEADLINES:
        if scale != "cpu" or seeds is not None:
            raise ConfigError(f"{HEADLINES} must be run as planned; got another scale or seeds. Leave them out")
        return headlines(out, Path(pages or out), None if gather else runner, threads, progress, repeat)
    chosen = find(item)
    run = _with_seeds(chosen.run(scale), seeds)
    if repeat and chosen.status == "exact":
        raise ConfigError(f"repeat must be of an item that is trained; got {item}, which is exact. Leave it out")
    if chosen.status == NEEDS_IMAGENET and scale == "cpu" and not gather:
        raise ConfigError(
            f"an item must run where its data and its machine are; got {item}, which needs {chosen.needs}. See its "
            "plan with --dry-run, what needs no training with --gather, or run it there with --scale paper"
        )
    prepare_folder(out)
    place = Path(pages or out)
    earlier = _earlier(place, chosen, run)
    if chosen.status == "exact":
        result = _exact(chosen, out)
    elif not repeat and _is_elsewhere(earlier, run, out / CELLS, gather):
        return _again(chosen, run, earlier, out, place)
    else:
        result = _trained(chosen, run, out, None if gather or repeat else runner, threads, progress)
    document = plain({**_head(chosen, scale), "versions": versions(), "machine": machine(), **result.document()})
    if chosen.status == NEEDS_IMAGENET and scale == "cpu":
        document["plan"] = plain(plan(chosen.run("paper")).document())
    draws = earlier.get("repeated", [])
    if repeat and not gather:
        by_label = {row.label: row.cells() for row in run.rows}
        with locked(out):
            draws = plain(repeated(by_label, out, repeat, draws, runner=runner, threads=threads, progress=progress))
    if draws:
        document["repeated"] = draws
    if earlier and _but_for_the_machine(earlier) == _but_for_the_machine(document):
        document = earlier
    _write(document, {name: picture.drawing for name, picture in result.pictures.items()}, place)
    return document


def _head(item: Item, scale: str) -> dict[str, Any]:
    return {
        "command": f"multum reproduce {item.id}" + ("" if scale == "cpu" else f" --scale {scale}"),
        "paper": item.title,
        "number": item.number,
        "shows": item.shows,
        "status": item.status,
    }


def _but_for_the_machine(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("versions", "machine")}


def _earlier(pages: Path, item: Item, run: Run) -> dict[str, Any]:
    """The document that lies in the folder of pages, if it is of the same rows and seeds; nothing otherwise."""
    file = pages / f"{item.id}.json"
    document = read_json(file) if file.is_file() else {}
    trained, scale = ((), "paper") if item.status == "exact" else (run.rows, run.scale)
    cells = [(cell["row"], cell["seed"]) for cell in document.get("cells", ())]
    same = document.get("rows", {}) == plain({row.label: settings_of(row) for row in trained})
    same = same and cells == [(row.label, seed) for row in trained for seed in row.seeds]
    return document if same and document.get("scale") == scale else {}


def _is_elsewhere(earlier: Mapping[str, Any], run: Run, folder: Path, gather: bool) -> bool:
    """Whether the cells of a document were run, all of them or (to gather) some, and none of them is in the folder."""
    done = [cell["status"] == "done" for cell in earlier.get("cells", ())]
    enough = any(done) if gather else bool(done) and all(done)
    return enough and not any(is_done(cell, folder) for cell in run.cells())


def _again(item: Item, run: Run, earlier: Mapping[str, Any], out: Path, pages: Path) -> dict[str, Any]:
    """The page and the charts once more, from the numbers of a document whose cells are elsewhere."""
    kept = {name: _frame(picture["numbers"]) for name, picture in earlier["pictures"].items()}
    pictures = item.chart(Trained(run, out / CELLS, {}, {}, kept)) if item.chart else {}
    said = {name: {"title": p.title, "caption": p.caption} for name, p in pictures.items()}
    document = {
        **earlier,
        **_head(item, run.scale),
        **plain({"reduced": run.reduced, "departs": run.departs, "headline": run.pairs}),
        "pictures": {name: {**picture, **said.get(name, {})} for name, picture in earlier["pictures"].items()},
    }
    _write(document, {name: picture.drawing for name, picture in pictures.items()}, pages)
    return document


def _frame(numbers: Mapping[str, list[Any]]) -> pd.DataFrame:
    """A picture's numbers as they were, None where a number was not finite."""
    frame = pd.DataFrame(dict(numbers))
    numeric = [name for name, every in numbers.items() if not any(isinstance(x, str) for x in every) and None in every]
    return frame.astype(dict.fromkeys(numeric, float))


def _exact(item: Item, out: Path) -> Result:
    untrained = Trained(item.run("paper"), out, {}, {})
    return replace(exact(item), pictures=item.chart(untrained) if item.chart else {})


def _with_seeds(run: Run, seeds: Sequence[int] | None) -> Run:
    if seeds is None:
        return run
    rows = tuple(replace(row, seeds=tuple(s for s in row.seeds if s in seeds)) for row in run.rows)
    if not any(row.seeds for row in rows):
        raise ConfigError(f"seeds must be some of {run.item}'s own; got {list(seeds)}, of which it has none")
    return replace(run, rows=rows)


def _trained(item: Item, run: Run, out: Path, runner: Runner | None, threads: int, progress: bool) -> Result:
    """Lines, orderings and pictures of what is done, after a runner, if there is one, did the rest."""
    cells, folder = run.cells(), out / CELLS
    outcomes: Mapping[str, Outcome] = {}
    if runner is not None:
        _check_data(run, [cell for cell in cells if not is_done(cell, folder)])
        folder.mkdir(exist_ok=True)
        epochs = max((row.epochs for row in run.rows), default=1)
        with locked(out):
            titles = {cell.name: row.label for row in run.rows for cell in row.cells()}
            how: dict[str, Any] = {"threads": threads, "progress": progress, "titles": titles}
            outcomes = run_cells(cells, folder, epochs, runner=runner, **how)
    trained = Trained.read(run, folder, outcomes)

    extra = item.extra(trained) if item.extra else Extra()
    pictures = {**extra.pictures, **(item.chart(trained) if item.chart else {})}
    return Result(
        item.id,
        (*lines(trained), *extra.lines),
        exact=exact(item).lines if has_exact(item) else (),
        departs=run.departs,
        reduced=run.reduced,
        scale=run.scale,
        orderings=(*orderings(trained), *extra.orderings),
        pictures=pictures,
        cells=tuple(_cells(trained)),
        rows={row.label: settings_of(row) for row in run.rows},
        headline=run.pairs,
    )


def _check_data(run: Run, waiting: Sequence[Cell]) -> None:
    """Data that cannot be read is an error now, and not in every cell."""
    needed = {("data", cell.data) for cell in waiting} | {("ood", name) for cell in waiting for name in cell.ood}
    for kind, name in sorted(needed):
        try:
            load_data(name) if kind == "data" else load_examples(name)
        except DataError as error:
            raise DataError(f"{run.item} needs {name}: {error}") from error


def _cells(trained: Trained) -> list[dict[str, Any]]:
    """What was trained, for the reader who wants to do it again."""
    cells = []
    for row in trained.run.rows:
        for cell in row.cells():
            result = trained.results[row.label].get(cell.seed)
            cells.append(
                {
                    "row": row.label,
                    "seed": cell.seed,
                    "folder": cell.name,
                    "status": "done" if result else "failed" if cell.name in trained.failed else "not run",
                    "reason": trained.failed.get(cell.name),
                    "seconds": result and sum(result["seconds"].values()),
                    "trained_on": result and result["parts"]["train"],
                }
            )
    return cells


def _write(document: Mapping[str, Any], drawings: Mapping[str, Drawing], pages: Path) -> None:
    """Figures, JSON, and all pages with their index, so that notes written since are on them."""
    place = pages / document["item"]
    prepare_folder(place.parent)
    forest = ordering_chart(claims(document)) if document["headline"] else None
    for name, drawing in {**drawings, **({} if forest is None else {"orderings": forest})}.items():
        stem = f"{place.name}-{name}" if name else place.name
        place.with_name(f"{stem}.png").write_bytes(png(drawing))
        place.with_name(f"{stem}.svg").write_text(svg(drawing))
    write_json(place.with_suffix(".json"), document)
    write_pages(pages)
