"""The papers' architectures, built by name and rebuilt from their description; your own networks by their files."""

from .registry import build, builder, full_name, is_resized, names, own_name
from .sources import keep, recall

__all__ = ["build", "builder", "full_name", "is_resized", "keep", "names", "own_name", "recall"]
