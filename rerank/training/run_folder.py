"""The folder of a run: identity, configuration, what it was made of and on, log, metrics, best model, measures."""

from __future__ import annotations

import functools
import json
import os
import platform
import re
import subprocess
import sys
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
from rerank.models.card import write_card
from rerank.models.contract import read_contract
from rerank.progress import log
from rerank.storage.files import atomic_write, check_folder, old_beside, read_json, remove_leftovers
from rerank.storage.identity import ABSENT, canonical, first_difference, id_of

if TYPE_CHECKING:
    from rerank.lists.data import Splits
    from rerank.lists.view import Lists


IDENTITY = "identity.json"
"""The canonical JSON whose SHA-256 is the id of the training; the first file that is written."""

MEASURES = "measures.json"
"""Written last: the run is complete. Sealed, and never written again."""

CHECKPOINTS = "checkpoints"
"""Folder from which an interrupted run resumes."""

GIVEN = "lists"
"""Where lists lie that were given in memory."""

SPLITS = {"train": "training", "validation": "validation", "test": "test"}

DISTRIBUTION = "rerank-direct"
"""What the package is called on an index, where `rerank` is another project."""

PROVENANCE = "provenance.json"
"""Name of the file in a run folder: a list with an entry per start, since a run may resume on another machine."""

DECISIVE_FLAGS = {"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"}
"""CPU features that decide precision and the kernels, and so the last bits of every number."""

DECISIVE_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "WORLD_SIZE")


def check_unbegun(path: Path) -> None:
    """Refuse a folder with anything but what a training leaves that was killed before its identity was written."""
    names = {file.name for file in path.iterdir() if not file.name.startswith(".")}
    if "config.yaml" in names:
        raise UserError(f"output: {path} has a run of another version; name another output")
    ours = re.compile(rf"log\.txt|{GIVEN}|test(-\w+)?\.(json|trec)")
    if not all(map(ours.fullmatch, names)):
        raise UserError(f"output: {path} exists and is not a run folder; name another one")


class RunFolder:
    """One run: identity, configuration, provenance, log, metrics, measures, ``checkpoints/`` and ``best/``."""

    def __init__(self, path: str | Path, identity: Mapping[str, Any], config: str) -> None:
        self.path = Path(path)
        self.identity, self.id = dict(identity), id_of(identity)
        self.config = config

    def check(self) -> None:
        """Refuse a folder that holds something else, or another run; writes nothing."""
        check_folder(self.path)
        if not self.path.exists():
            return
        if not (self.path / IDENTITY).is_file():
            if self.finished() is None:  # else it was copied
                check_unbegun(self.path)
            return
        old = read_identity(self.path)
        if (found := first_difference(old, json.loads(canonical(self.identity)))) is not None:
            raise UserError(f"{self.path}: {difference(*found)}; name another output, or remove the folder")

    def finished(self) -> dict[str, Any] | None:
        """What ``measures.json`` of this very training holds; None while it is not complete."""
        return finished(self.path, self.id)

    def open(self, splits: Splits) -> None:
        """Make the folder, note what the run is made of, tidy up what an interruption left half-done."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / IDENTITY).exists():
            with atomic_write(self.path / IDENTITY) as file:
                file.write(canonical(self.identity))
        (self.path / CHECKPOINTS).mkdir(exist_ok=True)
        if not (self.path / "config.yaml").exists():
            with atomic_write(self.path / "config.yaml") as file:
                file.write(self.config)
        add_provenance(self.path, self.id, self.identity, splits)
        old = old_beside(self.best)
        if old.exists() and not self.best.exists():
            os.rename(old, self.best)
        remove_leftovers(self.path)

    @property
    def best(self) -> Path:
        return self.path / "best"

    def keep_metrics(self, lines: int) -> int:
        """Forget what was logged after the checkpoint that the run resumes from; returns the number of lines kept."""
        path = self.path / "metrics.jsonl"
        logged = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
        kept = logged.splitlines(keepends=True)[:lines]
        if len(kept) < lines:
            log.warning("%s: has %d lines, the checkpoint says %d; the others are lost", path, len(kept), lines)
        with atomic_write(path) as file:
            file.writelines(kept)
        return len(kept)

    def add_metrics(self, values: dict[str, Any]) -> None:
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def write_card(self, splits: Splits, measures: dict[str, Any]) -> None:
        data = {name: _describe(lists) for name, lists in vars(splits).items() if lists is not None}
        config = yaml.safe_load(self.config)
        write_card(self.best, read_contract(self.best), config, measures, data, self.path.name)


def newest_checkpoint(folder: Path) -> str:
    """The name of a run's newest checkpoint, later ones being greater; empty where there is none."""
    return max((path.name for path in (folder / CHECKPOINTS).glob("step-*")), default="")


