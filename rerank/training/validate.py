"""Measuring a model on lists, which the processes share."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist

from rerank import stops
from rerank.arrow import Array
from rerank.errors import NoModelError
from rerank.evaluation.beside import beside_first_stage
from rerank.evaluation.measures import evaluate
from rerank.evaluation.weights import tune_weight
from rerank.identity import id_of
from rerank.kernels.precision import Precision, on_cpu, resolve
from rerank.lists.data import Splits
from rerank.lists.view import Lists
from rerank.models.base import Inputs, Model
from rerank.models.score import score_lists
from rerank.models.scorer import Scorer
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.boosting import Trees
from rerank.retrieval.fuse import interpolate
from rerank.retrieval.runs import Run
from rerank.stops import Stopped
from rerank.training.ids import measured_hashes, measurement_identity, run_identity
from rerank.training.in_sample import remember
from rerank.training.measurement import kept_test_run, read_measurement, write_measurement, write_test_run
from rerank.training.run_folder import RunFolder

if TYPE_CHECKING:
    from rerank.training.config import TrainConfig

BESIDE = "first_stage"
"""Key of ``measures.json``: of validation and test lists the model beside the first stage, in the monitor."""

TEXT_ALONE = "text_alone"
"""Key of ``measures.json``: what the text part of a model that starts from columns is worth by itself."""

Score = Callable[[Lists, str], Array]
"""Gives a score per candidate of lists of this name, in every process."""


def score_shared(
    model: Scorer,
    inputs: Inputs,
    lists: Lists,
    *,
    precision: Precision,
    budget: int | None,
    progress: str | None = None,
) -> Array:
    """Scores of every candidate, ``[T]`` float32, in every process; each process scores every n-th list.

    Raises:
        Stopped: a signal came to one of the processes of a training; all of them stop.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return score_lists(model, inputs, lists, precision=precision, budget=budget, progress=progress)
    process, processes = dist.get_rank(), dist.get_world_size()
    mine = lists.select(np.arange(process, len(lists), processes))
    shown = progress if process == 0 else None
    scores: Array | None = None
    with suppress(Stopped):  # the others may have got no signal: they learn of it where the parts are joined
        scores = score_lists(model, inputs, mine, precision=precision, budget=budget, progress=shown)
    parts: list[Array | None] = [None] * processes
    dist.all_gather_object(parts, scores)
    if any(part is None for part in parts):
        raise Stopped(stops.asked() or signal.SIGTERM)
    whole = np.empty(lists.size, dtype=np.float32)
    for part, values in enumerate(parts):
        assert values is not None
        rows = lists.select(np.arange(part, len(lists), processes))
        starts = np.repeat(lists.offsets[part:-1:processes], rows.lengths)
        whole[starts + np.arange(len(values)) - np.repeat(rows.offsets[:-1], rows.lengths)] = values
    return whole


def scores_by(model: Model, precision: Precision, budget: int | None) -> Score:
    """Scoring by a trained model, on the device of this process."""
    if isinstance(model, Trees):
        return lambda lists, name: model.predict(lists)
    from accelerate import PartialState

    assert isinstance(model, Scorer) and isinstance(model, torch.nn.Module)
    state = PartialState(cpu=on_cpu())
    model.to(state.device)
    resolved, _ = resolve(precision, state.device, model.bf16)

    def score(lists: Lists, name: str) -> Array:
        with state.main_process_first():  # one process fills the token cache, the others find it
            inputs = model.inputs(lists)
        return score_shared(model, inputs, lists, precision=resolved, budget=budget, progress=f"{name} lists")

    return score


