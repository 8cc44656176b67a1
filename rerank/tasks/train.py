"""Training from Python: ``rerank.train``."""

from __future__ import annotations

import reprlib
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import UserError, nearest
from rerank.lists.data import ListsData, content_hashes
from rerank.lists.neighbours import Grouping
from rerank.lists.view import Lists
from rerank.losses.base import Criterion, Loss
from rerank.losses.terms import GRADES, Term, Terms, columns_of
from rerank.models.base import Model
from rerank.models.scorer import Scorer
from rerank.progress import heard, is_main
from rerank.scoring.shared import join, together
from rerank.settings.arguments import Count, check_arguments
from rerank.settings.parser import TRANSFORMERS
from rerank.storage.files import exclusive_lock
from rerank.tasks.arguments import ListsLike
from rerank.training.config import Optimization, TrainConfig, check_values
from rerank.training.fit import Training, fit
from rerank.training.run_folder import FINGERPRINT, GIVEN, check_unbegun

OWN = ("data", "model", "loss", "test")
"""Fields of a configuration that ``train`` takes as objects, or that follow from these."""

FOLDERS = {"lists": "train", "validation": "validation", "test": "test"}
"""Names of the folders of lists that are given in memory."""


def train(
    model: Model,
    lists: ListsLike | Sequence[ListsLike],
    loss: Criterion | Term | Sequence[Term] | None = None,
    *,
    output: str | Path,
    validation: float | ListsLike | None = 0.1,
    test: ListsLike | None = None,
    depth: Count = 150,
    leakage_groups: Grouping = "auto",
    **settings: Any,
) -> Training:
    """Train a model on ranked lists, or resume an interrupted run of the same training.

    Lists in memory, and views of folders, are written into the run folder first, so that ``Training.config`` repeats
    the training.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> model = rerank.MLP(hidden=[4], columns=["bm25"])
    >>> run = rerank.train(model, lists, rerank.LambdaLoss(), validation=None, output=mkdtemp() + "/x")
    >>> run.model.predict(lists).shape, (run.folder / "best").is_dir()
    ((4,), True)

    Args:
        model: the model to train, such as ``rerank.CrossEncoder("…")``.
        lists: training lists, a lists folder, or several of them, which are concatenated. Relevant documents that
            ``add_relevant`` added take part.
        loss: the objective: one loss on the relevance labels, or terms, each with a target and a weight; None trains
            trees on their own objective.
        output: the run folder.
        validation: share of the training queries held out to choose the best epoch, or lists to choose it on; None
            keeps the last epoch.
        test: lists to measure the best model on, once, at the end.
        depth: candidates reranked per validation and test query, if the lists have an order.
        leakage_groups: ``auto`` keeps queries with the same text or a shared relevant document on one side when a share
            is held out; ``none`` only those of one text.
        settings: every other field of :class:`rerank.TrainConfig`: ``epochs``, ``batch_size``, ``sampler``,
            ``optimization``, ``seed``, ``monitor``, ``measures`` and so on.

    Returns:
        The training: ``history``, ``results``, ``model``, ``config``.

    Raises:
        UserError: arguments that cannot work, before anything is trained; a folder that holds something else or
            another training run; a training run that fails.
    """
    known = [field.name for field in fields(TrainConfig) if field.name not in OWN]
    for name in settings:
        if name not in known:
            raise UserError(f"train: no setting {name!r}{_nearest_setting(name, known)}")
    settings = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
    if not isinstance(model, Model):
        raise UserError(f"model: expected a model such as rerank.CrossEncoder('…'), not {reprlib.repr(model)}")
    check_arguments(train, {"output": output, "depth": depth, "leakage_groups": leakage_groups})
    criterion = _criterion(loss)
    share, apart = (validation, None) if isinstance(validation, int | float) else (0.0, validation)
    if share and not 0 < share < 1:
        raise UserError(f"validation: a share must be above 0 and below 1, not {share:g}; or give validation lists")
    several = list(lists) if isinstance(lists, Sequence) and not isinstance(lists, str) else [lists]
    if not several:
        raise UserError("lists: expected one or more lists to train on")
    given = {
        "lists": [_lists("lists", one, columns_of(criterion)) for one in several],
        "validation": [_lists("validation", apart)] if apart is not None else [],
        "test": [_lists("test", test)] if test is not None else [],
    }
    config = TrainConfig(ListsData("", validation_fraction=share, depth=depth), model, criterion, **settings)
    check_values(config, type(criterion) if criterion else None, trees=not isinstance(model, Scorer))
    taught = isinstance(criterion, Terms) and all(term.target != GRADES for term in criterion.terms)
    unjudged = any(one.qrels is None or (taught and not one.judged.all()) for one in given["lists"])
    places = {
        name: [
            _whole_folder(one) or Path(output) / GIVEN / (FOLDERS[name] + (f"-{i}" if len(some) > 1 else ""))
            for i, one in enumerate(some, 1)
        ]
        for name, some in given.items()
    }
    in_memory = [
        (one, place)
        for name, some in given.items()
        for one, place in zip(some, places[name], strict=True)
        if place != one.store.folder
    ]
    folders = {name: [str(place) for place in some] for name, some in places.items()}
    config.data = ListsData(
        folders["lists"][0] if len(several) == 1 else folders["lists"],
        next(iter(folders["validation"]), None),
        next(iter(folders["test"]), None),
        validation_fraction=share,
        depth=depth,
        unjudged=unjudged,
        leakage_groups=leakage_groups,
    )
    with heard(), exclusive_lock(output) if in_memory and is_main() else nullcontext():
        if in_memory:
            join()
            with together():  # the main process saves, before the others open
                for one, place in in_memory if is_main() else []:
                    _save(one, place, model)
        return fit(config, output)


