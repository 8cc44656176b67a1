"""The folder of a run: fingerprint, configuration, environment, log, metrics, checkpoints, best model, results."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

import rerank
from rerank.errors import UserError
from rerank.lists.data import content_hashes
from rerank.losses.terms import columns_of
from rerank.models.card import dataset_of, make_card, write_card
from rerank.models.folder import INTERPOLATION, add_to_contract, hash_model, read_contract
from rerank.retrieval.runs import write_run
from rerank.scoring.in_sample import remember
from rerank.settings.arguments import canonical, described, fingerprint, first_difference
from rerank.storage.files import atomic_write, read_json, remove_leftovers, write_json
from rerank.training.results import Results

if TYPE_CHECKING:
    from rerank.lists.data import Splits
    from rerank.lists.view import Lists
    from rerank.models.load import Interpolated
    from rerank.storage.arrow import Array
    from rerank.training.config import TrainConfig


FINGERPRINT = "fingerprint.json"
"""Everything that decides the results; the first file that is written."""

RESULTS = "results.json"
"""Written last: the run is complete."""

TEST_RUN = "test.trec"
"""The best model's run over the test lists."""

ENVIRONMENT = "environment.json"
"""Command, packages and hardware of the start that completed the run, and its seconds."""

CHECKPOINTS = "checkpoints"
"""Folder from which an interrupted run resumes."""

GIVEN = "lists"
"""Folder of lists that were given in memory."""

NOT_FINGERPRINTED = ("data", "model", "tracker", "checkpoint_every", "gradient")
"""Settings that change results by rounding or dropout at most, as the number of processes does, or count by content."""

PACKAGES = ("accelerate", "lightgbm", "numpy", "pyarrow", "tokenizers", "torch", "transformers", "xgboost")
"""Packages whose versions may change a result's last digits."""


def resolve(config: TrainConfig, splits: Splits) -> dict[str, Any]:
    """List everything that decides the results of a training run, made of mappings, lists, strings and numbers.

    Lists count by their content, and an initial model by its files, so that folders may be moved.
    """
    return {**resolve_settings(config), "data": resolve_data(*columns_read(config), splits, config.test)}


def resolve_settings(config: TrainConfig) -> dict[str, Any]:
    """List the settings that count, without the data."""
    counted = {
        field.name: getattr(config, field.name) for field in fields(config) if field.name not in NOT_FINGERPRINTED
    }
    model: dict[str, Any] = canonical(config.model)
    if (folder := getattr(config.model, "folder", None)) is not None:
        model["name"] = hash_model(folder)
        del counted["token_budget"]  # counts only with batch norm, which encoders lack
    return {**canonical(counted), "model": model}


def columns_read(config: TrainConfig) -> tuple[list[str], list[str]]:
    """Name the columns that the model reads, and those that loss and sampler read in training lists."""
    return [*config.model.columns], [*columns_of(config.loss), *config.sampler.columns]


def resolve_data(columns: Sequence[str], in_training: Sequence[str], splits: Splits, test: bool) -> dict[str, Any]:
    """Hash the content of the lists, with the columns that the training run reads; see :func:`columns_read`."""
    return {
        "train": content_hashes(splits.train, [*columns, *in_training]),
        "validation": measured_hashes(splits.validation, columns),
        "test": measured_hashes(splits.test, columns) if test else None,
    }


def measured_hashes(lists: Lists | None, columns: Sequence[str]) -> dict[str, str] | None:
    """Hash lists that are measured, with the first stage's scores."""
    if lists is None:
        return None
    return content_hashes(lists, [*columns, *filter(None, [lists.store.order])])


def as_yaml(config: TrainConfig) -> str:
    """Write a configuration as the YAML that ``rerank train --config`` reads."""
    return yaml.safe_dump(described(config), sort_keys=False)


def check_unbegun(path: Path) -> None:
    """Raise if a folder holds more than the files that a training run writes before its fingerprint."""
    names = {file.name for file in path.iterdir() if not file.name.startswith(".")}
    if not names <= {"log.txt", GIVEN}:
        raise UserError(f"output: {path} exists and is not a run folder; name another one")


