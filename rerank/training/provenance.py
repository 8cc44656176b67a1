"""What a run was made of and on: enough to make it again, or to see why it came out otherwise."""

from __future__ import annotations

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

import rerank
from rerank.kernels.precision import cpu_flags
from rerank.storage.files import atomic_write

if TYPE_CHECKING:
    from rerank.lists.data import Splits
    from rerank.lists.view import Lists

DISTRIBUTION = "rerank-direct"
"""What the package is called on an index, where `rerank` is another project."""

PROVENANCE = "provenance.json"
"""Name of the file in a run folder: a list with an entry per start, since a run may resume on another machine."""

DECISIVE_FLAGS = {"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "amx_int8"}
"""CPU features that decide precision and the kernels, and so the last bits of every number."""

DECISIVE_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "WORLD_SIZE")


def add_provenance(folder: Path, training: str, identity: Mapping[str, Any], splits: Splits) -> None:
    """Append this start to ``provenance.json`` of a run folder: command, code, packages, hardware and data."""
    named = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    hashes = identity["data"]
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
        "data": {name: _data(lists) | (hashes.get(name) or {}) for name, lists in named.items() if lists is not None},
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


def _data(lists: Lists) -> dict[str, Any]:
    return {"lists": str(lists.store), "queries": len(lists), "candidates": lists.size}
