"""The one way into training: for the command line, for Python, for experiments and the demo."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from rerank.errors import NotFoundError, UserError
from rerank.evaluation.beside import Beside
from rerank.evaluation.measure_names import parse_measure
from rerank.kernels.precision import exact_float32
from rerank.lists.data import Splits
from rerank.models.base import Model
from rerank.models.contract import MIX, read_contract
from rerank.models.mixed import Mixed
from rerank.models.text.from_texts import TextScorer
from rerank.models.vectors.boosting import Trees
from rerank.progress import is_main, log, log_file
from rerank.scoring.shared import scores_by
from rerank.settings.described import described
from rerank.storage.locks import exclusive_lock
from rerank.training.config import TrainConfig, check_values
from rerank.training.ids import identity_of
from rerank.training.measurement import read_start
from rerank.training.run_folder import RunFolder, add_seconds
from rerank.training.trainer import Trainer
from rerank.training.trees import TreeTrainer
from rerank.training.validate import BESIDE, BESIDES, known_test, measure_test, with_share

if TYPE_CHECKING:
    from pandas import DataFrame


SPLITS = ("validation", "test")

REPORTED = ("validation", "test", "with_first_stage")
"""What of the measures people see."""

IN_WORDS = {"test seen": "test, a relevant document seen in training", "test unseen": "test, none seen in training"}


@dataclass(frozen=True)
class Training:
    """A finished training.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> model = rerank.MLP(hidden=[4], columns=["bm25"])
    >>> run = rerank.train(model, lists, rerank.LambdaLoss(), validation=None, output=mkdtemp() + "/x")
    >>> bool(run.history["loss"].notna().any()), sorted(run.measures)
    (True, [])

    Attributes:
        folder: its run folder.
        settings: what was trained.
        id: the SHA-256 of all that decides its results.
        measures: measures by name for ``validation`` and ``test`` and, for lists that something ranked before, both
            again in ``with_first_stage``, whose validation flatters: its weight was tuned on these lists.
        beside: for such lists, by ``validation`` and ``test``, the model beside the first stage: both means of the
            monitor, the difference and its 95 % interval; also by ``test seen`` and ``test unseen``, the test queries
            with a relevant document that is relevant to a training query and the others, if there are 20 of both.
        baseline: likewise beside the columns that the model starts from, or the column that alone is best on
            validation, where that is not the first stage.
        start: likewise beside the model before its first step, where there are validation lists. Where no epoch was
            better on these, ``best/`` is that model.
        mixed: by ``test``, the model mixed with the first stage beside the first stage, where validation chose a share
            of it.
    """

    folder: Path
    settings: TrainConfig
    id: str
    measures: dict[str, Any]
    beside: dict[str, Any]
    baseline: dict[str, Any] = field(default_factory=dict)
    start: dict[str, Any] = field(default_factory=dict)
    mixed: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> str:
        """YAML of every setting: written to a file, ``rerank train --config FILE --output …`` repeats the training."""
        return as_yaml(self.settings)

    def __repr__(self) -> str:
        monitor = str(parse_measure(self.settings.monitor, "monitor"))
        shown = [f"{split} {monitor} {self.measures[split][monitor]:.4f}" for split in SPLITS if split in self.measures]
        return f"Training({str(self.folder)!r}: {self._what()}{'; ' if shown else ''}{', '.join(shown)})"

    def __str__(self) -> str:
        """What was trained, what it is worth beside what it has to beat, and where it is."""
        monitor = str(parse_measure(self.settings.monitor, "monitor"))
        alone = [split for split in SPLITS if split in self.measures and split not in self.beside]
        lines = [self._what(), *(f"{split}: {monitor} {self.measures[split][monitor]:.4f}" for split in alone)]
        lines += _verdicts(self.beside, self.baseline, self.start, self.mixed)
        lines += _instead(self.settings.model, self.beside)
        mixed = self.measures.get("with_first_stage", {})
        if share := mixed.get("first_stage_weight"):
            values = [f"{split} {monitor} {mixed[split][monitor]:.4f}" for split in SPLITS if split in mixed]
            lines.append(f"with a share of {share:g} of the first stage, chosen on validation: {', '.join(values)}")
        return "\n".join([*lines, f"model: {self.folder / 'best'}"])

    def _what(self) -> str:
        loss = "its own objective" if self.settings.loss is None else repr(self.settings.loss)
        return f"{type(self.settings.model).__name__} trained by {loss}"

    def to_dataframe(self) -> DataFrame:
        """The measures: a row per split, one of the model before its first step, one with the first stage mixed in.

        Its weight was tuned on the validation lists, so that ``validation with first stage`` flatters; the test lists
        had no part in it.
        """
        from pandas import DataFrame

        rows = {split: self.measures[split] for split in SPLITS if split in self.measures}
        rows |= {f"{split} at the start": table.mean for split, table in read_start(self.folder).items()}
        mixed = self.measures.get("with_first_stage", {})
        rows |= {f"{split} with first stage": mixed[split] for split in SPLITS if split in mixed}
        return DataFrame.from_dict(rows, orient="index").rename_axis("split").reset_index()

    def _repr_html_(self) -> str:
        from rerank.html import shown

        head, *lines = str(self).splitlines()
        return shown(head, self.to_dataframe()) + "".join(f"<div>{escape(line)}</div>" for line in lines)

    @cached_property
    def history(self) -> DataFrame:
        """What was logged, a row per step and per validation; ``validation/nDCG@10`` and the like for the measures."""
        from pandas import json_normalize

        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return json_normalize([json.loads(line) for line in lines], sep="/")

    @cached_property
    def model(self) -> Model:
        """The best model by itself, loaded at its first use."""
        return type(self.settings.model).load(self.folder / "best")

    @property
    def ranker(self) -> Model:
        """What ``best/`` ranks by: the model, mixed with the first stage where validation chose a share of it."""
        mix = read_contract(self.folder / "best").get(MIX)
        return self.model if mix is None else Mixed(self.model, **mix)


def as_yaml(config: TrainConfig) -> str:
    """A configuration as the YAML that ``rerank train --config`` reads."""
    return yaml.safe_dump(described(config), sort_keys=False)


def fit(config: TrainConfig, output: str | Path, *, expected: str | None = None) -> Training:
    """Train a reranker, or resume where an interrupted run of the same training stopped.

    A finished training is not done again; test lists that it has not been measured on are measured.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> folder = str(lists.save(mkdtemp() + "/lists").store.folder)
    >>> config = rerank.TrainConfig(
    ...     data=rerank.ListsData(folder, validation_share=0), model=rerank.MLP(columns=["bm25"]), loss=rerank.ListNet()
    ... )
    >>> fit(config, mkdtemp() + "/x").measures  # no validation or test lists
    {}

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
        measures = _with_known_test(config, splits, folder, measures)
    if measures is None:
        with ExitStack() as stack:
            stack.enter_context(log_file(folder.path))
            if is_main():
                stack.enter_context(exclusive_lock(folder.path))
            if folder.finished() is not None:
                measures = _measure(config, splits, folder)
            else:
                stack.enter_context(exact_float32())
                started = time.perf_counter()
                measures = (TreeTrainer if isinstance(config.model, Trees) else Trainer)(config, splits, folder).run()
                if is_main():
                    add_seconds(folder.path, time.perf_counter() - started)
            _report(measures, config.model)
    shown = {key: measures[key] for key in REPORTED if key in measures}
    beside = (measures.get(key, {}) for key in BESIDES)
    return Training(folder.path, config, folder.id, shown, *beside)


