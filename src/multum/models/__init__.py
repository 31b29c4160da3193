"""The papers' architectures, built by name and rebuilt from their recipe."""

from multum.models.registry import build, names

__all__ = ["build", "names"]
