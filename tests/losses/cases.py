"""Every loss that the properties are checked on."""

from __future__ import annotations

from functools import partial

from rerank import losses
from tests.losses import reference
from tests.losses.properties import Case

SURROGATES = [
    Case("ListNet", losses.ListNet, reference.list_net()),
    Case("ListNet-temperature", partial(losses.ListNet, temperature=0.3), reference.list_net(0.3)),
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
    Case(
        "LambdaLoss-settings",
        partial(losses.LambdaLoss, sigma=2.5, mu=3),
        reference.lambda_loss("ndcg2++", lambda y: y, None, 2.5, 3),
    ),
    Case("LambdaLoss-P@2", partial(losses.LambdaLoss, measure="P@2"), reference.lambda_precision(2)),
    Case("LambdaLoss-P(rel=3)@1", partial(losses.LambdaLoss, measure="P(rel=3)@1"), reference.lambda_precision(1, 3)),
    Case("RankNet", losses.RankNet, reference.rank_net()),
    Case("RankNet-at-3", partial(losses.RankNet, k=3, sigma=2), reference.rank_net(3, 2)),
    Case("PairwiseHinge", losses.PairwiseHinge, reference.pairwise_hinge()),
    Case("PairwiseHinge-margin", partial(losses.PairwiseHinge, margin=2.2), reference.pairwise_hinge(2.2)),
    Case("PairwiseSoftmax", losses.PairwiseSoftmax, reference.pairwise_softmax),
    Case("MSE", losses.MSE, reference.mse, shift=False),
    Case("RMSE", losses.RMSE, reference.rmse(), shift=False),
    Case("BCE", losses.BCE, reference.bce(), shift=False),
    Case("BCE-rel-3", partial(losses.BCE, rel=3), reference.bce(3), shift=False),
]

CASES = [*SURROGATES]
