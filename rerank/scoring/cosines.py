"""A column of cosines: what an embedding model says of every candidate, without training."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.lists.add import Coverage, is_there
from rerank.lists.columns import as_name, check_name
from rerank.lists.store import Store
from rerank.lists.view import Lists
from rerank.models.text.cosines import Embedder, cosines
from rerank.storage.locks import held

log = logging.getLogger("rerank")


def cosine_name(model: str | Path) -> str:
    """The name of the column of a model's cosines, unless one is given.

    >>> cosine_name("sentence-transformers/all-MiniLM-L6-v2")
    'cosine-all-MiniLM-L6-v2'
    """
    return as_name(f"cosine-{Path(model).name}")


def add_cosines(
    folder: str | Path, model: str | Path, name: str | None = None, *, precision: Precision = "auto"
) -> Coverage:
    r"""Add the cosine :math:`u_q \cdot v_d` of query and document by an embedding model, for all candidates.

    Every distinct document is encoded once, added ones included. A call that was killed goes on with the first
    document that it had not stored.
    """
    name = cosine_name(model) if name is None else check_name(name)
    store = Store.open(folder)
    assert store.folder is not None
    if not store.has_text:
        raise UserError(f"{store}: has feature vectors, and no texts that {model} could read")
    encoder = Embedder(str(model), precision)
    made = {"model": str(model), "sha256": encoder.id, "number": "cosine"}
    with held(store.folder / "columns" / f".{name}.vectors", f"rerank add --embed {model}", wait=True):
        if not is_there(store, name, made):
            vectors = store.folder / "columns" / f".{name}.vectors"
            store.add_column(name, cosines(Lists.of(store).with_added(), encoder, vectors / encoder.id), made=made)
            shutil.rmtree(vectors, ignore_errors=True)
    covered = Coverage.of(store, store.entry(name).values)
    log.info("%s: column %s: %s", store, name, covered)
    return covered