def _with_known_test(
    config: TrainConfig, splits: Splits, folder: RunFolder, measures: dict[str, Any]
) -> dict[str, Any] | None:
    """The measures of a finished run with those of these test lists; None where they are yet to be measured."""
    found = {} if splits.test is None else known_test(folder, splits.test, config)
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
    model = type(config.model).load(folder.best)
    score = scores_by(model, config.precision, config.token_budget)
    weight = measures.get("with_first_stage", {}).get("first_stage_weight")
    ranker = None if weight is None or splits.validation is None else with_share(model, splits.validation, weight)
    return _merged(measures, measure_test(folder, splits.train, splits.test, config, score, ranker, is_main()))


def _merged(measures: dict[str, Any], test: dict[str, Any]) -> dict[str, Any]:
    """What training found on validation, with what was measured on the test lists as they are now."""
    result = {name: value for name, value in measures.items() if name not in ("test", "measurement")} | test
    for key in ("with_first_stage", *BESIDES):
        kept = {name: value for name, value in measures.get(key, {}).items() if not name.startswith("test")}
        by_split = kept | test.get(key, {})
        result = {name: value for name, value in result.items() if name != key} | ({key: by_split} if by_split else {})
    return result


def _report(measures: dict[str, Any], model: Model) -> None:
    for split in REPORTED:
        numbers = {name: value for name, value in measures.get(split, {}).items() if isinstance(value, float)}
        if numbers:
            log.info("%s: %s", split, ", ".join(f"{name} {value:.4f}" for name, value in numbers.items()))
    for line in [*_verdicts(*(measures.get(key, {}) for key in BESIDES)), *_instead(model, measures.get(BESIDE, {}))]:
        log.info("%s", line)


def _instead(model: Model, beside: Mapping[str, Any]) -> list[str]:
    """What to do where a model of texts is worse than the first stage; nothing where it is not."""
    worse = any(found["interval"] is not None and found["interval"][1] < 0 for found in beside.values())
    hint = "instead: `rerank auto … --epochs 0` tries fusion, untrained"
    return [hint] if worse and isinstance(model, TextScorer) else []


def _verdicts(*found: Mapping[str, Any]) -> Iterator[str]:
    """What a model was compared with on validation, on test and on parts of it, a sentence each."""
    *alone, mixed = found
    for split in (*SPLITS, *IN_WORDS):
        yield from (
            f"{IN_WORDS.get(split, split)}: {Beside(**by_split[split])}" for by_split in alone if split in by_split
        )
    if "test" in mixed:
        yield f"test, mixed with the first stage: {Beside(**mixed['test'])}"
