"""The tables of docs/evidence.md, of the studies, and of README."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import product

import pandas as pd

from scripts.evidence.statistics import Found, Pool, Row, difference, holm, mean, plain, pooled, probability, table
from scripts.evidence.values import FIRST, MEASURE, MIXED, features, methods_of, mixture, results, values

DIRECT, OTHER = "TwinSigmoid", "LambdaLoss"
"""Names of the saved values."""

SHOWN = {DIRECT: "adaptive twin-sigmoid", OTHER: OTHER}
"""On text, the steepness follows the spread of a list's scores, which is not Yu's formula."""

FRESH, STARTED = ("SciFact", "NFCorpus"), ("DL 2019", "Cranfield", "CISI", "Vaswani")
"""Collections on which models had a randomly initialised head, or started at BM25 and MiniLM's cosines."""

COSINES, LARGER = "MiniLM's cosines", "mpnet's cosines"
"""Methods that rank WikiQA's answers before training."""

GAINS = ("SoftmaxCE", COSINES, "SoftmaxCE, mpnet", LARGER)
"""Models trained on WikiQA with softmax cross-entropy, each followed by its encoder's cosines."""


def trained(collection: str, method: str) -> pd.DataFrame:
    return values("losses", collection=collection, method=method)


def losses(collection: str, mixed: str = "") -> Found:
    """Compare twin-sigmoid with LambdaLoss."""
    return difference(trained(collection, DIRECT + mixed), trained(collection, OTHER + mixed))


def mixing(collection: str, loss: str) -> Found:
    """Compare a model interpolated with BM25 with the model alone."""
    return difference(trained(collection, loss + MIXED), trained(collection, loss))


@table("losses")
def losses_table() -> Iterator[Row]:
    yield ["", "queries, seeds", OTHER, SHOWN[DIRECT], "difference, 95 %", "p (Holm)", "within .01"]
    for mixed, shown in ((MIXED, "interpolated"), ("", "alone")):
        gaps = {name: losses(name, mixed) for name in FRESH + STARTED}
        for (name, gap), p in zip(gaps.items(), holm([gap.p for gap in gaps.values()]), strict=True):
            other, direct = (trained(name, loss + mixed) for loss in (OTHER, DIRECT))
            queries = f"{len(direct)}, {direct.shape[1]}"
            yield [f"{name}, {shown}", queries, mean(other), mean(direct), gap, probability(p), gap.verdict()]
        yield [f"**all six, {shown}**", "", "", "", pooled([*gaps.values()]), "", pooled([*gaps.values()]).verdict()]


@table("interpolation")
def mixing_table() -> Iterator[Row]:
    yield ["", "interpolated − alone", "alone − BM25", "interpolated − BM25"]
    for name, loss in product(FRESH + STARTED, (OTHER, DIRECT)):
        gaps = [difference(trained(name, loss + mixed), trained(name, FIRST)) for mixed in ("", MIXED)]
        yield [f"{name}, {SHOWN[loss]}", mixing(name, loss), *gaps]


DEPTHS = {"DL 2019": 100, "Cranfield": 50, "CISI": 50, "Vaswani": 50, "demo": 50}
"""Candidates of a query."""


@functools.cache
def share_of_others(name: str) -> float:
    """Return the cosines' share that is best on average over the other collections."""
    means = {
        share: sum(mixture(other, share, DEPTHS[other]).to_numpy().mean() for other in DEPTHS if other != name)
        for share in (n / 20 for n in range(21))
    }
    return max(means, key=means.__getitem__)


def fusion(name: str, against: float, tuned: bool = False) -> Found:
    """Compare BM25 interpolated with the cosines with one of the two (0: BM25, 1: the cosines)."""
    share = share_of_others(name) if tuned else 0.5
    return difference(mixture(name, share, DEPTHS[name]), mixture(name, against, DEPTHS[name]))


