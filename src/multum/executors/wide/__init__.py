"""Members side by side in the channels of one network, which runs once."""

from .running import Wide, wide_of

__all__ = ["Wide", "wide_of"]
