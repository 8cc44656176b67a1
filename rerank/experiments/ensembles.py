"""Rows of a table that are made of other rows: ensembles of the models that validation chose."""

from __future__ import annotations

from collections.abc import Mapping

from rerank.experiments.cells import Group, Plan
from rerank.experiments.identities import Identities
from rerank.experiments.outcome import Outcome
from rerank.experiments.rows import measured_row
from rerank.retrieval.fuse import ensemble
from rerank.retrieval.runs import Run


def ensembles(plan: Plan, identities: Identities, outcomes: Mapping[Group, Outcome]) -> dict[Group, Outcome]:
    """Per ensemble and fold: the mean of the z-normalised scores of its methods' chosen models, of all seeds.

    Nothing is trained and nothing chosen. A fold in which a member failed has no ensemble.
    """
    config = plan.config
    folds: list[int | str | None] = [*config.folds] if config.folds else [None]
    made: dict[Group, Outcome] = {}
    for name, methods in config.ensembles.items():
        for fold in folds:
            wanted = [Group(method, fold, seed) for method in methods for seed in config.seeds]
            members = [outcomes[group] for group in wanted if group in outcomes]
            if len(members) == len(wanted):
                group = Group(name, fold, config.seeds[0])
                made[group] = _ensemble(plan, identities, group, members)
    return made


def _ensemble(plan: Plan, identities: Identities, group: Group, members: list[Outcome]) -> Outcome:
    def run() -> Run:
        return ensemble([member.run() for member in members])

    return measured_row(
        plan=plan,
        identities=identities,
        group=group,
        like=members[0],
        subject={"ensemble": [member.measured.id for member in members]},
        make=run,
        tag="ensemble",
        seconds=sum(member.seconds for member in members),
    )
