"""A column of a trained model's scores: a killed scoring resumes behind the last whole part."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerank.kernels.precision import Precision
from rerank.lists.add import Coverage, is_there
from rerank.lists.columns import as_name, check_name
from rerank.lists.store import Store
from rerank.lists.view import Lists
from rerank.models.contract import AFTERWARDS, FILES, MIX, read_contract
from rerank.models.load import load_model
from rerank.models.weights import find_model, initial_hashes
from rerank.scoring.in_sample import check_out_of_sample
from rerank.scoring.parts import Parts, kept_in
from rerank.scoring.shared import check_scoring, placed, score_shared
from rerank.scoring.together import group, together
from rerank.storage.identity import id_of
from rerank.storage.locks import tidied

log = logging.getLogger("rerank")


@dataclass(frozen=True)
class Share:
    """Some lists, and the model that scores them."""

    model: Path
    lists: Lists


def add_model(
    folder: str | Path,
    model: str | Path,
    name: str | None = None,
    *,
    precision: Precision = "auto",
    budget: int | None = None,
    in_sample: bool = False,
    mix: bool = True,
) -> Coverage:
    """Score all candidates of a lists folder with a trained model, added ones included, into a column.

    Parts of some thousand candidates are whole or absent, so that the same call resumes where another was killed.
    Processes (``torchrun``) share the parts.
    """
    name = run_name(model) if name is None else check_name(name)
    store = Store.open(folder)
    lists = Lists.of(store).with_added()
    if not in_sample:
        check_out_of_sample(lists, model)
    made = {"model": run_name(model), "sha256": model_hash(model, mix)}
    return score_column(store, name, [Share(Path(model), lists)], made, precision, budget, mix)


def score_column(
    store: Store,
    name: str,
    shares: Sequence[Share],
    made: Mapping[str, Any],
    precision: Precision,
    budget: int | None,
    mix: bool = True,
) -> Coverage:
    """Score all candidates of a folder into a column, each list by the model whose share it is.

    One model at a time is in memory.
    """
    assert store.folder is not None
    place = store.folder / "columns" / f".{name}.parts"
    with group() as main:
        with together():
            model = load_model(shares[0].model, mix)
            check_scoring(model, precision, budget)
            exact = placed(model, precision)
            made = {**made, "precision": exact}
            done = is_there(store, name, made)
        if not done:
            with kept_in(place, f"column {name}", main):
                values = np.empty(len(store.document), dtype=np.float32)
                for number, share in enumerate(shares):
                    title = f"column {name}" + (f", share {number + 1}" if len(shares) > 1 else "")
                    with together():
                        if number:
                            model = load_model(share.model, mix)
                            placed(model, precision)
                        about = {**made, "scorer": model_hash(share.model, mix)}
                        lists = model.completed(share.lists)
                        parts = Parts(place, model, lists, about)
                    values[lists.row_numbers] = score_shared(
                        model, lists, precision=exact, budget=budget, progress=title, parts=parts
                    )
                with together():
                    if main:
                        store.add_column(name, values, made=made)
        elif main:  # what was killed between the column and the end
            tidied(place)
            shutil.rmtree(place, ignore_errors=True)
        covered = Coverage.of(store, store.entry(name).values)
        log.info("%s: column %s%s: %s", store, name, ", there already" if done else "", covered)
    return covered


def run_name(model: str | Path) -> str:
    """A column's name after a model: that of the run folder, of which ``best`` is a part.

    >>> run_name("runs/scifact-smoothi/best")
    'scifact-smoothi'
    """
    path = Path(model)
    return as_name(path.absolute().parent.name if path.name == "best" else path.name)


def model_hash(model: str | Path, mix: bool = True) -> str:
    """The hash of what decides the scores of a model, or of a ranker that mixes."""
    contract = read_contract(Path(model))
    files = contract[FILES] if contract else initial_hashes(find_model(str(model)))
    left_out = (FILES, *AFTERWARDS, *([] if mix else [MIX]))
    known = {key: value for key, value in contract.items() if key not in left_out}
    return id_of({"contract": known, "files": files})
