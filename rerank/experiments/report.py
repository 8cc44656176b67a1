"""The report of ``rerank experiment``."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

from rerank.errors import UserError
from rerank.evaluation.measures import Qrels
from rerank.experiments import table
from rerank.experiments.cells import Outcome
from rerank.experiments.rows import test_lists
from rerank.experiments.run import Experiment
from rerank.experiments.summary import Summary
from rerank.report.page import Report, write_report
from rerank.retrieval.runs import Run

log = logging.getLogger("rerank")


def write_experiment(experiment: Experiment, summary: Summary, path: str | Path) -> None:
    """Write the report of an experiment: its tables; of every method the values per query and the rankings.

    Values are means over seeds; rankings are those of the first seed.
    """
    config = summary.config
    values = summary.pooled
    first: dict[str, list[Outcome]] = {method: [] for method in values}
    for group, found in experiment.outcomes.items():
        known = first.get(group.method)
        if known is not None and (not known or known[0].group.seed == group.seed):
            known.append(found)
    of_lists = next((first[method] for method in config.methods if method in first), [])
    lists = [test_lists(outcome.measured) for outcome in of_lists]
    qrels: Qrels = {query: grades for part in lists for query, grades in (part.qrels or {}).items()}
    runs = {method: run for method, outcomes in first.items() if (run := _run(method, outcomes))}
    baseline = config.baseline if config.baseline in values else next(iter(values), "")
    notes = [f"Rankings are those of seed {config.seeds[0]}; values are means over seeds."]
    report = Report(
        title=f"Experiment {experiment.plan.output.name}",
        tables=table.sections(summary, experiment.outcomes, experiment.failures),
        values=values,
        baseline=baseline,
        runs=runs,
        qrels=qrels,
        lists=lists,
        notes=notes if len(config.seeds) > 1 else [],
    )
    write_report(report, path)


def _run(method: str, outcomes: Sequence[Outcome]) -> Run:
    """The rankings of all folds; none where models and rankings stayed on another machine."""
    try:
        return {query: ranking for found in outcomes for query, ranking in found.run().items()}
    except UserError as error:
        log.warning("%s: the report has no rankings of it (%s)", method, error)
        return {}
