"""Save and load an ensemble: safetensors and a JSON header. Nothing in a file is ever executed.

The header holds the method, the network's recipe, the edits that make it one member's network, and versions. A network
that multum did not build comes back through `load(path, network=builder)`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from . import models
from .ensemble import Ensemble
from .errors import FileError, MultumError, did_you_mean
from .methods import METHODS
from .rewrite.thin import output_of
from .rewrite.trace import tensors_of
from .rewrite.walker import Edit, apply
from .version import __version__

__all__ = ["FORMAT", "load", "save"]

FORMAT = 1
RANDOM = "multum.random."  # prefix of the generators' states


def save(ensemble: Ensemble, path: str | os.PathLike) -> None:
    """Write an ensemble to one file; an existing file is replaced only once the new one is complete.

    >>> import multum
    >>> net = multum.models.build("mlp", in_features=4, classes=3)
    >>> ens = multum.ensemble(net, multum.Deep(members=2), example=torch.zeros(2, 4))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     multum.save(ens, Path(folder) / "model.safetensors")
    ...     torch.equal(multum.load(Path(folder) / "model.safetensors")(torch.ones(2, 4)), ens(torch.ones(2, 4)))
    True
    """
    path = Path(path)
    tensors = {
        name: t.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, t in tensors_of(ensemble.network).items()
        if name not in ensemble.numbers
    }
    tensors |= {RANDOM + device: state for device, state in ensemble.randomness.state().items()}
    header = {
        "format": FORMAT,
        "versions": {"multum": __version__, "torch": torch.__version__},
        "method": {"name": type(ensemble.method).__name__.lower(), **dataclasses.asdict(ensemble.method)},
        "members": ensemble.members,
        "task": ensemble.task,
        "own": list(ensemble.own),
        "frozen": [n for n, p in ensemble.named_parameters() if not p.requires_grad],
        "edits": [edit.to_json() for edit in ensemble.edits],
        "network": {"class": type(ensemble.network).__qualname__, "recipe": _recipe(ensemble)},
        "example": _spec(ensemble.example),
        "seeds": ensemble.randomness.seeds,
        "training": ensemble.training,
    }
    if not path.parent.is_dir():
        raise FileError(f"the folder of {path} exists, however: {path.parent} does not; make it first")
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    try:
        save_file(tensors, temporary, metadata={"multum": json.dumps(header)})
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)


def load(
    path: str | os.PathLike,
    *,
    network: nn.Module | Callable[[], nn.Module] | None = None,
    device: str | torch.device = "cpu",
) -> Ensemble:
    """Read an ensemble back: same outputs to the last bit.

    Args:
        network: the base network, or a function that builds it, where multum does not know the class.
        device: where the tensors go.
    """
    header, tensors = _read(Path(path), device)
    method = _method(header["method"], path)
    base = _base(header["network"], network, path)
    edits = [Edit(e["path"], e["attributes"]) for e in header["edits"]]
    random = {name.removeprefix(RANDOM): tensors.pop(name) for name in list(tensors) if name.startswith(RANDOM)}
    _compare(tensors_of(base), tensors, path)
    try:
        apply(base, edits, tensors)
        for name, p in base.named_parameters():
            p.requires_grad_(name not in set(header["frozen"]))
        base.train(header["training"])
        example = _example(header["example"], device)
        ens = Ensemble(
            base,
            header["own"],
            header["members"],
            method,
            example=example,
            task=header["task"],
            seeds=header["seeds"],
            edits=edits,
        )
        output_of(ens.single(), example)
        ens.randomness.load_state(
            {d: state.cpu() for d, state in random.items() if d == "cpu" or torch.cuda.is_available()}
        )
    except MultumError:
        raise
    except (RuntimeError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FileError(f"the tensors of {path} fit its network, however: {reason}") from error
    return ens


def _read(path: Path, device: Any) -> tuple[dict, dict[str, Tensor]]:
    if not path.is_file():
        raise FileError(f"a saved ensemble is a file, however: there is none at {path}")
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FileError(
            f"{path} is a whole safetensors file, however: {error}; it may be truncated or of another kind"
        ) from error
    if "multum" not in metadata:
        raise FileError(f"{path} was written by multum.save, however: it is a safetensors file without multum's header")
    try:
        header = json.loads(metadata["multum"])
        version = header["format"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise FileError(f"the header of {path} is multum's JSON, however: it cannot be read ({error})") from error
    if version > FORMAT:
        wrote = header.get("versions", {}).get("multum", "a newer version")
        raise FileError(
            f"{path} has format {FORMAT} or older, however: format {version}, written by multum {wrote}; upgrade multum"
        )
    missing = {"method", "members", "task", "own", "frozen", "edits", "network", "example", "seeds"} - set(header)
    if missing:
        raise FileError(f"the header of {path} is complete, however: it lacks {', '.join(sorted(missing))}")
    return header, tensors


def _method(fields: dict, path: Any) -> Any:
    fields = dict(fields)
    name = fields.pop("name", "")
    if name not in METHODS:
        raise FileError(f"{path} names a method of multum, however: {name!r}. {did_you_mean(name, METHODS)}")
    known = {f.name for f in dataclasses.fields(METHODS[name])}
    if set(fields) - known:
        raise FileError(f"{path} has fields of {name}, however: {', '.join(sorted(set(fields) - known))} are unknown")
    kind: Any = METHODS[name]
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})


def _base(described: dict, network: Any, path: Any) -> nn.Module:
    if network is not None:
        return network if isinstance(network, nn.Module) else network()
    recipe = described["recipe"]
    if recipe is None:
        raise FileError(
            f"{path} holds a network that multum can build by name, however: its class is {described['class']}; "
            "give it, as in multum.load(path, network=builder)"
        )
    return models.build(recipe["name"], **recipe["keywords"])


def _compare(base: dict[str, Tensor], tensors: dict[str, Tensor], path: Any) -> None:
    foreign, missing = sorted(set(tensors) - set(base)), sorted(set(base) - set(tensors))
    if foreign or missing:
        raise FileError(
            f"{path} has the tensors of its network, however: "
            + "; ".join(
                f"{what} {', '.join(names[:5])}{' ...' if len(names) > 5 else ''} ({len(names)} in all)"
                for what, names in (("foreign", foreign), ("missing", missing))
                if names
            )
        )


def _recipe(ensemble: Ensemble) -> dict | None:
    """The recipe of the base network, where building by it gives these very tensors' names."""
    recipe = getattr(ensemble.network, "recipe", None)
    if recipe is None:
        return None
    names = set(tensors_of(models.build(recipe["name"], **recipe["keywords"])))
    return recipe if names == {n for n in tensors_of(ensemble.network) if n not in ensemble.numbers} else None


def _spec(example: Any) -> Any:
    """The shapes of an example as JSON."""
    if isinstance(example, dict):
        return {"dict": {name: _spec(value) for name, value in example.items()}}
    if isinstance(example, (tuple, list)):
        return {"tuple": [_spec(value) for value in example]}
    if isinstance(example, Tensor):
        return {"shape": list(example.shape), "dtype": str(example.dtype).removeprefix("torch.")}
    return {"value": example}


def _example(spec: dict, device: Any) -> Any:
    if "dict" in spec:
        return {name: _example(value, device) for name, value in spec["dict"].items()}
    if "tuple" in spec:
        return tuple(_example(value, device) for value in spec["tuple"])
    if "value" in spec:
        return spec["value"]
    return torch.zeros(spec["shape"], dtype=getattr(torch, spec["dtype"]), device=device)
