"""Collections by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from rerank.collections.base import Collection, Qrels, Query
from rerank.collections.judgments import qrels_of, read_qrels_file
from rerank.errors import NotFoundError, UserError, nearest
from rerank.settings.arguments import find_class

KINDS = {
    "demo": "rerank.collections.demo.DemoCollection",
    "beir:": "rerank.collections.files.FilesFolder",
    "files:": "rerank.collections.files.FilesFolder",
    "lucene:": "rerank.collections.lucene.LuceneCollection",
}
"""The class of each name or prefix; it is imported at its first use, and called with the whole name."""

IR_DATASET = "rerank.collections.irdatasets.IrDataset"
"""The class of all other names."""


def open_collection(name: str) -> Collection:
    """Open a collection by its name.

    >>> demo = open_collection("demo")
    >>> "shutil.disk_usage" in dict(demo.documents())
    True

    Args:
        name: one of

            - an ir_datasets id: ``cranfield``, ``beir/scifact/train``;
            - ``beir:DIR/SPLIT``, a folder in BEIR's layout with the judgments of a split, or ``beir:DIR`` without any;
            - ``files:DIR``, a folder with ``docs.tsv`` or ``docs.jsonl``, ``queries.tsv`` or ``.jsonl``, and ``qrels``;
            - ``lucene:NAME`` or ``lucene:DIR``, the stored text of a prebuilt or own Lucene index;
            - ``demo``, the built-in collection.

    Raises:
        UserError: no such collection (with the nearest name) or file.
    """
    prefix, colon, path = name.partition(":")
    kind = prefix + colon
    if kind in KINDS and (path or not colon):
        return find_class(KINDS[kind], object, name)(name)
    data_set = find_class(IR_DATASET, object, name)
    with suppress(KeyError):
        return data_set(name)
    if Path(name).expanduser().is_dir():
        raise UserError(f"unknown collection {name!r}; for a folder, write beir:{name} or files:{name}")
    known = [kind + path for kind in KINDS] if colon else [*data_set.known(), "demo"]
    raise UserError(
        f"unknown collection {name!r}{nearest(name, known)}; expected an ir_datasets id, demo, or one of "
        f"{', '.join(f'{kind}…' for kind in KINDS if kind != 'demo')}"
    )


def checked_collection(collection: Any) -> Collection:
    """Return an object if it has the attributes of a collection."""
    if not isinstance(collection, Collection):
        raise UserError(
            f"collection: {type(collection).__name__} is not a collection; give a name such as beir/scifact/train, "
            "rerank.Texts(…), or an object like it (see rerank.collections.Collection)"
        )
    return collection


def read_queries(source: str | Path | Collection, fields: Sequence[str] | None = None) -> Iterator[Query]:
    """Stream queries.

    >>> dict(read_queries("demo"))["shutil.disk_usage?"]
    'shutil: Return disk usage statistics about the given path.'

    Args:
        source: a file of them (JSONL or TSV, compressed or not), a collection, or its name.
        fields: fields of an ir_datasets id that make the texts, in this order, such as ``title`` and ``description``;
            None takes the title or text.

    Raises:
        UserError: a bad line or an id that comes twice (with file and line), or nothing of that name.
    """
    given: Any = source
    if isinstance(source, str | Path):
        given = _file(source) or open_collection(str(source))
    if fields is None:
        from rerank.collections.files import read_queries_file

        return read_queries_file(given) if isinstance(given, Path) else given.queries()
    if not hasattr(given, "queries_of"):
        raise UserError(f"{given.name}: queries have one text; only those of ir_datasets have fields to choose from")
    queries: Iterator[Query] = given.queries_of(fields)
    return queries


def read_qrels(source: str | Path) -> Qrels:
    """Read judgments, negative grades too, from a TREC qrels file, a BEIR TSV, a table, or a collection by its name.

    >>> read_qrels("demo")["shutil.disk_usage?"]
    {'shutil.disk_usage': 1}

    Raises:
        UserError: a bad line or judgments that contradict each other (with file and line), or nothing of that name.
    """
    path = _file(source)
    qrels = read_qrels_file(path) if path else open_collection(str(source)).qrels()
    if qrels is None:
        raise UserError(f"{source}: this collection has no judgments; name a qrels file or a split that has some")
    return qrels


def as_qrels(given: Any, columns: Mapping[str, str] | None = None, name: str = "qrels") -> Qrels:
    """Convert any supported form of judgments to a dictionary.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"topic": [1, 1], "docno": ["a", "b"], "label": [2, 0]})
    >>> as_qrels(frame, {"query_id": "topic"})
    {'1': {'a': 2, 'b': 0}}

    Args:
        given: a dictionary of dictionaries; a data frame, or anything that has ``to_pandas`` (a Hugging Face data set,
            a Polars frame, an Arrow table); ir_measures' or ir_datasets' qrels, one by one; ranx's ``Qrels``; a file or
            the name of a collection.
        columns: what a frame calls ``query_id``, ``doc_id`` and ``grade``, if it is not one of the usual names.
        name: their name in messages.

    Raises:
        UserError: another form, a column that is not there, or a grade that is not a whole number.
    """
    return read_qrels(given) if isinstance(given, str | Path) else qrels_of(given, columns, name)


def _file(source: str | Path) -> Path | None:
    """Return the file, or None for the name of a collection."""
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if isinstance(source, Path) or (path.suffix[1:2].isalpha() and ":" not in source):
        raise NotFoundError(f"{path}: no such file")
    return None
