"""Sentences with numbers, and the rows that bear them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import NamedTuple

from scripts.evidence.averages import gain as gain_by_averaging
from scripts.evidence.averages import gain_of_all
from scripts.evidence.documents import MIXES, against_fresh, gain
from scripts.evidence.fusion import UNTRAINED, fusion, fusion_pooled
from scripts.evidence.kept import FIRST, MIXED, claims_of_scifact, kept, ranked
from scripts.evidence.losses import OTHER, SIX, losses, mixing_counts, seed_deviation
from scripts.evidence.others import TEACHERS, against_fusion, rankings_of_scifact, taught
from scripts.evidence.pointwise import (
    after_three,
    against_bce,
    against_mse,
    against_prior,
    by_passes,
    by_prior,
    direct,
    documents_or_fresh,
    more_from_documents,
    nfcorpus,
    nfcorpus_gap,
)
from scripts.evidence.statistics import difference, mean, of_queries, plain, pooled, signed, table
from scripts.evidence.where import LADDER, POINTWISE, RELATIVE, against, primary


class Claim(NamedTuple):
    """Words with numbers on a page, and the rows that bear them."""

    page: str
    text: str
    rows: str


@functools.cache
def claims() -> list[Claim]:
    """What README and docs/evidence.md say in their sentences."""
    counts = mixing_counts()
    fused = [fusion(name, 0).mean for name in UNTRAINED]
    alone = [losses(name) for name in SIX]
    spread = [one.mean for one in alone]
    means = kept("scifact").table(OTHER).mean()
    short, hybrid = kept("lengths").table("LambdaLoss, 8"), kept("hybrid-nfcorpus")
    gains = [difference(hybrid.table(f"{OTHER} from both{mixed}"), hybrid.table(FIRST)) for mixed in ("", MIXED)]
    settled = seed_deviation("", ("nfcorpus", "dl", "cisi", "vaswani"))
    mixed = seed_deviation(MIXED, ("scifact", "nfcorpus", "cisi", "vaswani"))
    finds = [taught(method).finds() for method in TEACHERS]
    unseen = {loss: str(after_three(loss, MIXES[-1], False)) for loss in ("TwinSigmoid", "SoftmaxCE")}
    texts: dict[str, list[str]] = {
        "where.tsv.xz: relative − pointwise, each chosen on validation; TwinSigmoid spread − LambdaLoss": [
            f"gains {against('linear', RELATIVE, POINTWISE)} with clean grades",
            f"and {against('linear-noise', RELATIVE, POINTWISE)} with noisy ones",
            f"it was worse than LambdaLoss, {against('centre', (LADDER,), ('LambdaLoss',))} with a hidden layer",
        ],
        "averages.tsv.xz: average − one, hidden layer: the loss that validation chose; the mean of the eight": [
            f"less one, are {gain_by_averaging('centre')}",
            f"Over all eight losses it is {gain_of_all('centre')}",
        ],
        "pointwise.tsv.xz: SoftmaxCE − BCE, alone": [
            f"by {against_bce('SoftmaxCE', 'alone')} alone in one pass",
            f"{against_bce('SoftmaxCE', 'alone', 3)} in three",
            f"and then in halves by {against_bce('SoftmaxCE', '+ BM25', 3)}, undecided",
        ],
        "pointwise.tsv.xz: SoftmaxCE − MSE, alone": [
            f"differs from MSE by {against_mse('SoftmaxCE', 'alone')} alone",
        ],
        "documents.tsv.xz, pointwise.tsv.xz: TwinSigmoid − MSE, alone and with BM25": [
            f"twin-sigmoid by {against_mse('TwinSigmoid', 'alone')} ({against_mse('TwinSigmoid', 'alone', 2)} with a "
            f"second seed), and by {against_mse('TwinSigmoid', '+ BM25')} in halves with BM25",
        ],
        "pointwise.tsv.xz: BCE-prior − BCE; SoftmaxCE − BCE-prior": [
            f"is better by {by_prior('alone')} alone",
            f"in halves softmax cross-entropy differs from it by {against_prior('+ BM25')}",
        ],
        "pointwise.tsv.xz: TwinSigmoid and SoftmaxCE, three passes − one; three passes − BM25 + cosines": [
            f"twin-sigmoid gains {by_passes('TwinSigmoid', MIXES[-1])} mixed",
            f"softmax cross-entropy {by_passes('SoftmaxCE', '+ BM25')} in halves with BM25",
            f"on the others by {unseen['TwinSigmoid']} and {unseen['SoftmaxCE']}",
        ],
        "documents-passes.tsv.xz: three passes − one from documents; − pointwise.tsv.xz: TwinSigmoid, three passes": [
            f"gain {more_from_documents(MIXES[-1])}, but are behind three from a fresh head by "
            f"{plain(-documents_or_fresh(MIXES[-1]).mean)}",
        ],
        "pointwise-nfcorpus.tsv.xz: SoftmaxCE alone; TwinSigmoid − SoftmaxCE and − MSE, + BM25": [
            f"({mean(nfcorpus('SoftmaxCE', 'alone'), 3)} alone, where BM25 has {mean(nfcorpus('', 'BM25'), 3)})",
            f"behind softmax cross-entropy by {plain(-direct('NFCorpus', '+ BM25').mean)} and "
            f"behind MSE by {plain(-nfcorpus_gap('TwinSigmoid', 'MSE', '+ BM25').mean)}",
        ],
        "documents.tsv.xz: start documents less what nothing trained": [
            f"from the fusion that nothing trained by {gain('documents', 0, '+ BM25 + cosines')}",
        ],
        "documents.tsv.xz: start documents − start fresh, + BM25": [
            f"{against_fresh(50, '+ BM25')} with 50 judged claims, {against_fresh(200, '+ BM25')} with 200",
            f"{against_fresh(807, '+ BM25')} with all 807",
        ],
        "untrained.tsv.xz: shares .5, 0 and 1, by collection": [
            f"{fusion_pooled(0)} over five collections",
            f"from {signed(min(fused), 3)} to {signed(max(fused), 3)}",
            f"{fusion_pooled(0, True)} against BM25 and {fusion_pooled(1, True)} against the cosines",
        ],
        "configs/scifact/kept/minilm.tsv: hinge − fused": [
            f"{against_fusion('hinge')} on all 300 claims",
        ],
        "hybrid-nfcorpus: LambdaLoss from both (+ first stage) − first stage": [
            f"{gains[0]} alone and {gains[1]} mixed"
        ],
        "all kept files: rows with and without + first stage, by seed": [
            f"all {counts['fresh'].total()} training runs from a fresh head",
            f"{counts['started']['gained']} of {counts['started'].total()} that started from a first stage",
        ],
        "scifact: LambdaLoss, seeds 1, 2, 3": [", ".join(map(plain, means))],
        "nfcorpus, dl, cisi, vaswani: both losses, deviation of the seeds' means": [
            f"{plain(min(settled), 3)} to {plain(max(settled), 3)} on the other collections"
        ],
        "scifact, nfcorpus, cisi, vaswani: the same, + first stage": [
            f"{plain(min(mixed), 3)} to {plain(max(mixed), 3)} mixed"
        ],
        "the six files: TwinSigmoid − LambdaLoss": [
            f"{pooled(alone)}, or {pooled(alone, 'Paule-Mandel')} with Paule and Mandel's variance",
            f"from {signed(min(spread), 3)} to {signed(max(spread), 3)}",
            f"{losses('dl')} on DL 2019",
        ],
        "where.tsv.xz: the direct metric − the other loss, each chosen on validation": [
            f"with a hidden layer that is {primary('noise')}",
            f"{primary('made-linear-noise')} with noise",
            f"with noise by {primary('made-noise')}, and where a network learns from clicks",
        ],
        "lengths: LambdaLoss and TwinSigmoid; nfcorpus: first stage": [
            f"{mean(short, 3)} where BM25 has {mean(kept('nfcorpus').table(FIRST), 3)}"
        ],
        "configs/scifact/kept/minilm.tsv: hinge + BM25 − hinge, SmoothI + BM25 − SmoothI": [
            " and ".join(str(against_fusion(f"{name} + BM25", baseline=name)) for name in ("hinge", "SmoothI"))
        ],
        "distillation: each row − judgments, softmax CE": [
            f"{plain(min(finds), 3)} to {plain(max(finds), 3)} with 43 queries"
        ],
    }
    seen = f"{claims_of_scifact().seen.sum()} of the 300 test claims"
    said = [Claim("docs/evidence.md", text, rows) for rows, of in texts.items() for text in of]
    trained = rankings_of_scifact().columns.drop(["seen", "BM25", "fused"])
    behind = [-against_fusion(name, 0).mean for name in trained]
    far = f"are {plain(min(behind), 3)} to {plain(max(behind), 3)} nDCG@10 behind it"
    rows = "configs/scifact/kept/minilm.tsv"
    ahead = [Claim("README.md", text, f"pointwise.tsv.xz: {loss}, 3 passes") for loss, text in unseen.items()]
    rest = Claim("README.md", far, f"{rows}; hybrid-scifact: LambdaLoss")
    return [*said, Claim("README.md", seen, rows), *ahead, rest, *claims_of_how_to()]


def claims_of_how_to() -> Iterator[Claim]:
    """What pages that show how something is done say of quality."""
    exact, rounded = (ranked("arithmetic", f"rerank {name}") for name in ("fp32", "bf16"))
    without, added = (ranked("added", name) for name in ("without", "with"))
    rows = "pages.tsv.xz: arithmetic"
    words = f"{mean(rounded)} in bf16 and {mean(exact)} in float32"
    yield Claim("docs/training.md", words, rows)
    yield Claim("docs/internals/speed.md", words, rows)
    words = f"{mean(added)} on the test claims with `--add-relevant`, and {mean(without)} without"
    yield Claim("docs/lists.md", f"{words}: {of_queries(added - without)}", "pages.tsv.xz: added")


@table("claims")
def claims_table() -> Iterator[Claim]:
    yield Claim("page", "says", "from")
    yield from claims()
