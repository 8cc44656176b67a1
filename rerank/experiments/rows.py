"""Rows of a table that are measured and not trained: what is kept of them, and found again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rerank.errors import UserError
from rerank.evaluation.measures import evaluate
from rerank.experiments.cells import Cell, Group, Plan
from rerank.experiments.identities import Identities, splits_of
from rerank.experiments.outcome import Outcome
from rerank.identity import id_of
from rerank.lists.view import Lists
from rerank.retrieval.runs import Run
from rerank.training.ids import file_of, measurement_identity, run_identity
from rerank.training.measurement import kept_test_run, read_measurement, write_measurement, write_test_run


def measured_row(
    plan: Plan,
    identities: Identities,
    group: Group,
    like: Outcome,
    subject: Mapping[str, Any],
    make: Callable[[], Run],
    tag: str,
    seconds: float,
) -> Outcome:
    """A row that is not trained, measured where it was not yet.

    Args:
        plan: the experiment.
        identities: what is known of the lists.
        group: the row, its fold and seed.
        like: an outcome on the same test lists.
        subject: what decides the run, besides the lists.
        make: makes the run.
        tag: the name of the run in its file.
        seconds: what the trainings behind it took.
    """
    config, folder = plan.config, plan.folder(group)
    hashes = identities.data(like.measured).test
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
    found = read_measurement(folder, identity)
    table = None if found is None else found[0]
    if table is None:
        qrels = test_lists(like.measured).qrels
        assert qrels is not None
        made = run()
        table = evaluate(made, qrels, config.measures, config.empty, name=str(group))
        write_measurement(folder, identity, table)
    cell = Cell(group, {}, folder, {}, like.cell.select)
    return Outcome(cell, cell, 0, {}, table, seconds, run, folder / file_of(id_of(identity)))


def test_lists(cell: Cell) -> Lists:
    """The test lists of a cell."""
    test = splits_of(cell.settings).test
    if test is None:
        raise UserError(f"{cell}: its data has no test lists")
    return test
