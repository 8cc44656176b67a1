"""Rows of a table that are measured and not trained: the first stage, methods mixed with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerank.errors import UserError
from rerank.evaluation.measures import PerQuery, evaluate
from rerank.experiments.cells import Cell, Group, Outcome
from rerank.experiments.config import FIRST_STAGE, mixed_name
from rerank.experiments.plan import ExperimentPlan, Identities, splits_of
from rerank.lists.view import Lists
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import Run
from rerank.storage.identity import id_of
from rerank.training.ids import Identity, file_of, measurement_identity, run_identity
from rerank.training.measurement import kept_test_run, read_measurement, write_measurement, write_test_run
from rerank.training.run_folder import finished

Outcomes = dict[Group, Outcome]


@dataclass(frozen=True)
class UntrainedRows:
    """The rows of an experiment that are not trained; what is kept of them is found again."""

    plan: ExperimentPlan
    identities: Identities

    def first_stage(self, outcomes: Mapping[Group, Outcome]) -> Outcomes:
        """What the first stage ranked, as deep as it was reranked.

        Lists of feature vectors have no first stage, hence no rows. Where methods rerank different lists, the row of
        the first stage has those of the first method that has one.
        """
        alone: Outcomes = {}
        for group, outcome in outcomes.items() if self.plan.config.first_stage != "hide" else ():
            first = Group(FIRST_STAGE, group.fold, self.plan.config.seeds[0])
            if first not in alone and self.identities.data(outcome.cell).first_stage:
                make = _first_stage_of(outcome)
                alone[first] = self._measured(first, outcome, {"first stage": True}, make, "first-stage", 0.0)
        return alone

    def mixed(self, outcome: Outcome) -> Outcome | None:
        """A method mixed with the first stage; None where that is not asked for, or no validation chose the share.

        The first stage's share is what validation chose for a cell (``first_stage_weight`` of its ``measures.json``).
        """
        if self.plan.config.first_stage != "mix" or not self.identities.data(outcome.cell).first_stage:
            return None
        measures = finished(outcome.cell.folder, outcome.cell.id) or {}
        if (weight := measures.get("with_first_stage", {}).get("first_stage_weight")) is None:
            return None
        group = Group(mixed_name(outcome.group.method), outcome.group.fold, outcome.group.seed)
        subject = {"training": outcome.cell.id, "first stage": weight}
        first = _first_stage_of(outcome)

        def run() -> Run:
            return fuse([first(), outcome.run()], [weight, 1 - weight])

        return self._measured(group, outcome, subject, run, "mixed", outcome.seconds)

    def _measured(
        self, group: Group, like: Outcome, subject: Mapping[str, Any], make: Callable[[], Run], tag: str, seconds: float
    ) -> Outcome:
        """A row, measured where it was not yet."""
        config, folder = self.plan.config, self.plan.folder(group)
        hashes = self.identities.data(like.cell).test
        assert hashes is not None
        run_of = run_identity(subject, hashes)

        def run() -> Run:
            if (kept := kept_test_run(folder, run_of)) is not None:
                return kept
            made = make()
            folder.mkdir(parents=True, exist_ok=True)
            write_test_run(folder, run_of, made, tag)
            return made

        identity = measurement_identity(subject, hashes, config.measures, config.empty)
        table, file = stored_measurement(folder, identity)
        if table is None:
            qrels = test_lists(like.cell).qrels
            assert qrels is not None
            table = evaluate(run(), qrels, config.measures, config.empty, name=str(group))
            write_measurement(folder, identity, table)
        cell = Cell(group, {}, folder, {}, like.cell.monitor)
        return Outcome(cell, 0, {}, table, seconds, run, file)


def _first_stage_of(outcome: Outcome) -> Callable[[], Run]:
    return lambda: test_lists(outcome.cell).run()


def stored_measurement(folder: Path, identity: Identity) -> tuple[PerQuery | None, Path]:
    """The values per query that a folder holds under an identity, None where it has none; their file."""
    stored = read_measurement(folder, identity)
    return None if stored is None else stored[0], folder / file_of(id_of(identity))


def test_lists(cell: Cell) -> Lists:
    """The test lists of a cell."""
    test = splits_of(cell.settings).test
    if test is None:
        raise UserError(f"{cell}: its data has no test lists")
    return test
