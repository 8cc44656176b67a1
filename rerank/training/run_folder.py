"""The folder of a run: fingerprint, configuration, environment, log, metrics, checkpoints, best model, results."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

import rerank
from rerank.errors import UserError
from rerank.models.card import dataset_of, make_card, write_card
from rerank.models.contract import INTERPOLATION, add_to_contract, read_contract
from rerank.retrieval.runs import write_run
from rerank.scoring.in_sample import remember
from rerank.storage.files import atomic_write, read_json, remove_leftovers, write_json
from rerank.storage.fingerprint import fingerprint, first_difference
from rerank.training.results import Results

if TYPE_CHECKING:
    from rerank.lists.data import Splits
    from rerank.lists.view import Lists
    from rerank.models.base import Model
    from rerank.models.interpolated import Interpolated
    from rerank.storage.arrow import Array


FINGERPRINT = "fingerprint.json"
"""Everything that decides the results; the first file that is written."""

RESULTS = "results.json"
"""Written last: the run is complete."""

TEST_RUN = "test.trec"
"""The best model's run over the test lists."""

ENVIRONMENT = "environment.json"
"""Command, code, packages and hardware of the last start, and its seconds."""

CHECKPOINTS = "checkpoints"
"""Folder from which an interrupted run resumes."""

GIVEN = "lists"
"""Folder of lists that were given in memory."""

PACKAGES = ("accelerate", "lightgbm", "numpy", "pyarrow", "tokenizers", "torch", "transformers", "xgboost")
"""Packages whose versions may change a result's last digits."""


def check_unbegun(path: Path) -> None:
    """Raise if a folder holds more than the files that a training run writes before its fingerprint."""
    names = {file.name for file in path.iterdir() if not file.name.startswith(".")}
    if not names <= {"log.txt", GIVEN}:
        raise UserError(f"output: {path} exists and is not a run folder; name another one")


class RunFolder:
    """One run: fingerprint, configuration, environment, log, metrics, results, ``checkpoints/`` and ``best/``.

    Args:
        path: the folder.
        resolved: everything that decides the results, from :func:`rerank.training.fingerprint.resolve`.
        config: the configuration as YAML.
    """

    def __init__(self, path: str | Path, resolved: Mapping[str, Any], config: str) -> None:
        self.path, self.config = Path(path), config
        self.resolved, self.fingerprint = dict(resolved), fingerprint(resolved)

    @property
    def best(self) -> Path:
        return self.path / "best"

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
        """Make the folder, or tidy up after an interruption, and note the environment of this start."""
        self._opened = time.perf_counter()
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / FINGERPRINT).exists():
            write_json(self.path / FINGERPRINT, self.resolved)
        (self.path / CHECKPOINTS).mkdir(exist_ok=True)
        if not (self.path / "config.yaml").exists():
            with atomic_write(self.path / "config.yaml") as file:
                file.write(self.config)
        remove_leftovers(self.path)
        self._environment = environment()
        write_json(self.path / ENVIRONMENT, self._environment)

    def finish(
        self, splits: Splits, model: Model, results: Results, ranker: Interpolated | None, test_scores: Array | None
    ) -> None:
        """Complete ``best/`` and its card, write the test run and, last, the results.

        Args:
            splits: the lists.
            model: the model as it was configured.
            results: measures of the best model.
            ranker: the best model interpolated with the first stage, if validation gave that a weight.
            test_scores: the best model's scores of the test lists.
        """
        noted: dict[str, Any] = {**remember(splits.train, model.arguments().get("name"))}
        if ranker is not None:
            noted[INTERPOLATION] = ranker.interpolation
        add_to_contract(self.best, noted)
        data = {name: _describe(lists) for name, lists in vars(splits).items() if lists is not None}
        config = yaml.safe_load(self.config)
        contract, base = read_contract(self.best), getattr(model, "folder", None)
        datasets = dataset_of(splits.train.store.manifest["collection"]["name"])
        card = make_card(contract, self.path.name, base, datasets, config, results, data)
        write_card(self.best, card, contract.get(INTERPOLATION))
        if splits.test is not None and test_scores is not None:
            write_run(self.path / TEST_RUN, splits.test.run(test_scores), tag="rerank")
        seconds = time.perf_counter() - self._opened
        write_json(self.path / ENVIRONMENT, self._environment | {"seconds": seconds})
        results.save(self.path / RESULTS)

    def keep_metrics(self, step: int, epoch: int) -> None:
        """Forget what was logged after the step and the last whole epoch that the run resumes from."""
        path = self.path / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
        with atomic_write(path) as file:
            for line in lines:
                values = json.loads(line) if line.endswith("\n") else {"step": math.inf}  # cut by a kill
                if values["step"] <= step and values.get("epoch", 0) <= epoch:
                    file.write(line)

    def add_metrics(self, values: dict[str, Any]) -> None:
        """Append a line to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


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
    """Collect command, code, packages and hardware."""
    cpu = Path("/proc/cpuinfo")
    name = re.search(r"(?m)^model name\s*:\s*(.+)$", cpu.read_text()) if cpu.is_file() else None
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "git": git_commit(Path(rerank.__file__).parent),
        "python": platform.python_version(),
        "packages": {"rerank": rerank.__version__} | {name: version(name) for name in PACKAGES if find_spec(name)},
        "system": f"{platform.system()} {platform.machine()}",
        "processor": name[1] if name else platform.processor(),
        "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
        "threads": torch.get_num_threads(),
    }


@cache
def git_commit(folder: Path) -> str | None:
    """Return the commit of the checkout around a folder, with ``-dirty`` if its files changed; None without one."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
