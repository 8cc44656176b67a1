"""A column of a trained model's scores: a killed scoring resumes behind the last whole part."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

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
    assert store.folder is not None
    place = store.folder / "columns" / f".{name}.parts"
    made = {"model": run_name(model), "sha256": model_hash(model, mix)}
    with group() as main:
        with together():
            scorer = load_model(model, mix)
            check_scoring(scorer, precision, budget)
            exact = placed(scorer, precision)
            made |= {"precision": exact}
            done = is_there(store, name, made)
        if not done:
            with kept_in(place, f"column {name}", main):
                with together():
                    lists = scorer.completed(lists)
                    parts = Parts(place, scorer, lists, {**made, "scorer": made["sha256"]})
                values = np.empty(len(store.document), dtype=np.float32)
                values[lists.row_numbers] = score_shared(
                    scorer, lists, precision=exact, budget=budget, progress=f"column {name}", parts=parts
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
