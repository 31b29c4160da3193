"""`multum.lightning.EnsembleModule`: the training of `multum.fit` under Lightning's Trainer.

    module = multum.lightning.EnsembleModule(ens, data, multum.Recipe(epochs=30))
    lightning.Trainer(max_epochs=30).fit(module)

Lightning turns its loop, and owns devices, precision and processes. Every method trains (turns, late birth, collected
members, averages); each step has the loss that `multum.fit` has on as many processes, and a run that is resumed by
`Trainer.fit(module, ckpt_path=...)` ends as if it had never stopped.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn

from ..ensemble import Ensemble
from ..errors import ConfigError
from ..network.copies import tensors_of
from ..outputs.loss import loss
from ..outputs.prediction import predict
from ..training import executing, resume
from ..training.batches import Step
from ..training.devices import Place
from ..training.loop import train_on
from ..training.recipe import PRECISIONS, Recipe
from ..training.run import Run

__all__ = ["EnsembleModule", "check_processes"]


class EnsembleModule(LightningModule):
    """An ensemble, its data and its recipe as a LightningModule; `module.ensemble` is trained in place.

    Args:
        data: as `multum.fit` takes it; batches and their order are multum's own, by the recipe's seed.
        recipe: how to train, but for devices and precision, which are the Trainer's. Its epochs are the Trainer's most.

    Logged are train_loss (per member, every step) and the row of the history of every epoch. A validation loader of
    Trainer.fit gives val_nll, the loss of the members' mixture.
    """

    def __init__(self, ensemble: Ensemble, data: Any, recipe: Recipe | None = None):
        super().__init__()
        self.automatic_optimization = False
        self.ensemble, self.data, self.recipe = ensemble, data, recipe or Recipe()
        self.run: Run | None = None
        self._saved: dict[str, Any] | None = None

    @property
    def history(self) -> list[dict[str, Any]]:
        """What happened, epoch by epoch."""
        return [] if self.run is None else self.run.history

    def forward(self, x: Any) -> Tensor:
        """As the ensemble's."""
        return self.ensemble(x)

    # -- training ------------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> Any:
        trainer = self.trainer
        if trainer.precision not in PRECISIONS:
            raise ConfigError(f"precision must be one of {', '.join(PRECISIONS)}; got {trainer.precision}. Use another")
        check_processes(trainer)
        # The wrapper would reduce the gradients of the tensors that it saw at first; members may be born, and the run
        # has its own, of the ensemble. The hooks of this one must go before.
        trainer.strategy.model = self
        gc.collect()
        recipe = replace(self.recipe, precision=trainer.precision)
        self.run = Run(self.ensemble, self.data, recipe, Place(), None, False, False, False, 0.0, _Hands(self))
        if trainer.max_epochs is None or not 0 < trainer.max_epochs <= self.run.epochs:
            raise ConfigError(
                f"a Trainer must have as many epochs as the recipe, or fewer to go on later; got "
                f"max_epochs={trainer.max_epochs} for {self.run.epochs}. Use Trainer(max_epochs={self.run.epochs})"
            )
        return self._torch_optimizers()

    def train_dataloader(self) -> Any:
        return _Loader(self)

    def on_fit_start(self) -> None:
        assert self.run is not None
        self._opened = contextlib.ExitStack()
        self.run.seed(self._opened)
        if self._saved is None:
            executing.settle(self.run)
        self.run.hold(self._opened)
        if self._saved is not None:
            resume.put_back(self.run, self._saved["tensors"], self._saved["header"], "a Lightning checkpoint")
            self._saved = None
            self._end_epoch()  # a checkpoint of the last batch of an epoch was written before its end
            self._hand_over_optimizers()

    def training_step(self, batch: Step, batch_idx: int) -> Tensor:
        run = self.run
        if run is None or not isinstance(batch, Step):
            raise ConfigError(
                f"EnsembleModule must have its training data itself, as multum.fit does; got a {type(batch).__name__} "
                "of another loader. Use EnsembleModule(ensemble, data), and Trainer.fit(module)"
            )
        number, outputs = train_on(run, batch)
        self.log("train_loss", number / len(outputs) if run.reduction == "sum" else number, prog_bar=True)
        return outputs.new_tensor(number)

    def on_train_epoch_end(self) -> None:
        run = self.run
        assert run is not None
        self._end_epoch()
        self._hand_over_optimizers()
        measured = {k: v for k, v in run.history[-1].items() if k not in ("epoch", "member", "seconds", "waiting")}
        self.log_dict({f"epoch_{name}": float(value) for name, value in measured.items()}, sync_dist=True)
        if run.over:
            self.trainer.should_stop = True

    def _end_epoch(self) -> None:
        """End the epoch whose batches are all done."""
        if self.run is not None and self.run.first == self.run.batches.per_epoch:
            self.run.end_epoch(lambda epoch: None)

    def on_train_end(self) -> None:
        assert self.run is not None
        if self.run.over:
            self.run.conclude(warn=False)

    def teardown(self, stage: str) -> None:
        if hasattr(self, "_opened"):
            self._opened.close()

    def configure_callbacks(self) -> list[Callback]:
        return [_Close()]

    # -- validation and prediction -------------------------------------------------------------------------------------

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        prediction = predict(self.ensemble, batch[0])
        if self.ensemble.task == "classification":
            value = loss(prediction.log_probs.unsqueeze(0), batch[1])  # type: ignore[union-attr]
        else:
            means, variances = prediction.members.unbind(2)
            log = torch.distributions.Normal(means, variances.sqrt()).log_prob(batch[1]).logsumexp(0)
            value = torch.log(torch.tensor(float(len(means)))) - log.mean()
        self.log("val_nll", value, prog_bar=True, batch_size=len(batch[1]), sync_dist=True)

    def predict_step(self, batch: Any, batch_idx: int) -> Any:
        return predict(self.ensemble, batch[0] if isinstance(batch, (tuple, list)) else batch)

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.run is not None:
            tensors, header = resume.state_of(self.run)
            checkpoint["multum"] = {"tensors": tensors, "header": header}
            checkpoint["optimizer_states"] = []  # they are among the tensors

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._saved = checkpoint.get("multum")
        if self._saved is None:
            return
        net = {name.removeprefix("net."): t for name, t in self._saved["tensors"].items() if name.startswith("net.")}
        own = {name: net[name] for name in self.ensemble.own}
        if own and next(iter(own.values())).shape[0] != self.ensemble.members:  # members were born since
            self.ensemble.regrow(own)
        for name, tensor in tensors_of(self.ensemble.network).items():
            if name in net and tensor.shape != net[name].shape:
                raise ConfigError(f"a checkpoint must be of this ensemble; got another shape of {name}. Use its own")

    # -- optimizers ----------------------------------------------------------------------------------------------------

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Nothing: gradients are the run's. Slices look at members' own; shared ones may be under way."""

    def _torch_optimizers(self) -> list[torch.optim.Optimizer]:
        assert self.run is not None
        return [held.optimizer for held in self.run.optimizers.every()]

    def _hand_over_optimizers(self) -> None:
        """Members that were born have new optimizers, which Lightning must know to count their steps."""
        if [*map(id, self._torch_optimizers())] != [*map(id, self.trainer.strategy.optimizers)]:
            self.trainer.strategy.optimizers = self._torch_optimizers()


class _Loader:
    """The batches of the present epoch, from where the run is; it is the run that is saved and resumed."""

    def __init__(self, module: EnsembleModule):
        self.module = module

    def __iter__(self) -> Iterator[Step]:
        run = self.module.run
        assert run is not None
        return run.batches.epoch(run.epoch % run.recipe.epochs, run.first, run.alone)

    def __len__(self) -> int:
        assert self.module.run is not None
        return self.module.run.batches.per_epoch

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        pass


class _Held:
    """A torch optimizer that steps by Lightning's hand, which counts the step and knows the precision."""

    def __init__(self, optimizer: torch.optim.Optimizer, module: EnsembleModule):
        self.optimizer, self.module = optimizer, module

    def step(self) -> None:
        known = self.module.trainer.strategy._lightning_optimizers
        next(each for each in known if each.optimizer is self.optimizer).step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)


