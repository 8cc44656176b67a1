"""The folder of a run: fingerprint, configuration, environment, log, metrics, checkpoints, best model, results."""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

import rerank
from rerank.errors import UserError
from rerank.kernels.precision import cpu_flags
from rerank.models.card import dataset_of, make_card, write_card
from rerank.models.contract import MIX, add_to_contract, read_contract
from rerank.progress import log
from rerank.retrieval.runs import write_run
from rerank.scoring.in_sample import remember
from rerank.storage.files import atomic_write, read_json, remove_leftovers, write_json
from rerank.storage.fingerprint import fingerprint, first_difference
from rerank.training.results import Results

if TYPE_CHECKING:
    from rerank.lists.data import Splits
    from rerank.lists.view import Lists
    from rerank.models.base import Model
    from rerank.models.mixed import Mixed
    from rerank.storage.arrow import Array


FINGERPRINT = "fingerprint.json"
"""Everything that decides the results; the first file that is written."""

RESULTS = "results.json"
"""Written last: the run is complete."""

TEST_RUN = "test.trec"
"""The best model's run over the test lists."""

ENVIRONMENT = "environment.json"
"""A list with an entry per start, since a run may resume on another machine."""

CHECKPOINTS = "checkpoints"
"""Folder from which an interrupted run resumes."""

GIVEN = "lists"
"""Folder of lists that were given in memory."""

SPLITS = {"train": "training", "validation": "validation", "test": "test"}

PACKAGES = (
    *("accelerate", "ir-measures", "lightgbm", "numpy", "pyarrow", "pytrec-eval-terrier", "sentence-transformers"),
    *("tokenizers", "torch", "transformers", "xgboost"),
)
"""Packages whose versions may change a result's last digits."""

DECISIVE_FLAGS = {"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"}
"""CPU features that decide precision and kernels, and so the last bits of every number."""


def check_unbegun(path: Path) -> None:
    """Refuse a folder that holds more than a training left that was killed before it wrote its fingerprint."""
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
        self._opened = time.perf_counter()

    @property
    def best(self) -> Path:
        return self.path / "best"

    def check(self) -> None:
        """Refuse a folder that holds something else, or another run; write nothing."""
        if not self.path.exists():
            return
        if not (self.path / FINGERPRINT).is_file():
            check_unbegun(self.path)
        elif (found := first_difference(read_json(self.path / FINGERPRINT), self.resolved)) is not None:
            raise UserError(f"{self.path}: {difference(*found)}; name another output, or remove the folder")

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
        started = datetime.now(UTC).isoformat(timespec="seconds")
        start = {"started": started, "command": sys.argv, **environment(Path.cwd()), "threads": torch.get_num_threads()}
        _write_starts(self.path, [*read_starts(self.path), start])

    def finish(
        self, splits: Splits, model: Model, results: Results, ranker: Mixed | None, test_scores: Array | None
    ) -> None:
        """Complete ``best/`` and its card, write the test run and, last, the results.

        Args:
            splits: the lists.
            model: the model as it was configured.
            results: what the best model is worth.
            ranker: the best model interpolated with the first stage, if validation gave that a weight.
            test_scores: the best model's scores of the test lists.
        """
        noted: dict[str, Any] = {**remember(splits.train, model.arguments().get("name"))}
        if ranker is not None:
            noted[MIX] = ranker.mix
        add_to_contract(self.best, noted)
        data = {name: _describe(lists) for name, lists in vars(splits).items() if lists is not None}
        config = yaml.safe_load(self.config)
        contract, base = read_contract(self.best), getattr(model, "folder", None)
        datasets = dataset_of(splits.train.store.manifest["collection"]["name"])
        card = make_card(contract, self.path.name, base, datasets, config, results, data)
        write_card(self.best, card, contract.get(MIX))
        if splits.test is not None and test_scores is not None:
            write_run(self.path / TEST_RUN, splits.test.run(test_scores), tag="rerank")
        starts = read_starts(self.path)
        _write_starts(self.path, [*starts[:-1], {**starts[-1], "seconds": time.perf_counter() - self._opened}])
        results.save(self.path / RESULTS)

    def keep_metrics(self, lines: int) -> int:
        """Forget what was logged after the checkpoint that the run resumes from; return the number of lines kept."""
        path = self.path / "metrics.jsonl"
        logged = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        kept = logged.splitlines(keepends=True)[:lines]
        if len(kept) < lines:
            log.warning("%s: has %d lines, the checkpoint says %d; the others are lost", path, len(kept), lines)
        with atomic_write(path) as file:
            file.writelines(kept)
        return len(kept)

    def add_metrics(self, values: dict[str, Any]) -> None:
        """Append a line to ``metrics.jsonl``."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def newest_checkpoint(folder: Path) -> str:
    """Return the name of a run's newest checkpoint; empty if there is none."""
    return max((path.name for path in (folder / CHECKPOINTS).glob("step-*")), default="")


