"""Ensembles under Lightning's Trainer, with its loggers, callbacks and checkpoints.

EnsembleModule      the training of `multum.fit`, turned by Lightning: any method
EnsembleCallback    what a method asks, for a LightningModule of your own with its own loss and optimizer
"""

from ..operators import define_missing

define_missing()  # Lightning imports torchvision where it is installed, also where its operators are missing
try:
    import lightning.pytorch  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"multum.lightning must have the package lightning, which cannot be imported ({error}). Install it: "
        "pip install 'multum[lightning]'"
    ) from error

from .callback import EnsembleCallback  # noqa: E402
from .module import EnsembleModule  # noqa: E402

__all__ = ["EnsembleCallback", "EnsembleModule"]
