"""Losses and the measures that they name are described in full."""

from __future__ import annotations

import ir_measures
import pytest

from rerank.losses import BCE, DirectMetric, LambdaLoss, RankNet, SmoothINDCG
from rerank.measures import nDCG
from rerank.relaxations import NeuralSort, SmoothI
from rerank.settings.arguments import described
from tests.losses import kinds
from tests.losses.cases import INDICATORS, RANKS

RELAXATIONS = [NeuralSort(sinkhorn=2), *(made for made, *_ in (*INDICATORS.values(), *RANKS.values()))]


def test_repr_round_trips() -> None:
    examples: list[object] = [kind() for name, kind in kinds.LOSSES.items() if name != "DirectMetric"]
    examples += [LambdaLoss("ndcg1", "nDCG@5", mu=3), RankNet(k=4, reduction="sum"), BCE(2.0)]
    examples += [DirectMetric("AP(rel=2)@7", relaxation) for relaxation in RELAXATIONS]
    examples += [DirectMetric("nDCG", SmoothI(), "none"), SmoothINDCG("nDCG@10", alpha=3)]
    names = kinds.LOSSES | kinds.RELAXATIONS
    for made in [*examples, *RELAXATIONS, *(kind() for kind in kinds.RELAXATIONS.values())]:
        assert described(eval(repr(made), {**names})) == described(made), made
    assert repr(DirectMetric("nDCG@10", SmoothI(3))) == "DirectMetric('nDCG@10', SmoothI(alpha=3))"
    assert repr(NeuralSort(0.5, transposed=True)) == "NeuralSort(tau=0.5, transposed=True)"


@pytest.mark.parametrize("measure", ["nDCG@10", "NDCG@10", "nDCG(dcg='log2')@10", ir_measures.nDCG @ 10, nDCG(10)])
def test_measures_are_described_by_name(measure: str) -> None:
    assert described(DirectMetric(measure, SmoothI()))["init_args"]["measure"] == "nDCG@10"
    assert described(LambdaLoss(measure=measure))["init_args"]["measure"] == "nDCG@10"
