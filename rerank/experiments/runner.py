"""Experiments from Python and from the command line: train, choose, measure, write tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import UserError
from rerank.experiments.cells import Failure
from rerank.experiments.config import ExperimentConfig
from rerank.experiments.plan import ExperimentPlan
from rerank.experiments.results import results_frame, write_results
from rerank.experiments.run import Experiment
from rerank.experiments.summary import Summary, summarise
from rerank.experiments.table import text
from rerank.progress import log_file
from rerank.settings.configs import read_config
from rerank.settings.parser import make_parser, parse
from rerank.storage.files import remove_leftovers
from rerank.storage.locks import exclusive_lock
from rerank.training.configuration import check, data_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Results:
    """Results of an experiment.

    Attributes:
        folder: the experiment's folder: tables, a folder per run.
        summary: numbers of the table, and comparisons.
        rows: a row per method, fold and seed.
        failures: the runs that could not be trained or measured.
    """

    folder: Path
    summary: Summary
    rows: pd.DataFrame
    failures: list[Failure]

    def to_dataframe(self) -> pd.DataFrame:
        """Return ``rows``."""
        return self.rows

    def __str__(self) -> str:
        return text(self.summary)

    def __repr__(self) -> str:
        found, wanted = (sum(getattr(row, of) for row in self.summary.rows.values()) for of in ("found", "wanted"))
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"Results({str(self.folder)!r}: {', '.join(self.summary.rows)}; {found} of {wanted} runs{failed})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def experiment(config: ExperimentConfig | Mapping[str, Any] | str | Path) -> Results:
    """Compare methods over folds and seeds, up to the tables of a paper; resume where an interrupted one stopped.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> folder = mkdtemp()
    >>> _ = lists.save(folder + "/lists")
    >>> data = {"class_path": "FoldsData", "init_args": {"lists": folder + "/lists", "folds": 2, "validation": False}}
    >>> model = {"class_path": "MLP", "init_args": {"hidden": [4], "columns": ["bm25"]}}
    >>> methods = {name: {"set": {"loss": name}} for name in ("ListNet", "RankNet")}
    >>> config = {"output": folder + "/experiment", "base": {"data": data, "model": model}, "methods": methods}
    >>> config |= {"folds": [1, 2], "jobs": 1}
    >>> results = rerank.experiment(config)
    >>> sorted(path.name for path in Path(folder, "experiment").glob("table.*"))
    ['table.md', 'table.tex']

    Args:
        config: a configuration, its keys as nested dictionaries, or the YAML file that has them.

    Returns:
        The results; as files they are in the experiment's folder.

    Raises:
        UserError: a configuration that cannot work, before anything is trained.
    """
    plan = checked(config if isinstance(config, ExperimentConfig) else configured(config))
    plan.check_inputs()
    with exclusive_lock(plan.output), log_file(plan.output):
        plan.cells.mkdir(parents=True, exist_ok=True)
        remove_leftovers(plan.output)
        done = Experiment(plan)
        done.run()
        outcomes = done.first_stage_rows()
        summary = summarise(plan.config, outcomes)
        write_results(done, outcomes, summary)
    return Results(plan.output, summary, results_frame(plan.output, outcomes), done.failures)


def configured(settings: Mapping[str, Any] | str | Path) -> ExperimentConfig:
    """Build a configuration from nested settings or a YAML file."""
    if not isinstance(settings, Mapping | str | Path):
        raise UserError(f"config: expected a YAML file or nested dictionaries, not a {type(settings).__name__}")
    parser = make_parser("experiment", experiment)
    parser.add_class_arguments(ExperimentConfig)
    read = settings if isinstance(settings, Mapping) else read_config(settings)
    return ExperimentConfig(**vars(parser.instantiate(parse(parser, read))))


def checked(config: ExperimentConfig) -> ExperimentPlan:
    """Plan an experiment; the parser of ``rerank train`` checks every value, but lists and models are not opened."""
    plan = ExperimentPlan(config)
    for group in {group.method: group for group in plan.groups}.values():
        for point in _corners(plan.config.methods[group.method].search):
            cell = plan.cell(group, point)
            try:
                check(cell.settings)
            except UserError as error:
                shown = f" ({', '.join(f'{key}: {value}' for key, value in point.items())})" if point else ""
                unsaid = "; or name all folds, as in folds: [1, 2, 3, 4, 5]" if "needs fold;" in str(error) else ""
                raise UserError(f"methods.{group.method}{shown}: {error}{unsaid}") from error
    for group in {group.fold: group for group in plan.groups}.values():
        data_of(plan.cell(group, plan.points(group)[0]).settings)  # refuses folds that do not exist
    return plan


def _corners(space: dict[str, Any]) -> list[dict[str, Any]]:
    """Choose a smallest set of points that covers every value of every key."""
    count = max(map(len, space.values()), default=1)
    return [{key: values[min(i, len(values) - 1)] for key, values in space.items()} for i in range(count)]
