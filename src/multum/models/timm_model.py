"""Networks of timm, where it is installed: architectures alone, without weights, files or downloads."""

from __future__ import annotations

import difflib
import re
from typing import Any

from torch import nn

from ..checks import needed, whole
from ..errors import ConfigError, did_you_mean
from ..files import explained
from ..operators import define_missing

# What shapes a network and nothing else. A saved model names its keywords, so whatever could read a file, fetch a URL
# or look up a class (pretrained, pretrained_cfg, checkpoint_path, cache_dir, features_only, ...) must not pass.
KEYWORDS = frozenset(
    (
        *("aa_layer", "act_layer", "attn_drop_rate", "base_width", "block_size", "cardinality", "channels"),
        *("class_token", "depth", "depth_multiplier", "depths", "dims", "drop_block_rate", "drop_path_rate"),
        *("drop_rate", "dynamic_img_size", "embed_dim", "embed_dims", "fc_norm", "global_pool", "growth_rate"),
        *("head_dim", "head_hidden_size", "img_size", "init_values", "kernel_sizes", "layers", "ls_init_value"),
        *("mlp_ratio", "mlp_ratios", "no_embed_class", "norm_layer", "num_heads", "output_stride"),
        *("patch_drop_rate", "patch_size", "pos_drop_rate", "pos_embed", "pre_norm", "proj_drop_rate", "qk_norm"),
        *("qkv_bias", "reg_tokens", "stem_size", "stem_type", "stem_width", "window_size"),
    )
)


def timm_model(model: str, *, classes: int | None = None, in_channels: int = 3, **keywords: Any) -> nn.Module:
    """Build a timm network without trained weights, with multum's names for its outputs and input channels.

    timm.create_model(model, num_classes=classes, in_chans=in_channels, **keywords); ``classes=None`` keeps the head
    that timm gives the network. Only the KEYWORDS that shape an architecture pass.

    **Shape**: the network's own; [batch, in_channels, height, width] -> [batch, classes] for classifiers.

    >>> timm_model("convnext_atto", classes=10)  # doctest: +SKIP
    """
    renamed = {"num_classes": "classes", "in_chans": "in_channels"}
    for theirs in sorted(renamed.keys() & keywords.keys()):
        raise ConfigError(f"the keyword must be {renamed[theirs]}; got {theirs}={keywords[theirs]!r}. Rename it.")
    for keyword, value in keywords.items():
        _check_keyword(model, keyword, value)
    keywords["in_chans"] = whole("in_channels", in_channels)
    if classes is not None:
        keywords["num_classes"] = whole("classes", classes)

    timm = import_timm()
    if not re.fullmatch(r"\w+(\.\w+)?", model) or not timm.is_model(model):
        # did_you_mean names every known name when none is close: timm has more than a thousand
        close = difflib.get_close_matches(model, timm.list_models(), cutoff=0.5)
        hint = did_you_mean(model, close) if close else "Its models are those of timm.list_models()."
        raise ConfigError(f"the name after timm: must be a model of timm; got {model!r}. {hint}")
    refused = (AssertionError, RuntimeError, TypeError, ValueError)
    with explained(f"timm must be able to build {model!r}", "Change the keywords it names.", ConfigError, refused):
        return timm.create_model(model, pretrained=False, **keywords)


def _check_keyword(model: str, keyword: str, value: Any) -> None:
    parts = value if isinstance(value, (list, tuple)) else [value]
    if keyword in KEYWORDS and all(part is None or isinstance(part, (bool, int, float, str)) for part in parts):
        return
    rule = "a keyword must shape the architecture, by a number, a text or a list of them"
    raise ConfigError(
        f"{rule}; got {keyword}={value!r}. For trained weights or other options build the network yourself, as in "
        f"multum.ensemble(timm.create_model({model!r}, {keyword}=...), ...)."
    )


def import_timm() -> Any:
    """The package timm, also where torch was built without the compiled operators that its torchvision expects."""
    define_missing()
    fix = "Install it with `pip install multum[timm]` and see that `python -c 'import timm'` works."
    return needed("timm", "networks of timm must find the package timm", fix)
