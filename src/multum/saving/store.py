"""An ensemble to a file and back.

The header holds the method, the network's recipe, the edits that make it one member's network, versions, and a digest
of it all. A network that multum did not build comes back through `load(path, network=builder)`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.utils._pytree import tree_flatten

from .. import models
from ..building import assembled, built_by
from ..ensemble import Ensemble
from ..errors import ConfigError, FileError, MultumError, first_line
from ..files import signature, write_tensors
from ..network.copies import fold_rows, skeleton, tensors_of
from ..rewrite.walker import Edit, apply, install, seeded
from ..thinning.thin import output_of
from ..version import __version__
from .header import FORMAT, allowed, in_precision, method_of, parse, recipe_numbers, spec_of, zeros

log = logging.getLogger("multum")

RANDOM = "multum.random."  # prefix of the generators' states
STATE = "multum.state."  # prefix of what a method remembers
GIVE = "give the network that was saved, as in multum.load(path, network=builder)"


def save(ensemble: Ensemble, path: str | os.PathLike) -> None:
    """Write an ensemble to one file; an existing file is replaced only once the new one is complete.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=4, classes=3)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 4))
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     multum.save(ens, Path(folder) / "model.safetensors")
    ...     torch.equal(multum.load(Path(folder) / "model.safetensors")(torch.ones(2, 4)), ens(torch.ones(2, 4)))
    True
    """
    path = Path(path)
    tensors = {name: t for name, t in tensors_of(ensemble.network).items() if name not in ensemble.numbers}
    tensors |= {STATE + name: t for name, t in ensemble.state.items()}
    tensors |= {RANDOM + device: state for device, state in ensemble.randomness.state().items()}
    header = {
        "format": FORMAT,
        "versions": {"multum": __version__, "torch": torch.__version__},
        "method": ensemble.method.as_dict(),
        "members": ensemble.members,
        "folded": ensemble.folded,
        "task": ensemble.task,
        "own": list(ensemble.own),
        "frozen": [n for n, p in ensemble.named_parameters() if not p.requires_grad],
        "edits": [edit.to_json() for edit in ensemble.edits],
        "network": {"class": type(ensemble.network).__qualname__, "recipe": _recipe(ensemble)},
        "example": spec_of(ensemble.example),
        "seeds": ensemble.randomness.seeds,
        "training": ensemble.training,
        "executors": dict(ensemble.latest),
        "other_mode": [n for n, m in ensemble.named_modules() if m.training != ensemble.training],
    }
    if not path.parent.is_dir() or path.is_dir():
        folder = "it is a folder" if path.is_dir() else f"{path.parent} does not exist. Make it first"
        raise FileError(f"an ensemble must be saved as a file in a folder that exists; got {path}: {folder}")
    write_tensors(path, tensors, header)


def load(
    path: str | os.PathLike,
    *,
    network: nn.Module | Callable[[], nn.Module] | None = None,
    device: str | torch.device = "cpu",
) -> Ensemble:
    """Load an ensemble: its outputs are bit-identical under the same executor.

    The executor is measured on this machine, as for any ensemble; where nothing is measured (MULTUM_AUTOTUNE=0), the
    one that was measured before saving runs, if it can.

    Args:
        path: a file that `save` wrote, or the folder of a finished run.
        network: the base network, or a function that builds it, where multum does not know the class.
        device: where the tensors go.
    """
    path = Path(path)
    path = path / "model.safetensors" if path.is_dir() else path
    header, tensors = _read(path, device)
    random, state = (
        {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        for prefix in (RANDOM, STATE)
    )
    try:
        method = method_of(header["method"], path)
        _check_members(header, method, path)
        edits = [Edit(e["path"], e["attributes"], e["layer"]) for e in header["edits"]]
        base = _base(header["network"], network, edits, len(tensors), path)
        _compare(tensors_of(base), tensors, header, path)
        install(base, tensors)
        frozen = set(header["frozen"])
        for name, p in base.named_parameters():
            p.requires_grad_(name not in frozen)
        base.train(header["training"])
        for name in header["other_mode"]:
            base.get_submodule(name).training = not header["training"]
        example = in_precision(zeros(header["example"], device), base)
        ens = assembled(
            base,
            header["own"],
            header["members"],
            method,
            example=example,
            task=header["task"],
            seeds=header["seeds"],
            edits=edits,
            folded=header["folded"],
            state=state,
        )
        output_of(ens.single(), fold_rows(example, ens.members) if ens.folded else example)
        ens.latest.update({m: name for m, name in header.get("executors", {}).items() if name in ens.executors})
        ens.randomness.load_state(
            {d: state.cpu() for d, state in random.items() if d == "cpu" or torch.cuda.is_available()}
        )
    except ConfigError as error:
        raise FileError(f"{path} must be what this version of multum writes; got: {error} Upgrade multum") from error
    except MultumError:
        raise
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError, MemoryError) as error:
        raise FileError(f"the tensors of {path} must fit its network; got {first_line(error)}; {GIVE}") from error
    return ens


def _read(path: Path, device: Any) -> tuple[dict, dict[str, Tensor]]:
    if not path.is_file():
        raise FileError(f"a saved ensemble must be a file; there is none at {path}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            # Cloned: a view into the file is not aligned, and kernels give other bits on unaligned memory.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FileError(
            f"{path} must be a whole safetensors file; got {error}; it may be truncated or of another kind: "
            "copy or save it again"
        ) from error
    if "multum" not in metadata:
        raise FileError(
            f"{path} must be written by multum.save; got a safetensors file without multum's header; "
            "bare weights go into a network with its load_state_dict(safetensors.torch.load_file(path))"
        )
    header = parse(metadata["multum"], path)
    if header["format"] == 1:
        log.warning("%s has no checksum, as files of multum 0.1 have none: save it again to protect it", path)
    elif header["checksum"] != signature(header, tensors):
        raise FileError(
            f"{path} must have the checksum that is written in it; got other bits: it was damaged or changed. "
            "Copy or save it again"
        )
    return header, tensors


def _check_members(header: dict, method: Any, path: Any) -> None:
    members, seeds = header["members"], len(header["seeds"])
    if members > method.members or seeds != method.members + 1:
        raise FileError(
            f"{path} must hold at most the {method.members} members of its method, and a seed for each and one more; "
            f"got {members} members and {seeds} seeds. Save it again"
        )


def _base(described: dict, network: Any, edits: list[Edit], tensors: int, path: Any) -> nn.Module:
    """The network of one member: shapes where multum builds it, whose values then come from the file."""
    recipe = described["recipe"]
    if network is not None:
        base = skeleton(network, lambda t: t.detach()) if isinstance(network, nn.Module) else built_by(network)
        with seeded(0):  # layers that draw their first values must not move the caller's generator
            return _edited(base, edits)
    if recipe is None:
        raise FileError(
            f"{path} must hold a network that multum can build by name; got one of class {described['class'][:100]}; "
            f"{GIVE}"
        )
    if reason := allowed(recipe):
        raise FileError(f"the recipe in {path} must be a plain architecture; got {reason}; {GIVE}")
    try:
        with seeded(0), _at_most(8 * tensors + 256, path):
            return _rebuilt(recipe, edits)
    except ConfigError as error:
        raise FileError(f"{path} must hold a network that this multum can build; got: {error} Or {GIVE}") from error


def _rebuilt(recipe: dict, edits: Sequence[Edit]) -> nn.Module:
    """The network of a recipe and edits: shapes alone, where it can be built without values."""
    try:
        with torch.device("meta"):
            base = _edited(models.build(recipe["name"], **recipe["keywords"]), edits)
        if not _leaves_meta(base):
            return base
    except (NotImplementedError, RuntimeError, ValueError, TypeError):  # it reads values while it is built
        if recipe_numbers(recipe, above=2**15):
            raise
    return _edited(models.build(recipe["name"], **recipe["keywords"]), edits)


def _edited(base: nn.Module, edits: Sequence[Edit]) -> nn.Module:
    modules = dict(base.named_modules())
    for edit in edits:
        for name in edit.attributes if edit.path in modules else ():
            if callable(getattr(modules[edit.path], name, None)):
                raise FileError(f"an edit must set numbers and words of a module; got {edit.path}.{name}")
    return apply(base, edits, {})


@contextmanager
def _at_most(parameters: int, path: Any) -> Iterator[None]:
    """Stop a network that has more parameters than its file could fill, while it is being built."""
    count, builder = 0, threading.get_ident()

    def registered(module: nn.Module, name: str, parameter: Any) -> None:
        nonlocal count
        count += threading.get_ident() == builder
        if count > parameters:
            raise FileError(f"the network of {path} must fit its tensors; got a recipe with many more. Save it again")

    hook = register_module_parameter_registration_hook(registered)
    try:
        yield
    finally:
        hook.remove()


def _leaves_meta(network: nn.Module) -> bool:
    """Whether a module keeps a tensor that is neither parameter nor buffer, and would have no values."""
    held = [v for m in network.modules() for k, v in vars(m).items() if k not in ("_parameters", "_buffers")]
    return any(isinstance(t, Tensor) and t.is_meta for t in tree_flatten(held)[0])


def _compare(base: dict[str, Tensor], tensors: dict[str, Tensor], header: dict, path: Any) -> None:
    sides = {"unknown": sorted(set(tensors) - set(base)), "missing": sorted(set(base) - set(tensors))}
    if differences := [f"{what} {_listed(names)}" for what, names in sides.items() if names]:
        raise FileError(f"{path} must have the tensors of its network; got {'; '.join(differences)}; {GIVE}")
    for name in header["own"]:
        if name not in tensors or tensors[name].shape[:1] != (header["members"],):
            shape = tuple(tensors[name].shape) if name in tensors else "no such tensor"
            raise FileError(
                f"every own tensor of {path} must have a member axis of {header['members']}; got {name}: {shape}. "
                "Save it again"
            )
    own, resized = set(header["own"]), {edit["path"] for edit in header["edits"]}
    thinned = any(edit["layer"] is None for edit in header["edits"])
    for name, tensor in tensors.items():
        wanted = (header["members"], *base[name].shape) if name in own else tuple(base[name].shape)
        if name.rpartition(".")[0] in resized or tuple(tensor.shape) == wanted:
            continue
        # A thinned network also has narrower tensors that no layer's attributes speak of, such as a class token.
        narrower = len(wanted) == tensor.ndim and all(n <= w for n, w in zip(tensor.shape, wanted, strict=True))
        if not (thinned and narrower):
            raise FileError(
                f"the tensors of {path} must fit its network; got {name}: {tuple(tensor.shape)} for {wanted}; {GIVE}"
            )


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:5])}{' ...' if len(names) > 5 else ''} ({len(names)} in all)"


def _recipe(ensemble: Ensemble) -> dict | None:
    """The recipe of the base network, where building by it and editing gives this very network, layer by layer."""
    recipe = getattr(ensemble.network, "recipe", None)
    if recipe is None or allowed(recipe):
        return None
    with seeded(0):
        rebuilt = _rebuilt(recipe, ensemble.edits)
    same_names = set(tensors_of(rebuilt)) == set(tensors_of(ensemble.network)) - ensemble.numbers
    return recipe if same_names and repr(rebuilt) == repr(ensemble.network) else None
