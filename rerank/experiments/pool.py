"""Experiments on several collections as one: a difference per pair of methods, pooled by random effects."""

from __future__ import annotations

import itertools
import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import NotFoundError, UserError, nearest
from rerank.evaluation.export import finite
from rerank.evaluation.measure_names import parse_measures
from rerank.evaluation.measures import COUNTS
from rerank.evaluation.pooling import RandomEffects, random_effects, single
from rerank.evaluation.render import verdict
from rerank.evaluation.significance import Correction, check_margin, correct, equivalence
from rerank.experiments.config import FIRST_STAGE
from rerank.experiments.keep import SUFFIX, KeptFile, read_kept
from rerank.experiments.planned import (
    PlannedComparison,
    best_of,
    check_groups,
    choose_of_groups,
    compare_all,
    planned_pairs,
)

log = logging.getLogger("rerank")


@dataclass(frozen=True)
class CollectionResults:
    """What an experiment found.

    Attributes:
        values: values per seed and query ``[S, Q]``, by row and measure; rows without seeds have one.
        validation: by method, the mean over folds and seeds of what validation chose by.
        empty: what those without relevant documents score, or ``drop``.
    """

    name: str
    values: dict[str, dict[str, np.ndarray]]
    validation: dict[str, float]
    queries: list[str]
    folds: np.ndarray
    empty: str
    without_relevant: dict[str, int]


@dataclass(frozen=True)
class Pooled:
    """A pair of rows over all collections, in one measure.

    Attributes:
        parts: the comparison on each collection that has both, and where they differ more on some queries than others.
        other: the same with Paule and Mandel's variance between collections; None with a single collection.
        borrowed: standard deviation over trainings that collections with one seed have from the others; NaN where none
            lacks one, or none has one to lend.
        corrected: the p-value of ``total`` after the correction over all planned pairs and measures.
        equivalent: likewise, of the test that the difference is not within the margin.
    """

    row: str
    against: str
    measure: str
    parts: dict[str, PlannedComparison]
    total: RandomEffects | None
    other: RandomEffects | None = None
    borrowed: float = math.nan
    lacking: tuple[str, ...] = ()
    corrected: float = math.nan
    equivalent: float = math.nan


@dataclass(frozen=True)
class PooledExperiments:
    """Experiments pooled.

    Attributes:
        pairs: every planned pair in every measure, all pairs of a measure together.
        correction: the correction over all of ``pairs``.
        chosen: by collection, the method that validation chose of each group.
        margin: the difference that does not matter; None where none is named.
    """

    results: list[CollectionResults]
    pairs: list[Pooled]
    measures: list[str]
    correction: Correction
    chosen: dict[str, dict[str, str]]
    margin: float | None = None

    def verdict(self, one: Pooled) -> str:
        assert one.total is not None and self.margin is not None
        return verdict(one.total.mean, one.corrected, one.equivalent, self.margin)


def pool_experiments(
    experiments: Sequence[str],
    measures: str | None = None,
    baseline: str | None = None,
    methods: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    correction: Correction = "holm",
    margin: float | None = None,
) -> PooledExperiments:
    """Read experiments and pool them; see ``rerank pool``."""
    check_margin(margin)
    correct([], correction)
    results = [read_results(*named) for named in named_paths(experiments)]
    for one, other in itertools.combinations(results, 2):
        if one.queries == other.queries:
            log.warning("%s and %s have the same queries: they do not tell of two collections", one.name, other.name)
    known = sorted({row for one in results for row in one.values}, key=lambda row: (row != FIRST_STAGE, row))
    for where, names in (("baseline", [baseline] if baseline else []), ("methods", methods or [])):
        for name in names:
            if name not in known:
                raise UserError(f"{where}: no experiment has a method {name!r}{nearest(name, known)}")
    groups = groups or {}
    check_groups(groups, known)
    rows = known if methods is None else list(dict.fromkeys([*([baseline] if baseline else []), *methods]))
    wanted = _measures(results, measures)
    pairs = planned_pairs(rows, baseline, every=baseline is None)
    if not pairs and not groups:
        raise UserError(f"methods: {', '.join(rows)} alone has nothing to be compared with; name two")
    chosen = {one.name: choose_of_groups(groups, one.validation) for one in results}
    found: dict[tuple[str, str, str], dict[str, PlannedComparison]] = {}
    for one in results:
        named = {best_of(group): chosen[one.name].get(group, best_of(group)) for group in groups}
        both = [(*pair, pair) for pair in [*itertools.combinations(named, 2), *pairs]]
        here = [(row, other, (named.get(pair[0], pair[0]), named.get(pair[1], pair[1]))) for row, other, pair in both]
        for compared in compare_all(one.values, here, wanted, "bootstrap", "none", folds=one.folds):
            parts = found.setdefault((compared.row, compared.against, compared.measure), {})
            if compared.found is not None and compared.found.error > 0:
                parts[one.name] = compared
            elif compared.found is not None:
                log.warning(
                    "%s: %s and %s differ by %g in %s without an error to weigh it by (on every query the same, or "
                    "one query); left out",
                    *(one.name, compared.row, compared.against, compared.found.mean, compared.measure),
                )
    pooled = [_pooled(Pooled(*key, _corrected(parts, correction), None), margin) for key, parts in found.items()]
    pooled.sort(key=lambda one: wanted.index(one.measure))
    p, within = (
        correct(values, correction, planned=len(pooled)).tolist()
        for values in ([one.corrected for one in pooled], [one.equivalent for one in pooled])
    )
    pooled = [replace(one, corrected=p[i], equivalent=within[i]) for i, one in enumerate(pooled)]
    return PooledExperiments(results, pooled, wanted, correction, chosen, margin)


