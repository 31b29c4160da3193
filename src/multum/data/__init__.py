"""Data: where it comes from, how it is split, and augmentation of whole batches of tensors."""

from .sources import Data, Part, load_data

__all__ = ["Data", "Part", "load_data"]