def fusion_pooled(against: float, tuned: bool = False) -> Pool:
    return pooled([fusion(name, against, tuned) for name in DEPTHS])


@table("fusion")
def fusion_table() -> Iterator[Row]:
    gains = [f"{which} − {what}" for which, what in product(("50/50", "tuned"), ("BM25", "cosines"))]
    yield ["", "queries", "BM25", "cosines", "50/50", "tuned (share)", *gains]
    for name, depth in DEPTHS.items():
        share = share_of_others(name)
        *means, tuned = (mean(mixture(name, one, depth)) for one in (0, 1, 0.5, share))
        gaps = [fusion(name, against, which) for which, against in product((False, True), (0, 1))]
        yield [name, len(mixture(name, 0, depth)), *means, f"{tuned} ({plain(share, 2)})", *gaps]
    pools = [fusion_pooled(against, which) for which, against in product((False, True), (0, 1))]
    yield ["**pooled**", *[""] * 5, *pools]


PIPELINES = {"SciFact": "460 claims", "NFCorpus": "278 queries", "DL 2019 and 2020": "43 or 54 queries"}
"""Collections on which mpnet-base was trained, and what with."""


def mpnet(collection: str, method: str) -> pd.DataFrame:
    return values("mpnet", collection=collection, method=method)


@table("mpnet-SciFact", "SciFact")
@table("mpnet-NFCorpus", "NFCorpus")
@table("mpnet-DL", "DL 2019 and 2020")
def mpnet_table(collection: str) -> Iterator[Row]:
    """Compare rankings by mpnet-base, untrained and trained, with the untrained ones and with softmax cross-entropy."""
    others, rows = ("BM25", "cosines", "fusion"), results("mpnet")
    yield [collection, MEASURE, *(f"− {other}" for other in (*others, "softmax CE"))]
    for method in rows[rows.collection == collection].method.unique():
        of, loss = mpnet(collection, method), "softmax CE + fusion" if " + " in method else "softmax CE"
        gaps = [difference(of, mpnet(collection, base)) if base != method else "" for base in (*others, loss)]
        yield [method, mean(of), *gaps]


def started(name: str, loss: str) -> Found:
    """Compare a model with its start, BM25 and the cosines interpolated 50/50."""
    of = trained(name, loss)
    start = mixture(name, 0.5, 100 if name == "DL 2019" else 20).droplevel("fold")
    return difference(of, start.reindex(of.index.get_level_values("query")).set_axis(of.index))


RANKINGS = ("alone", "+ BM25", "+ BM25 + cosines")
BELOW = {"alone": "BM25", "+ BM25": "BM25", "+ BM25 + cosines": "BM25 + cosines"}
"""The same ranking without the trained model."""


def documents(start: str, queries: int, ranking: str, passes: int = 1) -> pd.DataFrame:
    passes = passes if start else 0
    return values("documents", start=start, claims=queries, passes=passes, ranking=ranking)


def gain(start: str, queries: int, ranking: str) -> Found:
    return difference(documents(start, queries, ranking), documents("", 0, BELOW[ranking]))


@table("documents")
def documents_table() -> Iterator[Row]:
    gaps = ("+ BM25, less BM25", "all three, less BM25 + cosines")
    yield ["training queries", "pretrained on pseudo-queries", "seeds", *RANKINGS, *gaps]
    starts = {"fresh": "no", "documents": "yes"}
    for queries, start in [(0, "documents"), *product((50, 200, 807), starts)]:
        of = [documents(start, queries, ranking) for ranking in RANKINGS]
        gains = [gain(start, queries, one) for one in RANKINGS[1:]]
        yield [queries, starts[start], of[0].shape[1], *map(mean, of), *gains]
    yield ["untrained", "", "", "", *(mean(documents("", 0, name)) for name in ("BM25", "BM25 + cosines")), "", ""]


