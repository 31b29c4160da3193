"""What a file says about itself, and how much of it is believed: nothing that was not checked here.

A header may come from anyone. Its JSON is bounded in length, depth and digits; every entry has its type and range; a
recipe has keywords of an allow-list, so that no keyword of timm can name a file or an address.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from ..building import TASKS
from ..choice import MODES
from ..errors import FileError, did_you_mean, first_line
from ..methods import METHODS
from ..models.timm_model import KEYWORDS

FORMAT = 3
SINCE = {"checksum": 2, "executors": 3}  # the format that an entry came with, if not the first

LONGEST = 2**24  # characters of a header
DEEPEST = 12  # lists and dicts inside each other
LARGEST = 2**24  # a width, a depth, a size of a recipe
MOST_MEMBERS = 2**12
MOST_VALUES = 2**28  # elements of an example

WORD = re.compile(r"[\w.+-]{0,64}", re.ASCII)  # no path and no address
MODEL = re.compile(r"(timm:)?[\w.-]{1,100}", re.ASCII)  # timm's "hf-hub:..." and "local-dir:..." are no architectures


def _is_int(value: Any, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def is_plain(value: Any, lists: int = 3) -> bool:
    """A number, a word, a truth value, nothing; or a short list of them."""
    if isinstance(value, list):
        return lists > 0 and len(value) <= 4096 and all(is_plain(entry, lists - 1) for entry in value)
    if isinstance(value, str):
        return len(value) <= 1000
    return value is None or isinstance(value, (float, bool)) or _is_int(value, -(2**63), 2**63 - 1)


def spec_of(example: Any) -> Any:
    """The shapes of an example as JSON."""
    if isinstance(example, dict):
        return {"dict": {name: spec_of(value) for name, value in example.items()}}
    if isinstance(example, (tuple, list)):
        return {"tuple": [spec_of(value) for value in example]}
    if isinstance(example, Tensor):
        return {"shape": list(example.shape), "dtype": str(example.dtype).removeprefix("torch.")}
    return {"value": example}


def _is_spec(spec: Any) -> bool:
    """Whether this is what `spec_of` writes, for an example that fits into memory."""
    if not isinstance(spec, dict) or len(spec) not in (1, 2):
        return False
    if set(spec) == {"shape", "dtype"}:
        shape, dtype = spec["shape"], spec["dtype"]
        sizes = isinstance(shape, list) and 1 <= len(shape) <= 16 and all(_is_int(n, 0, MOST_VALUES) for n in shape)
        known = isinstance(dtype, str) and isinstance(getattr(torch, dtype, None), torch.dtype)
        return sizes and known and math.prod(shape) <= MOST_VALUES
    ((kind, inner),) = spec.items() if len(spec) == 1 else (("", None),)
    if kind == "dict":
        return isinstance(inner, dict) and len(inner) <= 64 and all(map(_is_spec, inner.values()))
    if kind == "tuple":
        return isinstance(inner, list) and len(inner) <= 64 and all(map(_is_spec, inner))
    return kind == "value" and is_plain(inner)


def zeros(spec: dict, device: Any) -> Any:
    """An example of these shapes."""
    if "dict" in spec:
        return {name: zeros(value, device) for name, value in spec["dict"].items()}
    if "tuple" in spec:
        return tuple(zeros(value, device) for value in spec["tuple"])
    if "value" in spec:
        return spec["value"]
    return torch.zeros(spec["shape"], dtype=getattr(torch, spec["dtype"]), device=device)


def in_precision(example: Any, network: nn.Module) -> Any:
    """The example in the precision that the network has by now, which need not be that of its first example."""
    dtypes = {p.dtype for p in network.parameters() if p.is_floating_point()}
    if len(dtypes) != 1:
        return example
    dtype = dtypes.pop()
    return tree_map_only(Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, example)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_fields(value: Any) -> bool:
    return isinstance(value, dict) and all(is_plain(entry) for entry in value.values())


def _is_edit(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and set(value) == {"path", "attributes", "layer"}
        and isinstance(value["path"], str)
        and isinstance(value["layer"], (str, type(None)))
        and _is_fields(value["attributes"])
        and all(name.isidentifier() and not name.startswith("_") for name in value["attributes"])
    )


def _is_network(value: Any) -> bool:
    if not isinstance(value, dict) or {"class", "recipe"} != set(value) or not isinstance(value["class"], str):
        return False
    recipe = value["recipe"]
    return recipe is None or (isinstance(recipe, dict) and set(recipe) == {"name", "keywords"})


def _is_hint(value: Any) -> bool:
    return isinstance(value, dict) and all(mode in MODES and isinstance(name, str) for mode, name in value.items())


RULES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "edits": ("a list of changes to modules", lambda v: isinstance(v, list) and all(map(_is_edit, v))),
    "executors": (f"executors by {' and '.join(MODES)}", _is_hint),
    "example": (f"shapes of at most {MOST_VALUES} values", _is_spec),
    "folded": ("true or false", lambda v: isinstance(v, bool)),
    "frozen": ("a list of names", _is_names),
    "members": (f"a whole number from 1 to {MOST_MEMBERS}", lambda v: _is_int(v, 1, MOST_MEMBERS)),
    "method": ("a method's name and plain fields", lambda v: _is_fields(v) and isinstance(v.get("name"), str)),
    "network": ("a class and a recipe", _is_network),
    "other_mode": ("a list of names", _is_names),
    "own": ("a list of names", _is_names),
    "seeds": ("a list of seeds", lambda v: isinstance(v, list) and all(_is_int(seed, 0, 2**63 - 1) for seed in v)),
    "task": (f"one of {', '.join(TASKS)}", lambda v: v in TASKS),
    "training": ("true or false", lambda v: isinstance(v, bool)),
    "versions": (
        "versions by name",
        lambda v: isinstance(v, dict) and all(isinstance(entry, str) for entry in v.values()),
    ),
}


def parse(text: str, path: Any) -> dict[str, Any]:
    """The header that a file's text holds, every entry of it checked."""
    try:
        if len(text) > LONGEST:
            raise ValueError(f"{len(text)} characters")
        header = json.loads(text, parse_int=_short_int)
        version = header["format"]
        if not _is_int(version, 1, 10**6):
            raise ValueError(f"format {version!r}"[:100])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else first_line(error)
        raise FileError(f"the header of {path} must be multum's JSON; got {reason}. Save the ensemble again") from error
    if version > FORMAT:
        versions = header.get("versions")
        wrote = versions.get("multum") if isinstance(versions, dict) else None
        raise FileError(
            f"{path} must have format {FORMAT} or older; got format {version}, written by multum "
            f"{str(wrote or 'of a newer version')[:40]}. Upgrade multum"
        )
    wanted = {name for name in ("format", "checksum", *RULES) if version >= SINCE.get(name, 1)}
    if set(header) != wanted:
        lacks, has = (", ".join(sorted(names))[:200] for names in (wanted - set(header), set(header) - wanted))
        differs = " and ".join(filter(None, (lacks and f"no {lacks}", has and f"unknown {has}")))
        raise FileError(f"the header of {path} must be complete; got {differs}. Save the ensemble again")
    for name, (rule, holds) in RULES.items():
        if name not in wanted:
            continue
        # Depth first: the rules recurse.
        if _depth(header[name]) > DEEPEST or not holds(header[name]):
            value = str(header[name])[:100]
            raise FileError(f"{name} in the header of {path} must be {rule}; got {value!r}. Save the ensemble again")
    if version > 1 and json.dumps(header) != text:
        raise FileError(f"the header of {path} must be as multum wrote it; got other text. Save the ensemble again")
    return header