def difference(key: str, old: Any, new: Any) -> str:
    """Describe the first difference of two resolved configurations.

    >>> difference("loss.alpha", 10, 1)
    'loss.alpha was 10, now 1'
    >>> difference("data.train.labels", "ab", "cd")
    'data: labels of the training lists changed'
    """
    parts = key.split(".")
    if parts[0] == "data" and len(parts) > 1:
        of = f"{parts[2]} of " if len(parts) > 2 else ""
        return f"data: {of}the {SPLITS.get(parts[1], parts[1])} lists changed"
    if key == "model.name":
        return "model.name: the files of the initial model changed"
    if parts[-1] == "source":
        return f"{'.'.join(parts[:-1])}: the code of its class changed"
    shown = [str(value.get("class", value)) if isinstance(value, Mapping) else value for value in (old, new)]
    return f"{key} was {shown[0]}, now {shown[1]}"


def _describe(lists: Lists) -> str:
    """Describe lists in a line; folders by the end of their path, since a card leaves the machine."""
    collection = re.sub(r"/\S*/(?=[^/]+/[^/]+$)", "", str(lists.store.manifest["collection"]["name"]))
    size = f"{len(lists)} queries, {lists.size} candidates"
    if lists.store.order is None:
        return f"{collection}: {size}"
    bm25 = lists.store.manifest["retriever"].get("bm25")
    systems = [f"BM25 (k1 {bm25['k1']:g}, b {bm25['b']:g})"] if bm25 else []
    runs = lists.store.manifest["retriever"].get("run")
    if runs or not bm25:
        systems.append(f"given runs ({', '.join(runs)})" if isinstance(runs, dict) else "a given run")
    return f"{collection}: {size} from {' and '.join(systems)}"


def read_starts(folder: Path) -> list[dict[str, Any]]:
    """Read the environments of a run's starts; none if they cannot be read, since no result depends on them."""
    try:
        return list(json.loads((folder / ENVIRONMENT).read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def _write_starts(folder: Path, starts: list[dict[str, Any]]) -> None:
    with atomic_write(folder / ENVIRONMENT) as file:
        file.write(json.dumps(starts, indent=2) + "\n")


@functools.cache
def environment(folder: Path) -> dict[str, Any]:
    """Collect code, packages and hardware; ``folder`` is where the process runs."""
    versions = {"rerank": rerank.__version__}
    for name in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    places = {"rerank": Path(rerank.__file__).parent, "working directory": folder}
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "git": {name: commit for name, place in places.items() if (commit := git_commit(place))},
        "python": platform.python_version(),
        "packages": versions,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cpu_flags": sorted(cpu_flags() & DECISIVE_FLAGS),
        "gpus": gpus,
        "cuda": torch.version.cuda if gpus else None,
        "processes": int(os.environ.get("WORLD_SIZE", "1")),
    }


def git_commit(folder: Path) -> str | None:
    """Return the commit of the checkout around a folder, with ``-dirty`` if its files changed; None without one."""
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"(?m)^model name\s*:\s*(.+)$", info.read_text()) if info.is_file() else None
    return found[1] if found else platform.processor()