class _Close(Callback):
    """Of a fit that fails Lightning tells callbacks alone."""

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        pl_module.teardown("fit")


def check_processes(trainer: Trainer) -> None:
    """Refuse what would not train an ensemble as one process does."""
    strategy = trainer.strategy
    if trainer.world_size > 1 and (not isinstance(strategy, DDPStrategy) or strategy._start_method != "popen"):
        raise ConfigError(
            "several processes of a Trainer must be started as scripts, and each have all members; got "
            f"{type(strategy).__name__}. Use Trainer(strategy='ddp'), or torchrun"
        )
    if getattr(strategy, "_layer_sync", None) is not None:
        raise ConfigError(
            "batch norms of an ensemble are multum's own, with each process's statistics; got sync_batchnorm=True. "
            "Leave it out, or use a network with group norms"
        )


class _Hands:
    """What a run asks of Lightning Fabric, done by a Trainer."""

    def __init__(self, module: EnsembleModule):
        self.module, trainer = module, module.trainer
        self.world_size, self.global_rank = trainer.world_size, trainer.global_rank
        self.strategy, self.barrier = SimpleNamespace(precision=trainer.precision_plugin), trainer.strategy.barrier
        self.broadcast, self.autocast = trainer.strategy.broadcast, trainer.precision_plugin.forward_context
        self.all_gather, self.all_reduce = trainer.strategy.all_gather, trainer.strategy.reduce

    @property
    def device(self) -> torch.device:
        return self.module.device

    def to_device(self, x: Any) -> Any:
        return self.module.trainer.strategy.batch_to_device(x, self.device)

    def setup_module(self, module: nn.Module) -> nn.Module:
        """Of several processes, torch's wrapper, which takes the mean of their gradients."""
        return self.module.trainer.strategy._setup_model(module) if self.world_size > 1 else module

    def setup_optimizers(self, optimizer: torch.optim.Optimizer) -> _Held:
        return _Held(optimizer, self.module)

    def backward(self, value: Tensor) -> None:
        self.module.manual_backward(value)

    def no_backward_sync(self, module: Any, enabled: bool) -> Any:
        return module.no_sync() if enabled and self.world_size > 1 else contextlib.nullcontext()

    def clip_gradients(self, module: nn.Module, optimizer: _Held, max_norm: float, error_if_nonfinite: bool) -> None:
        self.strategy.precision.unscale_gradients(optimizer.optimizer)
        nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], max_norm)
