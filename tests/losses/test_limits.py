"""In the limit every cell of the grid is the exact measure, by an evaluator that is not ours."""

from __future__ import annotations

import ir_measures
import pytest
import torch
from hypothesis import given, settings

from rerank.losses import DirectMetric
from rerank.relaxations import (
    Approx,
    FastSoftSort,
    NeuralSort,
    OptimalTransport,
    Relaxation,
    SmoothI,
    SoftSort,
    TwinSigmoid,
)
from tests.losses.grid_reference import Spec
from tests.losses.properties import Case, Doc, batch, ranked_lists
from tests.measures.evaluator import evaluable

LIMITS = {
    "Approx": Approx(alpha=3e3, beta=300, half_rank=True),
    "Approx-from-spread": Approx("spread"),
    "TwinSigmoid-1": TwinSigmoid(1, alpha=1),
    "TwinSigmoid-2": TwinSigmoid(2, alpha=1),
    "TwinSigmoid-3": TwinSigmoid(3, alpha=1),
    "TwinSigmoid-from-spread": TwinSigmoid(alpha="spread"),
    "SmoothI": SmoothI(alpha=1e5),
    "SmoothI-steady": SmoothI(alpha=3e4, steady=True),
    "SmoothI-full-gradient": SmoothI(alpha=1e5, stop_gradient=False),
    "NeuralSort": NeuralSort(tau=1e-4),
    "NeuralSort-no-sinkhorn": NeuralSort(tau=1e-4, sinkhorn=0),
    "NeuralSort-transposed": NeuralSort(tau=1e-4, transposed=True),
    "NeuralSort-samples": NeuralSort(tau=1e-5, samples=2, beta=1e-4),
    "SoftSort": SoftSort(tau=1e-4),
    "SoftSort-from-spread": SoftSort("spread"),
    "FastSoftSort": FastSoftSort(strength=1e-3, beta=300),
    "FastSoftSort-kl": FastSoftSort(strength=1e-3, regularization="kl", beta=300),
    "FastSoftSort-from-spread": FastSoftSort("spread"),
    "OptimalTransport": OptimalTransport(epsilon=1e-3, iterations=1000),
}

MEASURES = [
    Spec("P", 1),
    Spec("P", 3),
    Spec("P", 8, rel=2),
    Spec("AP"),
    Spec("AP", 3),
    Spec("AP", 2, rel=3),
    Spec("nDCG"),
    Spec("nDCG", 3),
    Spec("nDCG", 9),
    Spec("nDCG", exponential=True),
    Spec("nDCG", 2, exponential=True),
    Spec("RR"),
    Spec("RR", 2),
    Spec("RR", 4, rel=2),
    Spec("R", 2),
    Spec("R", 5, rel=2),
    Spec("Success", 1),
    Spec("Success", 3, rel=2),
]
lists_of_grades = ranked_lists(Case("", DirectMetric, None), most=6, longest=7)


def evaluated(specs: list[Spec], lists: list[list[Doc]]) -> dict[Spec, list[float]]:
    """The measures of every list by ir-measures."""
    names = {spec: ir_measures.parse_measure(evaluable(str(spec))) for spec in specs}
    qrels = [ir_measures.Qrel(str(q), str(d), int(y)) for q, docs in enumerate(lists) for d, (_, y) in enumerate(docs)]
    run = [ir_measures.ScoredDoc(str(q), str(d), s) for q, docs in enumerate(lists) for d, (s, _) in enumerate(docs)]
    found = {}
    for exponential in (False, True):  # apart, because ir-measures mixes up gains within one call
        some = [name for spec, name in names.items() if spec.exponential == exponential]
        found |= {(m.measure, int(m.query_id)): m.value for m in ir_measures.iter_calc(some, qrels, run)}
    return {spec: [found[name, q] for q in range(len(lists))] for spec, name in names.items()}


def expected_reciprocal_rank(spec: Spec, lists: list[list[Doc]]) -> list[float]:
    """nERR by its definition (Chapelle et al. 2009), in plain Python: ir-measures has no provider for it."""

    def err(grades: list[float]) -> float:
        top = max(grades) if spec.max_rel is None else spec.max_rel
        total, reach = 0.0, 1.0
        for rank, grade in enumerate(grades[: spec.k], start=1):
            stop = (2**grade - 1) / 2**top
            total, reach = total + reach * stop / rank, reach * (1 - stop)
        return total

    grades = [[y for _, y in sorted(docs, reverse=True)] for docs in lists]
    return [err(order) / (err(sorted(order, reverse=True)) or 1) for order in grades]


def check(relaxation: Relaxation, spec: Spec, lists: list[list[Doc]], expected: list[float]) -> None:
    if isinstance(relaxation, OptimalTransport):  # Sinkhorn takes very long where scores are close
        lists = [[(float(sum(other < s for other, _ in docs)), y) for s, y in docs] for docs in lists]
    scores, labels, mask, seeds = batch(lists)
    if any(getattr(relaxation, name, 0) == "spread" for name in ("alpha", "strength", "tau")):
        scores = scores * 1e4  # these are exact where scores have spread out
    loss = DirectMetric(str(spec), relaxation, reduction="none")
    found = torch.where(loss.learnable(labels, mask), 1 - loss(scores, labels, mask, seeds=seeds), 0.0)
    torch.testing.assert_close(found.tolist(), expected, atol=5e-3, rtol=0, msg=lambda text: f"{spec}: {text}")


@pytest.mark.parametrize("name", LIMITS)
@settings(max_examples=5, deadline=None)
@given(lists=lists_of_grades)
def test_the_limit_is_the_exact_measure(name: str, lists: list[list[Doc]]) -> None:
    measures = [spec for spec in MEASURES if spec.name == "nDCG" or not name.endswith("transposed")]
    for spec, values in evaluated(measures, lists).items():
        check(LIMITS[name], spec, lists, values)


@pytest.mark.parametrize("name", [name for name in LIMITS if not name.endswith("transposed")])
@settings(max_examples=5, deadline=None)
@given(lists=lists_of_grades)
def test_the_limit_is_the_exact_nerr(name: str, lists: list[list[Doc]]) -> None:
    for spec in (Spec("nERR"), Spec("nERR", 2), Spec("nERR", 3, max_rel=5)):
        check(LIMITS[name], spec, lists, expected_reciprocal_rank(spec, lists))
