"""Numbers of an experiment's table: means, spread, significance, distance from published numbers."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rerank.errors import UserError
from rerank.evaluation import significance
from rerank.evaluation.crossed import Crossed, crossed_difference, paired
from rerank.evaluation.measures import COUNTS, PerQuery, parse_measures, pool
from rerank.evaluation.significance import ROUNDING, AnyTest, Correction
from rerank.experiments.cells import Group, Outcome
from rerank.experiments.config import FIRST_STAGE, ExperimentConfig, folds_of, interpolated_name


@dataclass(frozen=True)
class Value:
    """A number of the table.

    Attributes:
        mean: mean over the queries of all folds, averaged over seeds, like tests and intervals; for counts, over folds.
            NaN without results.
        error: standard error over folds, or over seeds if there is one fold; NaN for a single number.
        p: p-value of the paired test against the baseline, or the best of the column; NaN without a test.
    """

    mean: float
    error: float
    p: float = float("nan")
    corrected: float = float("nan")
    published: float | None = None

    @property
    def distance(self) -> float:
        """Our mean minus the published one, in our standard errors; NaN without either."""
        if self.published is None or not self.error > 0:
            return float("nan")
        return (self.mean - self.published) / self.error


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        pooled: means over seeds of the queries of all folds; None without results.
        by_seed: values ``[S, Q]`` by measure; empty if a cell is missing.
    """

    values: dict[str, Value]
    found: int
    wanted: int
    pooled: PerQuery | None
    by_seed: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """True if no cell is missing; other rows have a mean, but are neither the best nor tested."""
        return self.found == self.wanted


@dataclass(frozen=True)
class Summary:
    """Numbers of a table.

    Attributes:
        against: the method that p-values are against, by measure.
        comparisons: number of comparisons that the rows' p-values are corrected for.
        compared: planned comparisons; none if measures are tested against the best.
    """

    config: ExperimentConfig
    rows: dict[str, Row]
    against: dict[str, str | None]
    comparisons: int
    compared: list[Comparison] = field(default_factory=list)
    folds: np.ndarray | None = None

    @property
    def measures(self) -> list[str]:
        return [str(measure) for measure in parse_measures(self.config.measures)]

    @property
    def pooled(self) -> dict[str, PerQuery]:
        return {name: row.pooled for name, row in self.rows.items() if row.whole and row.pooled is not None}

    def best(self, measure: str) -> float:
        """Return the highest mean of a column, among rows without missing cells."""
        return max((row.values[measure].mean for row in self.rows.values() if row.whole), default=float("nan"))


def summarise(config: ExperimentConfig, outcomes: Mapping[Group, Outcome]) -> Summary:
    """Compute the table of an experiment."""
    measures = parse_measures(config.measures)
    names = [str(measure) for measure in measures]
    tested = [str(measure) for measure in measures if measure.NAME not in COUNTS]
    found = dict.fromkeys(group.method for group in outcomes)
    first = [FIRST_STAGE] if FIRST_STAGE in found else []
    failed = [interpolated_name(method) for method in config.methods if method not in found]
    interpolated = failed if {*map(interpolated_name, config.methods)} & {*found} else []  # they were planned, too
    order = dict.fromkeys([*first, *config.methods, *interpolated, *found])
    rows = {method: _row(config, method, names, tested, outcomes) for method in order}
    pooled = {name: row.pooled for name, row in rows.items() if row.whole and row.pooled is not None}

    def reference(measure: str) -> str | None:
        if config.baseline is not None:
            return config.baseline if config.baseline in pooled else None
        return max(pooled, key=lambda name: rows[name].values[measure].mean, default=None)

    against = {name: reference(name) if name in tested else None for name in names}
    named = next(iter(pooled), "")
    for name, table in pooled.items():
        if table.queries != pooled[named].queries:
            raise UserError(f"{name}: measured on other queries than {named}; methods must share folds and data")
    values = {name: row.by_seed for name, row in rows.items() if row.whole and row.by_seed}
    sizes = {group.fold: len(outcome.test.queries) for group, outcome in outcomes.items()}
    folds = np.repeat(np.arange(len(folds_of(config))), [sizes.get(fold, 0) for fold in folds_of(config)])
    pairs = planned_pairs(list(rows), config.baseline, config.pairs == "all")
    compared = compare_all(values, pairs, tested, config.test, config.correction, folds)
    p = {(one.row, one.measure): (one.p, one.corrected) for one in compared if one.against == config.baseline}
    count = len(compared)
    if config.baseline is None:
        best: list[Comparison] = []
        for measure, other in against.items():
            if other is not None:
                others = [(name, other) for name in rows if name != other]
                best += compare_all(values, others, [measure], config.test, "none", folds=folds)
        count = max(count, len(best))
        corrected = significance.correct([one.p for one in best], config.correction, planned=count).tolist()
        p = {(one.row, one.measure): (one.p, after) for one, after in zip(best, corrected, strict=True)}
    for method, row in rows.items():
        for name, value in row.values.items():
            own, after = p.get((method, name), (np.nan, np.nan))
            row.values[name] = replace(value, p=own, corrected=after)
    return Summary(config, rows, against, count, compared, folds)


