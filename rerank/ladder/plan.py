"""What a ladder climbs with, checked before any work: lists, models, and how each is trained."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.measure_names import parse_measure
from rerank.features.letor import open_lists
from rerank.features.parse import FEATURES
from rerank.ladder.split import AVERAGES, TRAININGS
from rerank.lists.content import content_hashes
from rerank.lists.data import ListsData, keep_back
from rerank.lists.sampling import PositivesNegatives
from rerank.lists.view import Lists, concat
from rerank.models.base import Model
from rerank.models.load import MODELS
from rerank.models.weights import find_model, initial_hashes
from rerank.progress import log
from rerank.scoring.in_sample import shared_queries
from rerank.storage.identity import id_of
from rerank.training.config import Optimization, TrainConfig

ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
NETWORKS, TREES = ("MLP", "SelfAttention"), ("LightGBM", "XGBoost")
"""Models of feature vectors, by their names."""

FEWEST = 10
"""Judged training queries of which some can be kept back for validation."""

FEW = 50
"""Fewer validation queries than these are said to be few: only large differences can be seen."""

OWN = "own"
"""The folder of the lists from documents alone."""

SEEDS = 3
"""Seeds that a model is trained with, if there is time."""

SHARES = (0.25, 0.5, 0.75)
"""Shares of the seeds' mean in its average with what they started from."""

BATCH = 4
"""Lists of an optimizer step of a text model."""

EVIDENCE = 500
"""Queries that judge what no judgment trained: training queries make up for what the validation lists have fewer."""

STEPS = 300
"""Steps that a text model is trained for at least, in at most `PASSES` passes over the training lists."""

