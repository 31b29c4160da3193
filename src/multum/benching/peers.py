"""The same ensembles by other libraries, where they are installed: torch-uncertainty's networks, and TabM.

Each is built with the same number of members and the same sizes, and fed so that it does the same work.
"""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..checks import needed
from ..methods import Method
from ..operators import define_missing
from ..parsing import named
from .setting import Setting

PACKAGES = ("torch-uncertainty", "torchvision", "lightning", "tabm", "onnxruntime", "openvino")


class Peer:
    """A library with ensembles of its own."""

    name: str
    module: str

    def has(self, setting: Setting, method: Method) -> bool:
        """Whether the library has this method for this network."""
        return self.fields(setting, method) is not None

    def fields(self, setting: Setting, method: Method) -> Mapping[str, Any] | None:
        """What its network is built with; None where it has none."""
        raise NotImplementedError

    def build(self, setting: Setting, method: Method) -> nn.Module:
        """Its network."""
        raise NotImplementedError

    def batch(self, method: Method, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """What a training step takes, so that every member sees the batch as multum's does."""
        raise NotImplementedError

    def load(self) -> Any:
        """The library, or an error that says how to install it."""
        define_missing()
        fix = "Run make bench, or pip install 'multum[bench]'"
        return needed(self.module, f"a row of {self.name} must find the package", fix)


class TorchUncertainty(Peer):
    """torch-uncertainty's ResNets, written by hand for each method."""

    name = "torch-uncertainty"
    module = "torch_uncertainty.models.classification.resnet"
    # Ours by name: its function, and its arguments by our fields. Each member sees every example ("legacy"), or a share
    # of the batch ("paper"), as with us.
    networks: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Any]]] = {
        "packed": ("packed_resnet", {"alpha": "alpha", "gamma": "gamma"}, {}),
        "batchensemble": ("batched_resnet", {}, {"repeat_strategy": "legacy"}),
        "masksembles": ("masked_resnet", {"scale": "scale"}, {"repeat_strategy": "paper"}),
        "mimo": ("mimo_resnet", {}, {}),
    }

    def fields(self, setting: Setting, method: Method) -> Mapping[str, Any] | None:
        name, keywords = named(setting.model)
        depth = re.fullmatch(r"resnet(18|50)", name)
        if depth is None or method.name not in self.networks or keywords.keys() - {"stem"}:
            return None
        _, ours, theirs = self.networks[method.name]
        sizes = {theirs: vars(method)[field] for theirs, field in ours.items()}
        style = keywords.get("stem", "cifar")
        return {"arch": int(depth[1]), "num_estimators": method.members, "style": style, **sizes, **theirs}

    def build(self, setting: Setting, method: Method) -> nn.Module:
        make = getattr(self.load(), self.networks[method.name][0])
        fields = self.fields(setting, method) or {}
        return make(in_channels=setting.shape[0], num_classes=setting.outputs, conv_bias=False, **fields)

    def batch(self, method: Method, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if method.name == "masksembles":  # the rows of the batch are dealt out to the members
            return x, y
        repeated = x.repeat(method.members, *[1] * (x.ndim - 1)) if method.name == "mimo" else x
        return repeated, y.repeat(method.members)


class TabM(Peer):
    """The package `tabm`: BatchEnsemble of a multilayer perceptron, each member with a head of its own."""

    name = module = "tabm"

    def fields(self, setting: Setting, method: Method) -> Mapping[str, Any] | None:
        name, keywords = named(setting.model)
        hidden = keywords.get("hidden", ())
        widths = hidden if isinstance(hidden, tuple) else (hidden,)
        if name != "mlp" or method.name != "batchensemble" or len({*widths}) != 1:
            return None
        sizes = {"n_blocks": len(widths), "d_block": widths[0], "dropout": keywords.get("dropout", 0.0)}
        return {"k": method.members, **sizes}

    def build(self, setting: Setting, method: Method) -> nn.Module:
        fields = self.fields(setting, method) or {}
        return self.load().TabM.make(n_num_features=setting.shape[0], d_out=setting.outputs, **fields)

    def batch(self, method: Method, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return x, y.repeat_interleave(method.members, 0)


PEERS: dict[str, Peer] = {peer.name: peer for peer in (TorchUncertainty(), TabM())}


def installed_versions() -> dict[str, str]:
    """The versions of the libraries that rows may be of, as far as they are installed."""
    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
