"""Write the scores of a model, or cosines, as a column or a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.lists.add import is_there, log_coverage
from rerank.lists.columns import as_name, check_name
from rerank.lists.store import Store
from rerank.lists.view import Lists
from rerank.models.folder import find_model, hash_model
from rerank.models.load import load_model
from rerank.models.text.cosines import Embedder
from rerank.scoring.in_sample import check_out_of_sample
from rerank.scoring.shared import check_scoring, join, placed, score_shared, together
from rerank.storage.files import exclusive_lock


def add_model(
    folder: str | Path,
    model: str | Path,
    name: str | None = None,
    *,
    precision: Precision = "auto",
    budget: int | None = None,
    in_sample: bool = False,
    interpolate: bool = True,
    instruction: str | None = None,
) -> None:
    """Score all candidates of a lists folder with a trained model, added ones included, into a column.

    Processes (``torchrun``) share the lists.
    """
    name = run_name(model) if name is None else check_name(name)
    store = Store.open(folder)
    lists = Lists.of(store).with_added()
    if not in_sample:
        check_out_of_sample(lists, model)
    state = join()
    with together():
        scorer = load_model(model, interpolate, instruction)
        check_scoring(scorer, precision, budget)
        precision = placed(scorer, precision)
        files = Path(model) if Path(model).is_dir() else find_model(str(model))
        made = {"model": run_name(model), "sha256": hash_model(files, interpolate), "precision": precision}
        made |= {"instruction": instruction} if instruction else {}
        done = is_there(store, name, made)
    if not done:
        values = np.empty(len(store.document), dtype=np.float32)
        values[lists.row_numbers] = score_shared(
            scorer, lists, precision=precision, budget=budget, progress=f"column {name}"
        )
        with together():
            if state.is_main_process:
                store.add_column(name, values, made=made)
    log_coverage(store, name, done)


def run_name(model: str | Path) -> str:
    """Name a column after a model: its run folder, if the model is ``best`` in it.

    >>> run_name("runs/scifact-smoothi/best")
    'scifact-smoothi'
    """
    path = Path(model)
    return as_name(path.absolute().parent.name if path.name == "best" else path.name)


def cosine_name(model: str | Path) -> str:
    """Name the column of a model's cosines.

    >>> cosine_name("sentence-transformers/all-MiniLM-L6-v2")
    'cosine-all-MiniLM-L6-v2'
    """
    return as_name(f"cosine-{Path(model).name}")


def add_cosines(
    folder: str | Path, model: str | Path, name: str | None = None, *, precision: Precision = "auto"
) -> None:
    r"""Add the cosine :math:`u_q \cdot v_d` of query and document by an embedding model, for all candidates.

    Every distinct document is encoded once, added ones included.
    """
    name = cosine_name(model) if name is None else check_name(name)
    store = Store.open(folder)
    if not store.has_text:
        raise UserError(f"{store}: has feature vectors, and no texts that {model} could read")
    encoder = Embedder(str(model), precision)
    made = {"model": str(model), "sha256": encoder.id, "number": "cosine"}
    with exclusive_lock(store.column_path(name), wait=True):
        if not (done := is_there(store, name, made)):
            store.add_column(name, encoder.cosines(Lists.of(store).with_added()), made=made)
    log_coverage(store, name, done)
