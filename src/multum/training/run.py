"""One training run: where it is, what it has moved, and everything that must survive a crash."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import time
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from ..data.sources import Data, Part
from ..ensemble import Ensemble
from ..errors import TrainingError
from ..evaluation.predict import Prediction, RegressionPrediction
from ..rewrite.trace import tensors_of
from ..saving import save
from . import checkpoint
from .averaging import Average, refresh_norms
from .batches import Batches, stream
from .optimizers import Optimizers
from .progress import Bar
from .recipe import Recipe

__all__ = ["History", "Run"]

History = list[dict[str, Any]]


class Run:
    """The state of a training run, and the steps of the loop that are not the loop itself."""

    def __init__(
        self,
        ensemble: Ensemble,
        data: Data | tuple[Tensor, Tensor],
        recipe: Recipe,
        out: str | Path | None,
        resume: bool,
        progress: bool,
        accelerator: str,
        devices: int | str,
        nodes: int,
        checkpoint_seconds: float,
    ):
        self.ensemble, self.recipe, self.method = ensemble, recipe, ensemble.method
        self.fabric = Fabric(accelerator=accelerator, devices=devices, num_nodes=nodes, precision=recipe.precision)  # type: ignore[arg-type]
        self.fabric.launch()
        self.data = data if isinstance(data, Data) else _given(data, ensemble.task)
        if recipe.keep == "best" and self.data.validation is None:
            self.data = self.data.with_validation(recipe.validation, recipe.seed)
        if recipe.sequential and set(ensemble.shared) & {n for n, _ in ensemble.named_parameters()}:
            raise TrainingError("members train one after another where they share nothing, however: they share weights")
        self.epochs = recipe.epochs * (ensemble.members if recipe.sequential else 1)
        self.epoch = self.first = self.step = 0
        self.history: History = []
        self.average = Average()
        self.best: tuple[float, dict[str, Tensor]] = (float("inf"), {})
        self.batches = Batches(self.data, recipe, ensemble, self.fabric)
        self.bar = Bar(self, shown=progress and self.fabric.global_rank == 0)
        self.tally = Tally()
        apart = recipe.sequential or recipe.optimizer == "lamb" or recipe.clip > 0
        self.apart = apart or self.method.birth_after(recipe.epochs) is not None
        self.model = self.fabric.setup_module(ensemble)
        self.optimizers = Optimizers(ensemble, recipe, self.fabric, apart=self.apart)
        self.out = Path(out) if out is not None else None
        self.every, self.saved_at = checkpoint_seconds, time.monotonic()
        self.stopped = False
        if self.out is not None:
            self._open(resume)

    # -- asked by the loop ---------------------------------------------------------------------------------------------

    @property
    def alone(self) -> int | None:
        """The member whose turn it is when members train one after another."""
        return self.epoch // self.recipe.epochs if self.recipe.sequential else None

    def stream(self, *what: Any) -> torch.Generator:
        return stream(self.recipe.seed, *what, self.step)

    def rate(self) -> float:
        """The learning rate of the present step."""
        per_epoch = self.batches.per_epoch
        step = self.step % (self.recipe.epochs * per_epoch)
        default = self.recipe.rate(step, per_epoch)
        return self.method.learning_rate(default, step, self.recipe.epochs * per_epoch, per_epoch, self.recipe.lr)

    def move(self, member: int | None) -> None:
        """Let the optimizers step, and count."""
        self.step, self.first = self.step + 1, self.first + 1
        if self.step % self.recipe.accumulate and self.first < self.batches.per_epoch:
            return
        cycle = self.ensemble.members if member is not None and getattr(self.method, "nested", False) else 1
        # Nested steps: what a member owns moves at once, what members share once per cycle by the sum of gradients. The
        # cycle runs on over epochs; its remainder at the very end is stepped too.
        turn_ends = cycle == 1 or self._nested_steps() % cycle == 0 or self._is_last()
        self.optimizers.step(member, shared=turn_ends)
        self.optimizers.zero(shared=turn_ends)

    def note(self, value: Tensor, outputs: Tensor, step: Any) -> None:
        """Keep the books of a step; save now and then, and at once when asked to stop."""
        self.tally.add(value, outputs, step, self.data.task)
        self.bar.advance(self.tally)
        overdue = self.out is not None and time.monotonic() - self.saved_at > self.every
        if (overdue or self.stopped) and self.first < self.batches.per_epoch:
            self.save()
        if self.stopped:
            self.save()
            raise KeyboardInterrupt

    def end_epoch(self) -> None:
        """Averages, snapshots, births, the log and a checkpoint."""
        self.epoch, self.first = self.epoch + 1, 0
        within = (self.epoch - 1) % self.recipe.epochs + 1
        row = {"epoch": self.epoch, "lr": self.rate_before(), **self.tally.mean(), "seconds": self.tally.seconds()}
        if self.recipe.averages(within):
            self.average.add(self.ensemble)
        if self.method.collects(within, self.recipe.epochs):
            self.method.collect(self.ensemble)
        if self.method.birth_after(self.recipe.epochs) == within and self.ensemble.members < self.method.members:
            self.method.give_birth(self.ensemble)
            self._members_changed()
        if self.recipe.keep == "best":
            row["validation_nll"] = self._validate()
        self.history.append(row)
        self.tally = Tally()
        if self.out is not None:
            self.save()

    def conclude(self) -> None:
        """Make the final ensemble: averages, what was gathered, fresh norms; write the model."""
        if self.recipe.keep == "best" and self.best[1]:
            self._load_tensors(self.best[1])
        renew = False
        if self.average.count:
            self.average.install(self.ensemble)
            renew = True
        before = self.ensemble.members
        self.method.conclude(self.ensemble)
        renew = renew or getattr(self.method, "renews_norms", False)
        if self.ensemble.members != before:
            self._members_changed()
        if renew:
            refresh_norms(self.ensemble, self.batches.plain())
        if self.out is not None and self.fabric.global_rank == 0:
            save(self.ensemble, self.out / "model.safetensors")

    def rate_before(self) -> float:
        self.step -= 1
        try:
            return self.rate()
        finally:
            self.step += 1

    # -- surviving -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Run:
        self.bar.start()
        self.ensemble.train()
        self._handlers = {}
        for which in (signal.SIGINT, signal.SIGTERM):
            # Only the main thread may set handlers; elsewhere the caller keeps its own.
            with contextlib.suppress(ValueError):
                self._handlers[which] = signal.signal(which, self._ask_to_stop)
        return self

    def __exit__(self, *exc: Any) -> None:
        self.bar.stop()
        for which, handler in self._handlers.items():
            signal.signal(which, handler)

    def _ask_to_stop(self, *_: Any) -> None:
        self.stopped = True

    def save(self) -> None:
        """Write a checkpoint: weights, optimizers, averages, what was gathered, random states, and the place."""
        self.saved_at = time.monotonic()
        if self.out is None:
            return
        if self.fabric.global_rank == 0:
            ens = self.ensemble
            tensors = {f"net.{n}": t for n, t in tensors_of(ens.network).items() if n not in ens.numbers}
            # Gradients are under way between the steps of an accumulation, and of a nested cycle for what is shared.
            under_way = self.recipe.accumulate > 1
            tensors |= {
                f"grad.{n}": p.grad
                for n, p in ens.named_parameters()
                if p.grad is not None and (under_way or n not in set(ens.own))
            }
            tensors |= {f"opt.{n}": t for n, t in self.optimizers.state().items()}
            tensors |= {f"avg.{n}": t for n, t in self.average.means.items()}
            tensors |= {f"state.{n}": t for n, t in ens.state.items()}
            tensors |= {f"best.{n}": t for n, t in self.best[1].items()}
            tensors |= {f"random.{n}": t for n, t in ens.randomness.state().items()}
            tensors["torch_random"] = torch.get_rng_state()
            header = {
                "epoch": self.epoch,
                "first": self.first,
                "step": self.step,
                "averaged": self.average.count,
                "best": self.best[0] if self.best[1] else None,
                "tally": self.tally.to_json(),
                "history": self.history,
                "threads": torch.get_num_threads(),
            }
            checkpoint.write(self.out / "checkpoints", self.step, tensors, header)
            lines = "".join(json.dumps(row) + "\n" for row in self.history)
            (self.out / "log.jsonl").write_text(lines)
        self.fabric.barrier()

    def _open(self, resume: bool) -> None:
        assert self.out is not None
        folder = self.out / "checkpoints"
        if self.fabric.global_rank == 0:
            checkpoint.prepare_folder(self.out)
            checkpoint.prepare_folder(folder)
        self.fabric.barrier()
        config = self._config()
        described = self.out / "training.json"
        newest = checkpoint.latest(folder)
        if newest is not None and not resume:
            raise TrainingError(f"the run folder is new, however: {self.out} holds a run; resume it or choose another")
        if newest is not None and described.is_file() and json.loads(described.read_text()) != config:
            changed = [k for k, v in config.items() if json.loads(described.read_text()).get(k) != v]
            raise TrainingError(
                f"a run is resumed with its own settings, however: {', '.join(changed)} differ in {self.out}; "
                "choose another folder, or the same settings"
            )
        if newest is not None:
            self._restore(*checkpoint.read(newest))
        elif self.fabric.global_rank == 0:
            described.write_text(json.dumps(config, indent=2))

    def _config(self) -> dict[str, Any]:
        return json.loads(
            json.dumps(
                {
                    "method": {"name": type(self.method).__name__.lower(), **dataclasses.asdict(self.method)},
                    "recipe": dataclasses.asdict(self.recipe),
                    "data": [self.data.name, len(self.data.train), self.data.task],
                    "processes": self.fabric.world_size,
                }
            )
        )

    def _restore(self, tensors: dict[str, Tensor], header: dict[str, Any]) -> None:
        if header["threads"] != torch.get_num_threads():
            self.fabric.print(
                f"resumed with {torch.get_num_threads()} threads, begun with {header['threads']}: "
                "results agree to rounding, not to the bit"
            )
        groups: dict[str, dict[str, Tensor]] = {}
        for name, t in tensors.items():
            kind, _, rest = name.partition(".")
            groups.setdefault(kind, {})[rest] = t
        self._load_tensors(groups["net"])
        self.ensemble.state.clear()
        self.ensemble.state.update(groups.get("state", {}))
        self.optimizers.load_state(groups.get("opt", {}))
        for name, p in self.ensemble.named_parameters():
            grad = groups.get("grad", {}).get(name)
            if grad is not None and p.grad is not None:
                p.grad.copy_(grad)
            elif grad is not None:
                p.grad = grad.to(p.device)
        self.average.count, self.average.means = header["averaged"], groups.get("avg", {})
        if header["best"] is not None:
            self.best = (header["best"], groups.get("best", {}))
        self.ensemble.randomness.load_state(groups.get("random", {}))
        torch.set_rng_state(tensors["torch_random"])
        self.epoch, self.first, self.step = header["epoch"], header["first"], header["step"]
        self.history = header["history"]
        self.tally = Tally.from_json(header["tally"])
        self.bar.completed = self.step

    def _load_tensors(self, saved: dict[str, Tensor]) -> None:
        own = {n: saved[n].to(self.ensemble.device) for n in self.ensemble.own}
        if own and next(iter(own.values())).shape[0] != self.ensemble.members:
            self.ensemble.regrow(own)
            self._members_changed()
        present = tensors_of(self.ensemble.network)
        with torch.no_grad():
            for name, value in saved.items():
                present[name].copy_(value)

    def _members_changed(self) -> None:
        """New own tensors: a wrapper made before would not see them, and their optimizers start empty."""
        self.model = self.fabric.setup_module(self.ensemble)
        self.optimizers.adopt_members()
        self.batches.ensemble = self.ensemble

    def _validate(self) -> float:
        assert self.data.validation is not None
        part, total = self.data.validation, 0.0
        self.ensemble.eval()
        with torch.no_grad():
            for start in range(0, len(part), 512):
                rows = slice(start, start + 512)
                outputs = self.ensemble(self.fabric.to_device(self.data.prepare(part.x[rows])))
                y = self.fabric.to_device(self.data.targets(part.y[rows]))
                total += _nll(outputs, y, self.data.task) * len(y)
        self.ensemble.train()
        score = total / len(part)
        if score < self.best[0]:
            self.best = (score, {n: t.detach().clone() for n, t in tensors_of(self.ensemble.network).items()})
        return score

    def _nested_steps(self) -> int:
        born = self.method.birth_after(self.recipe.epochs) or 0
        return self.step - born * self.batches.per_epoch

    def _is_last(self) -> bool:
        return self.step == self.epochs * self.batches.per_epoch


class Tally:
    """Sums of an epoch so far."""

    def __init__(self) -> None:
        self.items = 0
        self.loss = self.correct = self.earlier = 0.0
        self.began = time.monotonic()

    def add(self, value: Tensor, outputs: Tensor, step: Any, task: str) -> None:
        n = step.y.shape[1] if step.per_member else step.y.shape[0]
        self.items += n
        self.loss += float(value.detach()) * n
        if task == "classification":
            hard = step.y if not step.y.is_floating_point() else step.y.argmax(-1)
            self.correct += float((outputs.detach().argmax(2) == hard).double().mean()) * n

    def mean(self) -> dict[str, float]:
        return {"loss": self.loss / max(self.items, 1), "accuracy": self.correct / max(self.items, 1)}

    def seconds(self) -> float:
        return self.earlier + time.monotonic() - self.began

    def to_json(self) -> dict[str, float]:
        return {"items": self.items, "loss": self.loss, "correct": self.correct, "seconds": self.seconds()}

    @classmethod
    def from_json(cls, saved: dict[str, float]) -> Tally:
        new = cls()
        new.items, new.loss, new.correct, new.earlier = (
            int(saved["items"]),
            saved["loss"],
            saved["correct"],
            saved["seconds"],
        )
        return new


def _nll(outputs: Tensor, y: Tensor, task: str) -> float:
    if task == "classification":
        found = Prediction.from_logits(outputs)
        return -float(found.log_probs.gather(1, y[:, None]).mean())
    mixture = RegressionPrediction.from_outputs(outputs)
    mean, variance = mixture.members[..., 0], mixture.members[..., 1]
    log = torch.distributions.Normal(mean, variance.sqrt()).log_prob(y)
    return -float((log.logsumexp(0) - torch.tensor(float(len(mean))).log()).mean())


def _given(pair: tuple[Tensor, Tensor], task: str) -> Data:
    x, y = pair
    part = Part(x, y)
    one = torch.ones(())
    outputs = int(y.max()) + 1 if task == "classification" else 2
    return Data("given", task, part, part, outputs, mean=0 * one, std=one)
