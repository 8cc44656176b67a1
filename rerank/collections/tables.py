"""Load tables: data frames, data sets of Hugging Face, and JSON, CSV and Parquet files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rerank.errors import NotFoundError, UserError, nearest, one_line
from rerank.storage.files import plain_name, read_text

if TYPE_CHECKING:
    import pandas as pd

FORMATS = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".parquet")
NAMES: dict[str, tuple[str, ...]] = {
    "query_id": ("query_id", "qid", "query-id", "q_id"),
    "query": ("query", "query_text", "question", "anchor", "sentence1"),
    "instruction": ("instruction", "prompt"),
    "doc_id": ("doc_id", "docid", "docno", "corpus-id", "pid", "_id"),
    "text": ("text", "contents", "content", "passage", "document", "segment", "docs", "sentence2", "answer"),
    "title": ("title",),
    "grade": ("grade", "relevance", "rel", "label", "labels"),
    "rank": ("rank", "position"),
    "score": ("score", "_score"),
    "positive": ("positive", "pos", "positives", "positive_passages"),
    "negative": ("negative", "neg", "negatives", "negative_passages"),
    "hits": ("hits", "candidates", "results", "passages"),
}
"""Fields and the names that data sets, search engines and other libraries give them; the first one present counts."""

EXAMPLE = '{"query": "…", "text": "…", "grade": 1, "bm25": 9.5}'


def load_frame(source: Any, name: str | None = None) -> tuple[pd.DataFrame, str]:
    """Load a table as a data frame with text column names, and return its name for messages, too.

    Args:
        source: a list of dictionaries or a dictionary of columns; a pandas or pyarrow table, a `datasets.Dataset`, or
            anything else that has ``to_pandas``; a ``.json``, ``.jsonl``, ``.csv``, ``.tsv`` or ``.parquet`` file,
            texts compressed or not; a folder that `Dataset.save_to_disk` wrote; or the name of a data set on the hub,
            ``NAME:SPLIT`` or ``NAME:CONFIG:SPLIT``.
        name: its name in messages.
    """
    import pandas as pd

    is_place = isinstance(source, str | Path)
    name = name or (str(source) if is_place else "data frame")
    if is_place:
        path = Path(source).expanduser()
        source = _read_file(path) if path.is_file() else _open_data_set(path, str(source))
    if isinstance(source, dict) and source and all(hasattr(split, "to_pandas") for split in source.values()):
        if len(source) > 1:
            raise UserError(f"{name}: has the splits {', '.join(source)}; name one, such as {next(iter(source))}")
        (source,) = source.values()
    if hasattr(source, "with_format"):  # a datasets.Dataset
        source = source.with_format("arrow")[:]
    if isinstance(source, pa.Table):
        try:
            source.validate(full=True)  # Arrow trusts offsets and texts unless asked to check them
            frame = source.to_pandas(integer_object_nulls=True)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise UserError(f"{name}: damaged ({one_line(error)}); copy or make it again") from error
    elif hasattr(source, "to_pandas"):
        frame = source.to_pandas()
    elif isinstance(source, pd.DataFrame):
        frame = source
    else:
        try:
            frame = pd.DataFrame(source, dtype=object if is_place else None)
        except (ValueError, TypeError) as error:
            raise UserError(f"{name}: not a table ({one_line(error)}); give columns of one length, or rows") from error
    if kept := [level for level in frame.index.names if level is not None and level not in frame.columns]:
        frame = frame.reset_index(kept)  # ids in the index
    if is_place:
        frame = frame.set_axis(range(1, len(frame) + 1))
    return frame.set_axis([str(column) for column in frame.columns], axis=1), name


def _open_data_set(path: Path, name: str) -> Any:
    """Open a data set of Hugging Face in a folder or on the hub."""
    from datasets import load_dataset, load_from_disk
    from datasets.exceptions import DatasetsError

    hub, *rest = name.split(":")
    local = name[:1] in "./~" or path.suffix in FORMATS or (path.parent / "dataset_dict.json").exists()
    if not path.is_dir() and (local or len(rest) > 2):
        raise NotFoundError(f"{path}: no such file or folder")
    try:
        if path.is_dir():
            return load_from_disk(str(path))
        return load_dataset(hub, rest[0] if len(rest) == 2 else None, split=rest[-1] if rest else None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, DatasetsError) as error:
        lacking = "not a data set that was saved whole" if path.is_dir() else "neither a file nor a data set on the hub"
        raise UserError(f"{name}: {lacking} ({one_line(f'{type(error).__name__}: {error}')[:300]})") from error


def json_object(line: str, where: str, expected: str) -> dict[str, object]:
    """Parse the object of a line; an error shows an example of a right one."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON ({error}); expected a line like {expected}") from error
    if not isinstance(record, dict):
        raise UserError(f"{where}: not a JSON object; expected a line like {expected}")
    return record


