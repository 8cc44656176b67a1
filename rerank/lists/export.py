"""Lists for other tools: a row per visible candidate as JSON lines, Parquet or a data set, or a run of one column."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from rerank.errors import UserError
from rerank.lists.view import Lists
from rerank.progress import log, tqdm
from rerank.retrieval.runs import write_run
from rerank.storage.files import atomic_file, atomic_folder
from rerank.storage.locks import held

ROWS = 16_384
"""Candidates in memory at a time, with their texts; more where one list has more."""


def export(lists: Lists, output: str | Path, column: str | None = None) -> None:
    """Write lists as a file whose kind its name says, or as a folder.

    ``.jsonl`` and ``.parquet`` have a row per visible candidate: ``query_id``, ``doc_id``, ``query`` and ``text`` where
    there are texts, ``grade`` (null for what is not judged), then every column by its name, those of several numbers
    as ``NAME/NUMBER``, null where a system did not return the candidate. ``Lists.from_dataframe`` takes them back. A
    name without a suffix is a folder that ``datasets.load_from_disk`` reads. ``.trec`` is a run of one column.

    Memory is that of a few lists. What is written appears whole or not at all; added documents are written only where
    the lists show them. A run has the scores of ``column``; None takes the column that orders the lists.

    Raises:
        UserError: a name with another suffix, a column that is not there, a folder that is.
    """
    path = Path(output)
    kinds: dict[str, Callable[[Lists, Path], None]] = {".jsonl": _json_lines, ".parquet": _parquet, "": _folder}
    if path.suffix == ".trec":
        if (name := column or lists.store.order) is None:
            there = lists.store.column_names
            raise UserError(f"{lists.store}: nothing ranked these lists; name a column, there are {there}")
        ranked = (pair for some in lists.in_blocks(ROWS) for pair in some.run(column).items())
        kinds[".trec"] = lambda _, path: write_run(path, ranked, name.replace("/", "_"))
    elif column is not None:
        raise UserError(f"column: only a run has one column; name an output that ends in .trec, not {path.name}")
    if path.suffix not in kinds:
        raise UserError(f"{output}: name a file that ends in .jsonl, .parquet or .trec, or a folder without a suffix")
    with held(path, "rerank export", wait=True):
        kinds[path.suffix](lists, path)
    log.info("%s: %d queries, %d candidates", output, len(lists), lists.size)


def _tables(lists: Lists) -> Iterator[pa.Table]:
    """The rows of some lists at a time, as `Lists.to_dataframe` has them."""
    with tqdm(desc="export", total=lists.size, unit=" candidates", disable=None, delay=1) as bar:
        for some in lists.in_blocks(ROWS):
            yield pa.Table.from_pandas(some.to_dataframe(), _schema(lists), preserve_index=False)
            bar.update(some.size)


def _schema(lists: Lists) -> pa.Schema:
    texts = [("query", pa.string()), ("text", pa.string())] if lists.store.has_text else []
    ids = [("query_id", pa.string()), ("doc_id", pa.string())]
    # The order's number comes first, so that it comes back as the order.
    numbers = [(number, pa.float32()) for some in lists.store.numbers_by_column().values() for number in some]
    return pa.schema([*ids, *texts, ("grade", pa.int16()), *numbers])


def _json_lines(lists: Lists, path: Path) -> None:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    with atomic_file(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for table in _tables(lists):
            file.writelines(encode(row) + "\n" for row in table.to_pylist())


def _parquet(lists: Lists, path: Path) -> None:
    from pyarrow.parquet import ParquetWriter

    with atomic_file(path) as temporary, ParquetWriter(temporary, _schema(lists), compression="zstd") as writer:
        for table in _tables(lists):
            writer.write_table(table)


def _folder(lists: Lists, path: Path) -> None:
    with atomic_folder(path) as temporary, tempfile.TemporaryDirectory(dir=temporary) as scratch:
        import datasets

        rows = Path(scratch) / "rows.arrow"
        with pa.OSFile(str(rows), "wb") as sink, pa.ipc.new_stream(sink, _schema(lists)) as writer:
            for table in _tables(lists):
                writer.write_table(table)
        shown = datasets.is_progress_bar_enabled()
        datasets.disable_progress_bars()
        try:
            datasets.Dataset.from_file(str(rows)).save_to_disk(temporary)
        finally:
            if shown:
                datasets.enable_progress_bars()
