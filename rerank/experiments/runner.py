"""Experiments from Python and from the command line: train, choose, measure, write tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import UserError
from rerank.evaluation.table import without_nan
from rerank.experiments import table
from rerank.experiments.config import ExperimentConfig
from rerank.experiments.plan import ExperimentPlan
from rerank.experiments.run import Experiment
from rerank.experiments.summary import Summary, summarise
from rerank.experiments.trials import Failure, Group, Outcome, Trial
from rerank.progress import log_file
from rerank.settings.parser import make_parser, parse, read_config
from rerank.storage.files import atomic_file, atomic_write, exclusive_lock, remove_leftovers
from rerank.training.configuration import check, data_of

if TYPE_CHECKING:
    import pandas as pd

Outcomes = Mapping[Group, Outcome]


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
        return table.text(self.summary)

    def __repr__(self) -> str:
        found, wanted = (sum(getattr(row, of) for row in self.summary.rows.values()) for of in ("found", "wanted"))
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return f"Results({str(self.folder)!r}: {', '.join(self.summary.rows)}; {found} of {wanted} runs{failed})"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def experiment(config: ExperimentConfig | Mapping[str, Any] | str | Path) -> Results:
    """Compare methods over folds and seeds, up to the tables of a paper; resume where an interrupted one stopped.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2, 3, 3], "doc_id": [1, 2, 1, 2, 3, 4], "grade": [1, 0, 0, 1, 1, 0]}
    >>> lists = rerank.Lists.from_dataframe(table | {"bm25": [3, 2, 2, 1, 2, 1]})
    >>> from tempfile import mkdtemp
    >>> folder = mkdtemp()
    >>> _ = lists.save(folder + "/lists")
    >>> data = {"class_path": "FoldsData", "init_args": {"lists": folder + "/lists", "folds": 3}}
    >>> model = {"class_path": "MLP", "init_args": {"hidden": [4], "columns": ["bm25"]}}
    >>> methods = {name: {"set": {"loss": name}} for name in ("ListNet", "RankNet")}
    >>> config = {"output": folder + "/experiment", "base": {"data": data, "model": model}, "methods": methods}
    >>> config |= {"folds": [1, 2, 3], "jobs": 1}
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
        plan.trials.mkdir(parents=True, exist_ok=True)
        remove_leftovers(plan.output)
        done = Experiment(plan)
        done.run()
        outcomes = done.first_stage_rows()
        summary = summarise(plan.config, outcomes)
        write_results(done, outcomes, summary)
    return Results(plan.output, summary, results_frame(plan.output, outcomes), done.failures)


def write_results(done: Experiment, outcomes: Outcomes, summary: Summary) -> None:
    """Write the files of an experiment's folder.

    ``results.json``: everything but the values per query. ``queries.parquet``: the test measures of every query.
    ``table.md`` and ``table.tex``. Paths in them start from the folder.
    """
    folder = done.plan.output
    with atomic_write(folder / "results.json") as file:
        content = without_nan(as_dict(done, outcomes, summary))
        json.dump(content, file, indent=1, ensure_ascii=False, allow_nan=False)
        file.write("\n")
    with atomic_file(folder / "queries.parquet") as temporary:
        queries_frame(outcomes).to_parquet(temporary, index=False)
    with atomic_write(folder / "table.md") as file:
        file.write(table.markdown(summary, done.failures))
    with atomic_write(folder / "table.tex") as file:
        file.write(table.latex(summary))


def results_frame(output: Path, outcomes: Outcomes) -> pd.DataFrame:
    """Tabulate the chosen trials: a row per method, fold and seed."""
    import pandas as pd

    rows = []
    for outcome in outcomes.values():
        row = _outcome(output, outcome)
        for part in ("validation", "test"):
            row |= {f"{part}/{name}": mean for name, mean in row.pop(part).items()}
        rows.append(row)
    return pd.DataFrame(rows)


def queries_frame(outcomes: Outcomes) -> pd.DataFrame:
    """Tabulate the test measures of every query."""
    import pandas as pd

    frames = []
    for outcome in outcomes.values():
        values = outcome.test.to_dataframe()
        values.insert(0, "method", outcome.group.method)
        values.insert(1, "fold", None if outcome.group.fold is None else str(outcome.group.fold))
        values.insert(2, "seed", outcome.group.seed)
        frames.append(values)
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def as_dict(done: Experiment, outcomes: Outcomes, summary: Summary) -> dict[str, Any]:
    """Collect everything but the values per query at full precision."""
    output = done.plan.output
    return {
        "caption": " ".join(table.caption(summary)),
        "measures": summary.measures,
        "test": summary.config.test,
        "correction": summary.config.correction,
        "table": {
            name: {key: of for key, of in vars(row).items() if key != "seeds"} for name, row in summary.rows.items()
        },
        "differences": list(map(vars, summary.compared)),
        "trials": [_outcome(output, outcome) for outcome in outcomes.values()],
        "failed": [
            _where(one.trial) | {"message": one.message, "log": f"{_relative(output, one.trial)}/log.txt"}
            for one in done.failures
        ],
    }


def _outcome(output: Path, outcome: Outcome) -> dict[str, Any]:
    return _where(outcome.trial) | {
        "tried": outcome.tried,
        "folder": _relative(output, outcome.trial),
        "seconds": outcome.seconds,
        "validation": outcome.validation,
        "test": outcome.test.mean,
    }


def _where(trial: Trial) -> dict[str, Any]:
    return {"method": trial.group.method, "fold": trial.group.fold, "seed": trial.group.seed, "point": trial.point}


def _relative(output: Path, trial: Trial) -> str:
    return trial.folder.relative_to(output).as_posix()


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
            trial = plan.trial(group, point)
            try:
                check(trial.settings)
            except UserError as error:
                shown = f" ({', '.join(f'{key}: {value}' for key, value in point.items())})" if point else ""
                unsaid = "; or name all folds, as in folds: [1, 2, 3, 4, 5]" if "needs fold;" in str(error) else ""
                raise UserError(f"methods.{group.method}{shown}: {error}{unsaid}") from error
    for group in {group.fold: group for group in plan.groups}.values():
        data_of(plan.trial(group, plan.points(group)[0]).settings)  # refuses folds that do not exist
    return plan


def _corners(space: dict[str, Any]) -> list[dict[str, Any]]:
    """Choose a smallest set of points that covers every value of every key."""
    count = max(map(len, space.values()), default=1)
    return [{key: values[min(i, len(values) - 1)] for key, values in space.items()} for i in range(count)]
