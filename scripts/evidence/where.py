"""Where a metric as an objective can pay: the chosen direct metric against the other chosen loss, by condition."""

from __future__ import annotations

import functools

import pandas as pd

from scripts.evidence.kept import KEPT
from scripts.evidence.statistics import Found, difference, holm, mean, plain, rows

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
}
ALIKE = ("noise", "cut", "quarter", "binary", "clicks")
"""Conditions that change one factor of `centre`."""


@functools.cache
def where() -> pd.DataFrame:
    """A row per condition, loss, fold and query; seeds are columns."""
    return pd.read_csv(KEPT / "where.tsv.xz", sep="\t", dtype={"query": str})


def conditions(losses: tuple[str, ...] = RELATIVE) -> list[str]:
    """Those of which all of these losses are there."""
    there = where().groupby("condition").loss.agg(set)
    return [name for name in CONDITIONS if {*losses} <= there.get(name, set())]


@functools.cache
def values(condition: str, loss: str) -> pd.DataFrame:
    """nDCG@10 ``[fold and query, seed]``."""
    table = where()[(where().condition == condition) & (where().loss == loss)].set_index(["fold", "query"])
    seeds = [name for name in table if name.isdigit()]
    return table[seeds].set_axis([int(name) for name in seeds], axis=1)


def chosen(condition: str, losses: tuple[str, ...]) -> str:
    """The loss that validation likes best."""
    table = where()[where().condition == condition].groupby("loss").validation.first()
    return str(table[list(losses)].idxmax())


def against(condition: str, one: tuple[str, ...], other: tuple[str, ...]) -> Found:
    """The chosen of some losses against the chosen of others."""
    return difference(*(values(condition, chosen(condition, losses)) for losses in (one, other)))


def primary(condition: str) -> Found:
    return against(condition, DIRECT, OTHER)


def _compared(one: tuple[str, ...], other: tuple[str, ...], columns: list[str], adjusted: bool = False) -> str:
    """A row per condition that has them; a loss is named where it was chosen."""
    found = {name: against(name, one, other) for name in conditions(one + other)}
    p = [[f"{p:.4f}".removeprefix("0") if p >= 0.0001 else "< .0001"] for p in holm([gap.p for gap in found.values()])]
    body = []
    for (name, gap), chance in zip(found.items(), p, strict=True):
        cells = []
        for losses in (one, other):
            loss = chosen(name, losses)
            cells.append(f"{loss} {mean(values(name, loss))}" if len(one) > 1 else mean(values(name, loss)))
        body.append([CONDITIONS[name], *cells, gap, *chance * adjusted, plain(gap.finds(), 3), gap.verdict(MARGIN)])
    p_head = ["p (Holm)"] * adjusted
    return rows(["condition", *columns, "difference, 95 %", *p_head, "finds", "within .005"], body)


def where_primary() -> str:
    return _compared(DIRECT, OTHER, ["direct metric", "other loss"], adjusted=True)


def where_losses() -> str:
    body = []
    for name in conditions():
        means = [float(values(name, loss).to_numpy().mean()) for loss in RELATIVE]
        body.append([CONDITIONS[name], *(f"**{plain(m)}**" if m == max(means) else plain(m) for m in means)])
    return rows(["", *DIRECT, *OTHER], body)


def where_pointwise() -> str:
    """The relative loss that validation likes best against the pointwise one that it likes best."""
    return _compared(RELATIVE, POINTWISE, ["relative", "pointwise"])


def where_ladder() -> str:
    """Twin-sigmoid as the ladder has it against LambdaLoss."""
    return _compared((LADDER,), ("LambdaLoss",), [LADDER, "LambdaLoss"])


def where_cost() -> str:
    spent = where().drop_duplicates(["condition", "loss"])
    body = []
    for name in conditions():
        of = spent[spent.condition == name]
        networks = sum(80 if loss == LADDER else 140 for loss in of.loss)  # points x seeds x folds, and ten seeds
        body.append([CONDITIONS[name], networks, f"{of.seconds.sum():.0f}"])
    return rows(["condition", "networks", "CPU seconds"], body)


def where_between() -> str:
    """How much the primary difference changes with one factor."""
    gaps = {}
    for name in conditions():
        gaps[name] = values(name, chosen(name, DIRECT)) - values(name, chosen(name, OTHER))
    first = {"linear-noise": "linear", "centre": "linear", "ohsumed-linear-noise": "ohsumed-linear"}
    pairs = [(name, first.get(name, "centre")) for name in gaps if name in first or name in ALIKE]
    body = [[CONDITIONS[name], CONDITIONS[of], difference(gaps[name], gaps[of])] for name, of in pairs if of in gaps]
    return rows(["the difference of", "less that of", "change, 95 %"], body)
