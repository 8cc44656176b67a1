"""A column of what an experiment's models say of the queries that they did not see: evidence to train others on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rerank.errors import UserError, nearest
from rerank.kernels.precision import Precision
from rerank.lists.add import Coverage
from rerank.lists.columns import as_name, check_name
from rerank.lists.data import Splits
from rerank.lists.store import Store
from rerank.lists.view import Lists
from rerank.scoring.column import Share, model_hash, score_column
from rerank.scoring.in_sample import query_hashes, shared_queries
from rerank.storage.arrow import Array
from rerank.storage.identity import canonical, first_difference, id_of
from rerank.training.configuration import configured
from rerank.training.ids import identity_of
from rerank.training.run_folder import difference, finished, read_identity


@dataclass(frozen=True)
class Fold:
    """A finished cell and the lists that it was trained, validated and tested on.

    Attributes:
        folder: the run folder of the cell that was measured: chosen on validation, refitted where that was asked for.
    """

    name: str
    folder: Path
    id: str
    splits: Splits

    @property
    def best(self) -> Path:
        return self.folder / "best"


def add_out_of_fold(
    folder: str | Path,
    experiment: str | Path,
    name: str | None = None,
    *,
    method: str | None = None,
    seed: int | None = None,
    precision: Precision = "auto",
    budget: int | None = None,
) -> Coverage:
    """Score every list with the one model of a cross-validation that was neither trained nor validated on its query.

    Models score by themselves: the share of a first stage would differ from fold to fold. The scores are what stacked
    generalisation (Wolpert 1992) trains its second level on. All candidates get one, also those beyond the depth at
    which the experiment tested, and added ones. The lists may be others than those of the experiment (deeper, or of
    other systems), as long as the queries are its. Resumes as :func:`add_model` does.
    """
    store = Store.open(folder)
    lists = Lists.of(store).with_added()
    method, seed, cells = chosen(Path(experiment), method, seed)
    name = as_name(method) if name is None else check_name(name)
    folds = [_fold(cell, Path(experiment)) for cell in cells]
    testing = tested_by(lists, folds)
    shares = []
    for i, fold in enumerate(folds):
        if len(mine := lists.select(np.flatnonzero(testing == i))):
            _check_unseen(fold, mine)
            shares.append(Share(fold.best, mine))
    if not shares:
        raise UserError(f"{lists.store}: has no queries")
    known = [[fold.name, fold.id, model_hash(fold.best, mix=False)] for fold in folds]
    about = f"{Path(experiment).absolute().name}: {method}, seed {seed}, out of fold"
    return score_column(store, name, shares, {"model": about, "sha256": id_of(known)}, precision, budget, mix=False)


def chosen(experiment: Path, method: str | None, seed: int | None) -> tuple[str, int, list[dict[str, Any]]]:
    """The method, the seed, and what ``results.json`` says of their cells, a fold each."""
    path = experiment / "results.json"
    if not path.is_file():
        raise UserError(f"{experiment}: no finished experiment (no {path.name}); run `rerank experiment` to its end")
    try:
        results = json.loads(path.read_bytes())
        cells = [cell for cell in results["cells"] if cell["tried"]]  # others are of rows that are not trained
        failed = list(results["failed"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UserError(f"{path}: damaged ({error}); run the experiment again, what is trained stays") from error
    method = _choose("method", method, [cell["method"] for cell in cells + failed], experiment)
    seed = _choose("seed", seed, [cell["seed"] for cell in cells + failed if cell["method"] == method], experiment)
    wanted = (method, seed)
    if lost := [cell["fold"] for cell in failed if (cell["method"], cell["seed"]) == wanted]:
        raise UserError(f"{experiment}: fold {lost[0]} of {method}, seed {seed}, failed; run the experiment again")
    mine = [cell for cell in cells if (cell["method"], cell["seed"]) == wanted]
    if any(cell["fold"] is None for cell in mine):
        raise UserError(f"{experiment}: has no folds, so that its model has seen all training queries (key folds)")
    return method, seed, mine


def _choose(what: str, given: Any, there: Sequence[Any], experiment: Path) -> Any:
    options = list(dict.fromkeys(there))
    if given is None and len(options) == 1:
        return options[0]
    if given is None:
        raise UserError(f"{experiment}: {what}s {', '.join(map(str, options)) or 'none'}; choose one by --{what}")
    if given not in options:
        near = nearest(str(given), list(map(str, options)))
        raise UserError(f"{what}: {experiment} has no {what} {given!r}{near}; it has {', '.join(map(str, options))}")
    return given


def _fold(cell: dict[str, Any], experiment: Path) -> Fold:
    """A cell, checked: what was trained is what its lists and configuration say now."""
    folder = experiment.joinpath(*Path(cell["folder"]).parts[-5:])  # once they began with the experiment's
    if not (folder / "config.yaml").is_file() or not any((folder / "best").glob("*")):
        raise UserError(f"{folder}: has no model (best/); remove the folder, and run the experiment again")
    config = configured(yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8")))
    splits = config.data.splits(config.seed)
    identity = identity_of(config, splits)
    if (found := first_difference(read_identity(folder), json.loads(canonical(identity)))) is not None:
        raise UserError(f"{folder}: {difference(*found)}; run the experiment again on what is there now")
    if finished(folder, id_of(identity)) is None:
        raise UserError(f"{folder}: is not finished; run the experiment again")
    return Fold(str(cell["fold"]), folder, id_of(identity), splits)


def tested_by(lists: Lists, folds: Sequence[Fold]) -> Array:
    """Which of the folds tests each query, ``[Q]``."""
    where: dict[str, tuple[int, int]] = {}
    for i, fold in enumerate(folds):
        assert fold.splits.test is not None
        test = fold.splits.test
        for query, text in zip(test.query_ids, query_hashes(test).tolist(), strict=True):
            if query in where:
                raise UserError(f"{fold.folder}: query {query!r} is tested by fold {folds[where[query][0]].name}, too")
            where[query] = i, text
    if lost := [query for query in lists.query_ids if query not in where]:
        raise UserError(
            f"{lists.store}: no fold tests {len(lost)} of {len(lists)} queries, e.g. {lost[0]!r} (without judgments a "
            "query is in none); run the other folds, or make lists of the tested queries alone (--queries)"
        )
    for query, text in zip(lists.query_ids, query_hashes(lists).tolist(), strict=True):
        if where[query][1] != text:
            raise UserError(
                f"{lists.store}: query {query!r} has another text than in the experiment's lists; retrieve again"
            )
    return np.array([where[query][0] for query in lists.query_ids], dtype=np.int64)


def _check_unseen(fold: Fold, lists: Lists) -> None:
    """Refuse queries whose texts a fold's model has seen under other ids, or before the experiment began."""
    for what, seen in (("trained", fold.splits.train), ("validated", fold.splits.validation)):
        if seen is not None and (both := np.isin(query_hashes(lists), query_hashes(seen))).any():
            query = lists.query_ids[int(both.argmax())]
            raise UserError(
                f"{fold.folder}: was {what} on the texts of {int(both.sum())} queries that it tests, e.g. {query!r}, "
                "under other ids; let one fold have both (data.assignment)"
            )
    if shared := shared_queries(lists, fold.best):
        raise UserError(
            f"{fold.best}: was trained on {len(shared)} of the {len(lists)} queries that it tests, e.g. {shared[0]!r}, "
            "before the experiment; let the experiment start from another model"
        )
