"""What difference an experiment could find, in a sentence: before it trains, and by what was measured afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from rerank.evaluation.crossed import paired
from rerank.evaluation.measures import COUNTS, PerQuery, parse_measures
from rerank.evaluation.power import OTHER, TYPICAL, Deviations, found_differences, measured_deviations
from rerank.experiments.cells import Cell, Group, Plan
from rerank.experiments.config import first_stage_names
from rerank.experiments.identities import Identities
from rerank.experiments.planned import planned_pairs
from rerank.experiments.rows import test_lists
from rerank.experiments.search import Point


def power_before(plan: Plan, identities: Identities, measurement: Callable[[Cell], PerQuery | None]) -> str:
    """The sentence before anything is trained.

    Where methods have finished cells, how much each pair differs is taken from their values per query.
    """
    config = plan.config
    kinds = {str(measure): str(measure.NAME) for measure in parse_measures(config.measures)}
    measures = [name for name, kind in kinds.items() if kind not in COUNTS]
    found = list(_finished(plan, identities, measurement).values())
    deviations: dict[str, list[Deviations]] = {}
    for name in measures:
        values = [np.stack([table[name] for table in tables]) for tables in found]
        pairs = [
            paired(one, other) for i, one in enumerate(values) for other in values[i + 1 :] if one.shape == other.shape
        ]
        known = [
            one if len(pair[0]) > 1 else replace(one, seed=TYPICAL.get(kinds[name], OTHER).seed)
            for pair in pairs
            if (one := measured_deviations(*pair)) is not None
        ]
        if known:
            deviations[name] = known
    measured = bool(deviations)
    if not measured:
        deviations = {name: [TYPICAL.get(kinds[name], OTHER)] for name in measures}
    comparisons = planned_comparisons(plan, identities) * len(measures)
    return found_differences(
        _queries(plan, identities), len(config.seeds), len(plan.folds), comparisons, deviations, measured
    )


def planned_comparisons(plan: Plan, identities: Identities) -> int:
    """How many pairs of rows, or of groups, will be compared."""
    config = plan.config
    first = identities.data(plan.cell(plan.groups[0], _first_point(plan, plan.groups[0]))).first_stage
    rows = [*(first_stage_names(config) if first else []), *config.methods, *config.ensembles]
    pairs = planned_pairs(rows, config.baseline, config.pairs == "all")
    count = len(pairs) + len(config.groups) * (len(config.groups) - 1) // 2
    return count if config.baseline is not None else max(count, len(rows) - 1)


def _queries(plan: Plan, identities: Identities) -> int:
    """Test queries of all folds."""
    one = plan.groups[0]
    groups = [group for group in plan.groups if (group.method, group.seed) == (one.method, one.seed)]
    cells = [plan.cell(group, _first_point(plan, group)) for group in groups]
    return sum(len(test_lists(cell).qrels or {}) for cell in cells if identities.data(cell).test is not None)


def _first_point(plan: Plan, group: Group) -> Point:
    """Values for the keys of a search; lists and columns rarely depend on them."""
    search = plan.config.methods[group.method].search
    return {key: options[0] if isinstance(options, list) else options["low"] for key, options in search.items()}


def _finished(
    plan: Plan, identities: Identities, measurement: Callable[[Cell], PerQuery | None]
) -> dict[str, list[PerQuery]]:
    """By method, the values of the first fold with each seed, as far as they are finished and nothing is searched."""
    found: dict[str, list[PerQuery]] = {}
    for group in plan.groups:
        if plan.config.methods[group.method].search or plan.config.refit or group.fold != plan.groups[0].fold:
            continue
        table = measurement(identities.named(plan.cell(group, {})))
        if table is not None:
            found.setdefault(group.method, []).append(table)
    return found
