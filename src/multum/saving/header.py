"""What a file says about itself, and how much of it is believed: nothing that was not checked here.

A header may come from anyone. Its JSON is bounded in length, depth and digits; every entry has its type and range; a
recipe has keywords of an allow-list, so that no keyword of timm can name a file or an address.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from ..building import TASKS
from ..choice import MODES
from ..errors import FileError, did_you_mean, first_line
from ..methods import METHODS
from .example import MOST_VALUES, is_int, is_plain, is_spec

__all__ = ["FORMAT", "allowed", "method_of", "parse", "recipe_numbers"]

FORMAT = 3
SINCE = {"checksum": 2, "executors": 3}  # the format that an entry came with, if not the first

LONGEST = 2**24  # characters of a header
DEEPEST = 12  # lists and dicts inside each other
LARGEST = 2**24  # a width, a depth, a size of a recipe
MOST_MEMBERS = 2**12

WORD = re.compile(r"[\w.+-]{0,64}", re.ASCII)  # no path and no address
MODEL = re.compile(r"(timm:)?[\w.-]{1,100}", re.ASCII)  # timm's "hf-hub:..." and "local-dir:..." are no architectures

# timm passes on to its networks whatever it does not know; these shape a network, and name no file or address.
TIMM = """
act_layer attn_drop_rate base_width block_size cardinality channels class_token classes conv_bias conv_mlp depth
depth_multiplier depths dim dims drop_path_rate drop_rate dynamic_img_size embed_dim embed_dims expand_ratio global_pool
growth_rate head_dim head_hidden_size head_init_scale img_size in_channels init_values kernel_sizes layers ls_init_value
mlp_ratio mlp_ratios no_embed_class norm_eps norm_layer num_features num_heads num_reg_tokens num_stages output_stride
patch_size pos_embed pre_norm proj_drop_rate qk_norm qkv_bias reduce_first reg_tokens rep_stride se_ratio stem_type
stem_width strides widths window_size
"""
TIMM_KEYWORDS = frozenset(TIMM.split())


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
    "example": (f"shapes of at most {MOST_VALUES} values", is_spec),
    "folded": ("true or false", lambda v: isinstance(v, bool)),
    "frozen": ("a list of names", _is_names),
    "members": (f"a whole number from 1 to {MOST_MEMBERS}", lambda v: is_int(v, 1, MOST_MEMBERS)),
    "method": ("a method's name and plain fields", lambda v: _is_fields(v) and isinstance(v.get("name"), str)),
    "network": ("a class and a recipe", _is_network),
    "other_mode": ("a list of names", _is_names),
    "own": ("a list of names", _is_names),
    "seeds": ("a list of seeds", lambda v: isinstance(v, list) and all(is_int(seed, 0, 2**63 - 1) for seed in v)),
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
        if not is_int(version, 1, 10**6):
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
        known = keyword in TIMM_KEYWORDS or not name.startswith("timm:")  # the registry knows those of multum's own
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
