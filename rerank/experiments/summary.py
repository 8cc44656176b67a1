"""From outcomes to the numbers of a table: means over folds, their spread, significance, distance from publications."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.folds import pool
from rerank.evaluation.measures import COUNTS, PerQuery, parse_measures
from rerank.evaluation.significance import Correction, Test, correct, differences, p_value
from rerank.experiments.cells import Group
from rerank.experiments.config import FIRST_STAGE, ExperimentConfig
from rerank.experiments.outcome import Outcome
from rerank.training.provenance import read_provenance


@dataclass(frozen=True)
class Value:
    """A number of the table.

    Attributes:
        mean: mean over folds (of means over seeds); NaN where nothing came out.
        error: standard error of that mean over folds, or over seeds where there is one fold; NaN for a single number.
        interval: half-width of the 95 % interval of that mean by Student's t; NaN for a single number.
        p: p-value of the paired test against the baseline, or the best of the column; NaN where there is none.
        corrected: the same after the correction over the whole table.
        published: what others found; None where nothing is given.
    """

    mean: float
    error: float
    interval: float
    p: float = float("nan")
    corrected: float = float("nan")
    published: float | None = None

    @property
    def distance(self) -> float:
        """Ours minus the published one, in our standard errors; NaN without either."""
        if self.published is None or not self.error > 0:
            return float("nan")
        return (self.mean - self.published) / self.error


@dataclass(frozen=True)
class Row:
    """A method.

    Attributes:
        values: by measure name.
        found: how many folds x seeds came out.
        wanted: how many there should be.
        pooled: values per query, the queries of all folds together, means over seeds; None where nothing came out.
    """

    values: dict[str, Value]
    found: int
    wanted: int
    pooled: PerQuery | None

    @property
    def whole(self) -> bool:
        """Whether all came out; other rows have a mean, but are neither the best nor tested."""
        return self.found == self.wanted


@dataclass(frozen=True)
class Summary:
    """The numbers of a table.

    Attributes:
        config: the experiment.
        rows: by method.
        against: the method that each measure's p-values are against, by measure; None where there is none.
        comparisons: the number of p-values that were corrected for.
        versions: the versions of each package of which the trainings had several.
    """

    config: ExperimentConfig
    rows: dict[str, Row]
    against: dict[str, str | None]
    comparisons: int
    versions: dict[str, list[str]] = field(default_factory=dict)

    @property
    def measures(self) -> list[str]:
        """The columns."""
        return [str(measure) for measure in parse_measures(self.config.measures)]

    @property
    def pooled(self) -> dict[str, PerQuery]:
        """Values per query of the methods that are whole."""
        return {name: row.pooled for name, row in self.rows.items() if row.whole and row.pooled is not None}

    def best(self, measure: str) -> float:
        """The highest mean of a column, among the rows that are whole."""
        return max((row.values[measure].mean for row in self.rows.values() if row.whole), default=float("nan"))


def summarise(config: ExperimentConfig, outcomes: Mapping[Group, Outcome]) -> Summary:
    """The numbers of the table of an experiment."""
    measures = parse_measures(config.measures)
    names = [str(measure) for measure in measures]
    rows = {method: _row(config, method, names, outcomes) for method in row_names(config, outcomes)}
    pooled = {name: row.pooled for name, row in rows.items() if row.whole and row.pooled is not None}
    tested = [str(measure) for measure in measures if measure.NAME not in COUNTS]
    against = {name: _reference(config, rows, pooled, name) if name in tested else None for name in names}
    p = p_values(pooled, against, config.test)
    corrected = dict(zip(p, _corrected(p.values(), config.correction), strict=True))
    rows = {
        method: replace(
            row,
            values={
                name: replace(
                    value,
                    p=p.get((method, name), float("nan")),
                    corrected=corrected.get((method, name), float("nan")),
                )
                for name, value in row.values.items()
            },
        )
        for method, row in rows.items()
    }
    count = sum(not np.isnan(value) for value in p.values())
    return Summary(config, rows, against, count, mixed_versions(outcomes.values()))


def mixed_versions(outcomes: Iterable[Outcome]) -> dict[str, list[str]]:
    """The versions of each package of which trainings had several, as far as their folders tell."""
    found: dict[str, set[str]] = {}
    for folder in {cell.folder for outcome in outcomes for cell in (outcome.cell, outcome.measured)}:
        for start in read_provenance(folder):
            for package, version in start.get("packages", {}).items():
                found.setdefault(package, set()).add(version)
    return {package: sorted(versions) for package, versions in sorted(found.items()) if len(versions) > 1}


def row_names(config: ExperimentConfig, outcomes: Mapping[Group, Outcome]) -> list[str]:
    """The first stage where it was measured, the methods, the ensembles, what else was measured."""
    found = dict.fromkeys(group.method for group in outcomes)
    first = [FIRST_STAGE] if FIRST_STAGE in found else []
    return list(dict.fromkeys([*first, *config.methods, *config.ensembles, *found]))


def p_values(
    pooled: Mapping[str, PerQuery], against: Mapping[str, str | None], test: Test
) -> dict[tuple[str, str], float]:
    """P-values of paired tests, by method and measure, of every method but the one that a measure is tested against.

    Raises:
        UserError: methods that were measured on different queries.
    """
    first = next(iter(pooled.items()), None)
    for name, table in pooled.items():
        if first is not None and table.queries != first[1].queries:
            raise UserError(f"{name}: measured on other queries than {first[0]}; methods must share folds and data")
    return {
        (method, measure): p_value(test, differences(table[measure], pooled[other][measure]))
        for method, table in pooled.items()
        for measure, other in against.items()
        if other is not None and other != method
    }


def spread(values: np.ndarray) -> tuple[float, float]:
    """Standard error of the mean of some numbers, and the half-width of its 95 % interval by Student's t."""
    if len(values) < 2:
        return float("nan"), float("nan")
    from scipy.stats import t

    error = float(values.std(ddof=1) / np.sqrt(len(values)))
    return error, error * float(t.ppf(0.975, len(values) - 1))


