"""Train trees with any loss, tree by tree; the best number of trees is kept."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from rerank.errors import UserError
from rerank.evaluation.measures import Evaluator
from rerank.losses.listwise import ListNet
from rerank.measures.graded import nDCG
from rerank.measures.names import parse
from rerank.models.vectors.trees import Gain, Trees
from rerank.progress import log, tqdm
from rerank.storage.arrow import Array
from rerank.storage.files import atomic_folder, warn_once
from rerank.training.batches import ActiveTerm, MicroBatchLoss, Targets
from rerank.training.results import Measurer, Results
from rerank.training.run_folder import RunFolder


class TreeTrainer:
    """Trains trees on ranked lists and writes the same run folder as for networks.

    A tree counts as an epoch: ``patience`` trees without a better monitor end the training (null trains all), and the
    first trees up to the best monitor are kept; without validation lists all are. Every tree sees every list as a
    whole, so that sampler, batch sizes, optimization and precision have no effect. ``metrics.jsonl`` gets a line per
    tree: the monitor on the validation lists, and with one of our losses its mean before the tree.
    """

    def __init__(self, folder: RunFolder) -> None:
        config, splits = folder.config, folder.splits
        self.config, self.splits, self.folder = config, splits, folder
        if not isinstance(config.model, Trees):
            raise UserError(f"model: {type(config.model).__name__} cannot be trained; give a network, or trees")
        self.model: Trees = config.model
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise UserError("trees are trained by one process; start one, and set model.threads")
        if config.loss is not None and not self.model.takes_losses:
            raise UserError(f"loss: {type(self.model).__name__} has its own; leave it out, or give --model LightGBM")
        if config.tracker:
            warn_once("trees log to metrics.jsonl only; tracker is ignored")
        self.measurer = Measurer(config, splits)
        self.monitor = self.measurer.monitor
        targets = Targets(splits.train, config.loss or ListNet())  # their own objective learns from what ListNet does
        usable = targets.usable()
        self.skipped = len(splits.train) - len(usable)
        self.objective = None if config.loss is None else Objective(targets, usable, config.seed)

    def run(self) -> Results:
        train, validation = self.splits.train, self.splits.validation
        self.model.prepare(train)
        self.model.calibration = None  # of scores that training changes
        for lists in self.measurer.lists.values():
            self.model.check(lists)
        self.folder.open()
        self.folder.cut_metrics(0)
        log.info("%d training lists, %d of them with nothing to learn (all grades equal)", len(train), self.skipped)
        self.model.begin(train, validation, self.config.seed, gain_of(self.monitor), self.objective is not None)
        self._train(None if validation is None else Evaluator(validation.qrels or {}, self.monitor))
        with atomic_folder(self.folder.best, replace=True) as temporary:
            self.model.save(temporary)
        best = type(self.model).load(self.folder.best)
        scores = {split: best.predict(lists) for split, lists in self.measurer.lists.items()}
        results, ranker = self.measurer.results(best, scores, best.count, {})
        self.folder.finish(results, ranker, scores.get("test"))
        return results

    def _train(self, monitor: Evaluator | None) -> None:
        best, best_trees, patience = -1.0, 0, self.config.patience
        started = time.perf_counter()
        bar = tqdm(range(1, self.model.trees + 1), desc="training", unit=" trees", disable=None)
        for number in bar:
            grown = self.model.grow(self.objective)
            line: dict[str, Any] = {"step": number, "epoch": number}
            if self.objective is not None:
                line["loss"] = self.objective.value
            scores = self.model.scores("train")
            if not np.isfinite(scores).all():
                raise UserError(f"scores are not finite after tree {number}; lower model.learning_rate")
            if number == 1 and (scores == scores[0]).all():
                raise UserError(f"model: the first tree finds nothing to split; lower {self.model.smallest_leaf}")
            if not grown:
                log.info("tree %d finds nothing to split: stopping early", number)
                break
            if monitor is None:
                best_trees = number
            else:
                run = self.measurer.lists["validation"].run(self.model.scores("validation"))
                value = monitor(run, "validation").mean[self.monitor]
                line["validation"] = {self.monitor: value}
                if value > best:
                    best, best_trees = value, number
                bar.set_postfix({self.monitor: f"{value:.4f}", "best": f"{best:.4f} ({best_trees})"})
            self.folder.add_metrics(line | {"seconds": time.perf_counter() - started})
            if monitor is not None and patience is not None and number - best_trees >= patience:
                log.info("no better %s for %d trees: stopping early", self.monitor, patience)
                break
        bar.close()
        self.model.keep(best_trees)
        if monitor is not None:
            log.info("best %s %.4f with %d trees, of %d", self.monitor, best, best_trees, number)


def gain_of(monitor: str) -> Gain:
    """Return LambdaMART's gain: that of the monitor, or else 2^y - 1."""
    with suppress(UserError):
        if isinstance(measure := parse(monitor), nDCG):
            return measure.dcg
    return "exp-log2"


class Objective:
    r"""Gradient and Hessian of a loss, summed over the ``usable`` lists, from which something can be learned.

    The gradient :math:`g_i = \partial \sum_q \ell_q / \partial s_i` is autograd's. A tree's leaf has the value
    :math:`-\eta \sum g_i / (\sum h_i + \lambda)`, so that the Hessian decides how far a step goes. That of a direct
    metric has a diagonal of either sign, and some losses have a gradient that is not a derivative, so it is not taken:
    :math:`h_i` is the mean of :math:`|g|` over all documents of these lists. A leaf is then the mean gradient of its
    documents (Friedman's gradient boosting) in units of the typical one: the learning rate means the same for every
    loss and measure. Both are divided by that mean, which changes no leaf and gives :math:`h_i = 1`: the libraries'
    limits on a leaf's Hessian count documents. Documents of other lists have 0 and 0.
    """

    def __init__(self, targets: Targets, usable: Array, seed: int) -> None:
        samples = targets.samples(usable, seed)
        self.lists, self.rows = len(samples), np.concatenate([sample.rows for sample in samples])
        self.loss = MicroBatchLoss(samples, [ActiveTerm(0, 1.0, len(samples))], targets, torch.device("cpu"))
        self.calls, self.value = 0, float("nan")

    def gradient(self, scores: Array, draw: int = 0) -> tuple[Array, float]:
        """Return the derivatives of the summed loss by the scores, ``[T]`` float32, and the mean loss of a list."""
        flat = torch.from_numpy(np.asarray(scores[self.rows], dtype=np.float32)).requires_grad_()
        self.loss(flat, draw).backward()
        assert flat.grad is not None
        gradient = np.zeros(len(scores), dtype=np.float32)
        gradient[self.rows] = flat.grad.numpy() * self.lists
        return gradient, self.loss.value.item()

    def __call__(self, scores: Array) -> tuple[Array, Array]:
        """Return gradient and Hessian, ``[T]`` each; ``value`` becomes the mean loss."""
        gradient, self.value = self.gradient(scores, self.calls)
        self.calls += 1
        scale = float(np.abs(gradient[self.rows]).mean()) or 1.0
        if not np.isfinite([self.value, scale]).all():
            what = "gradient" if np.isfinite(self.value) else "loss"
            raise UserError(
                f"the {what} is not finite at tree {self.calls}, scores from {scores.min():g} to {scores.max():g}; "
                "lower model.learning_rate"
            )
        hessian = np.zeros_like(gradient)
        hessian[self.rows] = 1.0
        return gradient / scale, hessian