@dataclass(frozen=True)
class Comparison:
    """A planned comparison of two rows in one measure.

    Attributes:
        found: difference and interval; None if one of the two rows is missing.
        effect: Cohen's d over queries.
        counts: wins, ties and losses over queries.
        p: NaN if the test has nothing to go by, or a row is missing.
    """

    row: str
    against: str
    measure: str
    found: Crossed | None = None
    effect: float = math.nan
    counts: tuple[int, int, int] = (0, 0, 0)
    p: float = math.nan
    corrected: float = math.nan


def planned_pairs(rows: Sequence[str], baseline: str | None, every: bool) -> list[tuple[str, str]]:
    """Pair every row with each one before it, or with the baseline only.

    >>> planned_pairs(["BM25", "hinge", "SmoothI"], None, every=True)
    [('hinge', 'BM25'), ('SmoothI', 'BM25'), ('SmoothI', 'hinge')]
    """
    if every:
        pairs = [(later, earlier) for earlier, later in itertools.combinations(rows, 2)]
        turned = [pair[::-1] if pair[0] == baseline else pair for pair in pairs]
        return sorted(turned, key=lambda pair: pair[1] != baseline) if baseline else turned
    return [(row, baseline) for row in rows if row != baseline] if baseline else []


def compare_all(
    values: Mapping[str, Mapping[str, np.ndarray]],
    pairs: Sequence[tuple[str, str]],
    measures: Sequence[str],
    test: AnyTest,
    correction: Correction,
    folds: np.ndarray | None = None,
) -> list[Comparison]:
    """Compare pairs of rows in every measure, given values per seed and query ``[S, Q]`` by row and measure.

    P-values are corrected for all pairs: those with missing rows were planned as well.
    """
    compared = []
    for row, against in pairs:
        for measure in measures:
            one = Comparison(row, against, measure)
            if row in values and against in values:
                one = _compared(one, *paired(values[row][measure], values[against][measure], folds), test)
            compared.append(one)
    corrected = significance.correct([one.p for one in compared], correction, planned=len(compared))
    return [replace(one, corrected=float(p)) for one, p in zip(compared, corrected, strict=True)]


def _compared(one: Comparison, difference: np.ndarray, folds: np.ndarray, test: AnyTest) -> Comparison:
    found = crossed_difference(difference, folds)
    over_seeds = difference.mean(axis=0)
    over_seeds = np.where(np.abs(over_seeds) < ROUNDING, 0.0, over_seeds)
    return replace(
        one,
        found=found,
        effect=significance.cohens_d(over_seeds),
        counts=significance.wins_ties_losses(over_seeds),
        p=found.p if test == "bootstrap" else significance.p_value(test, over_seeds),
    )


def over_folds(found: Sequence[np.ndarray], folds: int) -> tuple[float, float]:
    """Return the mean of numbers per fold and seed, and its standard error.

    The error is that of the means of as many folds as there should be, with one fold that of its seeds.
    """
    numbers = found[0] if folds == 1 and found else np.array([seeds.mean() for seeds in found])
    mean = float(numbers.mean()) if len(numbers) else float("nan")
    return mean, float(numbers.std(ddof=1) / np.sqrt(len(numbers))) if len(numbers) > 1 else float("nan")


def _row(
    config: ExperimentConfig, method: str, names: list[str], tested: Sequence[str], outcomes: Mapping[Group, Outcome]
) -> Row:
    folds = folds_of(config)
    groups = [[Group(method, fold, seed) for seed in config.seeds] for fold in folds]
    tables = [[outcomes[group].test for group in of if group in outcomes] for of in groups]
    found = [seeds for seeds in tables if seeds]
    pooled = pool([_over_seeds(method, seeds) for seeds in found]) if found else None
    values = {}
    for i, name in enumerate(names):
        means = [np.array([table.mean[name] for table in seeds]) for seeds in found]
        mean, error = over_folds(means, len(folds))
        if pooled is not None and len(folds) > 1 and name in tested:
            mean = pooled.mean[name]  # folds may differ in size, and a query counts as much as any other
        given = config.published.rows.get(method) if config.published else None
        values[name] = Value(mean, error, published=given[i] if given else None)
    wanted = len(folds) * (1 if method == FIRST_STAGE else len(config.seeds))
    by_seed: dict[str, np.ndarray] = {}
    if sum(map(len, found)) == wanted:
        seeds = [pool([tables[i] for tables in found]) for i in range(len(found[0]))]
        by_seed = {name: np.stack([table[name] for table in seeds]) for name in names}
    return Row(values, sum(map(len, found)), wanted, pooled, by_seed)


def _over_seeds(method: str, tables: list[PerQuery]) -> PerQuery:
    first = tables[0]
    if any(table.queries != first.queries for table in tables):
        raise UserError(f"{method}: the test queries of a fold depend on the seed; give the data its own seed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a query that the policy `drop` leaves out stays NaN
        return replace(first, values=np.nanmean([table.values for table in tables], axis=0))
