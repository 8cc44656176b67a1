"""One reader of records: candidates and training examples in files, data frames, data sets and engines' answers."""

from __future__ import annotations

import csv
import difflib
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from rerank.collections.base import joined
from rerank.collections.lines import json_object
from rerank.errors import NotFoundError, UserError, nearest, one_line
from rerank.progress import log
from rerank.storage.files import open_binary, open_text, plain_name, readable

if TYPE_CHECKING:
    import pandas as pd

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
    "hits": ("hits", "candidates", "results", "passages", "responses"),
}
"""Fields and the names that data sets, search engines and other libraries give them; the first one present counts."""

ASKED = ("query_id", "query", "instruction")
"""Fields about a query."""

EXAMPLES = ("positive", "negative", "hits")
"""Fields of rows about several candidates."""

CANDIDATE = tuple(field for field in NAMES if field not in EXAMPLES)
"""Fields of a row per candidate."""

TEXTS = {name for field in ("doc_id", "text", "title") for name in NAMES[field]}
USUAL = {name for field in CANDIDATE for name in NAMES[field]}
NUMBERED_NEGATIVE = re.compile(r"negative_?\d+")
NESTED = ("doc", "_source", "fields")
"""Fields in which engines keep a document."""

TEACHER = "teacher"
"""The column that ``pos_scores`` and ``neg_scores`` become."""

EXAMPLE = '{"query": "…", "text": "…", "grade": 1, "bm25": 9.5}'
SHAPES = {
    "a row per candidate": ("query_id", "query", "doc_id", "text", "grade", "score"),
    "query, docs, labels": ("query", "docs", "labels"),
    "anchor, positive, negative_1 … negative_n": ("anchor", "positive", "negative_1", "negative_2"),
    "query, positive, negative": ("query", "positive", "negative"),
    "query, pos, neg, pos_scores, neg_scores, prompt": ("query", "pos", "neg", "pos_scores", "neg_scores", "prompt"),
    "query, positive_passages, negative_passages": ("query", "positive_passages", "negative_passages"),
    "sentence1, sentence2, label or score": ("sentence1", "sentence2", "label", "score"),
    "query, hits": ("query_id", "query", "hits"),
}


class Records(NamedTuple):
    """Candidates, a row each.

    Attributes:
        frame: the fields of `CANDIDATE` that there are by these names, then other columns, which may be numbers.
        called: the source's name of each field.
        name: what messages call the source.
        without: queries without candidates, id to text.
        examples: whether rows are positives and negatives of training examples, which may repeat.
    """

    frame: pd.DataFrame
    called: Mapping[str, str]
    name: str
    without: Mapping[str, str]
    examples: bool = False

    def where(self, row: int) -> str:
        """Name a row of the frame by its row in the source."""
        return f"{self.name}: row {self.frame.index[row]}"


