"""Growing trees: tree by tree, validated, the best number of trees kept."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import numpy as np
import torch

from rerank.errors import UserError
from rerank.evaluation.measures import Evaluator, parse_measures
from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.losses.listwise import ListNet
from rerank.measures.graded import nDCG
from rerank.measures.names import parse
from rerank.models.vectors.boosting import Gain, Trees
from rerank.progress import tqdm
from rerank.stops import Stopped, name_of
from rerank.storage.arrow import Array
from rerank.storage.files import atomic_folder, warn_once
from rerank.training.batches import padded_lists
from rerank.training.config import TrainConfig
from rerank.training.pace import Pace
from rerank.training.run_folder import RunFolder
from rerank.training.targets import Targets
from rerank.training.trees.objective import Objective
from rerank.training.validate import finish

log = logging.getLogger("rerank")


class TreeTrainer:
    """Trains trees on ranked lists and leaves the run folder that networks leave.

    A tree counts as an epoch: ``patience`` trees without a better monitor end the training (null grows all), and the
    first trees up to the best monitor are kept; without validation lists all are. Every tree sees every list as a
    whole, so that sampler, batch sizes, optimization and precision mean nothing here. ``metrics.jsonl`` gets a line
    per tree: the monitor on training and validation lists, with a loss of ours also its mean before the tree.
    """

    def __init__(self, config: TrainConfig, splits: Splits, folder: RunFolder) -> None:
        self.config, self.splits, self.folder = config, splits, folder
        assert isinstance(config.model, Trees)
        self.model: Trees = config.model
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise UserError("trees are grown by one process; start one, and set model.threads")
        if config.tracker:
            warn_once("trees log to metrics.jsonl only; tracker is ignored")
        self.monitor = str(parse_measures(config.monitor)[0])
        train = splits.train
        targets = Targets(train, config.loss or ListNet())  # their own objective learns from what ListNet does
        usable = targets.usable()
        given = config.loss is not None
        self.objective = Objective(targets, usable, config.seed, self.model.trees) if given else None
        self.skipped = len(train) - len(usable)
        if not len(usable):
            raise UserError(f"data.train: no list of {train.store} has anything to learn from")

    def run(self) -> dict[str, Any]:
        train, validation = self.splits.train, self.splits.validation
        self.model.prepare(train)
        for lists in (validation, self.splits.test if self.config.test else None):
            if lists is not None:
                self.model.check(lists)
        again = (self.folder.path / "metrics.jsonl").exists()
        self.folder.open(self.splits)
        if again:
            log.info("this run was interrupted; trees are grown from the start again")
        self.folder.keep_metrics(0)
        log.info("%d training lists, %d of them with nothing to learn (all grades equal)", len(train), self.skipped)
        self.model.begin(train, validation, self.config.seed, gain_of(self.monitor), self.objective is not None)
        try:
            self._grow(_monitor(train, self.monitor), None if validation is None else Monitor(validation, self.monitor))
        except Stopped as stop:
            by = name_of(stop.number)
            said = f"stopped by {by}; the same command grows the trees of {self.folder.path} from the start again"
            raise Stopped(stop.number, said) from None
        with atomic_folder(self.folder.best, replace=True) as temporary:
            self.model.save(temporary)
        best = type(self.model).load(self.folder.best)
        return finish(self.folder, self.splits, best, self.config)

    def _grow(self, train: Monitor | None, validation: Monitor | None) -> None:
        best, best_trees, patience = -1.0, 0, self.config.patience
        started, pace = time.perf_counter(), Pace(self.model.trees, "tree")
        bar = tqdm(range(1, self.model.trees + 1), desc="growing", unit=" trees", disable=None)
        for number in bar:
            grown = self.model.grow(self.objective)
            line: dict[str, Any] = {"step": number, "epoch": number}
            if self.objective is not None:
                line |= {"loss": self.objective.value, "dead_lists": self.objective.dead / self.objective.lists}
            scores = self.model.scores("train")
            if not np.isfinite(scores).all():
                raise UserError(f"scores are not finite after tree {number}; lower model.learning_rate")
            if number == 1 and (scores == scores[0]).all():
                raise UserError(
                    "model: the first tree finds nothing to split; "
                    "lower model.min_sum_hessian_in_leaf or model.min_data_in_leaf"
                )
            if not grown:
                log.info("tree %d finds nothing to split: stopping early", number)
                break
            if train is not None:
                line["train"] = {self.monitor: train(scores)}
            if validation is None:
                best_trees = number
            else:
                value = validation(self.model.scores("validation"))
                line["validation"] = {self.monitor: value}
                if value > best:
                    best, best_trees = value, number
                bar.set_postfix({self.monitor: f"{value:.4f}", "best": f"{best:.4f} ({best_trees})"})
            self.folder.add_metrics(line | {"seconds": time.perf_counter() - started})
            if (estimate := pace.estimate(number)) is not None:
                log.info("%s", estimate)
            if validation is not None and patience is not None and number - best_trees >= patience:
                log.info("no better %s for %d trees: stopping early", self.monitor, patience)
                break
        bar.close()
        self.model.keep(best_trees)
        if validation is not None:
            log.info("best %s %.4f with %d trees, of %d", self.monitor, best, best_trees, number)


class Monitor:
    """The mean of a measure over lists; a list without a relevant document counts as 0.

    The value is that of ir-measures (scores compared as float32, ties in the order of the lists), computed on padded
    tensors where the measure is one of ours and every relevant document is a candidate; elsewhere by ir-measures.
    """

    def __init__(self, lists: Lists, measure: str) -> None:
        self.lists, self.measure = lists, measure
        self._evaluator: Evaluator | None = None
        try:
            self._exact = parse(measure)
            known = lists.store.judged_by_grades or lists.qrels is None or _all_are_candidates(lists)
        except UserError:
            known = False
        if known:
            self._padded = padded_lists(lists, np.arange(len(lists)))
        elif lists.qrels is None:
            raise UserError(f"{lists.store}: has no qrels to compute {measure} from")
        else:
            self._evaluator = Evaluator(lists.qrels, measure)

    def __call__(self, scores: Array) -> float:
        """The mean for these scores, ``[T]``."""
        if self._evaluator is not None:
            return next(iter(self._evaluator(self.lists.run(scores), str(self.lists)).mean.values()))
        flat = torch.from_numpy(np.asarray(scores, dtype=np.float32)).double()
        values = (self._exact.exact(flat[batch.rows], batch.labels, batch.mask) for batch in self._padded)
        return sum(float(value.sum()) for value in values) / max(1, len(self.lists))


def _all_are_candidates(lists: Lists) -> bool:
    """Whether the lists' labels hold all that their qrels judge relevant, and the qrels all of the lists."""
    assert lists.qrels is not None
    for query, labels in zip(lists.query_ids, np.split(lists.grades, lists.offsets[1:-1]), strict=False):
        grades = [grade for grade in lists.qrels.get(query, {}).values() if grade > 0]
        if query not in lists.qrels or sorted(grades) != sorted(labels[labels > 0].tolist()):
            return False
    return True


def gain_of(monitor: str) -> Gain:
    """What LambdaMART takes for a gain: that of the monitor, 2^y - 1 where it has none."""
    try:
        measure = parse(monitor)
    except UserError:
        return "exp-log2"
    return measure.dcg if isinstance(measure, nDCG) else "exp-log2"


def _monitor(train: Lists, measure: str) -> Monitor | None:
    """The monitor on training lists; None where nothing is judged, or ir-measures is needed and there are no qrels."""
    if not train.judged.any():
        return None
    try:
        return Monitor(train, measure)
    except UserError:
        return None
