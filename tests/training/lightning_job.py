"""As ddp_job.py, under Lightning's Trainer with two processes of torchrun: python lightning_job.py FOLDER NAME ..."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import save_file

import multum
from multum.lightning import EnsembleModule

if __name__ == "__main__":
    from ddp_job import JOBS, RECIPE, Net, data
    from lightning.pytorch import Trainer

    folder, *names = sys.argv[1:]
    for name in names:
        method, fields = JOBS[name]
        torch.manual_seed(0)
        ens = multum.ensemble(Net(name == "batch norm"), method, example=data().example(4), seed=1)
        module = EnsembleModule(ens, data(), replace(RECIPE, **fields))
        quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
        where = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "precision": "64-true"}
        trainer = Trainer(max_epochs=RECIPE.epochs, enable_model_summary=False, **quiet, **where)
        trainer.fit(module)
        rows = [{k: v for k, v in row.items() if k not in ("seconds", "waiting")} for row in module.history]
        path = Path(folder) / f"{name}-{trainer.global_rank}.safetensors"
        save_file(ens.double().state_dict(), path, metadata={"log": json.dumps(rows)})
