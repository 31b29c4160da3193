"""Save and load an ensemble: safetensors and a JSON header. Nothing in a file is ever executed or fetched."""

from .store import FORMAT, load, save

__all__ = ["FORMAT", "load", "save"]