def allowed(recipe: Any) -> str | None:
    """Why `load` would not build by this recipe; None where it would."""
    name, keywords = recipe["name"], recipe["keywords"]
    if not isinstance(name, str) or not MODEL.fullmatch(name):
        return f"the name {str(name)[:100]!r}"
    if not isinstance(keywords, dict):
        return f"keywords={str(keywords)[:100]!r}"
    for keyword, value in keywords.items():
        words = [entry for entry in _flat(value) if isinstance(entry, str)]
        known = keyword in ("classes", "in_channels", *KEYWORDS) or not name.startswith(
            "timm:"
        )  # else the registry knows
        if not known or not is_plain(value) or not all(map(WORD.fullmatch, words)):
            return f"{keyword}={str(value)[:100]!r}"
    if recipe_numbers(recipe, above=LARGEST):
        return f"sizes above {LARGEST}"
    return None


def recipe_numbers(recipe: Any, above: int) -> list[int]:
    """The numbers of a recipe, in its name or its keywords, that are larger than this."""
    in_name = [int(digits[:20]) for digits in re.findall(r"\d+", recipe["name"].removeprefix("timm:"))]
    in_keywords = [entry for entry in _flat(list(recipe["keywords"].values())) if isinstance(entry, int)]
    return [number for number in (*in_name, *in_keywords) if abs(number) > above]


def method_of(fields: Mapping[str, Any], path: Any) -> Any:
    """The method that a header names."""
    name = fields["name"]
    if name not in METHODS:
        raise FileError(
            f"{path} must hold a method of this multum; got {name[:100]!r}. {did_you_mean(name[:100], METHODS)} "
            "A newer version may know it: upgrade multum"
        )
    kind: Any = METHODS[name]
    unknown = sorted(set(fields) - {"name"} - {f.name for f in dataclasses.fields(kind)})
    if unknown:
        raise FileError(f"{path} must hold fields of {name}; got {', '.join(unknown)[:200]}. Upgrade multum")
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items() if k != "name"})


def _short_int(digits: str) -> int:
    if len(digits) > 20:
        raise ValueError(f"a number of {len(digits)} digits")
    return int(digits)


def _flat(value: Any) -> list[Any]:
    return [leaf for entry in value for leaf in _flat(entry)] if isinstance(value, list) else [value]


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [
        entry
        for holder in level
        if isinstance(holder, (dict, list))
        for entry in (holder.values() if isinstance(holder, dict) else holder)
    ]:
        depth += 1
    return depth
