"""A subset of the cases in which every measure, relaxation, surrogate and option occurs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rerank.losses import DirectMetric, Loss
from rerank.relaxations import RankIndicators, SoftRanks
from tests.losses.cases import CASES
from tests.losses.properties import Case


def features(make: Callable[..., Loss]) -> set[Any]:
    """Return what a case covers: classes, options with their values, and measures with classes of relaxations."""
    call = make if isinstance(make, partial) else partial(make)
    options = {(call.func, name, str(value)) for name, value in call.keywords.items()}
    if call.func is not DirectMetric:
        return options or {call.func}
    measure, relaxation = call.args
    name = measure.partition("(")[0].partition("@")[0]
    family = RankIndicators if isinstance(relaxation, RankIndicators) else SoftRanks
    return {repr(relaxation), (family, measure), (type(relaxation), name), *options}


def covering(cases: list[Case]) -> set[str]:
    """Return the names of a few cases that have all features, chosen greedily."""
    left = {case.name: features(case.make) for case in cases}
    chosen = set[str]()
    while any(left.values()):
        best = max(left, key=lambda name: (len(left[name]), name not in chosen))
        chosen.add(best)
        left = {name: wanted - left[best] for name, wanted in left.items()}
    return chosen


COVERING = covering(CASES)
