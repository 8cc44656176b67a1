"""The one way into training: for the command line, for Python, for experiments and the demo."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rerank.console import log_file
from rerank.described import described
from rerank.errors import NotFoundError, UserError
from rerank.evaluation.beside import Beside, sentences
from rerank.evaluation.measures import parse_measures
from rerank.locks import held, tidied
from rerank.models.shared import scores_by
from rerank.models.vectors.boosting import Trees
from rerank.training.config import TrainConfig, check_values
from rerank.training.ids import identity_of
from rerank.training.provenance import add_seconds
from rerank.training.run_folder import RunFolder
from rerank.training.trainer import Trainer
from rerank.training.trees import TreeTrainer
from rerank.training.validate import BESIDE, known_test, measure_test

if TYPE_CHECKING:
    from pandas import DataFrame

    from rerank.lists.data import Splits
    from rerank.models.base import Model

log = logging.getLogger("rerank")

SPLITS = ("validation", "test")

REPORTED = ("validation", "test", "with_first_stage")
"""What of the measures people see."""


@dataclass(frozen=True)
class Training:
    """A finished training.

    Attributes:
        folder: its run folder.
        settings: what was trained.
        id: the SHA-256 of all that decides its results.
        measures: measures by name for ``validation`` and ``test`` and, for lists that something ranked before, both
            again in ``with_first_stage``.
        beside: for such lists, by ``validation`` and ``test``, the model beside the first stage: both means of the
            monitor, the difference and its 95 % interval.
    """

    folder: Path
    settings: TrainConfig
    id: str
    measures: dict[str, Any]
    beside: dict[str, Any]

    @property
    def config(self) -> str:
        """YAML of every setting: written to a file, ``rerank train --config FILE --output …`` repeats the training."""
        return as_yaml(self.settings)

    def __repr__(self) -> str:
        name, loss = type(self.settings.model).__name__, self.settings.loss
        return f"Training({str(self.folder)!r}: {name}, {loss!r}{self._shown()})"

    def _shown(self) -> str:
        monitor = str(parse_measures(self.settings.monitor)[0])
        found = []
        for split in SPLITS:
            if split in self.measures:
                first = f" (first stage {self.beside[split]['first']:.4f})" if split in self.beside else ""
                found.append(f"{split} {monitor} {self.measures[split][monitor]:.4f}{first}")
        return f"; {', '.join(found)}" if found else ""

    def to_dataframe(self) -> DataFrame:
        """The measures: a row per split, ``with_first_stage`` beside ``validation`` and ``test``."""
        from pandas import DataFrame

        rows = {split: self.measures[split] for split in SPLITS if split in self.measures}
        mixed = self.measures.get("with_first_stage", {})
        rows |= {f"{split} with first stage": mixed[split] for split in SPLITS if split in mixed}
        return DataFrame.from_dict(rows, orient="index").rename_axis("split").reset_index()

    def _repr_html_(self) -> str:
        from rerank.html import shown

        return shown(repr(self), self.to_dataframe())

    @cached_property
    def history(self) -> DataFrame:
        """What was logged, a row per step and per validation; ``validation/nDCG@10`` and the like for the measures."""
        from pandas import json_normalize

        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return json_normalize([json.loads(line) for line in lines], sep="/")

    @cached_property
    def model(self) -> Model:
        """The best model, loaded at its first use."""
        return type(self.settings.model).load(self.folder / "best")


def as_yaml(config: TrainConfig) -> str:
    """A configuration as the YAML that ``rerank train --config`` reads."""
    return yaml.safe_dump(described(config), sort_keys=False)


def fit(config: TrainConfig, output: str | Path, *, expected: str | None = None) -> Training:
    """Train a reranker, or resume where an interrupted run of the same training stopped.

    A finished training is not done again; test lists that it has not been measured on are measured.

    Args:
        config: what to train.
        output: the run folder.
        expected: the id that the training was planned with; a training with another id is refused, as its data changed
            since.

    Returns:
        The training.

    Raises:
        UserError: what cannot work, before anything is written; a folder that holds something else or another
            training, or that another process uses; a training that fails.
    """
    check_values(config, type(config.loss) if config.loss else None, trees=isinstance(config.model, Trees))
    splits = config.data.splits(config.seed)
    identity = identity_of(config, splits)
    folder = RunFolder(output, identity, as_yaml(config))
    if expected not in (None, folder.id):
        raise UserError("data or initial model changed since the training was planned; start again")
    folder.check()
    measures = folder.finished()
    if measures is not None:
        log.info("%s is complete; name another output to train again", output)
        if _is_main():
            tidied(folder.path)
        measures = _with_known_test(config, splits, folder, measures)
    if measures is None:
        with ExitStack() as stack:
            stack.enter_context(log_file(folder.path))
            if _is_main():
                stack.enter_context(held(folder.path, "rerank train"))
            done = folder.finished() is not None
            measures = (_measure if done else _train)(config, splits, folder)
            _report(measures)
    shown = {key: measures[key] for key in REPORTED if key in measures}
    return Training(folder.path, config, folder.id, shown, measures.get(BESIDE, {}))


def _train(config: TrainConfig, splits: Splits, folder: RunFolder) -> dict[str, Any]:
    started = time.perf_counter()
    trainer = (TreeTrainer if isinstance(config.model, Trees) else Trainer)(config, splits, folder)
    measures = trainer.run()
    if _is_main():
        add_seconds(folder.path, time.perf_counter() - started)
    return measures


def _with_known_test(
    config: TrainConfig, splits: Splits, folder: RunFolder, measures: dict[str, Any]
) -> dict[str, Any] | None:
    """The measures of a finished run with those of these test lists; None where they are yet to be measured."""
    if splits.test is None:
        return _merged(measures, {})
    found = known_test(folder, splits.test, config)
    if found is None and config.test:
        return None
    return _merged(measures, found or {})


def _measure(config: TrainConfig, splits: Splits, folder: RunFolder) -> dict[str, Any]:
    """Measure a finished run on test lists that it was not measured on."""
    measures = folder.finished()
    assert measures is not None
    if (known := _with_known_test(config, splits, folder, measures)) is not None:
        return known
    assert splits.test is not None
    if not any(folder.best.glob("*")):
        raise NotFoundError(
            f"{folder.best}: no such folder, so its test lists cannot be measured; remove {folder.path}"
        )
    score = scores_by(type(config.model).load(folder.best), config.precision, config.token_budget)
    weight = measures.get("with_first_stage", {}).get("first_stage_weight")
    return _merged(measures, measure_test(folder, splits.test, config, score, weight, _is_main()))


def _merged(measures: dict[str, Any], test: dict[str, Any]) -> dict[str, Any]:
    """What training found on validation, with what was measured on the test lists as they are now."""
    mixed = {name: value for name, value in measures.get("with_first_stage", {}).items() if name != "test"}
    mixed |= test.get("with_first_stage", {})
    beside = {name: value for name, value in measures.get(BESIDE, {}).items() if name != "test"} | test.get(BESIDE, {})
    several = "test", "with_first_stage", BESIDE, "measurement"
    kept = {name: value for name, value in measures.items() if name not in several} | test
    more = {"with_first_stage": mixed, BESIDE: beside}
    return kept | {name: value for name, value in more.items() if value}


def _is_main() -> bool:
    """Whether this is the process that writes, of those that ``torchrun`` started."""
    return os.environ.get("RANK", "0") == "0"


def _report(measures: dict[str, Any]) -> None:
    for split in REPORTED:
        numbers = {name: value for name, value in measures.get(split, {}).items() if isinstance(value, float)}
        if numbers:
            log.info("%s: %s", split, ", ".join(f"{name} {value:.4f}" for name, value in numbers.items()))
    for split, found in measures.get(BESIDE, {}).items():
        for line in sentences(Beside(**found), split):
            log.info("%s", line)