LOSSES = {"SoftmaxCE": "softmax cross-entropy", **SHOWN, "MSE": "MSE", "BCE-prior": "BCE, prior .1", "BCE": "BCE"}
LOSSES |= {f"{of}, mpnet": f"{LOSSES.get(of, of)}, mpnet-base" for of in ("SoftmaxCE", "TwinSigmoid", "LambdaLoss")}


def pointwise(collection: str, loss: str, ranking: str, passes: int = 1, rate: int = 1) -> pd.DataFrame:
    """Return the first seed's values."""
    cells = {"collection": collection, "loss": loss, "ranking": ranking, "passes": passes, "rate": rate}
    return values("pointwise", **cells)[[1]]


def against(one: str, other: str, ranking: str, collection: str = "SciFact", passes: int = 1) -> Found:
    return difference(*(pointwise(collection, loss, ranking, passes) for loss in (one, other)))


@table("pointwise")
def pointwise_table() -> Iterator[Row]:
    yield ["", "epochs", "loss", *RANKINGS, "− MSE, + BM25", "− BCE, + BM25"]
    of = results("pointwise")
    for collection, passes in (("SciFact", 1), ("SciFact", 3), ("NFCorpus", 1)):
        there = set(of[(of.collection == collection) & (of.passes == passes) & (of.rate == 1)].loss)
        for loss in (loss for loss in LOSSES if loss in there):
            means = [mean(pointwise(collection, loss, ranking, passes)) for ranking in RANKINGS]
            others = [other if other in there and other != loss else "" for other in ("MSE", "BCE")]
            gaps = [other and against(loss, other, RANKINGS[1], collection, passes) for other in others]
            yield [collection, passes, LOSSES[loss], *means, *gaps]


FUSED = "BM25 + cosines, 50/50, untrained"


def ranked(name: str, baseline: str, **part: int) -> Found:
    """Compare two rankings of SciFact's claims: all, those whose abstracts training has seen (1), or the others (0)."""
    return difference(*(values("scifact", method=one, **part) for one in (name, baseline)))


@table("seen")
def seen_table() -> Iterator[Row]:
    parts = {"claims": {}, "seen": {"seen": 1}, "others": {"seen": 0}}
    names = [f"{len(values('scifact', method=FUSED, **part))} {name}" for name, part in parts.items()]
    yield [MEASURE, *names, "less BM25", *(f"less fusion, {name}" for name in names[1:])]
    for method in methods_of("scifact"):
        means = [mean(values("scifact", method=method, **part)) for part in parts.values()]
        gaps = ["" if method == FUSED else ranked(method, FUSED, seen=seen) for seen in (1, 0)]
        yield [method, *means, "" if method == "BM25" else ranked(method, "BM25"), *gaps]


MATRICES, TRAINED = ("MQ2008", "OHSUMED", "DL 2019"), ("P@5", "RR", "AP")


def own_measure(objective: str, measure: str) -> Pool:
    """Pool training on a measure against training on nDCG@10, in a measure."""
    return pooled(
        [
            difference(*(values("measures", measure, collection=name, method=one) for one in (objective, MEASURE)))
            for name in MATRICES
        ]
    )


@table("measures")
def measures_table() -> Iterator[Row]:
    columns = ("P@5", "RR", MEASURE, "AP")
    yield ["trained on", *columns]
    for objective in TRAINED:
        cells = {measure: own_measure(objective, measure) for measure in columns}
        yield [objective, *(f"**{cell}**" if measure == objective else cell for measure, cell in cells.items())]


