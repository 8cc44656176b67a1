"""Where a metric as an objective can pay: the chosen direct metric against the other chosen loss, by condition."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pandas as pd

from scripts.evidence.kept import study
from scripts.evidence.statistics import Found, difference, holm, mean, plain, probability, table

MARGIN = 0.005
DIRECT = ("TwinSigmoid", "SmoothI", "Approx", "NeuralSort")
OTHER = ("SoftmaxCE", "ListNet", "RankNet", "LambdaLoss")
RELATIVE = DIRECT + OTHER
POINTWISE = ("BCE", "MSE")
LADDER = "TwinSigmoid spread"
"""What `rerank auto` trains networks of features by."""
CONDITIONS = {
    "linear": "linear model",
    "linear-noise": "linear model, 30 % of the grades drawn anew",
    "centre": "hidden layer",
    "noise": "hidden layer, 30 % of the grades drawn anew",
    "cut": "hidden layer, ten documents of a list",
    "quarter": "hidden layer, a quarter of the lists",
    "binary": "hidden layer, relevant or not",
    "clicks": "hidden layer, clicks of five sessions",
    "ohsumed-linear": "OHSUMED, linear model",
    "ohsumed-linear-noise": "OHSUMED, linear model, 30 % of the grades drawn anew",
    "ohsumed-noise": "OHSUMED, hidden layer, 30 % of the grades drawn anew",
    "made-linear": "made lists, linear model",
    "made-linear-noise": "made lists, linear model, 30 % of the grades drawn anew",
    "made": "made lists, hidden layer",
    "made-noise": "made lists, hidden layer, 30 % of the grades drawn anew",
}
BASES = {
    "linear-noise": "linear",
    "centre": "linear",
    **dict.fromkeys(("noise", "cut", "quarter", "binary", "clicks"), "centre"),
    "ohsumed-linear-noise": "ohsumed-linear",
    "made-linear-noise": "made-linear",
    "made": "made-linear",
    "made-noise": "made",
}
"""What a condition changes by one factor."""


def conditions(losses: tuple[str, ...] = RELATIVE) -> list[str]:
    """Those of which all of these losses are there."""
    there = study("where").groupby("condition").loss.agg(set)
    return [name for name in CONDITIONS if {*losses} <= there.get(name, set())]


@functools.cache
def values(condition: str, loss: str) -> pd.DataFrame:
    """nDCG@10 ``[fold and query, seed]``."""
    of = study("where")
    of = of[(of.condition == condition) & (of.loss == loss)].set_index(["fold", "query"])
    return of.filter(regex=r"^\d+$").rename(columns=int)


def chosen(condition: str, losses: tuple[str, ...]) -> str:
    """The loss that validation likes best."""
    of = study("where")
    return str(of[of.condition == condition].groupby("loss").validation.first()[list(losses)].idxmax())


def against(condition: str, one: tuple[str, ...], other: tuple[str, ...]) -> Found:
    """The chosen of some losses against the chosen of others."""
    return difference(*(values(condition, chosen(condition, losses)) for losses in (one, other)))


def primary(condition: str) -> Found:
    return against(condition, DIRECT, OTHER)


def _compared(
    one: tuple[str, ...], other: tuple[str, ...], columns: list[str], adjusted: bool = False
) -> Iterator[list[object]]:
    """A row per condition that has them; a loss is named where its column is not."""
    gaps = {name: against(name, one, other) for name in conditions(one + other)}
    yield ["condition", *columns, "difference, 95 %", *["p (Holm)"] * adjusted, "finds", "within .005"]
    for (name, gap), p in zip(gaps.items(), holm([gap.p for gap in gaps.values()]), strict=True):
        shown = [probability(p)] * adjusted
        losses = {loss: mean(values(name, loss)) for loss in (chosen(name, one), chosen(name, other))}
        means = [of if loss in columns else f"{loss} {of}" for loss, of in losses.items()]
        yield [CONDITIONS[name], *means, gap, *shown, plain(gap.finds(), 3), gap.verdict(MARGIN)]


@table("where")
def where_primary() -> Iterator[list[object]]:
    return _compared(DIRECT, OTHER, ["direct metric", "other loss"], adjusted=True)


@table("where-losses")
def where_losses() -> Iterator[list[object]]:
    yield ["", *RELATIVE]
    for name in conditions():
        means = [values(name, loss).to_numpy().mean() for loss in RELATIVE]
        yield [CONDITIONS[name], *(f"**{plain(m)}**" if m == max(means) else plain(m) for m in means)]


@table("where-pointwise")
def where_pointwise() -> Iterator[list[object]]:
    return _compared(RELATIVE, POINTWISE, ["relative", "pointwise"])


@table("where-ladder")
def where_ladder() -> Iterator[list[object]]:
    return _compared((LADDER,), ("LambdaLoss",), [LADDER, "LambdaLoss"])


@table("where-cost")
def where_cost() -> Iterator[list[object]]:
    spent = study("where").drop_duplicates(["condition", "loss"])
    yield ["condition", "networks", "CPU seconds"]
    for name in conditions():
        of = spent[spent.condition == name]
        networks = sum(80 if loss == LADDER else 140 for loss in of.loss)  # points x seeds x folds, and ten seeds
        yield [CONDITIONS[name], networks, f"{of.seconds.sum():.0f}"]


@table("where-between")
def where_between() -> Iterator[list[object]]:
    """How much the primary difference changes with one factor."""
    yield ["the difference of", "less that of", "change, 95 %"]
    gaps = {name: values(name, chosen(name, DIRECT)) - values(name, chosen(name, OTHER)) for name in conditions()}
    for name, base in BASES.items():
        if {name, base} <= gaps.keys():
            yield [CONDITIONS[name], CONDITIONS[base], difference(gaps[name], gaps[base])]
