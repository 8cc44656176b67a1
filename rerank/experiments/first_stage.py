"""Rows of a table that are not trained: the first stage, and every method mixed with it."""

from __future__ import annotations

from collections.abc import Mapping

from rerank.experiments.cells import Group, Plan, mixed_name
from rerank.experiments.config import FIRST_STAGE
from rerank.experiments.identities import Identities
from rerank.experiments.outcome import Outcome
from rerank.experiments.rows import measured_row, test_lists
from rerank.retrieval.fuse import interpolate
from rerank.retrieval.runs import Run
from rerank.training.run_folder import finished

Outcomes = dict[Group, Outcome]


def first_stage_rows(
    plan: Plan, identities: Identities, outcomes: Mapping[Group, Outcome]
) -> tuple[Outcomes, Outcomes]:
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
    for group, outcome in outcomes.items():
        if not identities.data(outcome.measured).first_stage:
            return alone, mixed
        first = Group(FIRST_STAGE, group.fold, plan.config.seeds[0])
        if first not in alone:
            alone[first] = _first_stage(plan, identities, first, outcome)
        if (row := mixed_row(plan, identities, outcome)) is not None:
            mixed[row.group] = row
    return alone, mixed


def mixed_row(plan: Plan, identities: Identities, outcome: Outcome) -> Outcome | None:
    """A method mixed with the first stage; None where that is not asked for, or no validation chose the share.

    Raises:
        NoModelError: it was not measured yet, and neither the method's ranking nor its model is there any more.
    """
    if plan.config.first_stage != "mix" or not identities.data(outcome.measured).first_stage:
        return None
    measures = finished(outcome.cell.folder, outcome.cell.id) or {}
    if (weight := measures.get("with_first_stage", {}).get("first_stage_weight")) is None:
        return None
    group = Group(mixed_name(outcome.group.method), outcome.group.fold, outcome.group.seed)
    return _mixed(plan, identities, group, outcome, weight)


def _first_stage(plan: Plan, identities: Identities, group: Group, outcome: Outcome) -> Outcome:
    return measured_row(
        plan=plan,
        identities=identities,
        group=group,
        like=outcome,
        subject={"first stage": True},
        make=lambda: test_lists(outcome.measured).run(),
        tag="first-stage",
        seconds=0.0,
    )


def _mixed(plan: Plan, identities: Identities, group: Group, outcome: Outcome, weight: float) -> Outcome:
    def run() -> Run:
        return interpolate(outcome.run(), test_lists(outcome.measured).run(), weight)

    return measured_row(
        plan=plan,
        identities=identities,
        group=group,
        like=outcome,
        subject={"training": outcome.measured.id, "first stage": weight},
        make=run,
        tag="mixed",
        seconds=outcome.seconds,
    )