def read_identity(folder: Path) -> dict[str, Any]:
    """What ``identity.json`` holds."""
    path = folder / IDENTITY
    try:
        return dict(json.loads(path.read_bytes()))
    except (ValueError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: damaged ({error}); copy the folder again, or remove it") from error


def finished(folder: Path, training: str) -> dict[str, Any] | None:
    """What ``measures.json`` of a training holds; None where it is not complete."""
    path = folder / MEASURES
    if not path.is_file():
        return None
    content = read_json(path)
    if content.get("id") != training:
        raise UserError(f"{path}: is of another training ({content.get('id')}); name another output, or remove it")
    return content


def difference(key: str, old: Any, new: Any) -> str:
    """The first difference of two identities as a person would say it.

    >>> difference("loss.alpha", 10, 1)
    'loss.alpha was 10, now 1'
    >>> difference("data.train.qrels", "ab", "cd")
    "data: the training lists' qrels changed"
    """
    parts = key.split(".")
    if parts[0] == "data" and len(parts) > 1:
        what = f"' {parts[2]} changed" if len(parts) > 2 else " changed"
        return f"data: the {SPLITS.get(parts[1], parts[1])} lists{what}"
    if "initial" in parts:
        at = parts.index("initial")
        return f"{'.'.join(parts[:at])}: {'.'.join(parts[at + 1 :])} of the initial model changed"
    if parts[-1] in ("revision", "training"):
        where = ".".join(parts[:-1]) or "training"
        return f"{where}: this version computes something else than the one that started (revision {old}, now {new})"
    if parts[-1] == "source":
        return f"{'.'.join(parts[:-1])}: the code of its class changed"
    name = ".".join(parts[:-1]) if parts[-1] == "class" else key
    return f"{name} was {_shown(old)}, now {_shown(new)}"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("class", canonical(value)))
    return value if value == ABSENT or isinstance(value, str) else canonical(value)


def _describe(lists: Lists) -> str:
    """What some lists are, in a line; folders by the end of their path, since a card leaves the machine."""
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


def add_provenance(folder: Path, training: str, identity: Mapping[str, Any], splits: Splits) -> None:
    """Append this start to ``provenance.json`` of a run folder: command, code, packages, hardware and data."""
    hashes = {name: of or {} for name, of in identity["data"].items()}
    places = {"rerank": Path(rerank.__file__).parent, "working directory": Path.cwd()}
    start = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": sys.argv,
        "id": training,
        "seed": identity["seed"],
        "git": {name: state for name, place in places.items() if (state := revision(place))},
        "python": platform.python_version(),
        "packages": packages(),
        "hardware": hardware(),
        "environment": {name: os.environ[name] for name in DECISIVE_VARIABLES if name in os.environ},
        "data": {
            name: {"lists": str(lists.store), "queries": len(lists), "candidates": lists.size, **hashes.get(name, {})}
            for name, lists in vars(splits).items()
            if lists is not None
        },
    }
    write_provenance(folder, [*read_provenance(folder), start])


def add_seconds(folder: Path, seconds: float) -> None:
    """Note how long the last start took until the run was complete."""
    starts = read_provenance(folder)
    if starts:
        starts[-1]["seconds"] = seconds
        write_provenance(folder, starts)


def read_provenance(folder: Path) -> list[dict[str, Any]]:
    """The starts of a run, none where the file is missing or cannot be read: no result depends on it."""
    try:
        return list(json.loads((folder / PROVENANCE).read_bytes()))
    except (OSError, ValueError, TypeError, RecursionError):
        return []


def write_provenance(folder: Path, starts: list[dict[str, Any]]) -> None:
    """Write what `read_provenance` reads."""
    with atomic_write(folder / PROVENANCE) as file:
        json.dump(starts, file, indent=2)
        file.write("\n")


@functools.cache
def packages() -> dict[str, str]:
    """Versions of rerank and of what it needs (extras for tests, documentation and benchmarks apart), if installed."""
    versions = {"rerank": rerank.__version__}
    with suppress(metadata.PackageNotFoundError):  # a checkout on the path that was never installed
        lines = metadata.requires(DISTRIBUTION) or []
        needed = [line for line in lines if not re.search(r"extra\s*==\s*.(test|docs|bench)", line)]
        names = {match[0] for line in needed if (match := re.match(r"[\w.-]+", line))}
        for name in sorted({*names, "pytrec-eval-terrier"}, key=str.lower):
            with suppress(metadata.PackageNotFoundError):
                versions[name] = metadata.version(name)
    return versions


def hardware() -> dict[str, Any]:
    """Processor, its decisive features, threads, accelerators."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": _processor(),
        "cpu_flags": sorted(cpu_flags() & DECISIVE_FLAGS),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "accelerators": gpus,
        "cuda": torch.version.cuda if gpus else None,
    }


def revision(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that a folder is in, and whether its files were changed; None where there is none."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(folder), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"(?m)^model name\s*:\s*(.+)$", info.read_text()) if info.is_file() else None
    return found[1] if found else platform.processor()
