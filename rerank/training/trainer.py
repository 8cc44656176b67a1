"""The training loop."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm import tqdm

from rerank.errors import UserError
from rerank.evaluation.interpolate import interpolate, tune_weight
from rerank.evaluation.measures import evaluate, parse_measures
from rerank.files import atomic_folder
from rerank.lists.data import Splits
from rerank.lists.ragged import Array
from rerank.lists.sampling import seed_of
from rerank.lists.store import Lists
from rerank.losses.base import Loss
from rerank.models.base import Inputs
from rerank.models.precision import on_cpu, resolve
from rerank.retrieval.runs import write_run
from rerank.training.batches import Batches, pad
from rerank.training.checkpoint import State, load_checkpoint, save_checkpoint
from rerank.training.config import TrainConfig
from rerank.training.optimizer import make_optimizer, set_rates
from rerank.training.run_folder import RunFolder
from rerank.training.step import Gradients
from rerank.training.validate import measure, score_shared

if TYPE_CHECKING:
    from rerank.models.cross_encoder import CrossEncoder

log = logging.getLogger("rerank")


class Trainer:
    """Trains a scorer on ranked lists, validates, keeps the best, goes on where it was interrupted.

    Args:
        config: what to do.
        folder: the run folder, checked.

    Raises:
        UserError: anything in the configuration or data that cannot work; nothing has been written then.
    """

    def __init__(self, config: TrainConfig, folder: RunFolder) -> None:
        from accelerate import Accelerator

        self.config, self.folder = config, folder
        for name in ("epochs", "batch_size", "checkpoint_every", "token_budget"):
            if getattr(config, name) < 1:
                raise UserError(f"{name}: must be at least 1, not {getattr(config, name)}")
        parse_measures(config.measures)
        self.monitor = str(parse_measures(config.monitor)[0])
        self.splits: Splits = config.data.splits(config.seed)
        self.usable = usable_lists(self.splits.train, config.loss)
        if not len(self.usable):
            raise UserError(f"data.train: no list of {self.splits.train.folder} has anything to learn from")
        try:
            self.accelerator = Accelerator(cpu=on_cpu(), log_with=config.tracker or None, project_dir=config.output)
        except ValueError as error:
            raise UserError(f"tracker: {str(error).splitlines()[0]}") from error
        if len(self.accelerator.log_with) < len(config.tracker):
            raise UserError(f"tracker: not all of {', '.join(config.tracker)} are installed")
        self.main = self.accelerator.is_main_process
        self.model: CrossEncoder = config.model.to(self.accelerator.device)  # type: ignore[attr-defined]
        self.precision, self.why = resolve(config.precision, self.accelerator.device)
        self.batches = Batches(
            self.splits.train, self.usable, config.sampler, config.batch_size, config.steps_per_epoch, config.seed
        )
        self._prepared: dict[Path, Inputs] = {}
        self.steps = self.batches.steps_per_epoch * config.epochs

    def run(self) -> dict[str, Any]:
        """Train to the end; returns what ``measures.json`` holds."""
        config = self.config
        if self.main:
            self.folder.open()
        self.accelerator.wait_for_everyone()
        self._say("precision %s (%s)", self.precision, self.why)
        train, skipped = self.splits.train, len(self.splits.train) - len(self.usable)
        self._say("%d training lists, %d of them without anything to learn from (left out)", len(train), skipped)
        gradients = Gradients(
            self.model,
            self._inputs(train),
            train,
            config.loss,
            self.precision,
            config.token_budget,
            config.micro_batch_size,
            self.accelerator.process_index,
            self.accelerator.num_processes,
        )
        optimizer = make_optimizer(self.model, config.optimization)
        state = load_checkpoint(self.folder.path, self.model, optimizer)
        identity = {"train": train.text_digest(), "run": train.manifest["hashes"]["run"]}
        if state is None:
            state = State(data=identity)
            if self.accelerator.num_processes > 1:  # a fresh head may differ between processes
                for parameter in self.model.parameters():
                    torch.distributed.broadcast(parameter.data, 0)
        elif state.data != identity:
            raise UserError(f"data.train: {train.folder} changed since this run was started; name another output")
        else:
            self._say("going on at step %d of %d", state.step, self.steps)
        if self.main:
            self.folder.keep_metrics(state.metrics_lines)
        if config.tracker:
            self.accelerator.init_trackers("rerank")
        while state.epoch < config.epochs and not self._out_of_patience(state):
            self._epoch(state, gradients, optimizer)
        if config.tracker:
            self.accelerator.end_training()
        return self._finish()

    def _epoch(self, state: State, gradients: Gradients, optimizer: torch.optim.Optimizer) -> None:
        config = self.config
        self.model.train()
        bar = tqdm(
            total=self.batches.steps_per_epoch,
            initial=state.epoch_step,
            desc=f"epoch {state.epoch + 1}/{config.epochs}",
            unit=" steps",
            disable=None if self.main else True,
        )
        started, lists, documents = time.perf_counter(), 0, 0
        for groups in self.batches.epoch(state.epoch, state.epoch_step):
            torch.manual_seed(seed_of(config.seed, state.step, f"process {self.accelerator.process_index}"))
            factor = set_rates(optimizer, config.optimization, state.step, self.steps)
            loss, scored = gradients.accumulate(groups, state.step + 1)
            if config.optimization.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.optimization.max_grad_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            state.step += 1
            state.epoch_step += 1
            state.loss_sum += loss
            lists, documents = lists + len(groups), documents + scored
            seconds = time.perf_counter() - started
            speed = {"lists/s": lists / seconds, "documents/s": documents / seconds}
            bar.set_postfix({"loss": f"{loss:.4f}"} | {name: f"{value:.1f}" for name, value in speed.items()})
            bar.update()
            self._log(state, {"loss": loss, "rate": factor, **speed})
            if state.step % config.checkpoint_every == 0 and state.epoch_step < self.batches.steps_per_epoch:
                self._checkpoint(state, optimizer)
        bar.close()
        self._validate(state)
        state.epoch, state.epoch_step, state.loss_sum = state.epoch + 1, 0, 0.0
        self._checkpoint(state, optimizer)

    def _validate(self, state: State) -> None:
        """Measure the validation lists; keep the model if the monitor is better than ever."""
        epoch, mean_loss = state.epoch + 1, state.loss_sum / self.batches.steps_per_epoch
        lists = self.splits.validation
        if lists is None:
            state.best_epoch = epoch
            self._save_best()
            self._log(state, {"epoch": epoch, "mean_loss": mean_loss})
            return
        started = time.perf_counter()
        values = measure(lists, self._scores(lists, "validation"), f"{self.monitor} {self.config.measures}")
        seconds = time.perf_counter() - started
        value = values[self.monitor]
        self._log(state, {"epoch": epoch, "mean_loss": mean_loss, "validation": values, "seconds": seconds})
        better = state.best is None or value > state.best
        self._say("epoch %d: loss %.4f, %s %.4f%s", epoch, mean_loss, self.monitor, value, " (best)" if better else "")
        if better:
            state.best, state.best_epoch = value, epoch
            self._save_best()

    def _finish(self) -> dict[str, Any]:
        """Measure the best model on validation and test, with and without the first stage, and write it down."""
        self.model = type(self.model)(str(self.folder.best)).to(self.accelerator.device)
        measures = f"{self.monitor} {self.config.measures}"
        result: dict[str, Any] = {}
        mixed: dict[str, Any] = {}
        for name, lists in (("validation", self.splits.validation), ("test", self.splits.test)):
            if lists is None:
                continue
            assert lists.qrels is not None
            run, first = lists.run(self._scores(lists, name)), lists.run()
            if name == "test" and self.main:
                write_run(self.folder.path / "test.trec", run)
            result[name] = evaluate(run, lists.qrels, measures, name=name).mean
            if name == "validation":
                mixed["first_stage_weight"], _ = tune_weight(run, first, lists.qrels, self.monitor)
            if mixed:
                both = interpolate(run, first, mixed["first_stage_weight"])
                mixed[name] = evaluate(both, lists.qrels, measures, name=name).mean
        if mixed:
            result["with_first_stage"] = mixed
        if self.main:
            if mixed:
                self.folder.add_to_contract({"first_stage_weight": mixed["first_stage_weight"]})
            self.folder.write_measures(result)
        self.accelerator.wait_for_everyone()
        return result

    def _inputs(self, lists: Lists) -> Inputs:
        """What the model reads of a folder; one process fills the token cache, the others find it."""
        if lists.folder not in self._prepared:
            with self.accelerator.main_process_first():
                self._prepared[lists.folder] = self.model.inputs(lists)
        return self._prepared[lists.folder]

    def _scores(self, lists: Lists, name: str) -> Array:
        return score_shared(
            self.model,
            self._inputs(lists),
            lists,
            precision=self.precision,
            budget=self.config.token_budget,
            progress=f"{name} lists",
        )

    def _save_best(self) -> None:
        if self.main:
            with atomic_folder(self.folder.best, replace=True) as temporary:
                self.model.save(temporary)
        self.accelerator.wait_for_everyone()

    def _checkpoint(self, state: State, optimizer: torch.optim.Optimizer) -> None:
        if self.main:
            save_checkpoint(self.folder.path, state, self.model, optimizer)
        self.accelerator.wait_for_everyone()

    def _out_of_patience(self, state: State) -> bool:
        patience = self.config.patience
        if patience is None or self.splits.validation is None or state.epoch - state.best_epoch < patience:
            return False
        self._say("no better %s for %d epochs: stopping early", self.monitor, patience)
        return True

    def _log(self, state: State, values: dict[str, Any]) -> None:
        state.metrics_lines += 1
        if self.main:
            self.folder.add_metrics({"step": state.step, **values})
        if self.config.tracker:
            flat = {k: v for k, v in values.items() if isinstance(v, int | float)}
            flat |= {f"validation/{k}": v for k, v in values.get("validation", {}).items()}
            self.accelerator.log(flat, step=state.step)

    def _say(self, message: str, *values: Any) -> None:
        if self.main:
            log.info(message, *values)


def usable_lists(lists: Lists, loss: Loss) -> Array:
    """Positions of the lists from which the loss can learn, by their labels."""
    useful: list[np.ndarray] = []
    for start in range(0, len(lists), 1024):
        stop = min(start + 1024, len(lists))
        rows = [lists.labels[lists.offsets[i] : lists.offsets[i + 1]] for i in range(start, stop)]
        labels, mask = pad(rows, torch.float32)
        useful.append(loss.learnable(labels, mask).numpy())
    return np.flatnonzero(np.concatenate(useful)) if useful else np.zeros(0, dtype=np.int64)