class RunFolder:
    """The folder of one run.

    Args:
        path: the folder.
        config: the configuration.
        splits: its lists.
    """

    def __init__(self, path: str | Path, config: TrainConfig, splits: Splits) -> None:
        self.path, self.best, self.config, self.splits = Path(path), Path(path) / "best", config, splits
        self.resolved = resolve(config, splits)
        self.fingerprint = fingerprint(self.resolved)

    def check(self) -> None:
        """Raise if the folder holds something else, or another run; write nothing."""
        if not self.path.exists():
            return
        if not (self.path / FINGERPRINT).is_file():
            check_unbegun(self.path)
        elif (found := first_difference(read_json(self.path / FINGERPRINT), self.resolved)) is not None:
            raise UserError(f"{self.path}: {describe_difference(*found)}; name another output, or remove the folder")

    def finished(self) -> Results | None:
        """Read the results; None while the run is not complete."""
        return Results.load(self.path / RESULTS) if (self.path / RESULTS).is_file() else None

    def open(self) -> None:
        """Make the folder, or tidy up after an interruption."""
        self._opened = time.perf_counter()
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / FINGERPRINT).exists():
            write_json(self.path / FINGERPRINT, self.resolved)
        (self.path / CHECKPOINTS).mkdir(exist_ok=True)
        with atomic_write(self.path / "config.yaml") as file:
            file.write(as_yaml(self.config))
        remove_leftovers(self.path)

    def finish(self, results: Results, ranker: Interpolated | None, test_scores: Array | None) -> None:
        """Complete ``best/`` and its card, write the test run and, last, the results.

        Args:
            results: measures of the best model.
            ranker: the best model interpolated with the first stage, if validation gave that a weight.
            test_scores: the best model's scores of the test lists.
        """
        model, train, test = self.config.model, self.splits.train, self.splits.test
        interpolation = {} if ranker is None else {INTERPOLATION: ranker.interpolation}
        add_to_contract(self.best, remember(train, model.arguments().get("name")) | interpolation)
        card = make_card(
            read_contract(self.best),
            self.path.name,
            getattr(model, "folder", None),
            dataset_of(train.store.manifest["collection"]["name"]),
            described(self.config),
            results,
            {name: _describe(lists) for name, lists in vars(self.splits).items() if lists is not None},
        )
        write_card(self.best, card)
        if test is not None and test_scores is not None:
            write_run(self.path / TEST_RUN, test.run(test_scores), tag="rerank")
        write_json(self.path / ENVIRONMENT, environment() | {"seconds": time.perf_counter() - self._opened})
        results.save(self.path / RESULTS)

    @property
    def metrics(self) -> Path:
        """The file with a line of JSON per step and per validation."""
        return self.path / "metrics.jsonl"

    def add_metrics(self, values: dict[str, Any]) -> None:
        """Append a line to ``metrics.jsonl``."""
        with self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def cut_metrics(self, size: int) -> None:
        """Forget what was logged after the checkpoint that the run resumes from, when the file had this size."""
        self.metrics.touch()
        os.truncate(self.metrics, min(size, self.metrics.stat().st_size))


def describe_difference(key: str, old: Any, new: Any) -> str:
    """Describe the first difference of two resolved configurations.

    >>> describe_difference("loss.alpha", 10, 1)
    'loss.alpha was 10, now 1'
    >>> describe_difference("data.train.labels", "ab", "cd")
    'data.train.labels changed'
    """
    if key.startswith("data.") or key == "model.name" or key.endswith("source"):
        return f"{key} changed"  # hashes of lists, of an initial model, and of a user's class
    shown = [str(value.get("class", value)) if isinstance(value, Mapping) else value for value in (old, new)]
    return f"{key} was {shown[0]}, now {shown[1]}"


def _describe(lists: Lists) -> str:
    """Describe lists in a line, with only the end of paths, since a card leaves the machine."""
    collection = re.sub(r"/\S*/(?=[^/]+/[^/]+$)", "", str(lists.store.manifest["collection"]["name"]))
    order = f", in the order of {lists.store.order}" if lists.store.order else ""
    return f"{collection}: {len(lists)} queries, {lists.size} candidates{order}"


def environment() -> dict[str, Any]:
    """Collect the command, and what may change rounding: packages and hardware."""
    packages = {"rerank": rerank.__version__}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            packages[name] = version(name)
    return {
        "command": sys.argv,
        "packages": packages,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "threads": torch.get_num_threads(),
    }
