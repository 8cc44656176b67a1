"""Rows of a table that are made of other rows: ensembles of the models that validation chose."""

from __future__ import annotations

from collections.abc import Mapping

from rerank.evaluation.fuse import fuse
from rerank.evaluation.measures import evaluate
from rerank.experiments.cells import Cell, Group, Plan
from rerank.experiments.outcome import Outcome
from rerank.experiments.worker import load_splits
from rerank.retrieval.runs import read_run, write_run


def ensembles(plan: Plan, outcomes: Mapping[Group, Outcome]) -> dict[Group, Outcome]:
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
                made[group] = _ensemble(plan, group, members)
    return made


def _ensemble(plan: Plan, group: Group, members: list[Outcome]) -> Outcome:
    folder = plan.folder(group)
    run = fuse([read_run(member.measured.folder / "test.trec") for member in members])
    folder.mkdir(parents=True, exist_ok=True)
    write_run(folder / "test.trec", run, tag="ensemble")
    test = load_splits(members[0].measured.folder).test
    assert test is not None and test.qrels is not None
    config = plan.config
    values = evaluate(run, test.qrels, config.measures, config.empty, name=str(group))
    cell = Cell(group, {}, folder, {}, members[0].cell.select)
    return Outcome(cell, cell, 0, {}, values, sum(member.seconds for member in members))
