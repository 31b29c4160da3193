"""One training run: its data, files and processes around the progress of the members."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..data.given import as_data
from ..data.rows import Stream
from ..ensemble import Ensemble
from ..errors import ConfigError
from ..executors.choosing import fixed
from ..executors.loop import recomputing
from ..files import prepare_folder
from ..saving import save as save_model
from . import checkpoint, executing, resume
from .averaging import held_out_score, refresh_norms, set_noise
from .batches import Step, batches_of, stream
from .criterion import criterion_for
from .devices import Place, agree, average_buffers, open_fabric
from .interrupt import Interrupts, Stopped
from .progress import Progress
from .recipe import Recipe
from .refusals import refuse
from .reporting import Bar, History, Log, Tally, is_lost, lost
from .scoring import room, scoring
from .stopping import is_stalled, warn_if_falling


class Run(Progress):
    """A training with its data, files and processes: the parts of the loop that are not the loop itself."""

    def __init__(
        self,
        ensemble: Ensemble,
        data: Any,
        recipe: Recipe,
        place: Place,
        out: str | Path | None,
        resume: bool,
        progress: bool,
        tensorboard: bool,
        checkpoint_seconds: float,
        fabric: Any = None,
    ):
        self.data, size = as_data(data, ensemble.task)
        if size is not None and recipe.batch_size == Recipe.batch_size:
            recipe = replace(recipe, batch_size=size)
        refuse(ensemble, recipe, self.data, recipe.sequential and ensemble.method.members > 1)
        if recipe.held_out and self.data.validation is None:
            self.data = self.data.with_validation(recipe.held_out, recipe.seed)
        fabric = open_fabric(place, recipe.precision) if fabric is None else fabric
        self.batches = batches_of(self.data, recipe, ensemble, fabric)
        self.criterion = criterion_for(ensemble, self.data, recipe)
        super().__init__(ensemble, recipe, self.batches.per_epoch, fabric)
        self.history: History = []
        self.tally = Tally(self.data.task, self.data.target_std)
        self.scored = scoring(recipe.compile, self.fabric.device.type)
        first = self.fabric.global_rank == 0
        self.out, self.resume = Path(out) if out is not None else None, resume
        if tensorboard and out is None:
            raise ConfigError("TensorBoard files go into the run folder; got out=None. Give fit an out")
        self.tensorboard = tensorboard and first
        self.bar = Bar(self, shown=progress and first)
        self.every, self.saved_at = checkpoint_seconds, time.monotonic()
        self.interrupts = Interrupts()
        self.asked = self.overdue = 0.0

    # -- asked by the loop ---------------------------------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether training is over: by its number of epochs, or because it got no better."""
        return self.epoch >= self.epochs or self.stalled

    @property
    def stalled(self) -> bool:
        """Whether the held-out score of these members has not become better for the recipe's patience."""
        return is_stalled([score for score, _ in self._scores()], self.recipe.patience)

    def _scores(self) -> list[tuple[float, int]]:
        """The held-out scores of these members, lower is better, with their epochs."""
        born, by = self.method.birth_after(self.recipe.epochs) or 0, self.recipe.best_by
        rows = [row for row in self.history if row["epoch"] > born and f"validation_{by}" in row]
        return [(row[f"validation_{by}"] * (1 if by == "nll" else -1), row["epoch"]) for row in rows]

    def awaited(self, batches: Iterator[Step]) -> Iterator[Step]:
        """The same batches; the time that the loop waits for them is counted."""
        while True:
            asked = time.monotonic()
            step = next(batches, None)
            self.tally.waited += time.monotonic() - asked
            if step is None:
                return
            yield step

    @property
    def streams(self) -> bool:
        """Whether examples come in an order that no one can begin in its middle."""
        return isinstance(self.data.train.x, Stream)

    def check(self, value: Tensor, outputs: Tensor, step: Step, member: int | None) -> float:
        """The loss as a number, if it is one; all processes stop where one must."""
        number = float(value.detach())
        overdue = self.out is not None and time.monotonic() - self.saved_at > self.every
        bad, self.asked, self.overdue = agree(self.fabric, is_lost(number), self.interrupts.asked, overdue)
        if bad:
            place = f"epoch {self.epoch + 1}, step {self.step + 1}, lr {self.rate():.4g}"
            raise lost(number, outputs.detach(), step, member, self.criterion, place)
        return number

    def note(self, value: float, outputs: Tensor, step: Step) -> None:
        """Keep the books of a step; save now and then, and at once when asked to stop."""
        per_member = value / len(outputs) if self.reduction == "sum" else value
        self.tally.add(per_member, outputs, step.y, step.per_member)
        self.bar.advance()
        between_moves = self.first % self.recipe.accumulate == 0 and self.first < self.batches.per_epoch
        if between_moves and (self.overdue or self.asked):
            if not self.streams:
                self.save()
            self._stop_if_asked()

    def end_epoch(self, after_epoch: Callable[[int], None]) -> None:
        """Averages, snapshots, births, the log and a checkpoint."""
        alone = self.alone
        average_buffers(self.fabric, self.ensemble)
        self.epoch, self.first = self.epoch + 1, 0
        within = (self.epoch - 1) % self.recipe.epochs + 1
        row = {"epoch": self.epoch, "lr": self.rate(back=1), **self.tally.means(self.fabric)}
        if alone is not None:
            row["member"] = alone
        self.gather(within, alone)
        if self.recipe.keep == "best":
            by = self.recipe.best_by
            row[f"validation_{by}"] = score = held_out_score(self.ensemble, self.data, by, self.batches.place, alone)
            self.best.consider(score if by == "nll" else -score, self._tensors(alone))
        if self.give_birth(within):
            executing.settle(self)
        self.history.append({**row, **self.tally.times()})
        if within == self.recipe.epochs or self.stalled:
            self.settle(alone)
        self.bar.epoch(self.history[-1])
        self.tally = Tally(self.data.task, self.data.target_std)
        self.keep_state(within)
        if self.over or self.asked or agree(self.fabric, time.monotonic() - self.saved_at)[0] > min(1.0, self.every):
            self.save()
        after_epoch(self.epoch)
        self.ensemble.train()
        if not self.over:
            self._stop_if_asked()

    def keep_state(self, epoch: int) -> None:
        """Leave the weights as they are now in states/, where the recipe asks for them."""
        every = self.recipe.states
        if self.out is not None and every and epoch % every == 0 and self.fabric.global_rank == 0:
            folder, state = self.out / "states", self.ensemble.state_dict()
            prepare_folder(folder)
            checkpoint.write(folder, self.step, state, {"epoch": self.epoch}, keep=self.epochs + 1)

    def conclude(self, warn: bool) -> None:
        """Make the final ensemble: what was gathered, fresh norms; write the model; say what is left to be wished."""
        self.method.conclude(self.ensemble)
        if self.method.renews_norms or self.recipe.average_from is not None:
            refresh_norms(self.ensemble, self.batches.plain(), self.recipe.seed)
        self.ensemble.eval()
        if "noise" in self.ensemble.state:
            set_noise(self.ensemble, self.data, self.batches.place)
        if self.fabric.global_rank == 0:
            self.ensemble.warn_of_twins()
        if self.out is not None and self.fabric.global_rank == 0:
            self.log.write(self.history)
            save_model(self.ensemble, self.out / "model.safetensors")
        self.bar.total()
        if self.epoch < self.epochs:
            best = min(self._scores())[1]
            self.bar.say(f"stopped after epoch {self.epoch}; epoch {best} is kept, the best by {self.recipe.best_by}")
        elif warn and self.fabric.global_rank == 0:
            warn_if_falling(self.history, self.recipe.epochs)
        self.fabric.barrier()

    # -- around the loop -----------------------------------------------------------------------------------------------

    def __enter__(self) -> Run:
        with ExitStack() as opened:
            self.seed(opened)
            if self.out is not None:
                resume.begin(self, self.out, self.resume)
                self.log = opened.enter_context(closing(Log(self.out, self.tensorboard, shown=len(self.history))))
            else:
                executing.settle(self)
            self.hold(opened)
            opened.enter_context(self.interrupts)
            opened.enter_context(self.bar)
            self.opened = opened.pop_all()
        return self

    def __exit__(self, *exc: Any) -> None:
        self.opened.close()

    def seed(self, opened: ExitStack) -> None:
        """Torch's own generator by the recipe's seed, its default type by the precision; afterwards as they were."""
        opened.callback(torch.set_default_dtype, torch.get_default_dtype())
        if self.recipe.precision == "64-true":
            torch.set_default_dtype(torch.float64)  # of augmentation's draws, and of outputs from Fabric
        opened.enter_context(torch.random.fork_rng(devices=[]))
        torch.manual_seed(stream(self.recipe.seed, "torch").initial_seed())

    def hold(self, opened: ExitStack) -> None:
        """What all steps have: their executors as they were settled, and memory and programs as the recipe asks."""
        self.ensemble.train()
        opened.enter_context(fixed())
        if self.recipe.recompute:
            opened.enter_context(recomputing())
        opened.enter_context(room(self.recipe.compile, self.method.members))

    def save(self) -> None:
        if self.out is not None:
            resume.save(self, self.out)
            if self.fabric.global_rank == 0:
                self.log.write(self.history)
        self.saved_at = time.monotonic()

    def _stop_if_asked(self) -> None:
        if self.asked:
            raise Stopped(int(self.asked))
