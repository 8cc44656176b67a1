"""Numbers of an experiment's table: means, spread, comparisons."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.measures import COUNTS, PerQuery, parse_measures, pool
from rerank.evaluation.paired import Comparison, compare_values, corrected
from rerank.experiments.config import FIRST_STAGE, ExperimentConfig, folds_of, interpolated_name
from rerank.experiments.trials import Group, Outcome


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        means: by measure, the mean over queries and seeds; for counts, over folds and seeds; NaN without results.
        errors: by measure, the standard error over folds, or over seeds if there is one fold; NaN for a single number.
        found: number of trials with results.
        wanted: number of trials.
        seeds: values of the queries of all folds, by seed; empty if a trial is missing.
    """

    means: dict[str, float]
    errors: dict[str, float]
    found: int
    wanted: int
    seeds: list[PerQuery]

    def values(self, measure: str) -> np.ndarray:
        """Return the values of a measure, ``[S, Q]``."""
        return np.stack([table[measure] for table in self.seeds])


@dataclass(frozen=True)
class Summary:
    """Numbers of a table.

    Attributes:
        rows: rows by name; those with missing trials are neither the best nor compared.
        folds: fold of each query, ``[Q]``.
    """

    config: ExperimentConfig
    rows: dict[str, Row]
    folds: np.ndarray

    @property
    def measures(self) -> list[str]:
        return [str(measure) for measure in parse_measures(self.config.measures)]

    @property
    def tested(self) -> list[str]:
        """Return the measures of quality, without counts."""
        return [str(measure) for measure in parse_measures(self.config.measures) if measure.NAME not in COUNTS]

    @functools.cached_property
    def compared(self) -> list[Comparison]:
        """Return the planned comparisons; those with missing rows count in the correction."""
        pairs = planned_pairs(list(self.rows), self.config.baseline, self.config.pairs == "all")
        compared = [self.compare(row, against, measure) for row, against in pairs for measure in self.tested]
        return corrected(compared, self.config.correction)

    def compare(self, row: str, against: str, measure: str) -> Comparison:
        """Compare two rows; without numbers if a trial of one is missing."""
        ours, theirs = self.rows[row], self.rows[against]
        if not (ours.seeds and theirs.seeds):
            return Comparison(row, against, measure)
        values = ours.values(measure), theirs.values(measure)
        return compare_values((row, against), measure, *values, self.config.test, self.folds)


def summarise(config: ExperimentConfig, outcomes: Mapping[Group, Outcome]) -> Summary:
    """Compute the table of an experiment.

    Raises:
        UserError: rows were measured on different queries.
    """
    found = {group.method for group in outcomes}
    interpolated = list(map(interpolated_name, config.methods))
    names = [FIRST_STAGE] if FIRST_STAGE in found else []
    names += [*config.methods, *(interpolated if found & {*interpolated} else [])]
    rows = {name: _row(config, name, outcomes) for name in names}
    whole = {name: row.seeds[0].queries for name, row in rows.items() if row.seeds}
    for name, queries in whole.items():
        if queries != whole[first := next(iter(whole))]:
            raise UserError(f"{name}: measured on other queries than {first}; methods must share folds and data")
    sizes = {group.fold: len(outcome.test.queries) for group, outcome in outcomes.items()}
    folds = np.repeat(np.arange(len(folds_of(config))), [sizes.get(fold, 0) for fold in folds_of(config)])
    return Summary(config, rows, folds)


def planned_pairs(rows: Sequence[str], baseline: str | None, every: bool) -> list[tuple[str, str]]:
    """Pair every row with each one before it, or with the baseline only.

    >>> planned_pairs(["BM25", "hinge", "SmoothI"], None, every=True)
    [('hinge', 'BM25'), ('SmoothI', 'BM25'), ('SmoothI', 'hinge')]
    """
    if every:
        pairs = [(later, earlier) for earlier, later in itertools.combinations(rows, 2)]
        turned = [pair[::-1] if pair[0] == baseline else pair for pair in pairs]
        return sorted(turned, key=lambda pair: pair[1] != baseline) if baseline else turned
    return [(row, baseline) for row in rows if row != baseline] if baseline and baseline in rows else []


def _row(config: ExperimentConfig, name: str, outcomes: Mapping[Group, Outcome]) -> Row:
    numbers = config.seeds[:1] if name == FIRST_STAGE else config.seeds
    planned = [[Group(name, fold, seed) for seed in numbers] for fold in folds_of(config)]
    folds = [tables for of in planned if (tables := [outcomes[group].test for group in of if group in outcomes])]
    found, wanted = sum(map(len, folds)), sum(map(len, planned))
    seeds = [pool(of_seed) for of_seed in zip(*folds, strict=True)] if found == wanted else []
    if any(table.queries != seeds[0].queries for table in seeds):
        raise UserError(f"{name}: the test queries of a fold depend on the seed; give the data its own seed")
    means, errors = {}, {}
    for measure in parse_measures(config.measures):
        of_folds = [np.array([table.mean[str(measure)] for table in tables]) for tables in folds]
        values = np.concatenate([table[str(measure)] for tables in folds for table in tables]) if folds else np.zeros(0)
        averaged = np.concatenate(of_folds) if folds and measure.NAME in COUNTS else values[~np.isnan(values)]
        means[str(measure)] = float(averaged.mean()) if len(averaged) else float("nan")
        spread = of_folds[0] if folds and len(planned) == 1 else np.array([of_fold.mean() for of_fold in of_folds])
        errors[str(measure)] = float(spread.std(ddof=1) / np.sqrt(len(spread))) if len(spread) > 1 else float("nan")
    return Row(means, errors, found, wanted, seeds)
