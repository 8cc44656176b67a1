"""Train a reranker, for the command line, Python, experiments and the demo."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import UserError
from rerank.kernels.precision import exact_float32
from rerank.models.base import Model
from rerank.models.scorer import Scorer
from rerank.progress import is_main, log, log_file
from rerank.storage.files import exclusive_lock
from rerank.training.config import TrainConfig, check_values
from rerank.training.results import Results
from rerank.training.run_folder import RunFolder, as_yaml
from rerank.training.trainer import Trainer

if TYPE_CHECKING:
    from pandas import DataFrame

    from rerank.training.trees import TreeTrainer


@dataclass(frozen=True)
class Training:
    """A finished training run.

    Attributes:
        folder: the run folder.
        settings: the configuration.
        fingerprint: the SHA-256 of everything that decides the results.
        results: measures on validation and test lists, next to the first stage.
    """

    folder: Path
    settings: TrainConfig
    fingerprint: str
    results: Results

    @property
    def config(self) -> str:
        """YAML of every setting, which ``rerank train --config FILE --output …`` repeats."""
        return as_yaml(self.settings)

    def __repr__(self) -> str:
        """Describe the model, its results and its folder."""
        loss = "its own objective" if self.settings.loss is None else repr(self.settings.loss)
        head = f"{type(self.settings.model).__name__} trained with {loss}"
        return "\n".join([head, *str(self.results).splitlines(), f"model: {self.folder / 'best'}"])

    def to_dataframe(self) -> DataFrame:
        """Tabulate the results: a row per split and ranking."""
        return self.results.to_dataframe()

    def _repr_html_(self) -> str:
        from rerank.html import shown

        head, *lines = str(self).splitlines()
        return shown(head, self.to_dataframe()) + "".join(f"<div>{escape(line)}</div>" for line in lines)

    @cached_property
    def history(self) -> DataFrame:
        """The log, a row per step and per validation; ``validation/nDCG@10`` and the like for the measures."""
        from pandas import json_normalize

        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        return json_normalize([json.loads(line) for line in lines], sep="/")

    @cached_property
    def model(self) -> Model:
        """The best model by itself, loaded on first use; ``rerank.load(folder / "best")`` interpolates it."""
        return type(self.settings.model).load(self.folder / "best")


def fit(config: TrainConfig, output: str | Path, *, expected: str | None = None) -> Training:
    """Train a reranker, or resume an interrupted run of the same training; a finished one is returned.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> folder = str(lists.save(mkdtemp() + "/lists").store.folder)
    >>> config = rerank.TrainConfig(
    ...     data=rerank.ListsData(folder, validation_fraction=0),
    ...     model=rerank.MLP(columns=["bm25"]),
    ...     loss=rerank.ListNet(),
    ... )
    >>> fit(config, mkdtemp() + "/x").results.test  # no test lists
    {}

    Args:
        config: the configuration.
        output: the run folder.
        expected: the fingerprint that the training was planned with.

    Raises:
        UserError: a configuration that cannot work, before anything is written; a folder that holds something else or
            another run, or that another process uses; a run that fails.
    """
    network = isinstance(config.model, Scorer)
    check_values(config, type(config.loss) if config.loss else None, trees=not network)
    splits = config.data.splits(config.seed)
    folder = RunFolder(output, config, splits)
    if expected not in (None, folder.fingerprint):
        raise UserError("data or initial model changed since the training was planned; start again")
    folder.check()
    results = folder.finished()
    if results is not None:
        log.info("%s is complete; name another output to train again", output)
        return Training(folder.path, config, folder.fingerprint, results)
    with log_file(folder.path), exclusive_lock(folder.path) if is_main() else nullcontext(), exact_float32():
        results = folder.finished() or _trainer(folder).run()
        for line in str(results).splitlines():
            log.info("%s", line)
    return Training(folder.path, config, folder.fingerprint, results)


def _trainer(folder: RunFolder) -> Trainer | TreeTrainer:
    if isinstance(folder.config.model, Scorer):
        return Trainer(folder)
    from rerank.training.trees import TreeTrainer

    return TreeTrainer(folder)
