"""Files of hits: JSON lines, Parquet, and what a search API answered."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from rerank.collections.hits import BATCH, RIGHT, HitsCollection, Record
from rerank.collections.records import json_objects, read_json, read_json_objects
from rerank.errors import NotFoundError, UserError
from rerank.storage.files import COMPRESSED, digest, open_parquet, plain_name, read_lines
from rerank.storage.hashes import sha256_of_files


class HitsFiles(HitsCollection):
    """``hits:FILE`` or ``hits:DIR``: JSON lines, Parquet or JSON; in a folder, all such files by name."""

    def __init__(self, path: str, fields: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> None:
        super().__init__(f"hits:{path}", fields, columns)
        self.path = Path(path).expanduser()
        if not self.path.exists():
            raise NotFoundError(f"{self.path}: no such file or folder")
        self.files = [self.path]
        if self.path.is_dir():
            found = (path for path in sorted(self.path.iterdir()) if path.is_file() and path.name[0] not in "._")
            self.files = [path for path in found if _kind(path) in _READERS]
        if not self.files or _kind(self.files[0]) not in _READERS:
            raise UserError(
                f"{self.path}: no hits; expected .jsonl, .ndjson, .json (plain or {', '.join(COMPRESSED)}) or .parquet "
                "(rerank.Lists.from_dataframe reads .csv)"
            )

    def records(self) -> Iterator[tuple[str, Record]]:
        for file in self.files:
            yield from _READERS[_kind(file)](file)

    def fingerprint(self) -> str:
        options = json.dumps([self.fields, self.renamed])
        return digest(
            "hits", options, sha256_of_files(self.path if self.path.is_dir() else self.path.parent, self.files)
        )


def _kind(path: Path) -> str:
    return plain_name(path).suffix


def _json_lines(path: Path) -> Iterator[tuple[str, Record]]:
    return ((f"{path}:{number}", record) for number, record in read_json_objects(path, RIGHT))


def _json(path: Path) -> Iterator[tuple[str, Record]]:
    """One answer or a list of records; JSON lines under this name (Spark, elasticdump) are known by the first."""
    with closing(read_lines(path)) as lines:
        first = next(lines, (0, ""))[1]
    try:
        one_a_line = isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):  # the object continues in the next line
        one_a_line = False
    if one_a_line:
        yield from _json_lines(path)
        return
    whole = read_json(path, RIGHT)
    if isinstance(whole, dict):
        yield str(path), whole
    else:
        yield from json_objects(whole if isinstance(whole, list) else [whole], f"{path}: entry", RIGHT)


def _parquet(path: Path) -> Iterator[tuple[str, Record]]:
    # Without these two, a row group's columns are in memory whole, compressed.
    with open_parquet(path, pre_buffer=False, buffer_size=1 << 20) as file:
        rows = (row for batch in file.iter_batches(batch_size=BATCH) for row in batch.to_pylist())
        for position, row in enumerate(rows, 1):
            yield f"{path}: row {position}", row


_READERS: dict[str, Callable[[Path], Iterator[tuple[str, Record]]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".parquet": _parquet,
}