def read_records(
    source: Any,
    columns: Mapping[str, str] | None = None,
    name: str | None = None,
    queries: Mapping[str, str] | None = None,
) -> Records:
    """Read records of any known shape (`SHAPES`) as a row per candidate.

    Args:
        source: see `load_frame`.
        columns: the source's name of a field that has an unusual one, such as ``{"text": "passage_text"}``; it is found
            inside hits, too.
        name: what messages call the source.
        queries: texts by id, of sources without texts of the queries; engines' answers are in their order. Other
            queries are left out, and those without candidates get empty lists.

    Raises:
        UserError: unknown columns, with those that there are and the nearest shapes; or a row that is not like others.
    """
    frame, name = load_frame(source, name)
    if not len(frame):
        raise UserError(f"{name}: has no rows; expected one per candidate or query")
    if columns is not None and not isinstance(columns, Mapping):
        raise UserError(f"{name}: columns: expected field and column, as in {{'text': 'passage'}}, not {columns!r}")
    there, told = list(frame.columns), {field: str(column) for field, column in (columns or {}).items()}
    of_examples = {field: told.pop(field) for field in EXAMPLES if field in told}
    several = find_columns(there, _some_names(*EXAMPLES), of_examples, name)
    graded = {several["positive"]: 1} if "positive" in several else {}
    graded |= {
        column: 0 for column in there if column == several.get("negative") or NUMBERED_NEGATIVE.fullmatch(column)
    }
    nested = "hits" in several and frame[several["hits"]].map(_is_nested).any()
    fits = {"lists of hits": several["hits"]} if nested else {}
    fits |= {"positives and negatives": next(iter(graded))} if graded else {}
    if texts := [one for one in NAMES["text"] if one in there and one != "answer"]:
        fits["a row per candidate"] = texts[0]
    if len(fits) > 1:
        seen = " or ".join(f"{shape} ({column!r})" for shape, column in fits.items())
        raise UserError(f"{name}: columns fit two shapes, {seen}; leave the columns of one out")
    shape, rows = next(iter(fits), "a row per candidate"), frame
    if nested:
        rows = _from_hits(frame, several["hits"], told, name, queries)
    elif graded:
        rows = _from_examples(frame, graded, told, name)
    known = list(rows.columns)
    if not all(any(one in known or field in told for field in of for one in NAMES[field]) for of in NEEDED):
        raise _unknown_shape(there, name)
    called = find_columns(known, _some_names(*CANDIDATE), told, name)
    hidden = [field for field, column in called.items() if column != field and field in known]
    rows = rows.drop(columns=hidden).rename(columns={column: field for field, column in called.items()})
    if any(field in rows and rows[field].map(_is_nested).any() for field in ("doc_id", "text")):
        shape = "a row per query"
    log.info("%s: read as %s (%s)", name, shape, ", ".join(called.values()))
    rows = _with_titles(_exploded(rows, called, name))
    return _with_queries(Records(rows, called, name, {}, examples=bool(graded)), queries)


NEEDED = (("query_id", "query"), ("doc_id", "text"))
"""Of each pair of fields a candidate has one."""


def _some_names(*fields: str) -> dict[str, tuple[str, ...]]:
    return {field: NAMES[field] for field in fields}


def find_columns(
    there: Sequence[str], fields: Mapping[str, Sequence[str]], columns: Mapping[str, str] | None, name: str
) -> dict[str, str]:
    """Find the column of each field that has one: the one that ``columns`` names, else the first usual name."""
    told = {field: str(column) for field, column in (columns or {}).items()}
    if twice := next((column for i, column in enumerate(there) if column in there[:i]), None):
        raise UserError(f"{name}: has two columns {twice!r}; rename one")
    for field, column in told.items():
        if field not in fields:
            raise UserError(f"{name}: columns: no field {field!r}{nearest(str(field), fields)}; {', '.join(fields)}")
        if column not in there:
            raise UserError(f"{name}: has no column {column!r}{nearest(str(column), there)}; it has {', '.join(there)}")
    if len({*told.values()}) < len(told):
        raise UserError(f"{name}: columns: names one column for two fields; each has a column of its own")
    free = [column for column in there if column not in told.values()]
    found = {field: next((one for one in names if one in free), "") for field, names in fields.items()} | told
    return {field: found[field] for field in fields if found[field]}


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
        advice = f"name it with columns={{{lacking!r}: …}}"
        raise UserError(f"{name}: has no column {fields[lacking][0]}; there are {', '.join(there)}; {advice}")
    return {field: frame[column].tolist() for field, column in found.items()}


def parse_columns(words: Iterable[str]) -> dict[str, str]:
    """Parse ``FIELD=COLUMN`` words.

    >>> parse_columns(["query=question", "text=passage"])
    {'query': 'question', 'text': 'passage'}
    """
    columns: dict[str, str] = {}
    for word in words:
        field, equals, column = word.partition("=")
        if not (field and equals and column) or field in columns:
            raise UserError(f"columns: {word!r}; expected FIELD=COLUMN once a field, such as text=passage")
        columns[field] = column
    return columns