DIRECT_LOSSES = (DIRECT, "SmoothI", "Approx", "NeuralSort")
OTHER_LOSSES = ("SoftmaxCE", "ListNet", "RankNet", OTHER)
CONDITIONS = {
    "linear": "linear model",
    "linear-noise": "linear model, 30 % label noise",
    "centre": "hidden layer",
    "noise": "hidden layer, 30 % label noise",
    "cut": "hidden layer, ten documents per list",
    "quarter": "hidden layer, a quarter of the lists",
    "binary": "hidden layer, binary labels",
    "clicks": "hidden layer, clicks of five sessions",
    "ohsumed-linear": "OHSUMED, linear model",
    "ohsumed-linear-noise": "OHSUMED, linear model, 30 % label noise",
    "ohsumed-noise": "OHSUMED, hidden layer, 30 % label noise",
    "made-linear": "synthetic lists, linear model",
    "made-linear-noise": "synthetic lists, linear model, 30 % label noise",
    "made": "synthetic lists, hidden layer",
    "made-noise": "synthetic lists, hidden layer, 30 % label noise",
}
SMALL = 0.005
"""The margin of the studies on features."""


@functools.cache
def chosen(condition: str, among: tuple[str, ...] = DIRECT_LOSSES + OTHER_LOSSES) -> str:
    """Return the loss with the best validation mean."""
    of = results("where")
    return str(of[of.condition == condition].groupby("loss").validation.first()[list(among)].idxmax())


def primary(condition: str) -> Found:
    """Compare the direct metric that validation chose with the other loss that it chose."""
    return difference(*(features(condition, chosen(condition, among)) for among in (DIRECT_LOSSES, OTHER_LOSSES)))


@table("where")
def where_table() -> Iterator[Row]:
    yield ["MQ2008 if not named", "metric loss", "other loss", "difference, 95 %", "p (Holm)", "within .005"]
    gaps = {name: primary(name) for name in CONDITIONS}
    for (name, gap), p in zip(gaps.items(), holm([gap.p for gap in gaps.values()]), strict=True):
        best = [chosen(name, among) for among in (DIRECT_LOSSES, OTHER_LOSSES)]
        shown = [f"{loss} {mean(features(name, loss))}" for loss in best]
        yield [CONDITIONS[name], *shown, gap, probability(p), gap.verdict(SMALL)]


def averages(condition: str, loss: str, ranks: str) -> pd.DataFrame:
    """Return the values of one network, or of five averaged."""
    return values("averages", condition=condition, loss=loss, ranks=ranks)


def gain_by_averaging(condition: str) -> Found:
    return difference(*(averages(condition, chosen(condition), ranks) for ranks in ("average", "one")))


def gain_of_all(condition: str) -> Found:
    """Return the mean gain over the eight losses."""
    losses = DIRECT_LOSSES + OTHER_LOSSES
    gaps = [averages(condition, loss, "average") - averages(condition, loss, "one") for loss in losses]
    total = sum(gaps[1:], gaps[0]) / len(losses)
    return difference(total, total * 0)


@table("averages")
def averages_table() -> Iterator[Row]:
    head = ["MQ2008 if not named", "chosen loss", "one", "five averaged", "gain, 95 %", "p (Holm)"]
    yield [*head, "mean gain of eight losses"]
    there = set(results("averages").condition)
    gains = {name: gain_by_averaging(name) for name in CONDITIONS if name in there}
    for (name, gap), p in zip(gains.items(), holm([gap.p for gap in gains.values()]), strict=True):
        means = [mean(averages(name, chosen(name), ranks)) for ranks in ("one", "average")]
        yield [CONDITIONS[name], chosen(name), *means, gap, probability(p), gain_of_all(name)]


def answers(method: str, ranking: str = "alone", measure: str = "AP") -> pd.DataFrame:
    """Return the values of WikiQA's test questions."""
    return values("wikiqa", measure, method=method, ranking=ranking)


