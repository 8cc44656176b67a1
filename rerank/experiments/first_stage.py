"""Rows of a table that are not trained: the first stage, and every method mixed with it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from rerank.evaluation.interpolate import interpolate
from rerank.evaluation.measures import Qrels, evaluate
from rerank.experiments.cells import Cell, Group, Plan, mixed_name
from rerank.experiments.config import FIRST_STAGE
from rerank.experiments.outcome import Outcome
from rerank.experiments.worker import load_splits
from rerank.retrieval.runs import Run, read_run, write_run

Outcomes = dict[Group, Outcome]


def first_stage_rows(plan: Plan, outcomes: Mapping[Group, Outcome]) -> tuple[Outcomes, Outcomes]:
    """What the first stage ranked, as deep as it was reranked, and the methods mixed with it.

    The first stage's share is what validation chose for a cell (``first_stage_weight`` of its ``measures.json``); a
    cell without validation lists is not mixed. Lists of feature vectors have no first stage, hence no rows. Where
    methods rerank different lists, the row of the first stage has those of the first method.

    Returns:
        The first stage by fold, and the mixed methods by fold and seed.
    """
    alone: Outcomes = {}
    mixed: Outcomes = {}
    if plan.config.first_stage == "hide":
        return alone, mixed
    candidates: dict[str, tuple[Run, Qrels]] = {}
    for group, outcome in outcomes.items():
        data = json.dumps(outcome.cell.settings["data"], sort_keys=True)  # the fold is in it
        if data not in candidates:
            lists = load_splits(outcome.measured.folder).test
            assert lists is not None and lists.qrels is not None
            if lists.store.order is None:
                return alone, mixed
            candidates[data] = lists.run(), lists.qrels
            first = Group(FIRST_STAGE, group.fold, plan.config.seeds[0])
            if first not in alone:
                alone[first] = _measured(plan, first, outcome, *candidates[data])
        if plan.config.first_stage != "mix":
            continue
        measures = json.loads((outcome.cell.folder / "measures.json").read_text())
        if (weight := measures.get("with_first_stage", {}).get("first_stage_weight")) is None:
            continue
        run, qrels = candidates[data]
        both = interpolate(read_run(outcome.measured.folder / "test.trec"), run, weight)
        name = Group(mixed_name(group.method), group.fold, group.seed)
        mixed[name] = _measured(plan, name, outcome, both, qrels)
    return alone, mixed


def _measured(plan: Plan, group: Group, outcome: Outcome, run: Run, qrels: Qrels) -> Outcome:
    """A run as an outcome, its file written; it took the time of the outcome that it comes from."""
    folder = plan.folder(group)
    folder.mkdir(parents=True, exist_ok=True)
    write_run(folder / "test.trec", run, tag="first-stage" if group.method == FIRST_STAGE else "mixed")
    values = evaluate(run, qrels, plan.config.measures, plan.config.empty, name=str(group))
    seconds = 0.0 if group.method == FIRST_STAGE else outcome.seconds
    cell = Cell(group, {}, folder, {}, outcome.cell.select)
    return Outcome(cell, cell, 0, {}, values, seconds)