def load_frame(source: Any, name: str | None = None) -> tuple[pd.DataFrame, str]:
    """Load a table as a data frame with text column names, and return what messages call it, too.

    Args:
        source: a list of dictionaries or a dictionary of columns; a pandas or pyarrow table, a `datasets.Dataset`, or
            anything else that has ``to_pandas``; a ``.json``, ``.jsonl``, ``.csv``, ``.tsv`` or ``.parquet`` file,
            texts compressed or not; a folder that `Dataset.save_to_disk` wrote; or the name of a data set on the hub,
            ``NAME:SPLIT`` or ``NAME:CONFIG:SPLIT``.
        name: what messages call it.
    """
    import pandas as pd

    name = name or (str(source) if isinstance(source, str | Path) else "data frame")
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        frame = _read_file(path) if path.is_file() else load_frame(_data_set(path, str(source)), name)[0]
    elif isinstance(source, dict) and source and all(hasattr(split, "to_pandas") for split in source.values()):
        raise UserError(f"{name}: has the splits {', '.join(source)}; name one, such as data[{next(iter(source))!r}]")
    elif isinstance(source, pa.Table) or hasattr(source, "with_format"):  # a datasets.Dataset
        table = source if isinstance(source, pa.Table) else source.with_format("arrow")[:]
        frame = _of_table(table, name)
    elif hasattr(source, "to_pandas"):
        frame = source.to_pandas()
    elif isinstance(source, pd.DataFrame):
        frame = source
    elif isinstance(source, Mapping | list):
        try:
            frame = pd.DataFrame(source)
        except (ValueError, TypeError) as error:
            raise UserError(f"{name}: is not a table ({error}); give columns of one length, or rows") from error
    else:
        kind = type(source).__name__
        raise UserError(f"{name}: {kind} is not a table; give a data frame, a dictionary, a data set or a file")
    if kept := [level for level in frame.index.names if level is not None and level not in frame.columns]:
        frame = frame.reset_index(kept)  # ids in the index
    if isinstance(source, str | Path):
        frame = frame.set_axis(range(1, len(frame) + 1))
    return frame.set_axis([str(column) for column in frame.columns], axis=1), name


def _of_table(table: pa.Table, name: str) -> pd.DataFrame:
    try:
        table.validate(full=True)  # Arrow trusts offsets and texts unless asked to check them
        return table.to_pandas(integer_object_nulls=True)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise UserError(f"{name}: damaged ({one_line(error)}); copy or make it again") from error


def _data_set(path: Path, name: str) -> Any:
    """Open a data set of Hugging Face in a folder or on the hub."""
    from datasets import load_dataset, load_from_disk
    from datasets.exceptions import DatasetsError

    hub, *rest = name.split(":")
    local = path.is_dir() or name[:1] in "./~" or path.suffix in READERS or (path.parent / "dataset_dict.json").exists()
    if not path.is_dir() and (local or len(rest) > 2):
        raise NotFoundError(f"{path}: no such file or folder")
    try:
        if path.is_dir():
            data = load_from_disk(str(path))
        else:
            data = load_dataset(hub, rest[0] if len(rest) == 2 else None, split=rest[-1] if rest else None)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, DatasetsError) as error:
        what = "not a data set that was saved whole" if local else "no such file, nor a data set that the hub can give"
        raise UserError(f"{name}: {what} ({one_line(f'{type(error).__name__}: {error}')[:300]})") from error
    if isinstance(data, dict):
        if len(data) > 1:
            such = f"{name}/{next(iter(data))}" if local else f"{hub}:{next(iter(data))}"
            raise UserError(f"{name}: has the splits {', '.join(data)}; name one, such as {such}")
        data = next(iter(data.values()))
    return data


def _kind(path: Path) -> str:
    """Return the suffix of a table's format, by the file's first bytes or its name; empty if it is not a table."""
    marks = {b"PAR1": ".parquet", b'{"': ".jsonl", b"[{": ".json"}
    start, suffix = _start(path), plain_name(path).suffix
    return suffix if suffix in READERS else next((marks[mark] for mark in marks if start.startswith(mark)), "")


