"""Save and load an ensemble: safetensors and a JSON header. Nothing in a file is ever executed.

The header holds the method, the network's recipe, the edits that make it one member's network, and versions. A network
that multum did not build comes back through `load(path, network=builder)`.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from . import models
from .building import assembled, built_by
from .ensemble import Ensemble
from .errors import ConfigError, FileError, MultumError, did_you_mean, first_line
from .files import write_tensors
from .methods import METHODS
from .network.copies import fold_rows, skeleton, tensors_of
from .rewrite.walker import Edit, apply, install, seeded
from .thinning.thin import output_of
from .version import __version__

__all__ = ["FORMAT", "load", "save"]

FORMAT = 1
HEADER = {
    *("edits", "example", "folded", "format", "frozen", "members", "method"),
    *("network", "other_mode", "own", "seeds", "task", "training", "versions"),
}
RANDOM = "multum.random."  # prefix of the generators' states
STATE = "multum.state."  # prefix of what a method remembers


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
    tensors = {name: _writable(t) for name, t in tensors_of(ensemble.network).items() if name not in ensemble.numbers}
    tensors |= {STATE + name: _writable(t) for name, t in ensemble.state.items()}
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
        "example": _spec(ensemble.example),
        "seeds": ensemble.randomness.seeds,
        "training": ensemble.training,
        "other_mode": [n for n, m in ensemble.named_modules() if m.training != ensemble.training],
    }
    if not path.parent.is_dir() or path.is_dir():
        folder = f"{path} is a folder" if path.is_dir() else f"{path.parent} does not exist; make it first"
        raise FileError(f"an ensemble is saved as a file in a folder that exists, however: {folder}")
    write_tensors(path, tensors, header)


def load(
    path: str | os.PathLike,
    *,
    network: nn.Module | Callable[[], nn.Module] | None = None,
    device: str | torch.device = "cpu",
) -> Ensemble:
    """Read an ensemble back: same outputs to the last bit, under the same executor (a choice that is not saved).

    Args:
        network: the base network, or a function that builds it, where multum does not know the class.
        device: where the tensors go.
    """
    header, tensors = _read(Path(path), device)
    base = _base(header["network"], network, path)
    random, state = (
        {name.removeprefix(prefix): tensors.pop(name) for name in list(tensors) if name.startswith(prefix)}
        for prefix in (RANDOM, STATE)
    )
    try:
        method = _method(header["method"], path)
        edits = [Edit(e["path"], e["attributes"], e["layer"]) for e in header["edits"]]
        frozen = set(header["frozen"])
        with seeded(0):  # layers that draw their first values must not move the caller's generator
            apply(base, edits, {})
        _compare(tensors_of(base), tensors, header, path)
        install(base, tensors)
        for name, p in base.named_parameters():
            p.requires_grad_(name not in frozen)
        base.train(header["training"])
        for name in header["other_mode"]:
            base.get_submodule(name).training = not header["training"]
        example = _in_precision(_example(header["example"], device), base)
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
        ens.randomness.load_state(
            {d: state.cpu() for d, state in random.items() if d == "cpu" or torch.cuda.is_available()}
        )
    except ConfigError as error:
        raise FileError(f"{path} is what this version of multum writes, however: {error} Upgrade multum") from error
    except MultumError:
        raise
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        reason = first_line(error)
        raise FileError(
            f"the tensors of {path} fit its network, however: {reason}; "
            "give the network that was saved, as in multum.load(path, network=builder)"
        ) from error
    return ens


def _read(path: Path, device: Any) -> tuple[dict, dict[str, Tensor]]:
    if not path.is_file():
        raise FileError(f"a saved ensemble is a file, however: there is none at {path}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            # Cloned: a view into the file is not aligned, and kernels give other bits on unaligned memory.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FileError(
            f"{path} is a whole safetensors file, however: {error}; it may be truncated or of another kind: "
            "copy or save it again"
        ) from error
    if "multum" not in metadata:
        raise FileError(
            f"{path} was written by multum.save, however: it is a safetensors file without multum's header; "
            "bare weights go into a network with its load_state_dict(safetensors.torch.load_file(path))"
        )
    try:
        header = json.loads(metadata["multum"])
        version = int(header["format"])
    except (KeyError, TypeError, ValueError) as error:
        raise FileError(
            f"the header of {path} is multum's JSON, however: it cannot be read ({error!r}); save it again"
        ) from error
    if version > FORMAT:
        wrote = header.get("versions", {}).get("multum", "a newer version")
        raise FileError(
            f"{path} has format {FORMAT} or older, however: format {version}, written by multum {wrote}; upgrade multum"
        )
    missing = HEADER - set(header)
    if missing:
        lacks = ", ".join(sorted(missing))
        raise FileError(f"the header of {path} is complete, however: it lacks {lacks}; save it again")
    return header, tensors


def _method(fields: dict, path: Any) -> Any:
    fields = dict(fields)
    name = fields.pop("name", "")
    if name not in METHODS:
        raise FileError(
            f"{path} names a method of this multum, however: {name!r}. {did_you_mean(str(name), METHODS)} "
            "A newer version may know it: upgrade multum"
        )
    known = {f.name for f in dataclasses.fields(METHODS[name])}
    if set(fields) - known:
        unknown = ", ".join(sorted(set(fields) - known))
        raise FileError(f"{path} has fields of {name}, however: {unknown} are unknown here; upgrade multum")
    kind: Any = METHODS[name]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})


def _base(described: dict, network: Any, path: Any) -> nn.Module:
    give = "give it, as in multum.load(path, network=builder)"
    if isinstance(network, nn.Module):
        return skeleton(network, lambda t: t.detach())
    if network is not None:
        return built_by(network)
    described = described if isinstance(described, dict) else {}
    recipe = described.get("recipe")
    if recipe is None:
        kind = described.get("class")
        raise FileError(f"{path} holds a network that multum can build by name, however: its class is {kind}; {give}")
    try:
        with seeded(0):
            return models.build(recipe["name"], **recipe["keywords"])
    except (MultumError, KeyError, TypeError) as error:
        raise FileError(
            f"{path} holds a network that this multum can build by name, however: {error} Otherwise {give}"
        ) from error


def _compare(base: dict[str, Tensor], tensors: dict[str, Tensor], header: dict, path: Any) -> None:
    foreign, missing = sorted(set(tensors) - set(base)), sorted(set(base) - set(tensors))
    if foreign or missing:
        raise FileError(
            f"{path} has the tensors of its network, however: "
            + "; ".join(
                f"{what} {', '.join(names[:5])}{' ...' if len(names) > 5 else ''} ({len(names)} in all)"
                for what, names in (("foreign", foreign), ("missing", missing))
                if names
            )
            + "; give the network that was saved, as in multum.load(path, network=builder)"
        )
    for name in header["own"]:
        if name not in tensors or tensors[name].shape[:1] != (header["members"],):
            shape = tuple(tensors[name].shape) if name in tensors else "no such tensor"
            raise FileError(
                f"every own tensor of {path} has a member axis of {header['members']}, however: {name} is {shape}; "
                "save it again"
            )


def _recipe(ensemble: Ensemble) -> dict | None:
    """The recipe of the base network, where building by it and editing gives this very network, layer by layer."""
    recipe = getattr(ensemble.network, "recipe", None)
    if recipe is None:
        return None

    def rebuild() -> nn.Module:
        return apply(models.build(recipe["name"], **recipe["keywords"]), ensemble.edits, {})

    with seeded(0):
        try:
            with torch.device("meta"):
                rebuilt = rebuild()
        except Exception:  # a network that reads values while it is built
            rebuilt = rebuild()
    same_names = set(tensors_of(rebuilt)) == set(tensors_of(ensemble.network)) - ensemble.numbers
    return recipe if same_names and repr(rebuilt) == repr(ensemble.network) else None


def _writable(t: Tensor) -> Tensor:
    """On the CPU and alone in its memory, as safetensors asks; a copy only where it is not."""
    t = t.detach().cpu().contiguous()
    return t if t.untyped_storage().nbytes() == t.nbytes else t.clone()


def _spec(example: Any) -> Any:
    """The shapes of an example as JSON."""
    if isinstance(example, dict):
        return {"dict": {name: _spec(value) for name, value in example.items()}}
    if isinstance(example, (tuple, list)):
        return {"tuple": [_spec(value) for value in example]}
    if isinstance(example, Tensor):
        return {"shape": list(example.shape), "dtype": str(example.dtype).removeprefix("torch.")}
    return {"value": example}


def _in_precision(example: Any, network: nn.Module) -> Any:
    """The example in the precision that the network has by now, which need not be that of its first example."""
    found = {p.dtype for p in network.parameters() if p.is_floating_point()}
    if len(found) != 1:
        return example
    dtype = found.pop()
    return tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, example)


def _example(spec: dict, device: Any) -> Any:
    if "dict" in spec:
        return {name: _example(value, device) for name, value in spec["dict"].items()}
    if "tuple" in spec:
        return tuple(_example(value, device) for value in spec["tuple"])
    if "value" in spec:
        return spec["value"]
    return torch.zeros(spec["shape"], dtype=getattr(torch, spec["dtype"]), device=device)