def is_table(path: Path) -> bool:
    """Return True for a file of scores or judgments in a format other than TSV, whose columns need no names."""
    return plain_name(path).suffix in {*FORMATS} - {".tsv"}


def _read_file(path: Path) -> pa.Table | pd.DataFrame | list[Any]:
    kind = plain_name(path).suffix
    if kind not in FORMATS:
        raise UserError(f"{path}: unknown format; the name must end in {', '.join(FORMATS)}, or these compressed")
    try:
        if kind == ".parquet":
            from pyarrow.parquet import read_table

            return read_table(path, memory_map=True)
        return _parse_separated(path, kind) if kind in (".csv", ".tsv") else _parse_json(path, kind)
    except (pa.ArrowException, csv.Error) as error:
        raise UserError(f"{path}: not a readable {kind[1:]} file ({one_line(error)})") from error


def _parse_separated(path: Path, kind: str) -> pd.DataFrame:
    """Parse CSV, or TSV, in which quotes are letters like others, as in MS MARCO's and BEIR's; all cells are texts."""
    import pandas as pd

    csv.field_size_limit(2**31 - 1)  # documents have more than 128 KiB
    lines = io.StringIO(read_text(path), newline="")
    tabs = kind == ".tsv"
    reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE) if tabs else csv.reader(lines, strict=True)
    rows = list[list[str]]()
    for row in filter(None, reader):
        if rows and len(row) != len(rows[0]):
            raise UserError(f"{path}:{reader.line_num}: {len(row)} cells, but {len(rows[0])} columns")
        rows.append(row)
    if not rows:
        return pd.DataFrame()
    return pd.DataFrame(rows[1:], columns=[cell.strip() for cell in rows[0]], dtype=object)


def _parse_json(path: Path, kind: str) -> list[Any]:
    """Parse JSON lines, a list of objects, or one object; some tools write one under the other's name."""
    text = read_text(path)
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line and not line.isspace()]
    if kind != ".json" or (len(lines) > 1 and lines[0][1].rstrip().endswith("}")):
        return [json_object(line, f"{path}:{number}", EXAMPLE) for number, line in lines]
    try:
        whole = json.loads(text) if lines else []
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error}); is it cut short?") from error
    records = whole if isinstance(whole, list) else [whole]
    if odd := next((row for row, record in enumerate(records, 1) if not isinstance(record, dict)), None):
        raise UserError(f"{path}: row {odd}: not a JSON object; expected one like {EXAMPLE}")
    return records


def find_columns(
    there: Sequence[str], fields: Mapping[str, Sequence[str]], columns: Mapping[str, str] | None, name: str
) -> dict[str, str]:
    """Find the column of each field that has one: the one that ``columns`` names, else the first usual name."""
    named = {field: str(column) for field, column in (columns or {}).items()}
    if twice := next((column for i, column in enumerate(there) if column in there[:i]), None):
        raise UserError(f"{name}: has two columns {twice!r}; rename one")
    for field, column in named.items():
        if field not in fields:
            raise UserError(f"{name}: columns: no field {field!r}{nearest(field, fields)}; {', '.join(fields)}")
        if column not in there:
            raise UserError(f"{name}: has no column {column!r}{nearest(column, there)}; it has {', '.join(there)}")
    if len({*named.values()}) < len(named):
        raise UserError(f"{name}: columns: names one column for two fields; each has a column of its own")
    free = [column for column in there if column not in named.values()]
    usual = {field: next((one for one in names if one in free), "") for field, names in fields.items()}
    return {field: column for field, column in (usual | named).items() if column}


def named_columns(
    given: Any,
    fields: Mapping[str, Sequence[str]],
    columns: Mapping[str, str] | None,
    name: str,
    optional: Sequence[str] = (),
) -> dict[str, list[Any]]:
    """Return the values of each field of a data frame, or of a file of a table; see `find_columns`."""
    frame, _ = load_frame(given, name)
    there = list(frame.columns)
    found = find_columns(there, fields, columns, name)
    if lacking := next((field for field in fields if field not in found and field not in optional), None):
        advice = f"rename it, or name it with columns={{{lacking!r}: …}}"
        raise UserError(f"{name}: has no column {fields[lacking][0]}; there are {', '.join(there)}; {advice}")
    return {field: frame[column].tolist() for field, column in found.items()}