@table("wikiqa")
def wikiqa_table() -> Iterator[Row]:
    """Compare losses with the cosines and with softmax cross-entropy, alone and interpolated with the cosines."""
    head = ["alone − cosines", "interpolated − alone", "alone − baseline", "interpolated − baseline"]
    bases = {f"{DIRECT}, mpnet": GAINS[2], f"{OTHER}, mpnet": GAINS[2], f"{SHOWN[DIRECT]}, from the cosines": DIRECT}
    yield ["AP", "dev", "alone", "interpolated", *head]
    of = results("wikiqa")
    for method, validation in of.groupby("method", sort=False).validation.mean().items():
        alone = answers(method)
        if pd.isna(validation):  # not trained
            yield [method, "", mean(alone), *[""] * 5]
            continue
        mixed = answers(method, "interpolated")
        base = bases.get(str(method), "SoftmaxCE")
        pairs = [(alone, answers(LARGER if "mpnet" in str(method) else COSINES)), (mixed, alone)]
        pairs += [(alone, answers(base)), (mixed, answers(base, "interpolated"))]
        gaps = ["" if one is other else difference(one, other) for one, other in pairs]
        yield [LOSSES.get(method, method), plain(validation), mean(alone), mean(mixed), *gaps]


def effects() -> Iterator[tuple[str, Found, str, str]]:
    """Yield what is changed, the difference, where it was seen, and the study."""
    six, few, four = "six collections", "five collections", "four collections"
    yield "interpolate BM25 with MiniLM's cosines 50/50, untrained; against BM25", fusion_pooled(0), few, "fusion"
    yield "the same, against the cosines", fusion_pooled(1), few, "fusion"
    yield "with a share tuned on the other collections, against the cosines", fusion_pooled(1, True), few, "fusion"
    for loss in (OTHER, DIRECT):
        what = f"then fine-tune on 46–135 queries ({SHOWN[loss]}), against that start"
        yield what, pooled([started(name, loss) for name in STARTED]), four, "fusion"
    yield "the same on one of the four", started("DL 2019", DIRECT), "DL 2019", "losses"
    for where, queries in PIPELINES.items():
        what, start = "interpolate BM25 with mpnet-base's cosines (share .8), against them", mpnet(where, "fusion")
        yield what, difference(start, mpnet(where, "cosines")), where, "mpnet"
        yield f"then fine-tune on {queries} (five losses)", difference(mpnet(where, "all five"), start), where, "mpnet"
    for seen, which in ((1, "test claims whose abstracts training has seen"), (0, "the other test claims")):
        what = f"fine-tune on 728 claims (hinge), against the untrained fusion: {which}"
        yield what, ranked("hinge", FUSED, seen=seen), "SciFact", "seen"
    for name in FRESH:
        what = f"interpolate a model with a randomly initialised head with BM25 ({SHOWN[DIRECT]}), against it alone"
        yield what, mixing(name, DIRECT), name, "interpolation"
    again = f"interpolate once more a model that started from BM25 and the cosines ({SHOWN[DIRECT]})"
    yield again, pooled([mixing(name, DIRECT) for name in STARTED]), four, "interpolation"
    what = "fine-tune MiniLM on 873 questions (softmax cross-entropy), against its cosines"
    smaller, cosines, larger, start = (answers(name, measure=MEASURE) for name in GAINS)
    yield what, difference(smaller, cosines), "WikiQA", "wikiqa"
    yield "the same with mpnet-base, against its cosines", difference(larger, start), "WikiQA", "wikiqa"
    gains = larger.sub(start[0], axis=0), smaller.sub(cosines[0], axis=0)
    yield "the gain with mpnet-base, less the gain with MiniLM (seed 1)", difference(*gains), "WikiQA", "wikiqa"
    for loss in (DIRECT, OTHER):
        gap = difference(answers(loss, measure=MEASURE), smaller)
        yield f"{SHOWN[loss]} instead of softmax cross-entropy, alone", gap, "WikiQA", "wikiqa"
    what = "train on pseudo-queries only, interpolate 50/50 with BM25; against BM25"
    yield what, gain("documents", 0, "+ BM25"), "SciFact", "documents"
    for queries in (50, 807):
        what = f"pretrain on pseudo-queries before {queries} claims, 50/50 with BM25"
        pair = [documents(start, queries, "+ BM25") for start in ("documents", "fresh")]
        yield what, difference(*pair), "SciFact", "documents"
    what = f"{SHOWN[DIRECT]} instead of {OTHER}"
    yield f"{what}: interpolated", pooled([losses(name, MIXED) for name in FRESH + STARTED]), six, "losses"
    yield f"{what}: alone", pooled([losses(name) for name in FRESH + STARTED]), six, "losses"
    for other, shown in (("MSE", "MSE"), ("BCE-prior", "BCE with a prior"), ("BCE", "BCE without a prior")):
        what = f"softmax cross-entropy instead of {shown}, one epoch, 50/50 with BM25"
        yield what, against("SoftmaxCE", other, "+ BM25"), "SciFact", "pointwise"
    for name in FRESH:
        what = f"{SHOWN[DIRECT]} instead of softmax cross-entropy, 50/50 with BM25"
        yield what, against(DIRECT, "SoftmaxCE", "+ BM25", name), name, "pointwise"
    longer = difference(pointwise("SciFact", DIRECT, RANKINGS[-1], 3), pointwise("SciFact", DIRECT, RANKINGS[-1]))
    yield f"three epochs instead of one ({SHOWN[DIRECT]}), with BM25 and the cosines", longer, "SciFact", "pointwise"
    for condition, what in {
        "linear": "a metric loss instead of another loss, both tuned, linear model",
        "linear-noise": "the same with 30 % label noise",
        "made-linear": "on long, densely labelled synthetic lists, linear model",
        "made": "the same with a hidden layer",
        "clicks": "with a hidden layer, trained on clicks",
    }.items():
        pair = " instead of ".join(chosen(condition, kind) for kind in (DIRECT_LOSSES, OTHER_LOSSES))
        on = "synthetic lists" if condition.startswith("made") else "MQ2008"
        yield f"{what} ({pair})", primary(condition), on, "where"
    what = "rank by the average of five networks instead of one"
    yield f"{what}: the chosen loss", gain_by_averaging("centre"), "MQ2008", "averages"
    yield f"{what}: mean of eight losses", gain_of_all("centre"), "MQ2008", "averages"
    for measure in ("P@5", "RR", "AP"):
        what = f"train on {measure} instead of nDCG@10, measured by {measure}"
        yield what, own_measure(measure, measure), "three collections", "measures"


