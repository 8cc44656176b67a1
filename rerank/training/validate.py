"""Measuring a trained model on validation and test lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from rerank.errors import NoModelError
from rerank.evaluation.beside import Beside, beside, beside_run
from rerank.evaluation.measures import COUNTS, Evaluator, PerQuery, evaluate
from rerank.evaluation.weights import tune_weight
from rerank.lists.data import Splits
from rerank.lists.neighbours import seen_queries
from rerank.lists.scaled import SCALED
from rerank.lists.view import Lists
from rerank.losses.terms import columns_of
from rerank.models.base import Model
from rerank.models.contract import LAYOUT, MIX, add_to_contract
from rerank.models.mixed import Mixed
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.boosting import Trees
from rerank.progress import log
from rerank.retrieval.runs import Run
from rerank.scoring.in_sample import remember
from rerank.scoring.shared import Score, scores_by
from rerank.scoring.together import together
from rerank.storage.arrow import Array
from rerank.storage.files import write_json
from rerank.storage.identity import id_of
from rerank.training.config import TrainConfig
from rerank.training.ids import measured_hashes, measurement_identity, run_identity
from rerank.training.measurement import kept_test_run, read_measurement, read_start, write_measurement, write_test_run
from rerank.training.run_folder import MEASURES, RunFolder

BESIDES = BESIDE, BASELINE, START, RANKER = "first_stage", "baseline", "start", "ranker"
"""Keys of ``measures.json``: what a model is compared with, of which :class:`rerank.training.fit.Training` tells as
``beside``, ``baseline``, ``start`` and ``mixed``."""

ENOUGH = 20
"""Queries of which a part of the test lists is reported."""

MOST_COLUMNS = 16
"""Of more columns than these none is looked at alone: they are features."""

TEXT_ALONE = "text_alone"
"""Key of ``measures.json``: what the text part of a model that starts from columns is worth by itself."""


def finish(
    folder: RunFolder,
    splits: Splits,
    model: Model,
    config: TrainConfig,
    main: bool = True,
    validated: Array | None = None,
) -> dict[str, Any]:
    """Measure the best model on validation and test, with and without the first stage, and write it down.

    The first stage's weight is tuned on the validation lists, so that ``with_first_stage`` of these flatters; that of
    the test lists does not. Where the share is above 0, ``best/`` becomes the ranker that mixes so, unless the model
    reads the first stage itself: mixed once more, such models change little or lose.

    Of a model that starts from columns its text part is measured by itself, too: that is what other libraries load.
    """
    scores: dict[str, Array] = {} if validated is None else {"validation": validated}
    by_model = scores_by(model, config.precision, config.token_budget)

    def score(lists: Lists, name: str) -> Array:
        if name not in scores:
            scores[name] = by_model(lists, name)
        return scores[name]

    names = names_of(config)
    result: dict[str, Any] = {"trees": model.count} if isinstance(model, Trees) else {}
    mixed: dict[str, Any] = {}
    ranker: Mixed | None = None
    if (lists := splits.validation) is not None:
        assert lists.qrels is not None
        run = lists.run(score(lists, "validation"))
        table = evaluate(run, lists.qrels, names, name="validation")
        result["validation"] = table.mean
        monitor, value = next(iter(table.mean.items()))
        if value == 0 and config.epoch_by is None:
            log.warning("validation %s is 0 at its best, so it chose no model; has it grades to count?", monitor)
        result |= beside_start(folder, "validation", table)
        if lists.store.order is not None:
            result |= compared("validation", run, lists, config)
            if BASELINE not in result and (column := best_column(lists, config)):
                result |= _beside(BASELINE, "validation", run, lists.run(column), lists, config, f"column {column}")
            mixed["first_stage_weight"], _ = tune_weight(run, lists.run(), lists.qrels, config.monitor)
            ranker = with_share(model, lists, mixed["first_stage_weight"])
            both = lists.run(ranker.mixed(lists, score(lists, "validation")))
            mixed["validation"] = evaluate(both, lists.qrels, names, name="validation").mean
    if config.test and splits.test is not None:
        found = measure_test(folder, splits.train, splits.test, config, score, ranker, main)
        result["measurement"], result["test"] = found["measurement"], found["test"]
        mixed |= found.get("with_first_stage", {})
        for key in BESIDES:
            if key in found:
                result[key] = result.get(key, {}) | found[key]
    if mixed:
        result["with_first_stage"] = mixed
    if isinstance(model, CrossEncoder) and model.start.columns:
        result[TEXT_ALONE] = {}
        for name, lists in (("validation", splits.validation), ("test", splits.test)):
            if lists is not None and lists.qrels is not None and name in scores:
                alone = lists.run(model.without_start(lists, scores[name]))
                result[TEXT_ALONE][name] = evaluate(alone, lists.qrels, names, name=name).mean
    with together():
        if main:
            noted: dict[str, Any] = {**remember(splits.train, config.model.arguments().get("name"))}
            if mixed:
                noted |= {"first_stage_weight": mixed["first_stage_weight"]}
            columns = [*model.columns, *getattr(model, "names", ())]
            read = {name.partition("/")[0].partition(SCALED)[0] for name in columns}
            if ranker is not None and any(ranker.weights.values()) and read.isdisjoint(ranker.weights):
                noted |= {MIX: ranker.mix}
            if "features" in (manifest := splits.train.store.manifest):
                noted |= {LAYOUT: manifest["features"]}
            if isinstance(model, CrossEncoder) and model.part.elsewhere:
                noted |= {"elsewhere": model.largest_difference(_longest(splits.train))}
            add_to_contract(folder.best, noted)
            folder.write_card(splits, result)
            write_json(folder.path / MEASURES, {"id": folder.id, **result})
    return result


def with_share(model: Model, lists: Lists, weight: float) -> Mixed:
    """The model and what ordered the lists, mixed by the share of the latter."""
    assert lists.store.order is not None
    return Mixed(model, {lists.store.order: weight}, 1 - weight)


def _longest(lists: Lists, count: int = 16) -> list[tuple[str, str]]:
    """Query and document of some candidates: those with the longest documents, by bytes: no text is read for it."""
    store = lists.store
    rows = lists.row_numbers
    texts = store.documents.column("text")
    lengths = pc.fill_null(pc.binary_length(texts), 0).to_numpy()[store.document[rows]]
    chosen = rows[np.argsort(-lengths, kind="stable")[:count]]
    queries = store.queries.column("text").take(store.query[chosen]).to_pylist()
    return list(zip(queries, texts.take(store.document[chosen]).to_pylist(), strict=True))


def names_of(config: TrainConfig) -> str:
    """The measures of validation and test, the monitor first."""
    return f"{config.monitor} {config.measures}"


def measure_test(
    folder: RunFolder,
    train: Lists,
    lists: Lists,
    config: TrainConfig,
    score: Score,
    ranker: Mixed | None = None,
    main: bool = True,
) -> dict[str, Any]:
    """Measure the best model on test lists, keep the run and the values of every query, and give what `_found` does."""
    assert lists.qrels is not None
    names = names_of(config)
    subject, hashes = {"training": folder.id}, measured_hashes(lists, config.model.columns)
    identity = measurement_identity(subject, hashes, names)
    scores = score(lists, "test")
    run = lists.run(scores)
    table = evaluate(run, lists.qrels, names, name="test")
    found: dict[str, Any] = {}
    if (order := lists.store.order) is not None:
        found = compared("test", run, lists, config)
        if apart := _seen_apart(run, train, lists, config):
            found[BESIDE] |= apart
        if ranker is not None and set(ranker.weights) <= set(lists.store.column_names):
            both = lists.run(ranker.mixed(lists, scores))
            found = {"with_first_stage": evaluate(both, lists.qrels, names, name="test").mean} | found
            if any(ranker.weights.values()):
                first = lists.run(order)
                found |= _beside(RANKER, "test", both, first, lists, config, f"first stage {order}")
    found |= beside_start(folder, "test", table)
    with together():
        if main:
            write_test_run(folder.path, run_identity(subject, hashes), run)
            write_measurement(folder.path, identity, table, found)
    return _found(id_of(identity), table, found)


def compared(name: str, run: Run, lists: Lists, config: TrainConfig) -> dict[str, Any]:
    """The model beside the first stage and what it starts from, if that is another; empty for measures like NumRel."""
    order, model = lists.store.order, config.model
    found = _beside(BESIDE, name, run, lists.run(order), lists, config, f"first stage {order}")
    if isinstance(model, CrossEncoder) and model.start.columns not in ([], [order]):
        start, columns = lists.run(model.start_scores(lists)), " + ".join(model.start.columns)
        found |= _beside(BASELINE, name, run, start, lists, config, f"start {columns}")
    return found


def _beside(
    key: str, name: str, run: Run, other: Run, lists: Lists, config: TrainConfig, against: str
) -> dict[str, Any]:
    assert lists.qrels is not None
    found = beside_run(run, other, lists.qrels, config.monitor, against)
    return {} if found is None else {key: {name: asdict(found)}}


def beside_start(folder: RunFolder, name: str, table: PerQuery) -> dict[str, Any]:
    """The best model beside the one before its first step; empty where these queries were not measured then."""
    before = read_start(folder.path).get(name)
    measure = table.measures[0]
    if before is None or before.queries != table.queries or measure.NAME in COUNTS:
        return {}
    found = beside(table[measure][None], before[measure][None], str(measure), "start")
    return {} if found is None else {START: {name: asdict(found)}}


def start_of(measures: Mapping[str, Any]) -> Beside | None:
    """What ``measures.json`` says of a model beside what it started with, on validation; of trees, the first stage."""
    found = measures.get(BESIDE if "trees" in measures else START, {}).get("validation")
    return None if found is None else Beside(**found)


def best_column(lists: Lists, config: TrainConfig) -> str | None:
    """The column that alone ranks lists best in the monitor, where it is better than the first stage.

    What the loss is told is left aside: it need not be known when a query is asked.
    """
    order, columns = lists.store.order, lists.store.numbers_by_column()
    names = [name for name, numbers in columns.items() if numbers == [name] and name not in columns_of(config.loss)]
    if order not in names or not 1 < len(names) <= MOST_COLUMNS:
        return None
    evaluator = Evaluator(lists.qrels or {}, config.monitor)
    means = {name: sum(evaluator(lists.run(name), name, warn=False).mean.values()) for name in names}  # of one measure
    best = max(names, key=lambda name: means[name])  # of equal ones the first, which is the first stage
    return None if best == order else best


def _seen_apart(run: Run, train: Lists, lists: Lists, config: TrainConfig) -> dict[str, Any]:
    """The same of the test queries with a relevant document that training has seen, and of the others."""
    qrels = lists.qrels or {}
    if not lists.store.has_text:
        return {}
    seen = seen_queries(qrels, [train.qrels or {}], [train.store.documents, lists.store.documents])
    parts = {"test seen": seen, "test unseen": qrels.keys() - seen}
    if min(map(len, parts.values())) < ENOUGH:
        return {}
    judged = {name: {query: qrels[query] for query in qrels if query in part} for name, part in parts.items()}
    order = lists.store.order
    first, against = lists.run(order), f"first stage {order}"
    found = {name: beside_run(run, first, part, config.monitor, against) for name, part in judged.items()}
    return {name: asdict(part) for name, part in found.items() if part is not None}


def known_test(folder: RunFolder, lists: Lists, config: TrainConfig) -> dict[str, Any] | None:
    """What `measure_test` returned for these lists and measures, where that was done."""
    hashes = measured_hashes(lists, config.model.columns)
    identity = measurement_identity({"training": folder.id}, hashes, names_of(config))
    found = read_measurement(folder.path, identity)
    return None if found is None else _found(id_of(identity), *found)


def _found(measurement: str, table: PerQuery, others: Mapping[str, Any]) -> dict[str, Any]:
    """The id of a measurement, the means, and what the model is beside, by the keys of ``measures.json``."""
    mixed = {"with_first_stage": {"test": others["with_first_stage"]}} if "with_first_stage" in others else {}
    return {"measurement": measurement, "test": table.mean, **others, **mixed}


def test_run(folder: Path, training: str, config: TrainConfig, lists: Lists) -> Run:
    """The run of a finished training's best model over test lists: kept, or made again; a NoModelError without both."""
    identity = run_identity({"training": training}, measured_hashes(lists, config.model.columns))
    if (run := kept_test_run(folder, identity)) is not None:
        return run
    if not any((folder / "best").glob("*")):
        best = folder / "best"
        raise NoModelError(f"{best}: no such folder, but rankings are needed; remove {folder} to train again")
    score = scores_by(type(config.model).load(folder / "best"), config.precision, config.token_budget)
    write_test_run(folder, identity, lists.run(score(lists, "test")))
    run = kept_test_run(folder, identity)
    assert run is not None
    return run
