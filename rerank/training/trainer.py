"""The training loop."""

from __future__ import annotations

import copy
import os
import signal
import time
from typing import Any, NoReturn

import torch
from pandas import json_normalize
from transformers import get_scheduler

from rerank import stops
from rerank.errors import UserError
from rerank.kernels.memory import keep_freed
from rerank.lists.sampling import seed_of
from rerank.lists.view import Lists
from rerank.models.base import Inputs
from rerank.models.scorer import Scorer
from rerank.progress import log, tqdm
from rerank.scoring.shared import score_shared, together
from rerank.settings.arguments import described
from rerank.stops import Stopped
from rerank.storage.arrow import Array
from rerank.storage.files import atomic_folder
from rerank.training.accumulate import (
    GradientAccumulator,
    ScoringModule,
    not_finite,
    tokens_that_fit,
)
from rerank.training.batches import Batches, Targets, check_sampler
from rerank.training.checkpoint import State, check_weights, load_checkpoint, register_state, save_checkpoint
from rerank.training.config import Optimization
from rerank.training.launch import agree, chosen_precision, describe_batch, make_accelerator, micro_batch_size
from rerank.training.results import Measurer, Results
from rerank.training.run_folder import RunFolder


class Trainer:
    """Trains a scorer on ranked lists, validates, keeps the best, resumes where it was interrupted."""

    def __init__(self, folder: RunFolder) -> None:
        config, splits = folder.config, folder.splits
        self.config, self.splits, self.folder = config, splits, folder
        assert isinstance(config.model, Scorer) and config.loss is not None
        self.model, self.loss = config.model, config.loss
        self.measurer = Measurer(config, splits)
        self.monitor = self.measurer.monitor
        self._best_scores: Array | None = None  # of the validation lists; None if the run resumed since
        self._inputs: dict[str, Inputs] = {}  # of training and validation lists
        self.model.check(splits.train)
        check_sampler(splits.train, config.sampler)
        self.targets = Targets(splits.train, self.loss)
        self.usable = self.targets.usable(config.sampler)

    def run(self) -> Results:
        config = self.config
        self._launch()
        # A sharded model scores only where all processes make the same passes, so validation has a whole one.
        self.trained = copy.deepcopy(self.model) if self.accelerator.is_fsdp2 else self.model
        optimizer = make_optimizer(self.trained, config.optimization)
        scheduler = make_scheduler(optimizer, config.optimization, self.steps)
        self.forward, self.optimizer, self.scheduler = self.accelerator.prepare(
            ScoringModule(self.trained), optimizer, scheduler
        )
        state = State()
        register_state(self.accelerator, self.model, state)
        if load_checkpoint(self.accelerator, self.folder.path):
            self._collect(state)
            log.info("resuming at step %d of %d", state.step, self.steps)
            if state.precision not in ("", self.precision):
                log.warning("the run began in %s, and goes on in %s", state.precision, self.precision)
        state.precision = self.precision
        accumulator = self._accumulator(state)
        if self.main:
            self.folder.cut_metrics(state.logged)
        self._start_trackers(state)
        try:
            with stops.finishing():
                self._measure_start(state)
                while state.epoch < config.epochs and not self._out_of_patience(state):
                    self._epoch(state, accumulator)
                results = self._finish(state)
        except Stopped as stop:
            self._stop(stop, state)
        self.accelerator.wait_for_everyone()
        self._end_trackers()
        return results

    def _launch(self) -> None:
        """Prepare the model and its inputs, join the other processes, and create the run folder."""
        config, train = self.config, self.splits.train
        self.model.prepare(train, config.seed)
        self.model.calibration = None  # of scores that training changes
        if self.model.uses_batch_norm:
            if int(os.environ.get("WORLD_SIZE", "1")) > 1:
                raise UserError("model: batch norm is over a whole batch, so one process trains; start one")
            if config.gradient == "cached":
                raise UserError("gradient: cached scores twice, and batch norm would count each score twice; set full")
        self._inputs["train"] = self.model.inputs(train)
        for split, lists in self.measurer.lists.items():
            self.model.check(lists)
            if split == "validation":
                self._inputs[split] = self.model.inputs(lists)
        self.precision, why = chosen_precision(config.precision, self.model.bf16)
        self.accelerator = make_accelerator(self.precision, self.folder.path, config.tracker)
        self.main = self.accelerator.is_main_process
        self.batches = Batches(
            train, self.usable, config.sampler, config.batch_size, config.steps_per_epoch, config.seed
        )
        self.steps = self.batches.steps_per_epoch * config.epochs
        with together():
            self.model.to(self.accelerator.device)
            for inputs in self._inputs.values():
                inputs.to(self.accelerator.device)
            if self.main:
                self.folder.open()
        if self.accelerator.device.type == "cpu":
            keep_freed()
        log.info("precision %s (%s)", self.precision, why)
        skipped = len(train) - len(self.usable)
        log.info("%d training lists, %d left out (no relevant candidate, or all grades equal)", len(train), skipped)
        if (left_out := self.batches.left_out) is not None:
            log.info("sampler: %d of %d candidates are never negatives", left_out.sum(), len(left_out))

    def _stop(self, stop: Stopped, state: State) -> NoReturn:
        """Write a checkpoint, and say how to resume."""
        if self.folder.finished() is not None:
            said = f"{self.folder.path} is complete"
        elif stop.at_once:  # perhaps amid a step, so that what is in memory is not what resumes
            said = f"the same command resumes {self.folder.path} at its last checkpoint"
        else:
            self._checkpoint(state)
            said = f"a checkpoint is written; the same command resumes {self.folder.path} there"
        self._end_trackers()
        by = stops.name_of(stop.number)
        raise Stopped(stop.number, f"stopped by {by} at step {state.step} of {self.steps}; {said}") from None

    def _accumulator(self, state: State) -> GradientAccumulator:
        """Find the memory limits, and build the gradient accumulator; a resumed run keeps its limits."""
        config, train, limits = self.config, self.splits.train, state.limits
        inputs = self._inputs["train"]
        # a second pass, or one that measures memory, would count in the statistics of batch norm
        gradient = "full" if self.model.uses_batch_norm else config.gradient
        if not limits.token_budget:
            limits.token_budget = config.token_budget or self.model.budget
            if not self.model.uses_batch_norm:
                self.model.train()
                with together():
                    limits.full_tokens, why = tokens_that_fit(self.model, inputs, train, self.usable, self.precision)
                log.info("memory for graphs: %s", why)
                if config.token_budget is None:
                    limits.token_budget = min(limits.token_budget, limits.full_tokens)
            agree(limits, self.accelerator)
        elif config.token_budget is not None:  # perhaps smaller than it was, after memory ran out
            limits.token_budget = min(limits.token_budget, config.token_budget)
        processes = self.accelerator.num_processes
        size, backend = micro_batch_size(config, processes), self.accelerator.state.dynamo_plugin.backend.value.lower()
        how = [self.precision, *["sharded"] * self.accelerator.is_fsdp2, *[backend] * (backend != "no")]
        log.info("%s", describe_batch(processes, self.batches.batch_size, size, limits.token_budget, ", ".join(how)))
        return GradientAccumulator(self.accelerator, self.forward, inputs, self.targets, limits, size, gradient)

    def _epoch(self, state: State, accumulator: GradientAccumulator) -> None:
        config, accelerator = self.config, self.accelerator
        self.forward.train()
        bar = tqdm(
            total=self.batches.steps_per_epoch,
            initial=state.epoch_step,
            desc=f"epoch {state.epoch + 1}/{config.epochs}",
            unit=" steps",
            disable=None if self.main else True,
        )
        started, lists, documents = time.perf_counter(), 0, 0
        for batch in self.batches.epoch(state.epoch, state.epoch_step):
            seed = seed_of(config.seed, state.step, f"process {accelerator.process_index}")
            done = accumulator.accumulate(batch, state.step + 1, state.step / self.steps, seed)
            learned: dict[str, Any] = {"skipped": True}
            if done.lists:
                largest = config.optimization.max_grad_norm or float("inf")
                norm = accelerator.clip_grad_norm_(self.forward.parameters(), largest)
                if not torch.isfinite(norm) and accelerator.scaler is None:
                    raise not_finite("the gradient", state.step + 1, accelerator.mixed_precision)
                # Accelerate's wrapper, which scaling needs, searches the disk for a package in every step.
                (self.optimizer if accelerator.scaler else self.optimizer.optimizer).step()
                learned = {"loss": done.loss, "lists": done.lists, "grad_norm": norm.item()}
            rate = self.scheduler.get_last_lr()[0]
            self.scheduler.step()
            self.forward.zero_grad()
            state.add(done)
            lists, documents = lists + len(batch), documents + done.documents
            seconds = time.perf_counter() - started
            speed = {"lists/s": lists / seconds, "documents/s": documents / seconds}
            bar.set_postfix({"loss": done.loss, **speed}, refresh=False)
            bar.update()
            self._log(state, learned | {"learning_rate": rate, **speed})
            if done.stop:
                raise Stopped(stops.asked() or signal.SIGTERM)
            if state.step % config.checkpoint_every == 0 and state.epoch_step < self.batches.steps_per_epoch:
                self._checkpoint(state)
        bar.close()
        self._validate(state)
        state.end_epoch()
        if state.step % config.checkpoint_every == 0:
            self._checkpoint(state)

    def _measure_start(self, state: State) -> None:
        """Measure the model before its first step, which may be the best: fine-tuning can make one worse."""
        if state.step or self.splits.validation is None:
            return
        for split, lists in self.measurer.lists.items():
            scores = self._scores(lists, split)
            state.start[split] = measured = self.measurer(split, scores)
            if split == "validation":
                state.best, self._best_scores = self.measurer.worth(measured.mean, scores), scores
                log.info("start: %s %.4f", self.monitor, measured.mean[self.monitor])
        self._save_best()

    def _validate(self, state: State) -> None:
        """Measure the validation lists; keep the model if the monitor is better than ever."""
        self._collect(state)
        epoch, mean_loss = state.epoch + 1, state.loss_sum / max(1, state.epoch_step - state.skipped)
        logged: dict[str, Any] = {"epoch": epoch, "mean_loss": mean_loss, "skipped_steps": state.skipped}
        shown, better = f"epoch {epoch}: loss {mean_loss:.4f}", True
        if self.splits.validation is None:
            state.best_epoch = epoch
        else:
            started, scores = time.perf_counter(), self._scores(self.splits.validation, "validation")
            mean = self.measurer.table("validation", scores).mean
            seconds, worth = time.perf_counter() - started, self.measurer.worth(mean, scores)
            logged |= {"validation": mean, "seconds": seconds}
            shown += f", {self.monitor} {mean[self.monitor]:.4f}"
            if self.config.select_epoch_by == "loss":
                logged["validation_loss"] = -worth
                shown += f", validation loss {-worth:.4f}"
            better = state.best is None or worth > state.best or self.config.select_epoch_by == "last"
            if better:
                state.best, state.best_epoch, self._best_scores = worth, epoch, scores
                shown += " (best)"
        shown += f", {state.skipped} steps skipped (nothing to learn from)" if state.skipped else ""
        self._log(state, logged)
        log.info("%s", shown)
        if better:
            self._save_best()

    def _scores(self, lists: Lists, split: str, model: Scorer | None = None) -> Array:
        return score_shared(
            model or self.model,
            lists,
            precision=self.precision,
            budget=self.config.token_budget,
            inputs=self._inputs.get(split),
            progress=f"{split} lists",
        )

    def _finish(self, state: State) -> Results:
        """Measure the best model, which is the one in memory if the last epoch was the best."""
        self._inputs.clear()
        best = self.model
        if state.best_epoch != state.epoch:
            with together():
                best = type(self.model).load(self.folder.best)
        scores = {} if self._best_scores is None else {"validation": self._best_scores}
        for split, lists in self.measurer.lists.items():
            if split not in scores:
                scores[split] = self._scores(lists, split, best)
        with together():
            results, ranker = self.measurer.results(best, scores, state.best_epoch, state.start)
            if self.main:
                self.folder.finish(results, ranker, scores.get("test"))
        return results

    def _save_best(self) -> None:
        with together():
            if self.main:
                with atomic_folder(self.folder.best, replace=True) as temporary:
                    self.model.save(temporary)

    def _collect(self, state: State) -> None:
        """Bring every process all weights of a sharded model; check them."""
        if self.accelerator.is_fsdp2:
            from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

            whole = get_model_state_dict(self.forward, options=StateDictOptions(full_state_dict=True))
            ScoringModule(self.model).load_state_dict(whole)
        with together():
            check_weights(self.model, f"step {state.step}")

    def _checkpoint(self, state: State) -> None:
        self._collect(state)
        if self.main:
            state.logged = self.folder.metrics.stat().st_size
        save_checkpoint(self.accelerator, self.folder.path, state.step)

    def _out_of_patience(self, state: State) -> bool:
        patience = self.config.patience
        if patience is None or self.splits.validation is None or state.epoch - state.best_epoch < patience:
            return False
        log.info("not better for %d epochs: stopping early", patience)
        return True

    def _log(self, state: State, values: dict[str, Any]) -> None:
        if self.main:
            self.folder.add_metrics({"step": state.step, **values})
        if self.config.tracker:
            self.accelerator.log(json_normalize(values, sep="/").select_dtypes("number").iloc[0].to_dict(), state.step)

    def _start_trackers(self, state: State) -> None:
        """Start them; TensorBoard forgets what it saw after the checkpoint that the run resumes from."""
        if self.config.tracker:
            (settings,) = json_normalize(described(self.config), sep="/").to_dict("records")
            shown = {
                str(key): value if isinstance(value, int | float) else str(value) for key, value in settings.items()
            }
            purge = {"purge_step": state.step + 1} if state.step else {}
            self.accelerator.init_trackers("rerank", shown, {"tensorboard": purge})

    def _end_trackers(self) -> None:
        """Finish them without Accelerate's ``end_training``, which would end the group of processes, too."""
        for tracker in self.accelerator.trackers:
            tracker.finish()


def make_optimizer(model: Scorer, options: Optimization) -> torch.optim.Optimizer:
    """Build Adam or AdamW with the groups ``encoder`` and ``head``; biases and norms are not decayed."""
    head = model.head_parameters()
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rate = options.head_lr if name in head else options.encoder_lr
            decay = options.weight_decay if parameter.dim() > 1 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    kind = torch.optim.AdamW if options.decay == "decoupled" else torch.optim.Adam
    return kind(
        [{"params": p, "lr": rate, "weight_decay": decay} for (rate, decay), p in groups.items()],
        fused=next(model.parameters()).device.type in ("cpu", "cuda") or None,  # one pass over the weights
    )


def make_scheduler(
    optimizer: torch.optim.Optimizer, options: Optimization, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Build the schedule of a run of ``steps``: Transformers', or a tenth of the rate from half of the steps on."""
    if options.schedule == "half":
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, [-(-steps // 2)], 0.1)
    name = "constant_with_warmup" if options.schedule == "constant" else options.schedule
    warmup = round(options.warmup * steps) if options.warmup < 1 else int(options.warmup)
    return get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
