"""Lists folders of version 1, in which a query held its candidates, as folders of today's version."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rerank.arrow import Array, Ragged, blocks, read_arrow, write_arrow
from rerank.errors import UserError, one_line
from rerank.files import atomic_folder
from rerank.lists.build import ORDER
from rerank.lists.columns import column_name
from rerank.lists.layout import MANIFEST, QUERIES, VERSION
from rerank.lists.writer import StoreWriter
from rerank.locks import held

log = logging.getLogger("rerank")

PAIRS = 1 << 20
"""Candidates converted at a time."""


def upgrade(folder: str | Path) -> None:
    """Convert a folder in its place; it is the old one, or whole, at any moment.

    Nothing is read from the collection: candidates, texts, grades and scores stay. What version 1 put in place of the
    score of an added document, the lowest of its list, becomes NaN.

    Raises:
        UserError: no lists folder of version 1.
    """
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        version = manifest["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{folder}: not a lists folder ({error})") from error
    if version == VERSION:
        log.info("%s: is of version %d already", folder, VERSION)
        return
    if version != 1 or "features" in manifest:
        raise UserError(f"{folder}: lists of version {version} cannot be converted; build them again")
    with held(folder, "converting lists"), atomic_folder(folder, replace=True) as temporary:
        try:
            _convert(folder, manifest, temporary)
        except (KeyError, TypeError, ValueError, AttributeError, pa.ArrowException) as error:  # it has no hashes
            raise UserError(f"{folder}: damaged ({one_line(error)}); build the lists again") from error
    log.info("%s: converted to version %d", folder, VERSION)


def _convert(folder: Path, manifest: dict[str, Any], temporary: Path) -> None:
    retriever = manifest["retriever"]
    order = ORDER if "bm25" in retriever else column_name(retriever.get("run", "run"))
    old = read_arrow(folder / "queries.arrow")
    old.validate(full=True)
    write_arrow(temporary / "queries.arrow", QUERIES, [old.select(["query_id", "text"]).to_pydict()])
    for name in ("documents.arrow", "run.trec", "qrels.trec"):
        if (folder / name).is_file():
            shutil.copyfile(folder / name, temporary / name)
    documents, labels, scores = (Ragged(old.column(name)) for name in ("documents", "labels", "scores"))
    lengths, added = documents.lengths(), old.column("added").to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    _check(folder, manifest, old, lengths, [labels.lengths(), scores.lengths(), np.maximum(lengths, added)])
    with StoreWriter(temporary, {order: [order]}) as writer:
        for first, last in blocks(offsets, PAIRS):
            some = range(first, last)
            values = np.concatenate([np.zeros(0, np.float32), *(scores[i] for i in some)])
            ends = offsets[first + 1 : last + 1] - offsets[first]
            hidden = np.repeat(ends - added[first:last], lengths[first:last]) <= np.arange(len(values))
            writer.add(
                lengths[first:last],
                added[first:last],
                np.concatenate([np.zeros(0, np.int32), *(documents[i] for i in some)]),
                np.concatenate([np.zeros(0, np.int16), *(labels[i] for i in some)]),
                **{order: np.where(hidden, np.nan, values)},
            )
        writer.close(
            collection=manifest["collection"],
            retriever=retriever,
            depth=manifest["depth"],
            order=order,
            judgments="qrels.trec" if manifest["judged"] else None,
            counts=manifest["counts"],
            made=retriever,
        )


def _check(folder: Path, manifest: dict[str, Any], old: pa.Table, lengths: Array, others: list[Array]) -> None:
    """Refuse what does not fit together; a ValueError says what."""
    known = read_arrow(folder / "documents.arrow")
    known.validate(full=True)
    if not {"doc_id", "text"} <= {*known.column_names}:
        raise ValueError(f"documents have {', '.join(known.column_names) or 'no columns'}")
    for name, table in (("queries", old), ("documents", known)):
        if manifest["counts"][name] != table.num_rows:
            raise ValueError(f"{table.num_rows} {name}, {MANIFEST} says {manifest['counts'][name]}")
    if any((lengths != other).any() for other in others) or (old.column("added").to_numpy() < 0).any():
        raise ValueError("lists of different lengths")
    rows = old.column("documents").combine_chunks().flatten().to_numpy(zero_copy_only=False)
    if len(rows) and not 0 <= rows.min() <= rows.max() < known.num_rows:
        raise ValueError("a candidate that is no document")
