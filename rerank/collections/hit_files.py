"""Where hits come from: JSON lines, Parquet, a search API's answers, rank_llm's lists, data sets of Hugging Face."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeAlias

from pyarrow import ArrowException

from rerank.collections.base import Query, checked_id, joined
from rerank.collections.hits import BATCH, NOT_COLUMNS, RIGHT, HitsCollection, Record, finite
from rerank.collections.records import json_objects, read_json, read_json_objects
from rerank.errors import NotFoundError, UserError, nearest, one_line
from rerank.progress import log
from rerank.storage.files import COMPRESSED, digest, file_state, open_parquet, plain_name, read_lines

RANK_LLM = '[{"query": "…", "hits": [{"qid": 7, "docid": "…", "content": "…", "rank": 1, "score": 9.5}]}]'
RankedHit: TypeAlias = tuple[str, str, object, object]
"""A document of a list: its id, text, rank from 1 and score."""


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
            self.files = [path for path in found if plain_name(path).suffix in _READERS]
        if not self.files or plain_name(self.files[0]).suffix not in _READERS:
            raise UserError(
                f"{self.path}: no hits; expected .jsonl, .ndjson, .json (plain or {', '.join(COMPRESSED)}) or .parquet "
                "(rerank.Lists.from_dataframe reads .csv)"
            )

    def records(self) -> Iterator[tuple[str, Record]]:
        for file in self.files:
            yield from _READERS[plain_name(file).suffix](file)

    def fingerprint(self) -> str:
        return digest("hits", json.dumps([self.fields, self.renamed]), file_state(self.files))


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


_READERS = {".jsonl": _json_lines, ".ndjson": _json_lines, ".json": _json, ".parquet": _parquet}


def read_lists(path: Path) -> Iterator[tuple[str, Query, list[RankedHit]]]:
    """The place, query and hits of each list of such a file."""
    entries = read_json(path, RANK_LLM)
    if not isinstance(entries, list):
        raise UserError(f"{path}: is {type(entries).__name__}, no list; expected {RANK_LLM}")
    seen = set()
    for number, entry in enumerate(entries, 1):
        where = f"{path}: list {number}"
        if isinstance(entry, dict) and entry.get("hits") == []:
            log.warning("%s has no hits, where the query's id would be; left out", where)
            continue
        try:
            query = Query(checked_id(entry["hits"][0]["qid"], where), joined([entry["query"]]))
            found = ((hit["docid"], hit["content"], hit["rank"], hit["score"]) for hit in entry["hits"])
            hits = [(checked_id(id, where), joined([text]), rank, score) for id, text, rank, score in found]
        except (KeyError, IndexError, TypeError) as error:
            raise UserError(f"{where}: {type(error).__name__} {error}; expected {RANK_LLM}") from error
        if query.id in seen:
            raise UserError(f"{where}: query id {query.id!r} again; ids are unique")
        seen.add(query.id)
        yield where, query, hits


class RankLlmFile(HitsCollection):
    """``rank_llm:FILE.json``: the queries of the file, and the distinct documents of their lists.

    As a run it is read by `rerank.retrieval.read_run`.
    """

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        if fields is not None:
            raise UserError(f"rank_llm:{path}: documents have one text and no fields to choose from")
        super().__init__(f"rank_llm:{path}")
        self.path = Path(path).expanduser()
        if not self.path.is_file():
            raise NotFoundError(f"{self.path}: no such file")
        name = re.sub(r"[^\w.+-]+", "_", self.path.name.split(".json")[0], flags=re.ASCII).strip("._+-")[:100]
        self.order = name if name and name not in NOT_COLUMNS else "score"

    def records(self) -> Iterator[tuple[str, Record]]:
        for where, query, hits in read_lists(self.path):
            rows = [
                {"doc_id": id, "text": text, self.order: _number(score, where, "score")}
                for id, text, _, score in sorted(hits, key=lambda hit: _number(hit[2], where, "rank"))
            ]
            yield where, {"query_id": query.id, "query": query.text, "hits": rows}

    def fingerprint(self) -> str:
        return digest("rank_llm", file_state([self.path]))


def _number(value: object, where: str, name: str) -> float:
    """A number, which some files have as text."""
    with suppress(ValueError):
        value = float(value) if isinstance(value, str) else value
    return finite(value, where, name)


class DatasetHits(HitsCollection):
    """``datasets:DIR``, ``datasets:DIR/SPLIT``, or ``datasets:NAME:SPLIT`` and ``datasets:NAME:CONFIG:SPLIT``."""

    def __init__(self, path: str, fields: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> None:
        super().__init__(f"datasets:{path}", fields, columns)
        self.data = _open(path)

    def records(self) -> Iterator[tuple[str, Record]]:
        tables = self.data.with_format("arrow").iter(BATCH)
        rows = (row for table in tables for row in _rows_of(table, self.name))
        for number, row in enumerate(rows, 1):
            yield f"{self.name}: row {number}", row

    def fingerprint(self) -> str:
        files = file_state([Path(file["filename"]) for file in self.data.cache_files])
        return digest("datasets", json.dumps([self.fields, self.renamed]), str(self.data._fingerprint), files)


def _rows_of(table: Any, name: str) -> list[Record]:
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

    parent, split = folder.parent, folder.name
    if not folder.is_dir() and (parent / "dataset_dict.json").is_file():
        splits = [path.name for path in sorted(parent.iterdir()) if path.is_dir()]
        raise UserError(f"{parent}: no split {split!r}{nearest(split, splits)}; there are {', '.join(splits)}")
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