@table("effects")
def effects_table() -> Iterator[Row]:
    yield ["what is changed", "difference in nDCG@10, 95 %", "within .01", "seen on"]
    for what, found, where, study in effects():
        yield [what, found, found.verdict(), f"[{where}](studies/{study}.md)"]


TUNED = {"softmax CE": "SoftmaxCE", OTHER: OTHER, "SmoothI": "SmoothI", DIRECT: DIRECT}
"""Losses by their names on WikiQA."""


@table("results")
def results_table() -> Iterator[Row]:
    """Rank collections before and after training."""
    rows, there = {}, methods_of("wikiqa")
    starts = {"[WikiQA](docs/studies/wikiqa.md)": (COSINES, ""), "WikiQA, mpnet-base": (LARGER, ", mpnet")}
    for where, (start, ending) in starts.items():
        names = {"untrained": start} | {name: of + ending for name, of in TUNED.items() if of + ending in there}
        rows[where] = {name: answers(of, measure=MEASURE) for name, of in names.items()}
    larger = {"BM25": "BM25", "untrained": "fusion"} | {name: SHOWN.get(name, name) for name in TUNED}
    for where in PIPELINES:
        rows[f"{where.replace(' and ', '/')}, mpnet-base"] = {name: mpnet(where, larger[name]) for name in larger}
    yield ["collection", *(SHOWN.get(head, head) for head in larger)]
    for where, of in rows.items():
        yield [where, *(mean(of[head]) if head in of else "" for head in larger)]
