"""Data sets of Hugging Face ``datasets`` as hits: saved to disk, or named on the hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pyarrow import ArrowException

from rerank.collections.hits import BATCH, HitsCollection, Record
from rerank.errors import UserError, nearest, one_line
from rerank.storage.files import digest
from rerank.storage.hashes import sha256_of


class DatasetHits(HitsCollection):
    """``datasets:DIR``, ``datasets:DIR/SPLIT``, or ``datasets:NAME:SPLIT`` and ``datasets:NAME:CONFIG:SPLIT``."""

    def __init__(self, path: str, fields: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> None:
        super().__init__(f"datasets:{path}", fields, columns)
        self.data = _open(path)

    def records(self) -> Iterator[tuple[str, Record]]:
        number = 0
        for table in self.data.with_format("arrow").iter(BATCH):
            for row in _rows(table, self.name):
                number += 1
                yield f"{self.name}: row {number}", row

    def fingerprint(self) -> str:
        files = (sha256_of(file["filename"]) for file in self.data.cache_files)
        return digest("datasets", json.dumps([self.fields, self.renamed]), str(self.data._fingerprint), *files)


def _rows(table: Any, name: str) -> list[Record]:
    """The rows of an Arrow table; its file may be damaged, which Arrow finds out only where it is asked to."""
    try:
        table.validate(full=True)
        return table.to_pylist()
    except (ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{name}: damaged ({one_line(error)}); save the data set again") from error


def _open(path: str) -> Any:
    folder = Path(path).expanduser()
    local = folder.exists() or path[:1] in "./~" or (folder.parent / "dataset_dict.json").is_file()
    found = _saved(folder) if local else _on_hub(path)
    if not hasattr(found, "keys"):
        return found
    if len(found) > 1:
        way = f"{path}/SPLIT" if folder.exists() else f"{path}:SPLIT"
        raise UserError(f"datasets:{path}: has the splits {', '.join(found)}; name one, datasets:{way}")
    return next(iter(found.values()))


def _saved(folder: Path) -> Any:
    from datasets import load_from_disk

    parent = folder.parent
    if not folder.is_dir() and (parent / "dataset_dict.json").is_file():
        splits = [path.name for path in sorted(parent.iterdir()) if path.is_dir()]
        raise UserError(
            f"{parent}: no split {folder.name!r}{nearest(folder.name, splits)}; there are {', '.join(splits)}"
        )
    try:
        return load_from_disk(str(folder))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, ArrowException) as error:  # of what is no JSON
        raise UserError(
            f"{folder}: not a data set that was saved whole ({one_line(error)[:300]}); see Dataset.save_to_disk"
        ) from error


def _on_hub(path: str) -> Any:
    from datasets import load_dataset
    from datasets.exceptions import DatasetsError
    from huggingface_hub.errors import HfHubHTTPError

    name, *rest = path.split(":")
    if len(rest) > 2:
        raise UserError(f"datasets:{path}: expected NAME:SPLIT or NAME:CONFIG:SPLIT")
    try:
        return load_dataset(name, rest[0] if len(rest) == 2 else None, split=rest[-1] if rest else None)
    except (OSError, ValueError, LookupError, RuntimeError, DatasetsError, HfHubHTTPError) as error:
        # No network, no such data set, no such split: each library beneath has its own.
        reason = one_line(f"{type(error).__name__}: {error}")[:300]
        advice = "check its name and the network, or name a folder that Dataset.save_to_disk made"
        raise UserError(f"datasets:{path}: cannot be loaded from the hub ({reason}); {advice}") from error