def is_table(path: Path) -> bool:
    """Return True for a file of scores or judgments in a format other than TSV, whose columns need no names."""
    return _kind(path) not in (".tsv", "")


def _start(path: Path) -> bytes:
    with open_binary(path) as file, readable(path):
        return file.read(4096).lstrip()


def _read_file(path: Path) -> pd.DataFrame:
    if not (kind := _kind(path)):
        ends = ", ".join(READERS)
        raise UserError(f"{path}: cannot tell the format; the name must end in one of {ends}, or these compressed")
    return READERS[kind](path)


def _read_parquet(path: Path) -> pd.DataFrame:
    from pyarrow.parquet import read_table

    try:
        table = read_table(path, memory_map=True)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({one_line(error)})") from error
    return _of_table(table, str(path))


def _read_table(path: Path) -> pd.DataFrame:
    """Read a CSV file, or a TSV file, in which quotes are letters like others, as in MS MARCO's and BEIR's."""
    import pandas as pd

    csv.field_size_limit(sys.maxsize)
    rows: list[list[str]] = []
    with open_text(path) as file:
        tabs = plain_name(path).suffix == ".tsv"
        cells = (line.rstrip("\r\n").split("\t") for line in file) if tabs else csv.reader(file, strict=True)
        try:
            for row in filter(any, cells):
                rows.append(row)
                if len(row) != len(rows[0]):
                    width = f"{len(row)} columns; expected {len(rows[0])}, as the header has"
                    raise UserError(f"{path}: row {len(rows) - 1}: {width}")
        except csv.Error as error:
            raise UserError(f"{path}: row {len(rows)}: not CSV ({error}); is a quote open?") from error
    header = [cell.strip() for cell in rows[0]] if rows else []
    return pd.DataFrame(rows[1:], columns=header, dtype=object)


def _read_json(path: Path) -> pd.DataFrame:
    """Read JSON lines, a list of objects, or one engine's answer; some tools write one under the other's name."""
    import pandas as pd

    with open_text(path) as file:
        text = file.read()
    lines = [line for line in text.split("\n") if line and not line.isspace()]
    of_lines = len(lines) > 1 and lines[0].rstrip().endswith("}")
    if of_lines or plain_name(path).suffix in (".jsonl", ".ndjson"):
        records = [json_object(line, f"{path}:{number}", EXAMPLE) for number, line in enumerate(lines, 1)]
    else:
        try:
            whole = json.loads(text) if lines else []
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: not JSON ({error}); is it cut short?") from error
        records = whole if isinstance(whole, list) else [whole]
    if odd := next((i for i, record in enumerate(records, 1) if not isinstance(record, dict)), None):
        raise UserError(f"{path}: row {odd}: not a JSON object; expected one like {EXAMPLE}")
    try:
        return pd.DataFrame(records, dtype=object)
    except UnicodeEncodeError as error:
        raise UserError(f"{path}: a name has an unpaired surrogate; write the file again") from error


READERS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _read_json),
    **{".csv": _read_table, ".tsv": _read_table, ".parquet": _read_parquet},
}


def _is_nested(value: object) -> bool:
    return isinstance(value, list | tuple | dict | np.ndarray)


def _is_missing(value: object) -> bool:
    return value is None or (not _is_nested(value) and value != value)


def _values(value: Any, where: str) -> list[Any]:
    """Return the entries of a list, or of a dictionary of lists; of another value one, unless it is missing."""
    if isinstance(value, dict) and all(isinstance(inner, list | np.ndarray) for inner in value.values()):
        if len({len(inner) for inner in value.values()}) > 1:
            raise UserError(f"{where}: the lists of {', '.join(value)} have different lengths")
        return [dict(zip(value, entry, strict=True)) for entry in zip(*value.values(), strict=True)]
    return list(value) if isinstance(value, list | tuple | np.ndarray) else [] if _is_missing(value) else [value]


