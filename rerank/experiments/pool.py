"""Experiments on several collections as one: a difference per pair of methods, pooled by random effects."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from rerank.errors import NotFoundError, UserError, nearest
from rerank.evaluation.export import finite
from rerank.evaluation.measure_names import parse_measures
from rerank.evaluation.measures import COUNTS
from rerank.evaluation.pooling import RandomEffects, random_effects
from rerank.evaluation.significance import Correction, correct
from rerank.experiments.config import FIRST_STAGE
from rerank.experiments.keep import Kept, read_kept, read_lacking
from rerank.experiments.planned import (
    Compared,
    best_of,
    check_groups,
    choose_of_groups,
    compare_all,
    planned_pairs,
)

log = logging.getLogger("rerank")


@dataclass(frozen=True)
class Results:
    """What an experiment found.

    Attributes:
        name: what its collection is called.
        values: values per seed and query ``[S, Q]``, by row and measure; rows without seeds have one.
        validation: by method, the mean over folds and seeds of what validation chose by.
    """

    name: str
    values: dict[str, dict[str, np.ndarray]]
    validation: dict[str, float]


@dataclass(frozen=True)
class Pooled:
    """A pair of rows over all collections, in one measure.

    Attributes:
        row: the first's name.
        against: the second's.
        measure: the measure.
        parts: the comparison on each collection that has both, and where they differ more on some queries than others.
        total: all of them together; None where there is none.
        corrected: the p-value of ``total`` after the correction over all planned pairs and measures.
    """

    row: str
    against: str
    measure: str
    parts: dict[str, Compared]
    total: RandomEffects | None
    corrected: float = math.nan


@dataclass(frozen=True)
class Pool:
    """Experiments pooled.

    Attributes:
        results: the experiments.
        pairs: every planned pair in every measure, all pairs of a measure together.
        measures: the measures.
        correction: the correction over all of ``pairs``.
        chosen: by collection, the method that validation chose of each group.
    """

    results: list[Results]
    pairs: list[Pooled]
    measures: list[str]
    correction: Correction
    chosen: dict[str, dict[str, str]]


def pool_experiments(
    experiments: Sequence[str],
    measures: str | None = None,
    baseline: str | None = None,
    methods: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
    correction: Correction = "holm",
) -> Pool:
    """Read experiments and pool them; see ``rerank pool``.

    Raises:
        UserError: what is wrong with a file, or a name that no experiment has.
    """
    results = [read_results(*named) for named in named_paths(experiments)]
    known = sorted({row for one in results for row in one.values}, key=lambda row: (row != FIRST_STAGE, row))
    for where, names in (("baseline", [baseline] if baseline else []), ("methods", methods or [])):
        for name in names:
            if name not in known:
                raise UserError(f"{where}: no experiment has a method {name!r}{nearest(name, known)}")
    groups = groups or {}
    check_groups(groups, known)
    rows = known if methods is None else list(dict.fromkeys([*([baseline] if baseline else []), *methods]))
    asked = _measures(results, measures)
    pairs = planned_pairs(rows, baseline, every=baseline is None)
    chosen = {one.name: choose_of_groups(groups, one.validation) for one in results}
    found: dict[tuple[str, str, str], dict[str, Compared]] = {}
    for one in results:
        named = {best_of(group): chosen[one.name].get(group, best_of(group)) for group in groups}
        both = [(*pair, pair) for pair in [*_pairs_of(list(named)), *pairs]]
        here = [(row, other, (named.get(pair[0], pair[0]), named.get(pair[1], pair[1]))) for row, other, pair in both]
        for compared in compare_all(one.values, here, asked, "bootstrap", "none"):
            parts = found.setdefault((compared.row, compared.against, compared.measure), {})
            if compared.found is not None and compared.found.error > 0:
                parts[one.name] = compared
            elif compared.found is not None:
                log.warning(
                    "%s: %s and %s differ by %g on every query in %s, which has no error to weigh it by; left out",
                    *(one.name, compared.row, compared.against, compared.found.mean, compared.measure),
                )
    pooled = [Pooled(*key, parts, _total(parts)) for key, parts in found.items()]
    pooled.sort(key=lambda one: asked.index(one.measure))
    p = [math.nan if one.total is None else one.total.p for one in pooled]
    corrected = correct(p, correction, planned=len(pooled))
    pooled = [replace(one, corrected=float(value)) for one, value in zip(pooled, corrected, strict=True)]
    return Pool(results, pooled, asked, correction, chosen)


def _pairs_of(names: Sequence[str]) -> list[tuple[str, str]]:
    return [(one, other) for i, one in enumerate(names) for other in names[i + 1 :]]


def _total(parts: Mapping[str, Compared]) -> RandomEffects | None:
    found = [part.found for part in parts.values() if part.found is not None]
    return random_effects([one.mean for one in found], [one.error for one in found]) if found else None


def _measures(results: Sequence[Results], asked: str | None) -> list[str]:
    """The measures that are asked for, or those that all experiments have."""
    have = [list(next(iter(one.values.values()))) for one in results]
    common = [name for name in have[0] if all(name in names for names in have)]
    if asked is None:
        wanted = [name for name in common if parse_measures(name)[0].NAME not in COUNTS]
        if not wanted:
            raise UserError("measures: the experiments have none in common")
        return wanted
    wanted = [str(measure) for measure in parse_measures(asked)]
    for name in wanted:
        if name not in common:
            raise UserError(f"measures: {name} is not in every experiment; in all are {', '.join(common) or 'none'}")
    return wanted


def named_paths(experiments: Sequence[str]) -> list[tuple[str, Path]]:
    """Names and files of experiments, given as ``PATH`` or ``NAME=PATH``, of a folder or of a file of kept cells.

    Raises:
        UserError: none, the same name twice, or a path that is neither.
    """
    if not experiments:
        raise UserError("experiments: name at least one folder of an experiment, or file of kept cells")
    found: dict[str, Path] = {}
    for given in experiments:
        name, equals, path = given.partition("=")
        place = Path(path if equals and not Path(given).exists() else given)
        name = name if equals and not Path(given).exists() else place.name.removesuffix(".parquet")
        if place.is_dir():
            place = place / "cells.parquet"
        if not place.is_file():
            raise NotFoundError(f"{place}: no such file; an experiment writes it when it is through")
        if name in found:
            raise UserError(f"experiments: {name!r} is given twice; write NAME={place}")
        found[name] = place
    return list(found.items())


def read_results(name: str, path: Path) -> Results:
    """The values of an experiment from its kept cells; methods that lack a seed or fold of the others are left out."""
    files = read_kept(path)
    if lacking := read_lacking(path):
        example = ", ".join(str(part) for part in lacking[0] if part is not None)
        log.warning("%s: unfinished: %d planned cells are not in %s, such as %s", name, len(lacking), path, example)
    validation: dict[str, dict[tuple[str | None, int], float]] = {}
    trained: set[str] = set()
    measured: dict[str, dict[tuple[str | None, int], Kept]] = {}
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
    queries: list[str] | None = None
    for method, places in measured.items():
        # A row mixed with the first stage is not trained itself, and has as many seeds all the same.
        alone = method not in trained and len(seeds[method]) == 1
        wanted = {(fold, seed) for fold in folds for seed in seeds[method]} if alone else every
        if set(places) != wanted:
            log.warning("%s: %s has %d of %d cells and is left out", name, method, len(places), len(wanted))
            continue
        order, table = _by_seed(f"{path}: {method}", places, folds)
        if queries is None:
            queries = order
        if order != queries:
            raise UserError(f"{path}: {method} was measured on other queries; methods must share folds and data")
        tables[method] = table
    if not tables:
        raise UserError(f"{path}: no method in it was measured")
    means = {method: float(np.mean(list(values.values()))) for method, values in validation.items()}
    return Results(name, tables, {method: mean for method, mean in means.items() if method in tables})


def _by_seed(
    where: str, places: Mapping[tuple[str | None, int], Kept], folds: Iterable[str | None]
) -> tuple[list[str], dict[str, np.ndarray]]:
    """Queries of all folds, and by measure their values with each seed."""
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
    return [query for one in first for query in one["queries"]], values


def as_json(pool: Pool) -> str:
    """Everything that a pool says, at full precision; what is not a number is null."""

    def part(one: Compared) -> dict[str, object]:
        assert one.found is not None
        low, high = one.found.interval
        numbers = {"mean": one.found.mean, "low": low, "high": high, "error": one.found.error, "p": one.p}
        size = {"methods": list(one.methods), "seeds": one.found.seeds, "queries": one.found.queries}
        return {name: finite(value) for name, value in numbers.items()} | size

    pairs = []
    for one in pool.pairs:
        shown: dict[str, object] = {"row": one.row, "against": one.against, "measure": one.measure}
        if one.total is not None:
            total = vars(one.total) | {"corrected": one.corrected}
            shown |= {name: finite(value) for name, value in total.items() if isinstance(value, float)}
            for name in ("interval", "prediction"):
                shown[name] = [finite(value) for value in total[name]]
            shown["weights"] = dict(zip(one.parts, one.total.weights, strict=True))
        pairs.append(shown | {"collections": {name: part(compared) for name, compared in one.parts.items()}})
    content = {"measures": pool.measures, "correction": pool.correction, "chosen": pool.chosen, "pairs": pairs}
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
