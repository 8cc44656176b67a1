"""What moves the number, and by how much: the rows of docs/evidence.md, the README's, and the picture of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.evidence.averages import gain as gain_by_averaging
from scripts.evidence.averages import liked
from scripts.evidence.documents import MIXES, against_fresh, gain
from scripts.evidence.fusion import fusion_pooled, started_pooled
from scripts.evidence.kept import FIRST, MIXED, kept
from scripts.evidence.losses import DIRECT, FRESH, OTHER, SIX, STARTED, losses, mixing
from scripts.evidence.others import against_fusion, own_measure
from scripts.evidence.pointwise import (
    against_bce,
    against_mse,
    against_prior,
    by_passes,
    by_rate,
    direct,
    documents_or_fresh,
    nfcorpus_gap,
)
from scripts.evidence.statistics import MARGIN, Found, difference, plain, pooled, table
from scripts.evidence.where import DIRECT as DIRECT_LOSSES
from scripts.evidence.where import OTHER as OTHER_LOSSES
from scripts.evidence.where import chosen, primary


@dataclass(frozen=True)
class Effect:
    """What is changed, by how much nDCG@10 moves, where that was seen, in which study."""

    what: str
    found: Found
    where: str
    study: str


def as_best(name: str) -> Found:
    """Twin-sigmoid minus LambdaLoss as `best/` ranks: mixed from a fresh head, alone if training started from both."""
    return losses(name, MIXED if name in FRESH else "")


@functools.cache
def effects() -> dict[str, Effect]:
    """By a short name, in the order of the picture."""
    many, four, six = "five collections", "four collections", "six collections"
    few, claims = "then train on 46 to 135 queries", "train on 728 claims (hinge), against the fusion"
    fresh = f"train three layers from a fresh head, mix ({OTHER}), against BM25"
    alone = "train on documents alone, in halves with BM25, against BM25"
    there = "train 50 claims from there, not from a fresh head, in halves with BM25"
    mix = f"mix such a model with BM25 ({DIRECT}), against it alone"
    again, loss = f"mix what started from both ({DIRECT}), against it alone", f"another loss, {DIRECT} for {OTHER}"
    mse = "softmax CE for MSE, a fresh head, one pass, in halves with BM25"
    passes = f"three passes for one, {DIRECT}, a fresh head, mixed with BM25 and the cosines"
    linear = "a direct metric for another loss, both tuned, linear model"
    mixed = {name: difference(kept(name).table(OTHER + MIXED), kept(name).table(FIRST)) for name in FRESH}
    found = {
        "fusion": Effect("fuse BM25 and MiniLM's cosines, no training, against BM25", fusion_pooled(0), many, "fusion"),
        "cosines": Effect("the same, against the cosines alone", fusion_pooled(1), many, "fusion"),
        "few": Effect(f"{few} ({OTHER}), against that start", started_pooled(OTHER), four, "fusion"),
        "few, direct": Effect(f"{few} ({DIRECT}), against that start", started_pooled(DIRECT), four, "fusion"),
        "seen": Effect(f"{claims}: claims with a seen abstract", against_fusion("hinge", 1), "SciFact", "seen"),
        "unseen": Effect(f"{claims}: the other claims", against_fusion("hinge", 0), "SciFact", "seen"),
        **{f"trained, {name}": Effect(fresh, gap, SIX[name], "mixing") for name, gap in mixed.items()},
        **{f"mixed, {name}": Effect(mix, mixing(name, DIRECT), SIX[name], "mixing") for name in FRESH},
        "documents": Effect(alone, gain("documents", 0, "+ BM25"), "SciFact", "documents"),
        "documents, 50": Effect(there, against_fresh(50, "+ BM25"), "SciFact", "documents"),
        "mixed again": Effect(again, pooled([mixing(name, DIRECT) for name in STARTED]), four, "mixing"),
        "loss, mixed": Effect(f"{loss}: all mixed", pooled([losses(name, MIXED) for name in SIX]), six, "losses"),
        "loss, best": Effect(f"{loss}: as `best/` ranks", pooled([as_best(name) for name in SIX]), six, "losses"),
        "loss": Effect(f"{loss}: none mixed", pooled([losses(name) for name in SIX]), six, "losses"),
        "pointwise": Effect(mse, against_mse("SoftmaxCE", "+ BM25"), "SciFact", "pointwise"),
        "prior": Effect("the same for BCE with a prior of .1", against_prior("+ BM25"), "SciFact", "pointwise"),
        "BCE": Effect("for BCE without a prior", against_bce("SoftmaxCE", "+ BM25"), "SciFact", "pointwise"),
        "prior, NFCorpus": Effect(
            "for BCE with a prior, where one pass teaches hardly anything",
            nfcorpus_gap("SoftmaxCE", "BCE-prior", "+ BM25"),
            "NFCorpus",
            "pointwise",
        ),
        **{
            f"direct, {on}": Effect(f"{DIRECT} for softmax CE, so mixed", direct(on, "+ BM25"), on, "pointwise")
            for on in ("SciFact", "NFCorpus")
        },
        "passes": Effect(passes, by_passes(DIRECT, MIXES[-1]), "SciFact", "pointwise"),
        "rate": Effect("or four times the rate, one pass", by_rate(DIRECT, MIXES[-1]), "SciFact", "pointwise"),
        "documents, passes": Effect(
            "three passes from documents alone, not from a fresh head, mixed with both",
            documents_or_fresh(MIXES[-1]),
            "SciFact",
            "pointwise",
        ),
    }
    for name, what in {
        "linear": linear,
        "linear-noise": "the same, 30 % of the training grades drawn anew",
        "made-linear": "a direct metric, linear model, long lists, densely graded",
        "made": "the same with a hidden layer",
        "clicks": "a direct metric, hidden layer, trained on clicks",
    }.items():
        losses_ = " for ".join(chosen(name, kind) for kind in (DIRECT_LOSSES, OTHER_LOSSES))
        seen_on = "made lists" if name.startswith("made") else "MQ2008"
        found[name] = Effect(f"{what} ({losses_})", primary(name), seen_on, "where")
    five = f"rank by the average of five networks ({liked('centre')}), not by one, hidden layer"
    found["averages"] = Effect(five, gain_by_averaging("centre"), "MQ2008", "averages")
    for measure in ("P@5", "RR", "AP"):
        what = f"train on {measure} instead of nDCG@10, measured by {measure}"
        found[measure] = Effect(what, own_measure(measure, measure), "three collections", "measures")
    return found


@table("effects")
def effects_table() -> Iterator[list[object]]:
    yield ["what is changed", "difference in nDCG@10, 95 %", "finds", "within .01", "seen on"]
    for one in effects().values():
        where = f"[{one.where}](studies/{one.study}.md)"
        yield [one.what, one.found, plain(one.found.finds(), 3), one.found.verdict(), where]


@table("readme")
def readme_table() -> Iterator[list[object]]:
    means = kept("scifact").table(OTHER).mean()
    yield ["what you change", "what it did"]
    yield ["nothing but the seed (SciFact, three layers)", f"{plain(means.min(), 3)} to {plain(means.max(), 3)}"]
    for name, what in {
        "fusion": "fuse BM25 with MiniLM's cosines, untrained (five collections)",
        "few": "then train on 46 to 135 queries (four collections)",
        "seen": "or on 728 claims, against that fusion (SciFact): claims whose abstracts it saw",
        "unseen": "the others",
        "documents": "train on documents alone, no judgment, add BM25 in equal shares, against BM25 (SciFact)",
        "passes": f"read 807 claims three times, not once (SciFact, {DIRECT}, mixed with BM25 and the cosines)",
        "mixed, nfcorpus": "mix BM25 into a model from a fresh head (NFCorpus)",
        "loss, mixed": f"another loss, {DIRECT} for {OTHER} (six collections)",
        "linear": "a direct metric for another loss, both tuned, on features, linear model (MQ2008)",
        "linear-noise": "the same, 30 % of the training grades drawn anew",
        "made-linear": "or on made lists of 100 documents, densely graded, linear model",
        "made": "the same with a hidden layer",
        "clicks": "or for a hidden layer, trained on clicks (MQ2008)",
    }.items():
        yield [what, effects()[name].found]


def picture(path: Path) -> None:
    """All effects with their intervals."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    colours = {"better": "#009E73", "worse": "#D55E00", "equivalent": "#0072B2", "undecided": "0.55"}
    shown = list(effects().values())
    height = 0.3 * len(shown) + 0.9
    figure = Figure(figsize=(10, height))
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.47, 0.75 / height, 0.39, 1 - 0.8 / height))
    across = axes.get_yaxis_transform()
    for place, one in enumerate(shown):
        low, high = one.found.mean - one.found.half, one.found.mean + one.found.half
        axes.plot([low, high], [place, place], color=colours[one.found.verdict()], linewidth=2.2, solid_capstyle="butt")
        axes.plot(one.found.mean, place, "o", color=colours[one.found.verdict()], markersize=5)
        axes.text(-0.02, place, one.what.replace("`", ""), transform=across, va="center", ha="right", fontsize=8)
        axes.text(1.02, place, one.where, transform=across, va="center", fontsize=8, color="0.3")
    axes.axvspan(-MARGIN, MARGIN, color="0.93", zorder=-1)
    axes.axvline(0, color="0.2", linewidth=0.8, zorder=0)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_yticks([])
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel(
        "difference in nDCG@10, 95 % interval; grey band: within .01\n(last three rows: in P@5, RR, AP)", fontsize=8
    )
    for place, (name, colour) in enumerate(colours.items()):
        figure.text(0.02 + 0.1 * place, 0.25 / height, f"● {name}", color=colour, fontsize=8)
    figure.savefig(path, dpi=130, metadata={"Software": None})
