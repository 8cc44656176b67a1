"""List the losses that the properties are checked on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rerank import losses
from rerank.relaxations import Approx, FastSoftSort, NeuralSort, OptimalTransport, SmoothI, SoftSort, TwinSigmoid
from tests.losses import grid_reference as plain
from tests.losses import reference
from tests.losses.grid_reference import Spec
from tests.losses.properties import Case

SURROGATES = [
    Case("ListNet", losses.ListNet, reference.list_net()),
    Case("ListNet-temperature", partial(losses.ListNet, temperature=0.3), reference.list_net(0.3)),
    Case("SoftmaxCE", losses.SoftmaxCE, reference.softmax_ce()),
    Case("SoftmaxCE-temperature", partial(losses.SoftmaxCE, temperature=0.3), reference.softmax_ce(0.3)),
    Case("SoftmaxCE-negatives", partial(losses.SoftmaxCE, negatives_only=True), reference.softmax_ce(negatives=True)),
    Case("ListMLE", losses.ListMLE, reference.list_mle, distinct="labels and scores"),
    Case("ListAP", losses.ListAP, reference.list_ap()),
    Case("ListAP-rel-2", partial(losses.ListAP, bins=7, rel=2), reference.list_ap(7, 2)),
    Case("WassRank", losses.WassRank, reference.wass_rank()),
    Case(
        "WassRank-sharp",
        partial(losses.WassRank, gain_base=2, gap=3, penalty=0, lam=1, iterations=3),
        reference.wass_rank(2, 3, 0, 1, 3),
    ),
    *(
        Case(
            f"LambdaLoss-{weighting}-{measure}",
            partial(losses.LambdaLoss, weighting=weighting, measure=measure),
            reference.lambda_loss(weighting, gain, k),
        )
        for weighting in ("lambdarank", "ndcg1", "ndcg2", "ndcg2++")
        for measure, gain, k in (
            ("nDCG", lambda y: y, None),
            ("nDCG@3", lambda y: y, 3),
            ("nDCG(dcg='exp-log2')@2", lambda y: 2**y - 1, 2),
        )
    ),
    *(
        Case(
            f"LambdaLoss-{weighting}-{truncation}",
            partial(losses.LambdaLoss, weighting=weighting, measure="nDCG@2", truncation=truncation),
            reference.lambda_loss(weighting, lambda y: y, 2, truncation=truncation),
        )
        for weighting, truncation in (("ndcg1", "either"), ("ndcg2++", "either"), ("ndcg2", "all"))
    ),
    Case(
        "LambdaLoss-all-at-1",
        partial(losses.LambdaLoss, weighting="ndcg2", measure="nDCG@1", truncation="all"),
        reference.lambda_loss("ndcg2", lambda y: y, 1, truncation="all"),
    ),
    Case(
        "LambdaLoss-settings",
        partial(losses.LambdaLoss, sigma=2.5, mu=3),
        reference.lambda_loss("ndcg2++", lambda y: y, None, 2.5, 3),
    ),
    Case("LambdaLoss-P@2", partial(losses.LambdaLoss, measure="P@2"), reference.lambda_precision(2)),
    Case("LambdaLoss-P(rel=3)@1", partial(losses.LambdaLoss, measure="P(rel=3)@1"), reference.lambda_precision(1, 3)),
    Case("RankNet", losses.RankNet, reference.rank_net()),
    Case("RankNet-at-3", partial(losses.RankNet, k=3, sigma=2), reference.rank_net(3, 2)),
    Case("RankNet-sum", partial(losses.RankNet, pairs="sum"), reference.rank_net(mean=False)),
    Case("RankNet-sum-at-3", partial(losses.RankNet, k=3, pairs="sum"), reference.rank_net(3, mean=False)),
    Case("PairwiseHinge", losses.PairwiseHinge, reference.pairwise_hinge()),
    Case("PairwiseHinge-margin", partial(losses.PairwiseHinge, margin=2.2), reference.pairwise_hinge(2.2)),
    Case("PairwiseSoftmax", losses.PairwiseSoftmax, reference.pairwise_softmax),
    Case("MarginMSE", losses.MarginMSE, reference.margin_mse),
    Case("KLDivergence", losses.KLDivergence, reference.kl_divergence()),
    Case("KLDivergence-temperature", partial(losses.KLDivergence, temperature=2.5), reference.kl_divergence(2.5)),
    Case("MSE", losses.MSE, reference.mse, shift=False),
    Case("RMSE", losses.RMSE, reference.rmse(), shift=False),
    Case("BCE", losses.BCE, reference.bce(), shift=False),
    Case("BCE-rel-3", partial(losses.BCE, rel=3), reference.bce(3), shift=False),
    Case("BCE-weight", partial(losses.BCE, pos_weight=7.5), reference.bce(weight=7.5), shift=False),
    Case("BCE-prior", partial(losses.BCE, prior=0.02), reference.bce(prior=0.02), shift=False),
]

MEASURES = [
    Spec("P"),
    Spec("P", 3, rel=2),
    Spec("AP"),
    Spec("AP", 3, rel=2),
    Spec("nDCG"),
    Spec("nDCG", 3, exponential=True),
    Spec("nERR"),
    Spec("nERR", 3, max_rel=4),
    Spec("RR"),
    Spec("RR", 3, rel=2),
]

INDICATORS = {
    "SmoothI": (SmoothI(), plain.smooth_i()),
    "SmoothI-steep": (SmoothI(alpha=7, delta=0.3), plain.smooth_i(7, 0.3)),
    "SmoothI-full-gradient": (SmoothI(stop_gradient=False), plain.smooth_i(stop_gradient=False)),
    "NeuralSort": (NeuralSort(), plain.neural_sort()),
    "NeuralSort-no-sinkhorn": (NeuralSort(tau=0.4, sinkhorn=0), plain.neural_sort(0.4, 0)),
    "NeuralSort-3-rounds": (NeuralSort(tau=2, sinkhorn=3, tolerance=0), plain.neural_sort(2, 3, 0)),
    "SoftSort": (SoftSort(), plain.soft_sort()),
    "SoftSort-adaptive": (SoftSort("adaptive"), plain.soft_sort(None)),
    "OptimalTransport": (OptimalTransport(), plain.transport()),
    "OptimalTransport-sharp": (OptimalTransport(0.02, 8), plain.transport(0.02, 8)),
}

RANKS = {
    "Approx": (Approx(), plain.approx(), 10.0),
    "Approx-beta": (Approx(alpha=2, beta=3), plain.approx(2), 3.0),
    **{f"TwinSigmoid-{kind}": (TwinSigmoid(kind), plain.twin_sigmoid(kind), None) for kind in (1, 2, 3)},
    "TwinSigmoid-alpha": (TwinSigmoid(alpha=3), plain.twin_sigmoid(3, 3), None),
    "FastSoftSort": (FastSoftSort(), plain.fast_soft_sort(), 10.0),
    "FastSoftSort-beta": (FastSoftSort(0.5, 4), plain.fast_soft_sort(0.5), 4.0),
}

ADAPTIVE = {
    "Approx-adaptive": (Approx("adaptive"), plain.approx(None), 0.0),
    **{
        f"TwinSigmoid-{kind}-adaptive": (TwinSigmoid(kind, "adaptive"), plain.twin_sigmoid(kind, None), None)
        for kind in (1, 3)
    },
    "FastSoftSort-adaptive": (FastSoftSort("adaptive"), plain.fast_soft_sort(None), 0.0),
}
"""In their gradients the spread of the scores and the place of the cut count as constants."""


def grid() -> Iterator[Case]:
    """Yield every measure × every relaxation."""
    for spec in MEASURES:
        for name, (relaxation, indicators) in INDICATORS.items():
            make = partial(losses.DirectMetric, str(spec), relaxation)
            definition = plain.one_minus(spec, indicators=indicators, gain_of=relaxation.gain_of)
            yield Case(f"{spec}-{name}", make, definition, atol=2e-6 if name == "NeuralSort" else 1e-9)
        for name, (relaxation, soft, beta) in RANKS.items():
            make = partial(losses.DirectMetric, str(spec), relaxation)
            shift = 0.0 if name in ("Approx", "Approx-beta") else 0.5
            yield Case(f"{spec}-{name}", make, plain.one_minus(spec, soft=soft, beta=beta, shift=shift))
        for name, (relaxation, soft, beta) in ADAPTIVE.items():
            make = partial(losses.DirectMetric, str(spec), relaxation)
            yield Case(f"{spec}-{name}", make, plain.one_minus(spec, soft=soft, beta=beta, scores=True))
        if spec.name == "nDCG":
            make = partial(losses.DirectMetric, str(spec), NeuralSort(transposed=True))
            yield Case(f"{spec}-NeuralSort-transposed", make, plain.neural_sort_transposed(spec), atol=2e-6)


GRID = [*grid()]
CASES = [*SURROGATES, *GRID]