def finish(
    folder: RunFolder,
    splits: Splits,
    model: Model,
    config: TrainConfig,
    main: bool = True,
    validated: Array | None = None,
) -> dict[str, Any]:
    """Measure the best model on validation and test, with and without the first stage, and write it down.

    Of a model that starts from columns its text part is measured by itself, too: that is what other libraries load.

    Args:
        folder: the run folder; ``measures.json`` and what the best model's contract and card say are written there.
        splits: the lists.
        model: the best model.
        config: whether the test lists are looked at, and by which measures.
        main: whether this process writes.
        validated: the model's scores of the validation lists, where they are known.

    Returns:
        What ``measures.json`` holds.
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
    lists = splits.validation
    if lists is not None:
        assert lists.qrels is not None
        run = lists.run(score(lists, "validation"))
        result["validation"] = evaluate(run, lists.qrels, names, name="validation").mean
        if lists.store.order is not None:
            first = lists.run()
            result[BESIDE] = compared("validation", run, first, lists, config)
            mixed["first_stage_weight"], _ = tune_weight(run, first, lists.qrels, config.monitor)
            both = interpolate(run, first, mixed["first_stage_weight"])
            mixed["validation"] = evaluate(both, lists.qrels, names, name="validation").mean
    if config.test and splits.test is not None:
        weight = mixed.get("first_stage_weight")
        found = measure_test(folder, splits.test, config, score, weight, main)
        result["measurement"], result["test"] = found["measurement"], found["test"]
        mixed |= found.get("with_first_stage", {})
        if found.get(BESIDE):
            result[BESIDE] = result.get(BESIDE, {}) | found[BESIDE]
    if mixed:
        result["with_first_stage"] = mixed
    if isinstance(model, CrossEncoder) and model.start is not None:
        result[TEXT_ALONE] = {}
        for name, lists in (("validation", splits.validation), ("test", splits.test)):
            if lists is not None and lists.qrels is not None and name in scores:
                alone = lists.run(model.without_start(lists, scores[name]))
                result[TEXT_ALONE][name] = evaluate(alone, lists.qrels, names, name=name).mean
    if main:
        folder.add_to_contract(remember(splits.train, config.model.arguments().get("name")))
        if mixed:
            folder.add_to_contract({"first_stage_weight": mixed["first_stage_weight"]})
        if "features" in (manifest := splits.train.store.manifest):
            folder.add_to_contract({"layout": manifest["features"]})
        if isinstance(model, CrossEncoder) and model.loads_elsewhere:
            folder.add_to_contract({"elsewhere": model.largest_difference(_longest(splits.train))})
        folder.write_card(splits, result)
        folder.write_measures(result)
    return result


def _longest(lists: Lists, count: int = 16) -> list[tuple[str, str]]:
    """Query and document of some candidates: those with the longest documents, by characters."""
    import pyarrow.compute as pc

    store = lists.store
    rows = lists.row_numbers
    texts = store.documents.column("text")
    lengths = pc.fill_null(pc.utf8_length(texts), 0).to_numpy()[store.document[rows]]
    chosen = rows[np.argsort(-lengths, kind="stable")[:count]]
    queries = store.queries.column("text").take(store.query[chosen]).to_pylist()
    return list(zip(queries, texts.take(store.document[chosen]).to_pylist(), strict=True))


def names_of(config: TrainConfig) -> str:
    """The measures of validation and test, the monitor first."""
    return f"{config.monitor} {config.measures}"


def measure_test(
    folder: RunFolder, lists: Lists, config: TrainConfig, score: Score, weight: float | None = None, main: bool = True
) -> dict[str, Any]:
    """Measure the best model on test lists, and keep the run and the values of every query.

    Args:
        folder: the run folder; ``test.trec`` and the file of this measurement are written there.
        lists: the test lists.
        config: what was trained, and which measures are asked for.
        score: scores the lists.
        weight: the first stage's share, where it is to be mixed in too.
        main: whether this process writes.

    Returns:
        ``measurement`` (its id), ``test`` (the means) and, where something ranked them before, ``first_stage`` and,
        with a weight, ``with_first_stage``.
    """
    assert lists.qrels is not None
    names = names_of(config)
    subject, hashes = {"training": folder.id}, measured_hashes(lists, config.model.columns)
    identity = measurement_identity(subject, hashes, names)
    run = lists.run(score(lists, "test"))
    if main:
        write_test_run(folder.path, run_identity(subject, hashes), run)
    table = evaluate(run, lists.qrels, names, name="test")
    mixed: dict[str, float] = {}
    found: dict[str, Any] = {}
    if lists.store.order is not None:
        first = lists.run()
        found = compared("test", run, first, lists, config)
        if weight is not None:
            mixed = evaluate(interpolate(run, first, weight), lists.qrels, names, name="test").mean
    if main:
        write_measurement(folder.path, identity, table, mixed, found)
    return _found(id_of(identity), table.mean, mixed, found)


def compared(name: str, run: Run, first: Run, lists: Lists, config: TrainConfig) -> dict[str, Any]:
    """The model beside the first stage in the monitor, under the name of the lists; empty for measures like NumRel."""
    assert lists.qrels is not None
    found = beside_first_stage(run, first, lists.qrels, config.monitor)
    return {} if found is None else {name: asdict(found)}


def known_test(folder: RunFolder, lists: Lists, config: TrainConfig) -> dict[str, Any] | None:
    """What `measure_test` returned for these lists and measures, where that was done."""
    hashes = measured_hashes(lists, config.model.columns)
    identity = measurement_identity({"training": folder.id}, hashes, names_of(config))
    found = read_measurement(folder.path, identity)
    return None if found is None else _found(id_of(identity), found[0].mean, *found[1:])


def _found(
    measurement: str, test: Mapping[str, float], mixed: Mapping[str, float], beside: Mapping[str, Any]
) -> dict[str, Any]:
    result = {"measurement": measurement, "test": dict(test)} | ({BESIDE: dict(beside)} if beside else {})
    return result | ({"with_first_stage": {"test": dict(mixed)}} if mixed else {})


def test_run(folder: Path, training: str, config: TrainConfig, lists: Lists) -> Run:
    """The run of a finished training's best model over test lists: the one that is kept, or made again.

    Args:
        folder: the run folder.
        training: its id.
        config: what was trained.
        lists: the test lists.

    Raises:
        NoModelError: there is neither a run nor a best model to make it.
    """
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
