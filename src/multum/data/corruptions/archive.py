"""Published archives of corrupted images: CIFAR-10-C, CIFAR-100-C, and any other in their layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ...errors import ConfigError, DataError, did_you_mean
from ..sources import Part

__all__ = ["SEVERITIES", "check_severity", "load_archive"]

SEVERITIES = (1, 2, 3, 4, 5)


def check_severity(severity: int) -> None:
    if isinstance(severity, bool | float) or severity not in SEVERITIES:
        raise ConfigError(f"a severity is a whole number from 1 to 5, however: {severity!r}")


def load_archive(folder: str | Path, name: str, severity: int) -> Part:
    """One corruption at one severity of a published archive: NAME.npy and labels.npy in `folder`.

    NAME.npy holds the severities one after the other, [5 n, h, w, 3] (or [5 n, h, w]) uint8; labels.npy [5 n], five
    times the same n labels. Only the wanted fifth is read.

    Shape: x [n, c, h, w] uint8, y [n].
    """
    check_severity(severity)
    folder = Path(folder)
    images, labels = _array(folder, name), _array(folder, "labels")
    grey = images.ndim == 3
    if images.dtype != np.uint8 or not (grey or (images.ndim == 4 and images.shape[-1] in (1, 3))):
        raise DataError(
            f"{folder / name}.npy holds uint8 images [5 n, height, width, channels], however: "
            f"{images.dtype} of shape {images.shape}"
        )
    if len(images) == 0 or len(images) % 5:
        raise DataError(
            f"{folder / name}.npy holds five severities of the same images, however: "
            f"{len(images)} images, not a multiple of 5"
        )
    if labels.shape != (len(images),) or labels.dtype.kind not in "iu":
        raise DataError(
            f"{folder / 'labels'}.npy holds one whole number for each of the {len(images)} images of {name}.npy, "
            f"however: {labels.dtype} of shape {labels.shape}"
        )
    if not (labels.reshape(5, -1) == labels[: len(labels) // 5]).all():
        raise DataError(
            f"{folder / 'labels'}.npy repeats the same labels for the five severities, however: they differ"
        )
    n = len(images) // 5
    part = slice((severity - 1) * n, severity * n)
    x = torch.from_numpy(np.array(images[part]))
    x = x.unsqueeze(1) if grey else x.permute(0, 3, 1, 2).contiguous()
    return Part(x, torch.from_numpy(labels[part].astype(np.int64)))


def _array(folder: Path, name: str) -> np.ndarray:
    path = folder / f"{name}.npy"
    if not path.is_file():
        there = sorted(p.stem for p in folder.glob("*.npy")) if folder.is_dir() else []
        what = did_you_mean(name, there) if there else f"{folder} has no .npy files: is it the unpacked archive?"
        raise DataError(f"an archive is a folder with NAME.npy and labels.npy, however: {path} is missing. {what}")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path} is a plain numpy array, however: {error}") from error