def _nearest_setting(name: str, known: Sequence[str]) -> str:
    """Suggest a setting for an unknown one: transformers' name of it, one of ``optimization``, or a similar name."""
    ours = TRANSFORMERS.get(name, name).rpartition(".")[2]
    if rates := get_close_matches(ours, [field.name for field in fields(Optimization)], 1):
        return f" (it is optimization=rerank.Optimization({rates[0]}=…))"
    return nearest(ours, known)


def _criterion(loss: Any) -> Criterion | None:
    if isinstance(loss, Term):
        return Terms([loss])
    if isinstance(loss, Sequence) and not isinstance(loss, str) and all(isinstance(term, Term) for term in loss):
        return Terms(list(loss))
    if loss is None or isinstance(loss, Loss | Terms):
        return loss
    raise UserError(f"loss: expected a loss such as rerank.SmoothINDCG(), not {reprlib.repr(loss)}")


def _lists(name: str, given: Any, teachers: Sequence[str] = ()) -> Lists:
    """Open lists to train or measure on."""
    if not isinstance(given, Lists | str | Path):
        way = "rerank.retrieve(…) or rerank.Lists.from_dataframe(…)"
        raise UserError(f"{name}: expected lists, as {way} make them, or their folder, not {reprlib.repr(given)}")
    lists = given if isinstance(given, Lists) else Lists.open(given)
    if not len(lists):
        raise UserError(f"{name}: {lists} has no lists")
    if lists.qrels is None and not teachers:
        way = ", or learn from a column: rerank.Term(loss, target=…)" if name == "lists" else ""
        raise UserError(f"{name}: {lists} has no judgments; give them with qrels={way}")
    return lists


def _whole_folder(lists: Lists) -> Path | None:
    """Return the folder of the lists, if they are all of it."""
    store, whole = lists.store, Lists.of(lists.store)
    shown = whole.with_added() if lists.size == whole.size + int(store.added.sum()) else whole
    if len(lists) == len(shown) and (lists.starts == shown.starts).all() and (lists.lengths == shown.lengths).all():
        return store.folder
    return None


def _save(lists: Lists, place: Path, model: Model) -> None:
    """Save lists, unless the folder has them."""
    whole = Lists.of(lists.store)
    cut = bool((lists.lengths < whole.lengths[lists.queries]).any())
    if cut and any(":" in name for name in model.columns):
        raise UserError(
            "lists: were cut with top(), and the model has residual_columns, whose z is that of whole lists; give the "
            "whole lists, and sampler=rerank.Full(depth=…)"
        )
    if (lists.lengths == whole.lengths[lists.queries]).all():
        lists = lists.with_added()  # some queries of a folder bring what was added to them, as all of them do
    if place.is_dir():
        there = Lists.open(place)
        names = lists.store.column_names
        if there.store.column_names == names and content_hashes(there.with_added(), names) == content_hashes(
            lists, names
        ):
            return
        if (place.parent.parent / FINGERPRINT).exists():
            raise UserError(f"output: {place.parent.parent} was trained on other lists; name another output")
        check_unbegun(place.parent.parent)
        shutil.rmtree(place)  # of a training that was refused before it began
    lists.save(place)
