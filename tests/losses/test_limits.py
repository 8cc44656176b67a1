"""In the limit every relaxed measure is the exact one of ir-measures."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from rerank.losses import DirectMetric
from rerank.relaxations import Approx, FastSoftSort, NeuralSort, OptimalTransport, SmoothI, SoftSort, TwinSigmoid
from tests.losses.cases import MEASURES
from tests.losses.grid_reference import Spec
from tests.losses.properties import Case, Doc, batch, ranked_lists
from tests.measures.evaluator import evaluate

LIMITS = {
    "Approx-adaptive": Approx("adaptive"),
    "TwinSigmoid": TwinSigmoid(alpha=1),
    "TwinSigmoid-adaptive": TwinSigmoid(alpha="adaptive"),
    "SmoothI": SmoothI(alpha=1e5),
    "NeuralSort": NeuralSort(tau=1e-4),
    "NeuralSort-no-sinkhorn": NeuralSort(tau=1e-4, sinkhorn=0),
    "NeuralSort-transposed": NeuralSort(tau=1e-4, transposed=True),
    "SoftSort": SoftSort(tau=1e-4),
    "SoftSort-adaptive": SoftSort("adaptive"),
    "FastSoftSort": FastSoftSort(strength=1e-3, beta=300),
    "FastSoftSort-adaptive": FastSoftSort("adaptive"),
    "OptimalTransport": OptimalTransport(epsilon=4e-3, iterations=1000),
}

SPECS = [*MEASURES[1:], Spec("P", 8, rel=2), Spec("AP", 2, rel=3), Spec("nDCG", 9), Spec("RR", 2)]
"""Without P of the whole list, which ir-measures does not have."""

lists_of_grades = ranked_lists(Case("", DirectMetric, torch.sum), most=6, longest=7)


@pytest.mark.parametrize("name", LIMITS)
@settings(max_examples=5, deadline=None)
@given(lists=lists_of_grades)
def test_relaxed_measure_tends_to_the_exact_one(name: str, lists: list[list[Doc]]) -> None:
    relaxation = LIMITS[name]
    if isinstance(relaxation, OptimalTransport):  # Sinkhorn takes very long where scores are close
        lists = [[(float(sum(other < s for other, _ in docs)), y) for s, y in docs] for docs in lists]
    scores, labels, mask, seeds = batch(lists)
    if any(getattr(relaxation, knob, 0) == "adaptive" for knob in ("alpha", "strength", "tau")):
        scores = scores * 1e4  # these are exact where scores have spread out
    for spec in SPECS:
        if spec.name == "nDCG" or not name.endswith("transposed"):
            loss = DirectMetric(str(spec), relaxation, reduction="none")
            found = torch.where(loss.learnable(labels, mask), 1 - loss(scores, labels, mask, seeds=seeds), 0.0)
            tolerance = 5e-2 if name == "OptimalTransport" else 5e-3
            assert ((found - evaluate(str(spec), scores, labels, mask)).abs() <= tolerance).all(), spec