PASSES = 10


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes:
        lists: ``train``, ``validation`` and perhaps ``test``: the judged queries, cut at the depth. Behind those
            that are kept back, ``validation`` has training queries, for the rungs that no judgment trains.
        models: names of models with what they are: ``head`` (scores already), ``embedding``, ``encoder`` (neither),
            ``trees`` or ``network`` (of feature vectors).
    """

    lists: Mapping[str, Lists]
    held: int
    models: Mapping[str, str]
    hours: float | None
    monitor: str
    notes: Sequence[str]
    id: str

    @property
    def columns(self) -> list[str]:
        """The numbers that could rank the lists by themselves, that which orders them first."""
        return [number for numbers in self.lists["validation"].store.numbers_by_column().values() for number in numbers]


def planned(
    given: Mapping[str, str | Path | Lists | None],
    models: Sequence[str] | None,
    hours: float | None,
    monitor: str,
    depth: int,
    seed: int,
) -> Plan:
    """Open and check everything; nothing is written."""
    monitor = str(parse_measure(monitor, "monitor"))
    train = _judged("train", given["train"])
    layout = train.store.manifest.get("features")
    others = {name: _judged(name, given[name], layout) for name in ("validation", "test") if given[name] is not None}
    notes: list[str] = []
    apart = _apart({name: others[name] for name in ("test", "validation") if name in others} | {"train": train}, notes)
    train, others = apart.pop("train"), apart
    if "validation" not in others:
        if len(train) < FEWEST:
            raise UserError(f"validation: {len(train)} training queries are too few to keep some back; give others")
        train, back = keep_back(train, 0.1 if len(train) >= 500 else 0.2, seed)
        assert back is not None
        others["validation"] = back
        notes.append(f"{len(back)} of {len(back) + len(train)} training queries were kept back for validation.")
    if len(others["validation"]) < 2:
        raise UserError("validation: one query tells nothing of the others; give more")
    if len(others["validation"]) < FEW:
        notes.append(f"{len(others['validation'])} validation queries are few: only large differences can be seen.")
    lists = {"train": train} | {
        name: others[name].to_rerank(depth) for name in ("validation", "test") if name in others
    }
    _check_columns(lists)
    kinds = _kinds(models, lists["train"])
    if hours == 0 and (bare := next((name for name, kind in kinds.items() if kind not in ("head", "embedding")), None)):
        raise UserError(f"hours: in 0 hours {bare} cannot be trained, and it has no trained head; name another model")
    texts = [name for name in kinds if lists["train"].store.has_text]
    _check_unseen({name: some for name, some in lists.items() if name != "train"}, texts)
    more, held = _more(lists, texts, depth, seed), len(lists["validation"])
    about = _identity(lists, kinds, hours, monitor, seed)
    if len(more):
        about["more"] = content_hashes(more, lists["validation"].store.column_names)
        lists["validation"] = concat([lists["validation"], more])
        notes.append(
            f"Rungs that no judgment trained, such as cosines and fusion, are also measured on {len(more)} training "
            "queries, to choose among them."
        )
    return Plan(lists, held, kinds, hours, monitor, notes, id_of(about))


def _check_unseen(lists: Mapping[str, Lists], models: Sequence[str]) -> None:
    """Refuse text models that were trained on queries that judge them."""
    for (split, some), name in product(lists.items(), models):
        if shared := shared_queries(some, find_model(name)):
            raise UserError(
                f"model: {name} was trained on {len(shared)} of the {len(some)} {split} queries, e.g. {shared[0]!r}; "
                f"what it has on them means nothing, so give --{split} lists that it has not seen"
            )


def _more(lists: Mapping[str, Lists], models: Sequence[str], depth: int, seed: int) -> Lists:
    """Training queries that judge what no judgment trains, where validation queries are few; perhaps none.

    None of them has trained one of the text models.
    """
    train, validation = lists["train"], lists["validation"]
    alike = train.store.order == validation.store.order
    alike &= {*validation.store.column_names} <= {*train.store.column_names}
    count = min(len(train), max(0, EVIDENCE - len(validation))) if alike else 0
    drawn = np.random.default_rng(seed).permutation(len(train))[:count]
    more = train.select(np.sort(drawn)).to_rerank(depth)
    known = [id for name in models for id in shared_queries(more, find_model(name)) or ()]
    return more.select(~np.isin(more.query_ids, known))


def _judged(name: str, given: Any, layout: Mapping[str, int] | None = None) -> Lists:
    """The judged queries of a folder, of a feature file or of lists."""
    if not isinstance(given, str | Path | Lists):
        raise UserError(f"{name}: expected lists or their folder, not {given!r}")
    lists = given if isinstance(given, Lists) else open_lists(given, layout, "the training lists")
    lists = replace(lists, lengths=np.minimum(lists.lengths, Lists.of(lists.store).lengths[lists.queries]))
    judged = np.flatnonzero(lists.judged & (lists.qrels is not None))
    if not len(judged):
        raise UserError(f"{name}: {lists.store} has no judgments; make it again with `rerank retrieve --qrels`")
    if len(judged) < len(lists):
        log.info("%s: %d of %d queries have no judgments and are left out", name, len(lists) - len(judged), len(lists))
    return lists.select(judged)


def _apart(lists: Mapping[str, Lists], notes: list[str]) -> dict[str, Lists]:
    """The lists without queries whose text another one tests or validates on, as collections have some."""
    apart: dict[str, Lists] = {}
    for name, some in lists.items():
        for other, whole_one in apart.items():
            if shared := sorted({*some.query_ids} & {*whole_one.query_ids}):
                raise UserError(
                    f"{other}: {len(shared)} queries are in the {name} lists, too, such as {shared[0]!r}; measures on "
                    "them would not mean anything, so leave them out of one"
                )
            alone = ~np.isin(some.query_keys, whole_one.query_keys)
            if not alone.all():
                notes.append(f"{np.sum(~alone)} {name} queries have the text of a {other} query, and were left out.")
                some = some.select(alone)
        apart[name] = some
    return apart


def _check_columns(lists: Mapping[str, Lists]) -> None:
    """Refuse lists that something else ordered, or that lack a column of the validation lists."""
    validation = lists["validation"].store
    for name, some in lists.items():
        store = some.store
        if store.has_text != validation.has_text or (name == "test" and store.order != validation.order):
            raise UserError(
                f"{name}: {store} is ordered by {store.order}, {validation} by {validation.order}; all have to be of "
                "one kind"
            )
        needed = validation.column_names if name == "test" else [c for c in validation.column_names if c == FEATURES]
        if missing := [column for column in needed if column not in store.column_names]:
            raise UserError(
                f"{name}: {store} has no column {missing[0]}, which {validation} has; add it with `rerank add`, or "
                f"leave it out with `rerank add --drop {missing[0]}`"
            )


def _kinds(models: Sequence[str] | None, train: Lists) -> dict[str, str]:
    if not train.store.has_text:
        known = NETWORKS + TREES
        names = models or (["LightGBM"] if find_spec("lightgbm") else ["MLP"])
        if other := next((name for name in names if name not in known), None):
            raise UserError(f"model: {other} reads texts, which {train.store} has not; {', '.join(known)} do")
        return {name: "trees" if name in TREES else "network" for name in names}
    names = [os.path.abspath(name) if name.startswith((TRAININGS, AVERAGES)) else name for name in models or [ENCODER]]
    if other := next((name for name in names if name in MODELS), None):
        raise UserError(f"model: {other} reads feature vectors, which {train.store} has not; name a text model")
    return {name: _kind(name) for name in names}


def _kind(name: str) -> str:
    from rerank.models.text.cross_encoder import CrossEncoder
    from rerank.models.text.decoder import Decoder

    folder = find_model(name)
    if Decoder.knows(name) or not CrossEncoder(name).missing:
        return "head"
    return "embedding" if (folder / "modules.json").is_file() else "encoder"


def _identity(
    lists: Mapping[str, Lists], kinds: Mapping[str, str], hours: float | None, monitor: str, seed: int
) -> dict[str, Any]:
    texts = lists["train"].store.has_text
    columns = {name: [] if texts and name == "train" else some.store.column_names for name, some in lists.items()}
    return {
        "ladder": 4,
        "lists": {
            name: content_hashes(whole(some) if name == "train" else some, columns[name])
            for name, some in lists.items()
        },
        "models": [[name, initial_hashes(find_model(name))] if texts else [name] for name in kinds],
        "hours": hours,
        "monitor": monitor,
        "seed": seed,
    }


def whole(lists: Lists) -> Lists:
    """Lists with the relevant documents that were added to train on, where there are any."""
    cut = (lists.lengths < Lists.of(lists.store).lengths[lists.queries]).any()
    return lists.with_added() if lists.store.added[lists.queries].any() and not cut else lists


def passes(queries: int) -> int:
    """How often a text model goes over so many training queries, if there is time."""
    return int(np.clip(np.ceil(STEPS * BATCH / max(1, queries)), 2, PASSES))


def training(
    model: str, kind: str, folder: Path, seed: int, epochs: int, monitor: str, steps: int | None = None
) -> TrainConfig:
    """How a model is trained: the loss and the settings of the evidence, see docs/evidence.md.

    Validation takes no part, so that what a rung is worth there is nothing that was picked there: texts are read for
    all passes, and models of feature vectors stop by a tenth of the training queries.
    """
    from rerank.losses import TwinSigmoidNDCG

    common: dict[str, Any] = {"seed": seed, "monitor": monitor, "test": False, "tracker": []}
    if kind in ("trees", "network"):
        return _of_features(model, kind, folder, common)
    from rerank.models.text.cross_encoder import CrossEncoder

    rates = Optimization(2e-5, 2e-5) if kind == "head" else Optimization(5e-5, 1e-3)
    return TrainConfig(
        **common,
        data=ListsData(str(folder), validation_share=0),
        model=CrossEncoder(model, dropout=0.0),
        loss=TwinSigmoidNDCG(alpha="spread"),
        sampler=PositivesNegatives(1, 7) if folder.name == OWN else PositivesNegatives(2, 10, depth=50),
        optimization=rates,
        batch_size=BATCH,
        epochs=epochs,
        steps_per_epoch=steps,
    )


def _of_features(model: str, kind: str, folder: Path, common: dict[str, Any]) -> TrainConfig:
    from rerank.losses import LambdaLoss

    make: Any = getattr(import_module(MODELS[model]), model)
    train, validation = (Lists.open(folder.with_name(name)).store.column_names for name in ("train", "validation"))
    both = [name for name in validation if name in train]  # validation has columns of the ladder's own scores, too
    columns = None if FEATURES in both else both
    common["data"] = ListsData(str(folder), validation_share=0.1)
    if kind == "trees":
        return TrainConfig(**common, model=make(columns=columns), patience=50)
    settings: dict[str, Any] = {"preset": "1024"} if model == "MLP" else {}
    network: Model = make(columns=columns, **settings)
    rates = Optimization(1e-3, 1e-3, schedule="constant", warmup=0.0)
    return TrainConfig(
        **common, model=network, loss=LambdaLoss(), optimization=rates, epochs=50, patience=10, batch_size=16
    )