def _corrected(parts: Mapping[str, PlannedComparison], correction: Correction) -> dict[str, PlannedComparison]:
    """The p-values of a pair's collections, corrected for each other."""
    p = correct([part.p for part in parts.values()], correction)
    return {name: replace(part, corrected=float(value)) for (name, part), value in zip(parts.items(), p, strict=True)}


def _pooled(one: Pooled, margin: float | None) -> Pooled:
    """A pair with what its collections say together; its p-values are not corrected yet.

    One seed without folds cannot tell how much trainings vary. Where other collections can, their mean variance over
    trainings is added: a variance of 0 would let the collection that knows least weigh most.
    """
    found = {name: part.found for name, part in one.parts.items() if part.found is not None}
    lacking = tuple(name for name, part in found.items() if part.seeds == part.folds == 1)
    known = [part.training for part in found.values() if not math.isnan(part.training)]
    borrowed = math.sqrt(np.mean(known)) if lacking and known else math.nan
    if not found:
        return one
    total, other = single(next(iter(found.values()))), None
    if len(found) > 1:
        means = [part.mean for part in found.values()]
        added = {name: borrowed for name in lacking if borrowed > 0}
        errors = [math.hypot(part.error, added.get(name, 0.0)) for name, part in found.items()]
        total, other = random_effects(means, errors), random_effects(means, errors, "Paule-Mandel")
    within = math.nan if margin is None else equivalence(total.mean, total.error, total.freedom, margin)
    return replace(
        one, total=total, other=other, borrowed=borrowed, lacking=lacking, corrected=total.p, equivalent=within
    )


def _measures(results: Sequence[CollectionResults], given: str | None) -> list[str]:
    have = [list(next(iter(one.values.values()))) for one in results]
    common = [name for name in have[0] if all(name in names for names in have)]
    if given is None:
        wanted = [name for name in common if parse_measures(name)[0].NAME not in COUNTS]
        if not wanted:
            raise UserError("measures: the experiments have none in common")
        return wanted
    wanted = [str(measure) for measure in parse_measures(given)]
    for name in wanted:
        if name not in common:
            raise UserError(f"measures: {name} is not in every experiment; in all are {', '.join(common) or 'none'}")
    return wanted


def named_paths(experiments: Sequence[str]) -> list[tuple[str, Path]]:
    """Names and files of experiments, given as ``PATH`` or ``NAME=PATH``, of a folder or of a file of kept cells."""
    if not experiments:
        raise UserError("experiments: name at least one folder of an experiment, or file of kept cells")
    found: dict[str, Path] = {}
    for given in experiments:
        name, equals, path = given.partition("=")
        place = Path(path if equals and not Path(given).exists() else given)
        name = name if equals and not Path(given).exists() else place.name.removesuffix(SUFFIX)
        if place.is_dir():
            place = place / f"cells{SUFFIX}"
        if same := next((known for known, taken in found.items() if taken.resolve() == place.resolve()), None):
            raise UserError(f"experiments: {place} is given twice, as {same!r} and as {name!r}")
        if not place.is_file():
            raise NotFoundError(f"{place}: no such file; an experiment writes it when it is through")
        if name in found:
            raise UserError(f"experiments: {name!r} is given twice; write NAME={place}")
        found[name] = place
    return list(found.items())


