"""A run on the Hugging Face hub: its model card, its model, and what `multum predict` needs of a run folder.

README.md, figure      the model card
model.safetensors      the ensemble; run.json and preparation.json say how it was trained and how it reads examples
validation.safetensors the members' outputs on the held-out part, for coverage, conformal sets and the like
network.py             of a network of the user's own

No example of the data is among them, nor where it lies on this machine. Who downloads the folder
(`huggingface_hub.snapshot_download`) gives it to `multum predict`, `export` or `multum.load` as any run folder.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

from ..checks import needed
from ..errors import ExportError, first_line
from ..models.sources import NETWORK
from ..runs.folder import RunFolder
from .card import write_card
from .describing import public_name, public_preparation

__all__ = ["push_to_hub", "write_repository"]

KEPT = ("model.safetensors", "validation.safetensors", NETWORK)


def push_to_hub(run: str | Path, name: str, *, private: bool = False, api: Any = None) -> str:
    """Push a finished run to the hub as one commit; the address of its page.

    Args:
        name: of the repository, as "me/churn"; it is made where it is not there.
        api: a `huggingface_hub.HfApi`; None for one with the token that `hf auth login` left.
    """
    api = _api() if api is None else api
    with tempfile.TemporaryDirectory(prefix="multum-") as folder:
        write_repository(run, folder)
        try:
            address = api.create_repo(name, private=private, exist_ok=True)
            api.upload_folder(repo_id=name, folder_path=folder, commit_message="A model of multum")
        except Exception as error:  # whatever the package, the network or the hub may raise
            raise ExportError(
                f"{name} must be a repository on the Hugging Face hub that you may write to; got "
                f"{type(error).__name__}: {first_line(error)}. Log in with `hf auth login`, and check name and network"
            ) from error
    return str(address)


def write_repository(run: str | Path, to: str | Path) -> Path:
    """Write to a folder what is pushed, as a repository of the hub has it; the folder."""
    source, target = RunFolder(Path(run)), RunFolder(Path(to))
    target.path.mkdir(parents=True, exist_ok=True)
    write_card(source.path, target.path)
    described = source.read()
    target.write({**described, **{key: public_name(described[key]) for key in ("data", "model")}})
    target.write_preparation(public_preparation(source.preparation(described)))
    for name in KEPT:
        if (source.path / name).is_file():
            shutil.copyfile(source.path / name, target.path / name)
    return target.path


def _api() -> Any:
    rule, fix = "models must be pushed by the package huggingface_hub", "Install it: pip install 'multum[hub]'"
    return needed("huggingface_hub", rule, fix, ExportError).HfApi(library_name="multum")