def over_folds(found: Sequence[np.ndarray], folds: int) -> tuple[float, float, float]:
    """Mean of an experiment's numbers, its standard error, and the half-width of its 95 % interval.

    Args:
        found: for each fold that has some, the numbers of its seeds.
        folds: how many folds there should be; the spread is that of their means, with one fold that of its seeds.
    """
    numbers = found[0] if folds == 1 and found else np.array([seeds.mean() for seeds in found])
    return float(numbers.mean()) if len(numbers) else float("nan"), *spread(numbers)


def _reference(
    config: ExperimentConfig, rows: Mapping[str, Row], pooled: Mapping[str, PerQuery], measure: str
) -> str | None:
    if config.baseline is not None:
        return config.baseline if config.baseline in pooled else None
    return max(pooled, key=lambda name: rows[name].values[measure].mean, default=None)


def _corrected(p: Iterable[float], correction: Correction) -> list[float]:
    return correct(list(p), correction).tolist()


def _row(config: ExperimentConfig, method: str, names: list[str], outcomes: Mapping[Group, Outcome]) -> Row:
    folds: list[int | str | None] = [*config.folds] if config.folds else [None]
    tables = {
        fold: [outcomes[group].test for seed in config.seeds if (group := Group(method, fold, seed)) in outcomes]
        for fold in folds
    }
    found = [seeds for seeds in tables.values() if seeds]
    values = {}
    for i, name in enumerate(names):
        means = [np.array([table.mean[name] for table in seeds]) for seeds in found]
        mean, error, interval = over_folds(means, len(folds))
        given = config.published.rows.get(method) if config.published else None
        values[name] = Value(mean, error, interval, published=given[i] if given else None)
    pooled = pool([_over_seeds(method, seeds) for seeds in found]) if found else None
    wanted = len(folds) * (1 if method in (FIRST_STAGE, *config.ensembles) else len(config.seeds))
    return Row(values, sum(map(len, found)), wanted, pooled)


def _over_seeds(method: str, tables: list[PerQuery]) -> PerQuery:
    first = tables[0]
    if any(table.queries != first.queries for table in tables):
        raise UserError(f"{method}: the test queries of a fold depend on the seed; give the data its own seed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a query that the policy `drop` leaves out stays NaN
        return replace(first, values=np.nanmean([table.values for table in tables], axis=0))
