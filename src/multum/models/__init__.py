"""The papers' architectures, built by name and rebuilt from their recipe; and networks of one's own, by their files."""

from .registry import build, builder, full_name, names, own_name
from .sources import keep, recall

__all__ = ["build", "builder", "full_name", "keep", "names", "own_name", "recall"]
