"""`multum.lightning.EnsembleCallback`: an ensemble inside a LightningModule of one's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim import Optimizer

from ..ensemble import Ensemble
from ..errors import ConfigError
from ..methods.base import divide_gradients
from ..training.averaging import norms_of, refresh_norms
from ..training.devices import average_buffers
from .module import check_processes

__all__ = ["EnsembleCallback"]


class EnsembleCallback(Callback):
    """What a method asks of a training, where loss, optimizer and data are your own LightningModule's.

        def training_step(self, batch, i):
            return multum.loss(self.ens(batch[0]), batch[1], reduction="sum")

        Trainer(max_epochs=30, callbacks=[multum.lightning.EnsembleCallback()]).fit(module, loader)

    The loss is the sum of the members' losses; what members share moves by the mean of their gradients, so that each
    trains as if alone. A method with a learning rate of its own (Snapshot, FastGeometric) has it, and what is gathered
    along the way (also Swag) becomes the members at the end. Members that take turns need optimizers of their own: for
    Hypernet use EnsembleModule, or multum.Course in a training_step with automatic_optimization = False.

    Args:
        name: the attribute that holds the ensemble; None: the only one in the module.
    """

    def __init__(self, name: str | None = None):
        self.name = name
        self._gathered: dict[str, Any] = {}
        self._batch = 0

    def _ensemble(self, module: LightningModule) -> Ensemble:
        if self.name is not None:
            return getattr(module, self.name)
        every = [part for part in module.modules() if isinstance(part, Ensemble)]
        if len(every) != 1:
            raise ConfigError(f"a module must hold one ensemble; got {len(every)}. Use EnsembleCallback(name='...')")
        return every[0]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        check_processes(trainer)
        self.ensemble = self._ensemble(pl_module)
        method = self.ensemble.method
        if method.takes_turns and method.members > 1:
            raise ConfigError(
                f"members that take turns must have optimizers of their own; got {type(method).__name__}. Use "
                "EnsembleModule, or multum.Course in training_step"
            )
        if trainer.max_epochs is None or trainer.max_epochs < 1:
            raise ConfigError(f"a Trainer must have a number of epochs; got max_epochs={trainer.max_epochs}. Give one")
        self.epochs = trainer.max_epochs
        method.check_epochs(self.epochs)
        self.ensemble.state.update(self._gathered)
        for optimizer in trainer.optimizers:
            optimizer.register_step_post_hook(_give_back)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._batch = trainer.current_epoch * int(trainer.num_training_batches) + batch_idx

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        parameters = {name: p for name, p in self.ensemble.named_parameters() if id(p) in held}
        if not parameters:
            return
        counts = self.ensemble.method.sharers(self.ensemble) if self.ensemble.members > 1 else {}
        divide_gradients(parameters, {name: count for name, count in counts.items() if name in parameters})
        per_epoch = int(trainer.num_training_batches)
        for group in optimizer.param_groups:
            usual, base = group["lr"], group.get("initial_lr", group["lr"])
            group["given_lr"] = usual
            steps = self.epochs * per_epoch
            group["lr"] = self.ensemble.method.learning_rate(usual, self._batch, steps, per_epoch, base)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        processes = SimpleNamespace(world_size=trainer.world_size, all_reduce=trainer.strategy.reduce)
        average_buffers(processes, self.ensemble)
        if self.ensemble.method.collects(trainer.current_epoch + 1, self.epochs):
            self.ensemble.method.collect(self.ensemble)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.current_epoch < self.epochs:
            return  # stopped, to go on later
        method = self.ensemble.method
        method.conclude(self.ensemble)
        if method.renews_norms and norms_of(self.ensemble):
            batches = (trainer.strategy.batch_to_device(batch) for batch in trainer.train_dataloader or ())
            inputs = (batch[0] if isinstance(batch, (tuple, list)) else batch for batch in batches)
            convert = trainer.precision_plugin.convert_input
            refresh_norms(self.ensemble, (convert(x) for x in inputs))
            self._pool_norms(trainer)

    def _pool_norms(self, trainer: Trainer) -> None:
        """Each process has seen its share of the rows: the statistics of all of them."""
        for norm in norms_of(self.ensemble).values() if trainer.world_size > 1 else ():
            mean, variance = norm.running_mean.double(), norm.running_var.double()
            square = trainer.strategy.reduce(variance + mean**2, reduce_op="mean")
            mean = trainer.strategy.reduce(mean, reduce_op="mean")
            norm.running_mean.copy_(mean)
            norm.running_var.copy_(square - mean**2)

    def state_dict(self) -> dict[str, Any]:
        return {"gathered": dict(self.ensemble.state) if hasattr(self, "ensemble") else {}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._gathered = state_dict["gathered"]


def _give_back(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
    """The learning rate that the module's own schedule goes on from."""
    for group in optimizer.param_groups:
        if "given_lr" in group:
            group["lr"] = group.pop("given_lr")
