"""Where a metric as an objective can pay: the chosen direct metric against the other chosen loss, by condition."""

from __future__ import annotations

import functools

import pandas as pd

from scripts.evidence.kept import KEPT
from scripts.evidence.statistics import Found, difference, plain, rows

MARGIN = 0.005
DIRECT = ("TwinSigmoid", "SmoothI", "Approx", "NeuralSort")
OTHER = ("SoftmaxCE", "ListNet", "RankNet", "LambdaLoss")
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


def conditions(losses: tuple[str, ...] = DIRECT + OTHER) -> list[str]:
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


def primary(condition: str) -> Found:
    return difference(*(values(condition, chosen(condition, losses)) for losses in (DIRECT, OTHER)))


def holm() -> dict[str, float]:
    """Corrected p of the primary comparisons."""
    p = {name: primary(name).p for name in conditions()}
    corrected, least = {}, 0.0
    for number, name in enumerate(sorted(p, key=p.__getitem__)):
        least = max(least, min(1.0, p[name] * (len(p) - number)))
        corrected[name] = least
    return corrected


def where_primary() -> str:
    body = []
    for name in conditions():
        one, both = primary(name), [chosen(name, losses) for losses in (DIRECT, OTHER)]
        means = [plain(float(values(name, loss).to_numpy().mean())) for loss in both]
        p = holm()[name]
        cells = [f"{loss} {mean}" for loss, mean in zip(both, means, strict=True)]
        shown = "< .0001" if p < 0.0001 else f"{p:.4f}".removeprefix("0")
        verdict = one.verdict(MARGIN)
        body.append([CONDITIONS[name], *cells, str(one), shown, plain(one.finds(), 3), verdict])
    head = ["condition", "direct metric", "other loss", "difference, 95 %", "p (Holm)", "finds", "within .005"]
    return rows(head, body)


def where_losses() -> str:
    body = []
    for name in conditions():
        means = [float(values(name, loss).to_numpy().mean()) for loss in DIRECT + OTHER]
        body.append([CONDITIONS[name], *(f"**{plain(m)}**" if m == max(means) else plain(m) for m in means)])
    return rows(["", *DIRECT, *OTHER], body)


def against_pointwise(condition: str) -> Found:
    return difference(*(values(condition, chosen(condition, losses)) for losses in (DIRECT + OTHER, POINTWISE)))


def against_lambda(condition: str) -> Found:
    return difference(values(condition, LADDER), values(condition, "LambdaLoss"))


def where_pointwise() -> str:
    """The relative loss that validation likes best against the pointwise one that it likes best."""
    body = []
    for name in conditions(POINTWISE):
        both = [chosen(name, losses) for losses in (DIRECT + OTHER, POINTWISE)]
        found = against_pointwise(name)
        cells = [f"{loss} {plain(float(values(name, loss).to_numpy().mean()))}" for loss in both]
        body.append([CONDITIONS[name], *cells, str(found), plain(found.finds(), 3), found.verdict(MARGIN)])
    return rows(["condition", "relative", "pointwise", "difference, 95 %", "finds", "within .005"], body)


def where_ladder() -> str:
    """Twin-sigmoid as the ladder has it against LambdaLoss."""
    body = []
    for name in conditions((LADDER,)):
        found = against_lambda(name)
        means = [plain(float(values(name, loss).to_numpy().mean())) for loss in (LADDER, "LambdaLoss")]
        body.append([CONDITIONS[name], *means, str(found), plain(found.finds(), 3), found.verdict(MARGIN)])
    return rows(["condition", LADDER, "LambdaLoss", "difference, 95 %", "finds", "within .005"], body)


def where_cost() -> str:
    spent = where().drop_duplicates(["condition", "loss"])
    body = []
    for name in conditions():
        of = spent[spent.condition == name]
        networks = sum(80 if loss == LADDER else 140 for loss in of.loss)  # points x seeds x folds, and ten seeds
        body.append([CONDITIONS[name], str(networks), f"{of.seconds.sum():.0f}"])
    return rows(["condition", "networks", "CPU seconds"], body)


def where_between() -> str:
    """How much the primary difference changes with one factor."""
    gaps = {}
    for name in conditions():
        direct, other = (values(name, chosen(name, losses)) for losses in (DIRECT, OTHER))
        gaps[name] = direct - other
    first = {"linear-noise": "linear", "centre": "linear", "ohsumed-linear-noise": "ohsumed-linear"}
    pairs = [(name, first.get(name, "centre")) for name in gaps if name in first or name in ALIKE]
    body = [
        [CONDITIONS[name], CONDITIONS[of], str(difference(gaps[name], gaps[of]))] for name, of in pairs if of in gaps
    ]
    return rows(["the difference of", "less that of", "change, 95 %"], body)