def _candidate(value: Any, told: Mapping[str, str], where: str) -> dict[str, Any]:
    """Flatten a passage or hit: its own fields, and those of a document inside it that name it, or that are told."""
    if isinstance(value, str):
        return {"text": value}
    if not isinstance(value, dict):
        raise UserError(f"{where}: {type(value).__name__} in place of a text or a hit; expected one like {EXAMPLE}")
    known = {*USUAL, *NESTED, *told.values()}
    flat = {key: inner for key, inner in value.items() if key[:1] != "_" or key in known}
    for inner in (flat.pop(nested) for nested in NESTED if isinstance(flat.get(nested), dict)):
        flat |= {
            key: field for key, field in inner.items() if key in told.values() or (key in TEXTS and key not in flat)
        }
    if isinstance(named := flat.pop("matched_queries", None), dict):  # Elasticsearch's scores of named queries
        flat |= named
    lists = {key: joined(inner) for key, inner in flat.items() if isinstance(inner, list | np.ndarray)}
    return {key: inner for key, inner in (flat | lists).items() if not _is_missing(inner)}


def _asked(record: Mapping[str, Any], told: Mapping[str, str]) -> dict[str, Any]:
    """Return what a record says about its query."""
    names = [name for field in ASKED for name in (*NAMES[field], told.get(field, field))]
    return {name: record[name] for name in names if not _is_missing(record.get(name))}


def _from_hits(
    frame: pd.DataFrame, column: str, told: Mapping[str, str], name: str, queries: Mapping[str, str] | None
) -> pd.DataFrame:
    """Read lists of hits: engines' answers, rank_llm's lists and requests, or any query with a list of candidates."""
    import pandas as pd

    rows, places = list[dict[str, Any]](), list[Any]()
    left, unnamed = iter((queries or {}).items()), 0
    for place, record in zip(frame.index, frame.to_dict("records"), strict=True):
        where = f"{name}: row {place}"
        for part in record[column] if column == "responses" else [record]:
            inner = "hits" if column == "responses" else column
            found = _hits_of(part, inner, where)
            hits = [_candidate(hit, told, where) for hit in _values(found, where)]
            asked = _asked(part, told)
            if isinstance(query := asked.get("query"), dict):  # rank_llm's requests
                asked = _asked({**query, "query": query.get("text")}, told)
            if not asked and found is not part.get(inner):  # a search engine's answer
                unnamed += 1
                asked = dict(zip(("query_id", "query"), next(left, ()), strict=False))
            rows += [{**hit, **asked} for hit in hits]
            places += [place] * len(hits)
    if unnamed and unnamed != len(queries or {}):
        given = f"{unnamed} answers for {len(queries or {})} queries"
        raise UserError(f"{name}: {given}; give those that were asked, in order (queries)")
    if not rows:
        raise UserError(f"{name}: no hits in any of its rows")
    return pd.DataFrame(rows, index=places, dtype=object)


def _hits_of(part: Any, column: str, where: str) -> Any:
    """Return the hits of a record; an engine's error or incomplete answer is refused."""
    if not isinstance(part, dict):
        raise UserError(f"{where}: {type(part).__name__} in place of an answer")
    hits, error = part.get(column), part.get("error")
    if isinstance(error, str | dict) and not _is_nested(hits):
        said = error.get("reason", error) if isinstance(error, dict) else error
        raise UserError(f"{where}: an error in place of hits ({one_line(said)[:300]}); ask again")
    if isinstance(hits, dict) and "hits" in hits:
        failed = (part.get("_shards") or {}).get("failed", 0)
        if part.get("timed_out") or failed:
            raise UserError(f"{where}: an incomplete answer ({failed} shards failed, or time ran out); ask again")
        return hits["hits"]
    if not _is_nested(hits):
        raise UserError(f"{where}: {column} is {type(hits).__name__}; expected a list of hits")
    return hits


