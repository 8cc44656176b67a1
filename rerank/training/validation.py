"""Which epoch is the best: what the model is worth on validation lists, from before its first step on."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.evaluation.measures import Evaluator, PerQuery, evaluate, parse_measures
from rerank.lists.data import Splits
from rerank.lists.sampling import seed_of
from rerank.lists.view import Lists
from rerank.losses.base import Loss
from rerank.models.scorer import Scorer
from rerank.storage.arrow import Array
from rerank.training.batches import PaddedLists, padded_lists
from rerank.training.checkpoint import State
from rerank.training.config import TrainConfig
from rerank.training.validate import names_of

ELEMENTS = 2**22
"""Rank indicators ``[B, N, N]`` held at a time."""


class Validation:
    """Measures a model again and again, and notes in the run's state which epoch is the best."""

    def __init__(
        self,
        config: TrainConfig,
        splits: Splits,
        model: Scorer,
        score: Callable[[Lists, str], Array],
        say: Callable[..., None],
    ) -> None:
        self.config, self.splits, self.model = config, splits, model
        self._score, self._say = score, say
        self.monitor = str(parse_measures(config.monitor)[0])
        self.best_scores: Array | None = None  # the best model's, of validation; None where the run resumed since
        self._evaluator: Evaluator | None = None

    def start(self, state: State) -> dict[str, PerQuery]:
        """The values of every query before the first step, of validation and test lists."""
        names, tables = names_of(self.config), {}
        test = self.splits.test if self.config.test else None
        for name, lists in (("validation", self.splits.validation), ("test", test)):
            if lists is not None:
                assert lists.qrels is not None
                scores = self._score(lists, name)
                tables[name] = evaluate(lists.run(scores), lists.qrels, names, name=name)
                self.best_scores = scores if name == "validation" else self.best_scores
        assert self.best_scores is not None
        state.best, _ = self._worth(tables["validation"].mean[self.monitor], self.best_scores)
        return tables

    def epoch(self, state: State) -> tuple[bool, dict[str, Any]]:
        """Whether the epoch that ends is the best so far, and what to log of it."""
        lists, started = self.splits.validation, time.perf_counter()
        assert lists is not None and lists.qrels is not None
        if self._evaluator is None:
            self._evaluator = Evaluator(lists.qrels, f"{self.monitor} {self.config.measures}")
        scores = self._score(lists, "validation")
        values = self._evaluator(lists.run(scores), "validation").mean
        seconds = time.perf_counter() - started
        worth, by_loss = self._worth(values[self.monitor], scores)
        logged = by_loss | {"validation": values, "seconds": seconds} | self.model.logged()
        better = state.best is None or worth > state.best or self.config.epoch_by == "last"
        if better:
            state.best, state.best_epoch, self.best_scores = worth, state.epoch + 1, scores
        return better, logged

    def _worth(self, value: float, scores: Array) -> tuple[float, dict[str, float]]:
        """What chooses an epoch (more is better), from the monitor and the validation scores, and what to log of it."""
        if self.config.epoch_by != "loss":
            return value, {}
        assert isinstance(self.config.loss, Loss) and self.splits.validation is not None
        found = mean_loss(self.config.loss, self.splits.validation, scores, self.config.seed)
        self._say("validation loss %.4f", found)
        return -found, {"validation_loss": found}


def mean_loss(loss: Loss, lists: Lists, scores: Array, seed: int) -> float:
    """The mean of a loss over the lists that can teach it, at these scores."""
    summed, total, count = copy.copy(loss), 0.0, 0
    summed.reduction = "sum"
    for padded, batch in _batches(lists, scores):
        seeds = torch.tensor([seed_of(seed, 0, lists.query_ids[query]) for query in batch.lists])
        total += float(summed(padded, batch.labels, batch.mask, seeds=seeds))
        count += int(loss.learnable(batch.labels, batch.mask).sum())
    if not count:
        raise UserError("validation: no list can teach the loss, so its loss chooses no epoch; leave epoch_by out")
    return total / count


def _batches(lists: Lists, scores: Array) -> Iterator[tuple[Tensor, PaddedLists]]:
    """The scores of the lists that have candidates, ``[B, N]``, zero where padded, and the lists."""
    flat = torch.from_numpy(scores).float()
    for batch in padded_lists(lists, np.flatnonzero(lists.lengths > 0), ELEMENTS):
        yield flat[batch.rows].masked_fill(~batch.mask, 0.0), batch
