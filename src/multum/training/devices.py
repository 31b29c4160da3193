"""Processes, devices and precision: Lightning Fabric's work, opened here."""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from ..errors import TrainingError, first_line

if TYPE_CHECKING:
    from lightning_fabric import Fabric


START_SECONDS = 300.0  # that a process waits for the others to start


class Place(NamedTuple):
    """Where to train."""

    accelerator: str = "auto"
    devices: int | str = 1  # processes on each machine
    nodes: int = 1


def open_fabric(place: Place, precision: str) -> Fabric:
    """Fabric, launched. Under torchrun the processes are there already, and their number is torchrun's."""
    from lightning_fabric import Fabric  # seconds to import, and only training needs it
    from lightning_fabric.strategies import DDPStrategy

    accelerator, devices, nodes = place
    if torch.distributed.is_available() and torch.distributed.is_torchelastic_launched():
        here, everywhere = int(os.environ["LOCAL_WORLD_SIZE"]), int(os.environ["WORLD_SIZE"])
        devices, nodes = here, everywhere // here
    try:
        fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, precision=precision)  # type: ignore[arg-type]
    except Exception as error:  # Fabric names what it was given and what it knows, under many types
        raise TrainingError(
            f"the machine must have what was asked for; got accelerator={accelerator!r}, devices={devices!r}, "
            f"nodes={nodes!r}, precision={precision!r}: {error}"
        ) from error
    if fabric.device.type == "cpu" and precision.startswith("bf16") and not _bfloat16_runs():
        raise TrainingError(
            f"this CPU must be able to compute in bfloat16; got precision={precision!r}, and a trial process that was "
            "killed by it. Set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before Python starts, or use precision='32-true'"
        )
    if not isinstance(fabric.strategy, DDPStrategy):
        fabric.launch()
        return fabric
    usual, fabric.strategy._timeout = fabric.strategy._timeout, timedelta(seconds=START_SECONDS)
    try:
        fabric.launch()
    except torch.distributed.DistError as error:
        raise TrainingError(
            f"all {fabric.world_size} processes must start within {START_SECONDS:.0f} s of each other; process "
            f"{fabric.global_rank} waited in vain: {first_line(error)}. See why another one ended, and start all again"
        ) from error
    atexit.register(_disconnect)
    if usual is not None:  # between steps one process may wait longer, as while another writes a checkpoint
        torch.distributed.distributed_c10d._set_pg_timeout(usual)
    return fabric


def _disconnect() -> None:
    """Before Python ends: threads of a process group that is still there abort a process that has done its work."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@functools.cache
def _bfloat16_runs() -> bool:
    """Whether a process survives products in bfloat16: some machines announce instructions that they do not have."""
    if "ONEDNN_MAX_CPU_ISA" in os.environ:
        return True
    trial = "import torch; x = torch.ones(1, 1, 64, 64, dtype=torch.bfloat16); x @ x; torch.conv2d(x, x)"
    return subprocess.run([sys.executable, "-c", trial], capture_output=True).returncode >= 0


def agree(fabric: Any, *values: float) -> list[float]:
    """The largest value over all processes, of each: what one of them has met, all of them know."""
    if fabric.world_size == 1:
        return list(values)
    return fabric.all_reduce(torch.tensor(values, dtype=torch.float64, device=fabric.device), reduce_op="max").tolist()


@torch.no_grad()
def average_buffers(fabric: Any, module: nn.Module) -> None:
    """Running statistics become the mean over all processes; between steps those of the first one go to all."""
    if fabric.world_size > 1:
        for buffer in module.buffers():
            if buffer.is_floating_point():
                buffer.copy_(fabric.all_reduce(buffer, reduce_op="mean"))


def is_first() -> bool:
    """Whether this process is the one that prints, before and after processes are connected."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank() == 0
    return not any(int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))