def _from_examples(frame: pd.DataFrame, graded: Mapping[str, int], told: Mapping[str, str], name: str) -> pd.DataFrame:
    """Read positives (grade 1) and negatives (grade 0), each a text, a passage or a list of them."""
    import pandas as pd

    rows, places = list[dict[str, Any]](), list[Any]()
    for place, record in zip(frame.index, frame.to_dict("records"), strict=True):
        asked = _asked(record, told)
        for column, grade in graded.items():
            where = f"{name}: row {place}: {column}"
            texts, scores = _values(record[column], where), _values(record.get(f"{column}_scores"), where)
            if scores and len(scores) != len(texts):
                raise UserError(f"{where}: {len(texts)} texts, but {len(scores)} scores")
            for text, score in zip(texts, scores or [None] * len(texts), strict=True):
                more = {} if score is None else {TEACHER: score}
                rows.append({**_candidate(text, told, where), **asked, "grade": grade, **more})
                places.append(place)
    used = {"id", "type", *_asked(dict.fromkeys(frame.columns, 0), told), *graded}
    if lost := [column for column in frame.columns if column not in used and not column.endswith("_scores")]:
        log.warning("%s: columns left out, as they are not about one candidate: %s", name, ", ".join(lost))
    return pd.DataFrame(rows, index=places, dtype=object)


def _exploded(frame: pd.DataFrame, called: Mapping[str, str], name: str) -> pd.DataFrame:
    """Turn rows that hold lists of documents, grades and scores into a row per entry."""

    def size(value: object) -> int:
        return len(value) if isinstance(value, list | tuple | np.ndarray) else -1

    sizes = {column: frame[column].map(size) for column in frame.columns if frame[column].dtype == object}
    lists = [column for column, found in sizes.items() if (found >= 0).any()]
    fields = [column for column in lists if column in ("doc_id", "text", "grade")]
    if not fields:
        return frame
    for column in list(lists):
        same = (sizes[column] >= 0) & (sizes[column] == sizes[fields[0]])
        if column in fields and not same.all():
            row = frame.index[int(np.argmin(same.to_numpy()))]
            raise UserError(f"{name}: row {row}: {called[fields[0]]} and {called[column]} are not lists of one length")
        if not same.all():
            lists.remove(column)  # such as vectors
    return frame.explode(lists)


def _with_titles(frame: pd.DataFrame) -> pd.DataFrame:
    """Put titles above texts, as in other documents here."""
    if "title" not in frame or "text" not in frame:
        return frame
    pairs = zip(frame.pop("title"), frame["text"], strict=True)
    texts = [joined([title, text]) if isinstance(title, str) and title.strip() else text for title, text in pairs]
    return frame.assign(text=np.array(texts, dtype=object))


def _with_queries(records: Records, queries: Mapping[str, str] | None) -> Records:
    """Take the texts of the queries from elsewhere, and leave other queries out."""
    if queries is None:
        return records
    if "query_id" not in records.frame:
        raise UserError(f"{records.name}: has no query_id, by which its queries would be found among those given")
    ids = [str(id) for id in records.frame["query_id"]]
    chosen = np.array([id in queries for id in ids], dtype=bool)
    if others := {*ids} - {*queries}:
        log.warning("%s: %d queries are not among those given; left out", records.name, len(others))
    if not chosen.any():
        raise UserError(f"{records.name}: no candidates for any of the queries given")
    texts = np.array([queries.get(id, "") for id in ids], dtype=object)
    without = {id: text for id, text in queries.items() if id not in {*ids}}
    called = {**records.called, "query": records.called.get("query", "query")}
    return records._replace(frame=records.frame.assign(query=texts)[chosen], called=called, without=without)


def _unknown_shape(there: Sequence[str], name: str) -> UserError:
    def alike(shape: str) -> float:
        ratios = (max(difflib.SequenceMatcher(None, one, other).ratio() for other in there) for one in SHAPES[shape])
        return sum(ratios) / len(SHAPES[shape])

    first, second = sorted(SHAPES, key=alike, reverse=True)[:2]
    return UserError(
        f"{name}: columns {', '.join(map(repr, there))} are of no known shape; the nearest are '{first}' and "
        f"'{second}'; name unusual columns with columns={{'text': …}}"
    )
