"""The papers' architectures, built by name and rebuilt from their recipe."""

from .registry import build, builder, names

__all__ = ["build", "builder", "names"]
