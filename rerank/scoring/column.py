"""A column of a trained model's scores: a killed scoring resumes behind the last whole part."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rerank.kernels.precision import Precision
from rerank.lists.add import Coverage, is_there
from rerank.lists.columns import as_name, check_name
from rerank.lists.store import Store
from rerank.lists.view import Lists
from rerank.models.contract import AFTERWARDS, FILES, read_contract
from rerank.models.weights import find_model, initial_hashes
from rerank.scoring.in_sample import check_out_of_sample
from rerank.scoring.parts import Parts, Scoring, Share, clear
from rerank.storage.arrow import Array
from rerank.storage.identity import id_of
from rerank.storage.locks import tidied

log = logging.getLogger("rerank")


def add_model(
    folder: str | Path,
    model: str | Path,
    name: str | None = None,
    *,
    precision: Precision = "auto",
    budget: int | None = None,
    in_sample: bool = False,
) -> Coverage:
    """Score all candidates of a lists folder with a trained model, added ones included, into a column.

    Parts of some thousand candidates are whole or absent, so that the same call resumes where another was killed.
    Processes (``torchrun``) share the parts.

    Args:
        folder: the lists folder.
        model: the model's folder, such as ``runs/x/best``.
        name: the name of the column; None takes the run folder's.
        precision: arithmetic of the encoder.
        budget: padded tokens (documents, for feature vectors) per forward pass; None takes the model's own.
        in_sample: whether to score queries that the model was trained on: what learns from the column then learns to
            trust the model's memory.

    Returns:
        What the column covers.

    Raises:
        UserError: no such lists or model, lists that lack what the model reads, or share queries with its training;
            another column of this name.
    """
    name = run_name(model) if name is None else check_name(name)
    store = Store.open(folder)
    lists = Lists.of(store).with_added()
    if not in_sample:
        check_out_of_sample(lists, model)
    made = {"model": run_name(model), "sha256": model_hash(model)}
    return score_column(store, name, [Share(Path(model), lists)], made, precision, budget)


def score_column(
    store: Store, name: str, shares: Sequence[Share], made: Mapping[str, Any], precision: Precision, budget: int | None
) -> Coverage:
    """Score all candidates of a folder into a column, each list by the model whose share it is.

    One model at a time is in memory; of several, the scores are, too.

    Args:
        store: the lists.
        name: the name of the column.
        shares: models of one kind with their lists, which together are all lists of the store, each once.
        made: what the column remembers of what it was made from.
        precision: arithmetic of the encoders.
        budget: padded tokens (documents, for feature vectors) per forward pass; None takes the model's own.

    Returns:
        What the column covers.

    Raises:
        UserError: lists that lack what a model reads; another column of this name.
    """
    assert store.folder is not None
    scoring = Scoring(shares, precision, budget)
    made = {**made, "precision": scoring.exact}
    place = store.folder / "columns" / f".{name}.parts"
    done = is_there(store, name, made)
    if not done:
        each = [{**made, "scorer": model_hash(share.model)} for share in shares]
        with scoring.parts(place, f"column {name}", each) as scored:
            if scoring.main:
                store.add_column(name, _together(shares, scored), made=made)
    elif scoring.main:
        tidied(place)  # what was killed between the column and the end
        clear(place)
    covered = Coverage.of(store, store.entry(name).values)
    log.info("%s: column %s%s: %s", store, name, ", there already" if done else "", covered)
    scoring.end()
    return covered


def _together(shares: Sequence[Share], scored: Sequence[Parts]) -> Array | Iterator[Array]:
    """The scores of all shares in the order of the store."""
    if len(shares) == 1:
        return scored[0].scores()
    values = np.empty(len(shares[0].lists.store.document), dtype=np.float32)
    for share, parts in zip(shares, scored, strict=True):
        values[share.lists.row_numbers] = np.concatenate([np.zeros(0, np.float32), *parts.scores()])
    return values


def run_name(model: str | Path) -> str:
    """A column's name after a model: that of the run folder, of which ``best`` is a part.

    >>> run_name("runs/scifact-smoothi/best")
    'scifact-smoothi'
    """
    path = Path(model)
    return as_name(path.absolute().parent.name if path.name == "best" else path.name)


def model_hash(model: str | Path) -> str:
    """The hash of what decides a model's scores."""
    contract = read_contract(Path(model))
    files = contract.get(FILES) or initial_hashes(find_model(str(model)))
    known = {key: value for key, value in contract.items() if key not in (FILES, *AFTERWARDS)}
    return id_of({"contract": known, "files": files})