def read_results(name: str, path: Path) -> CollectionResults:
    """The values of an experiment from its kept cells; methods that lack a seed or fold of the others are left out."""
    files, lacking = read_kept(path)
    if lacking:
        example = ", ".join(str(part) for part in lacking[0] if part is not None)
        log.warning("%s: unfinished: %d planned cells are not in %s, such as %s", name, len(lacking), path, example)
    validation: dict[str, dict[tuple[str | None, int], float]] = {}
    trained: set[str] = set()
    measured: dict[str, dict[tuple[str | None, int], KeptFile]] = {}
    for file in files:
        place = file.fold, file.seed
        if file.measured:
            measured.setdefault(file.method, {})[place] = file
        elif file.path.endswith("measures.json"):
            trained.add(file.method)
            if file.validation is not None:
                values = validation.setdefault(file.method, {})
                values[place] = max(file.validation, values.get(place, -math.inf))
    if FIRST_STAGE in measured:  # it has no seeds, but is kept with the first of each part of the experiment
        one = min(seed for _, seed in measured[FIRST_STAGE])
        measured[FIRST_STAGE] = {place: file for place, file in measured[FIRST_STAGE].items() if place[1] == one}
    seeds = {method: {seed for _, seed in places} for method, places in measured.items()}
    every = {place for method, places in measured.items() if method in trained for place in places}
    folds = {fold for places in measured.values() for fold, _ in places}
    tables: dict[str, dict[str, np.ndarray]] = {}
    first: list[dict[str, Any]] = []
    for method, places in measured.items():
        # A row mixed with the first stage is not trained itself, and has as many seeds all the same.
        alone = method not in trained and len(seeds[method]) == 1
        wanted = {(fold, seed) for fold in folds for seed in seeds[method]} if alone else every
        if set(places) != wanted:
            log.warning("%s: %s has %d of %d cells and is left out", name, method, len(places), len(wanted))
            continue
        contents, table = _by_seed(f"{path}: {method}", places, folds)
        first = first or contents
        if [(one["queries"], one["empty"]) for one in contents] != [(one["queries"], one["empty"]) for one in first]:
            raise UserError(f"{path}: {method} was measured on other queries; methods must share folds and data")
        tables[method] = table
    if not tables:
        raise UserError(f"{path}: no method in it was measured")
    means = {method: float(np.mean(list(values.values()))) for method, values in validation.items()}
    return CollectionResults(
        name,
        tables,
        {method: mean for method, mean in means.items() if method in tables},
        [query for one in first for query in one["queries"]],
        np.repeat(np.arange(len(first)), [len(one["queries"]) for one in first]),
        first[0]["empty"],
        {
            name: sum(map(sum, rows))
            for name, *rows in zip(first[0]["measures"], *(one["without_relevant"] for one in first), strict=True)
        },
    )


def _by_seed(
    where: str, places: Mapping[tuple[str | None, int], KeptFile], folds: Iterable[str | None]
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """What is kept of each fold with the first seed, and by measure the values of all queries with each seed."""
    order = sorted(folds, key=lambda fold: fold or "")
    seeds = sorted({seed for _, seed in places})
    first = [places[fold, seeds[0]].content for fold in order]
    for (fold, _), file in places.items():
        one = first[order.index(fold)]
        if (one["queries"], one["measures"], one["empty"]) != tuple(
            file.content[key] for key in ("queries", "measures", "empty")
        ):
            raise UserError(f"{where}: its seeds were measured on other queries, or in other measures")
    values = {}
    for i, measure in enumerate(first[0]["measures"]):
        rows = [[value for fold in order for value in places[fold, seed].content["values"][i]] for seed in seeds]
        values[measure] = np.array(rows, dtype=np.float64)
    return first, values


def as_json(pool: PooledExperiments) -> str:
    """Everything that a pool says, at full precision; what is not a number is null."""

    def part(one: PlannedComparison) -> dict[str, object]:
        assert one.found is not None
        low, high = one.found.interval
        numbers = {"mean": one.found.mean, "low": low, "high": high, "error": one.found.error, "p": one.p}
        numbers |= {"freedom": one.freedom, "corrected": one.corrected}
        size = {"methods": list(one.methods), "seeds": one.found.seeds, "queries": one.found.queries}
        size["folds"] = one.found.folds
        return {name: finite(value) for name, value in numbers.items()} | size

    def effects(one: RandomEffects) -> dict[str, object]:
        numbers: dict[str, object] = {name: finite(it) for name, it in vars(one).items() if isinstance(it, float)}
        ends = {"interval": one.interval, "prediction": one.prediction}
        return numbers | {name: [finite(end) for end in both] for name, both in ends.items()}

    pairs = []
    for one in pool.pairs:
        shown: dict[str, object] = {"row": one.row, "against": one.against, "measure": one.measure}
        if one.total is not None:
            shown |= effects(one.total) | {"corrected": finite(one.corrected), "borrowed": finite(one.borrowed)}
            shown["weights"] = dict(zip(one.parts, one.total.weights, strict=True))
            shown["one_seed"] = one.lacking
            if one.other is not None:
                shown["Paule-Mandel"] = effects(one.other)
            if pool.margin is not None:
                shown |= {"equivalent": finite(one.equivalent), "verdict": pool.verdict(one)}
        pairs.append(shown | {"collections": {name: part(compared) for name, compared in one.parts.items()}})
    content: dict[str, object] = {"measures": pool.measures, "correction": pool.correction, "margin": pool.margin}
    content |= {"chosen": pool.chosen, "pairs": pairs}
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
