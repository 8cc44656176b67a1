"""Results of a training run: rankings of validation and test lists, each with its difference from the first stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from rerank.evaluation.measure_names import parse_measure
from rerank.evaluation.measures import Evaluator, PerQuery
from rerank.evaluation.paired import compare_values, shown_difference, verdict
from rerank.evaluation.weights import tune_weight
from rerank.lists.columns import SCALED
from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.losses.base import Loss
from rerank.models.base import Model
from rerank.models.load import Interpolated
from rerank.progress import log
from rerank.storage.arrow import Array
from rerank.storage.files import read_json, write_json
from rerank.training.batches import ActiveTerm, MicroBatchLoss, Targets
from rerank.training.config import TrainConfig

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True)
class Measured:
    """Measures of one ranking.

    Attributes:
        mean: the mean of each measure over the queries.
        queries: the number of queries.
        difference: the monitor's mean minus that of the first stage; None without a first stage.
        interval: the difference's 95 % interval by a bootstrap over queries; None if nothing varies.
    """

    mean: dict[str, float]
    queries: int
    difference: float | None = None
    interval: Sequence[float] | None = None

    @property
    def shown(self) -> str:
        """The difference and its interval; empty without a first stage."""
        return "" if self.difference is None else shown_difference(self.difference, self.interval)


@dataclass(frozen=True)
class Results:
    """Results of a training run.

    The rankings of a split are ``model`` (the best model), ``start`` (the model before its first step), ``first_stage``
    and ``interpolated`` (the best model, interpolated with the first stage).

    Attributes:
        monitor: the measure that chose the epoch.
        best_epoch: the epoch of the saved model, 0 for the model before its first step; for trees, their number.
        validation: rankings of the validation lists. These chose the epoch and the weight, so they are optimistic.
        test: rankings of the test lists.
        first_stage: the column that ordered the lists.
        first_stage_weight: its weight in the interpolation, tuned on the validation lists; None without one.
    """

    monitor: str
    best_epoch: int
    validation: dict[str, Measured] = field(default_factory=dict)
    test: dict[str, Measured] = field(default_factory=dict)
    first_stage: str | None = None
    first_stage_weight: float | None = None

    def save(self, path: Path) -> None:
        """Write the results as JSON."""
        write_json(path, asdict(self))

    @classmethod
    def load(cls, path: Path) -> Results:
        """Read what :meth:`save` wrote."""
        content = read_json(path)
        for split in ("validation", "test"):
            content[split] = {name: Measured(**found) for name, found in content[split].items()}
        return cls(**content)

    def rankings(self) -> Iterator[tuple[str, str, Measured]]:
        """Yield split, ranking and measures, in the order of a table."""
        weight = self.first_stage_weight or 0.0
        names = {"first_stage": str(self.first_stage), "start": "start", "model": f"model (epoch {self.best_epoch})"}
        names |= {"interpolated": f"{1 - weight:g} model + {weight:g} {self.first_stage}"}
        for split, rankings in (("validation", self.validation), ("test", self.test)):
            yield from ((split, name, rankings[key]) for key, name in names.items() if key in rankings)

    def to_dataframe(self) -> DataFrame:
        """Tabulate the results: a row per split and ranking."""
        from pandas import DataFrame

        rows = []
        for split, name, found in self.rankings():
            low, high = found.interval or (None, None)
            difference = {"difference": found.difference, "low": low, "high": high}
            rows.append({"split": split, "ranking": name, **found.mean, **difference})
        return DataFrame(rows)

    def __str__(self) -> str:
        """Print the monitor of every ranking, with its difference from the first stage.

        >>> model, first = Measured({"AP": 0.588}, 300, 0.019, (-0.02, 0.06)), Measured({"AP": 0.569}, 300)
        >>> print(Results("AP", 3, test={"model": model, "first_stage": first}, first_stage="bm25"))
        test, 300 queries       AP      difference from bm25 [95 % interval]
          bm25                  0.5690
          model (epoch 3)       0.5880  +0.0190 [-0.0200, +0.0600], too close to call
        """
        lines, before = [], ""
        for split, name, found in self.rankings():
            if split != before:
                against = f"  difference from {self.first_stage} [95 % interval]" if self.first_stage else ""
                lines.append(f"{f'{split}, {found.queries} queries':<22}  {self.monitor:<6}{against}")
                before = split
            difference = ", ".join(filter(None, (found.shown, verdict(found.interval))))
            lines.append(f"  {name:<20}  {found.mean[self.monitor]:.4f}  {difference}".rstrip())
        return "\n".join(lines)


class Measurer:
    """Measures rankings of validation and test lists next to the first stage, and chooses the best epoch."""

    def __init__(self, config: TrainConfig, splits: Splits) -> None:
        self.config, self.monitor = config, str(parse_measure(config.monitor, "monitor"))
        given = {"validation": splits.validation, "test": splits.test if config.test else None}
        self.lists = {split: lists for split, lists in given.items() if lists is not None}
        measures = f"{config.monitor} {config.measures}"
        self._evaluators = {split: Evaluator(lists.qrels or {}, measures) for split, lists in self.lists.items()}
        orders = {split: lists.store.order for split, lists in self.lists.items()}
        self._first = {split: self.table(split, order) for split, order in orders.items() if order is not None}

    def table(self, split: str, scores: Array | str) -> PerQuery:
        """Evaluate scores of all candidates, or a column of them."""
        return self._evaluators[split](self.lists[split].run(scores), split)

    def __call__(self, split: str, scores: Array) -> Measured:
        """Measure a ranking next to the first stage."""
        table, first = self.table(split, scores), self._first.get(split)
        if first is None:
            return Measured(table.mean, len(table.queries))
        names, ours, theirs = ("model", "first stage"), table[self.monitor][None], first[self.monitor][None]
        found = compare_values(names, self.monitor, ours, theirs)
        return Measured(table.mean, len(table.queries), found.difference if found.queries else None, found.interval)

    def worth(self, mean: Mapping[str, float], scores: Array) -> float:
        """Return the number that chooses an epoch, from the validation measures or scores; more is better."""
        if self.config.select_epoch_by != "loss":
            return mean[self.monitor]
        assert isinstance(self.config.loss, Loss)
        return -mean_loss(self.config.loss, self.lists["validation"], scores, self.config.seed)

    def results(
        self, model: Model, scores: Mapping[str, Array], best_epoch: int, start: Mapping[str, Measured]
    ) -> tuple[Results, Interpolated | None]:
        """Measure the best model on validation and test lists.

        Args:
            model: the best model.
            scores: its scores of the lists, by split.
            best_epoch: its epoch.
            start: measures of the model before its first step, by split.

        Returns:
            The results, and the model interpolated with the first stage, if validation gave that a weight and the model
            does not read the first stage itself.
        """
        found = {split: {"model": self(split, scores[split])} for split in self.lists}
        for split, table in self._first.items():
            found[split]["first_stage"] = Measured(table.mean, len(table.queries))
        for split, measured in start.items():
            found[split]["start"] = measured
        validation, weight, ranker = self.lists.get("validation"), None, None
        if validation is not None:
            if found["validation"]["model"].mean[self.monitor] == 0 and not self.config.select_epoch_by:
                log.warning("validation %s is 0 at its best, so it chose no model; are there any grades?", self.monitor)
            if (order := validation.store.order) is not None:
                run = validation.run(scores["validation"])
                weight = tune_weight(run, validation.run(), validation.qrels or {}, self.config.monitor)
                ranker = Interpolated(model, {order: weight}, 1 - weight) if weight else None
        if ranker is not None:
            for split, lists in self.lists.items():
                if set(ranker.weights) <= set(lists.store.column_names):
                    found[split]["interpolated"] = self(split, ranker.interpolate(lists, scores[split]))
            columns = [*model.columns, *getattr(model, "names", ())]
            read = {name.partition("/")[0].partition(SCALED)[0] for name in columns}
            ranker = ranker if read.isdisjoint(ranker.weights) else None
        orders = {lists.store.order for lists in self.lists.values()}
        first = orders.pop() if len(orders) == 1 else None
        return Results(self.monitor, best_epoch, **found, first_stage=first, first_stage_weight=weight), ranker


def mean_loss(loss: Loss, lists: Lists, scores: Array, seed: int) -> float:
    """Return the mean of a loss over the lists that carry a signal, at these scores."""
    targets = Targets(lists, loss)
    usable = targets.usable()
    samples, terms = targets.samples(usable, seed), [ActiveTerm(0, 1.0, len(usable))]
    flat = torch.from_numpy(np.concatenate([scores[sample.rows] for sample in samples]))
    return float(MicroBatchLoss(samples, terms, targets, flat.device)(flat.float()))
