"""`multum.export`: an ensemble or a run as one file, checked by running it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map_only

from ..cascades.cascade import Cascade
from ..ensemble import Ensemble
from ..errors import ConfigError, ExportError, check_known, first_line
from ..files import plain
from ..optimizing.members import is_sampled
from ..outputs.prediction import eval_mode
from .cascaded import clear_of_threshold, refuse
from .decompositions import DECOMPOSITIONS
from .describing import described
from .graph import Graph, Meaning
from .members import members_of
from .onnx_file import OnnxModel, translated
from .parity import TOLERANCE, differences
from .program import frees_sizes, traced
from .sources import Source, source_of
from .torch_file import TorchModel

__all__ = ["FORMATS", "export"]

TRIED_ON = 64  # examples that a file is run on before it is written
TRACED_ON = 3  # examples; one would be taken for the only number possible

Model = OnnxModel | TorchModel


@dataclass(frozen=True)
class Format:
    """A kind of file."""

    suffix: str
    made: Callable[..., Model]
    replacements: Mapping[Callable[..., Any], Callable[..., Any]] = field(default_factory=dict)


FORMATS = {
    "onnx": Format(".onnx", translated, DECOMPOSITIONS),
    "torch": Format(".pt2", lambda program, inputs, outputs, table: TorchModel(program)),
}


def export(
    source: Ensemble | Cascade | str | Path,
    path: str | Path,
    *,
    format: str | None = None,
    members: int | None = None,
    each_member: bool = False,
    level: float = 0.95,
    example: Any = None,
    card: bool = True,
    **rules: Any,
) -> dict[str, Any]:
    """Write an ensemble, or the content of a run folder, as one file that runs without multum.

    Args:
        source: an ensemble or a cascade, whose inputs the file then takes as they are; or a run folder or a saved
            model. A run's file takes raw examples: bytes of images, or the columns of a table.
        format: "onnx" or "torch" (torch.export); by default what the ending of `path` says, .onnx or .pt2.
        members: use the first so many members alone.
        each_member: also put out what every member says.
        level: of the intervals that a regression gives.
        example: inputs to check the file with; by default the run's test examples, or random numbers.
        card: whether a run's model card is written beside the file, with the ending .md.
        rules: of a run, as `multum predict` takes them: coverage, risk, delta, conformal, temperature, threshold. By
            default coverage and conformal are 0.9 where the run held examples out, and the temperature is that of the
            training. Of an ensemble, what was fitted elsewhere: temperature, abstention, conformal, threshold.

    Returns the metadata that stand in the file, with the differences to `multum.predict` measured on `example`.
    """
    path = Path(path)
    kind = _format(path, format)
    if isinstance(source, Cascade):
        refuse(source, kind, members, rules)
    given = source_of(source, members, rules)
    ensemble = given.ensemble
    raw, words = given.examples(TRIED_ON) if example is None else (example, "examples of the user's")
    meaning = Meaning(ensemble.task, given.preparation, given.rules, level, each_member, given.cascade is not None)
    raw = _clear(given.cascade, raw)
    graph = _graph(given, members, meaning, raw)
    expected = _expected(given, meaning, graph, members, raw)
    model, sizes = _made(FORMATS[kind], graph, raw, list(expected))
    parity = differences(_said(model, raw, _table(graph)), expected, given.rules, f"the {kind} file")
    metadata = plain(described(given, graph, _first(raw, 1), kind, sizes))
    metadata["parity"] = {"examples": words, "count": _rows(raw), "tolerance": TOLERANCE, "differences": parity}
    model.save(path, metadata)
    if card and given.folder is not None:
        from .card import write_card  # with matplotlib, which a file alone need not wait for

        write_card(given.folder.path, path.with_suffix(".md"))
    return metadata


def _format(path: Path, name: str | None) -> str:
    suffixes = {form.suffix: key for key, form in FORMATS.items()}
    name = suffixes.get(path.suffix.lower(), "onnx") if name is None else name
    check_known(name, FORMATS, f"`format` must be {' or '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise ConfigError(f"`path` must be in a folder that exists; got {path.parent}. Make it first")
    return name


def _clear(cascade: Cascade | None, raw: Any) -> Any:
    """Inputs without those that rounding may stop elsewhere."""
    if cascade is None:
        return raw
    with torch.no_grad(), eval_mode(cascade.ensemble):
        logits = cascade.ensemble(tree_map_only(Tensor, lambda t: t.to(cascade.ensemble.device), raw)).cpu()
    keep = clear_of_threshold(cascade, logits, 2 * TOLERANCE)
    return tree_map_only(Tensor, lambda t: t[keep], raw) if int(keep.sum()) >= TRACED_ON else raw


def _graph(given: Source, members: int | None, meaning: Meaning, raw: Any) -> Graph:
    ensemble = given.ensemble
    kinds = {str(t.dtype) for t in ensemble.parameters() if t.dtype in (torch.float16, torch.bfloat16)}
    if kinds:
        raise ExportError(
            f"weights must be of float32 to be exported; got {', '.join(kinds)}. Use ens.float(), or save it with "
            "multum.save"
        )
    graph = Graph(torch.nn.Module(), meaning, ensemble.state.get("noise"))
    with torch.no_grad():
        few = graph.prepared(_first(raw, TRACED_ON))
    graph.members = members_of(ensemble, members, few, given.cascade)
    return graph.eval()


def _expected(given: Source, meaning: Meaning, graph: Graph, members: int | None, raw: Any) -> dict[str, Tensor]:
    """What multum itself says: by the ensemble, or where members are samples, by those that the file holds."""
    ensemble = given.ensemble
    with torch.no_grad(), eval_mode(ensemble):
        if is_sampled(ensemble):
            return graph(raw)
        x = tree_map_only(Tensor, lambda t: t.to(ensemble.device), graph.prepared(raw))
        outputs = ensemble(x)[:members].cpu() if given.cascade is None else given.cascade(x).logits.cpu()
        return meaning.answers(outputs, graph.noise)


def _made(form: Format, graph: Graph, raw: Any, outputs: list[str]) -> tuple[Model, bool]:
    """The model, and whether it takes images of any size, which is proved on another one."""
    few = _first(raw, TRACED_ON)
    larger = tree_map_only(Tensor, _larger, few)
    sizes = any(t.ndim == 4 for t in tree_flatten(few)[0]) and _runs(graph, larger)
    for free in (True, False) if sizes else (False,):
        program = traced(graph, few, sizes=free, replacements=form.replacements)
        model = form.made(program, _inputs(graph, raw), outputs, _table(graph))
        if not free or not frees_sizes(program):
            return model, False
        if _agrees(model, graph, larger):
            return model, True
    raise AssertionError("the last program has fixed sizes")


def _larger(t: Tensor) -> Tensor:
    """Images half as high and as wide again."""
    if t.ndim != 4:
        return t
    higher = torch.cat([t, t[:, :, : t.shape[2] // 2]], 2)
    return torch.cat([higher, higher[..., : t.shape[3] // 2]], 3)


def _runs(graph: Graph, x: Any) -> bool:
    try:
        with torch.no_grad():
            graph(x)
    except Exception:  # a network that needs its own size may raise anything
        return False
    return True


def _agrees(model: Model, graph: Graph, x: Any) -> bool:
    with torch.no_grad():
        expected = graph(x)
    try:
        differences(_said(model, x, None), expected, graph.meaning.rules, "the file")
    except ExportError:
        return False
    return True


def _said(model: Model, x: Any, table: Any) -> dict[str, Tensor]:
    try:
        return model.answers(x, table)
    except Exception as error:  # runtimes' errors have no common class
        raise ExportError(f"a file must run on other batches than its first; got {first_line(error)}") from error


def _table(graph: Graph) -> Any:
    return None if graph.meaning.preparation is None else graph.meaning.preparation.table


def _inputs(graph: Graph, x: Any) -> list[str]:
    """The names of inputs: x, or those of a network with several."""
    if isinstance(x, Mapping):
        return list(x)
    if isinstance(x, Tensor):
        return ["x"]
    return [f"x{i}" for i in range(len(x))]


def _first(x: Any, count: int) -> Any:
    return tree_map_only(Tensor, lambda t: t[:count], x)


def _rows(x: Any) -> int:
    return len(tree_flatten(x)[0][0])
