"""A whole experiment: train, choose, measure, write tables and figures; from Python and from the command line."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import UserError
from rerank.experiments.checks import checked
from rerank.experiments.config import ExperimentConfig
from rerank.experiments.figures.draw import write_figures
from rerank.experiments.outcome import Failure
from rerank.experiments.report import write_experiment
from rerank.experiments.results import flat_rows, write_results
from rerank.experiments.rows import Rows
from rerank.experiments.run import Experiment
from rerank.experiments.summary import Summary, summarise
from rerank.experiments.table import text
from rerank.progress import log_file
from rerank.settings.configs import read_config
from rerank.settings.parser import make_parser, parse
from rerank.storage.locks import clear_within, held

if TYPE_CHECKING:
    import pandas as pd

log = logging.getLogger("rerank")


@dataclass(frozen=True)
class Results:
    """What an experiment found.

    Attributes:
        folder: the experiment's folder: tables, figures, a run folder per cell.
        summary: the table, and what was compared.
        rows: a row per method, fold and seed.
        failures: the cells that could not be trained or measured.
        pictures: the figures.
    """

    folder: Path
    summary: Summary
    rows: list[dict[str, Any]]
    failures: list[Failure]
    pictures: list[Path]

    def to_dataframe(self) -> pd.DataFrame:
        """A row per method, fold and seed: what validation chose, its measures on validation and test."""
        import pandas as pd

        return pd.DataFrame(self.rows)

    def __str__(self) -> str:
        return text(self.summary)

    def __repr__(self) -> str:
        failed = f", {len(self.failures)} cells failed" if self.failures else ""
        return f"Results({str(self.folder)!r}: {', '.join(self.summary.rows)}; {len(self.rows)} trainings{failed})"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


def experiment(config: ExperimentConfig | Mapping[str, Any] | str | Path, html: str | None = None) -> Results:
    """Compare methods over folds and seeds, up to the tables of a paper; resume where an interrupted one stopped.

    Args:
        config: a configuration, its keys as nested dictionaries, or the YAML file that has them.
        html: file for a report.

    Returns:
        The results; as files they are in the experiment's folder.

    Raises:
        UserError: a configuration that cannot work, before anything is trained.
    """
    told = config if isinstance(config, ExperimentConfig) else configured(config)
    plan = checked(told)
    with held(plan.output, "rerank experiment"), log_file(plan.output):
        plan.output.mkdir(parents=True, exist_ok=True)
        clear_within(plan.output)
        done = Experiment(plan)
        done.run()
        rows = Rows(plan, done.identities)
        alone, mixed = rows.first_stage(done.outcomes)
        together = rows.ensembles(done.outcomes)
        done.outcomes = {**alone, **done.outcomes, **together, **mixed}
        summary = summarise(told, done.outcomes, done.stopped)
        write_results(done, summary)
        if html:
            write_experiment(done, summary, html)
        pictures = write_figures(done, summary)
    return Results(plan.output, summary, flat_rows(plan, done.outcomes), done.failures, pictures)


def configured(settings: Mapping[str, Any] | str | Path) -> ExperimentConfig:
    """The configuration that nested settings, or a YAML file, describe.

    Raises:
        UserError: a key or value that is not understood, or no such file.
    """
    if not isinstance(settings, Mapping | str | Path):
        raise UserError(f"config: expected a YAML file or nested dictionaries, not a {type(settings).__name__}")
    parser = make_parser("experiment", experiment)
    parser.add_class_arguments(ExperimentConfig)
    read = settings if isinstance(settings, Mapping) else read_config(settings)
    return ExperimentConfig(**vars(parser.instantiate(parse(parser, read))))
