"""Where a metric as an objective can pay: the chosen direct metric against the other chosen loss, by condition."""

from __future__ import annotations

import functools
import itertools

import pandas as pd

from scripts.evidence.kept import KEPT
from scripts.evidence.statistics import Found, difference, plain, rows

MARGIN = 0.005
DIRECT = ("TwinSigmoid", "SmoothI", "Approx", "NeuralSort")
OTHER = ("SoftmaxCE", "ListNet", "RankNet", "LambdaLoss")
CONDITIONS = {
    "centre": "hidden layer of 64, clean grades, whole lists",
    "linear": "linear model",
    "noise": "30 % of the grades drawn anew",
    "linear-noise": "linear model, 30 % of the grades drawn anew",
    "cut": "ten documents of a list",
    "binary": "relevant or not",
    "quarter": "a quarter of the lists",
    "clicks": "clicks of five sessions",
}


@functools.cache
def where() -> pd.DataFrame:
    """A row per condition, loss, fold and query; seeds are columns."""
    return pd.read_csv(KEPT / "where.tsv.xz", sep="\t", dtype={"query": str})


def conditions() -> list[str]:
    """Those of which every loss is there."""
    losses = where().groupby("condition").loss.nunique()
    return [name for name in CONDITIONS if losses.get(name) == len(DIRECT + OTHER)]


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


def where_cost() -> str:
    spent = where().drop_duplicates(["condition", "loss"])
    names = conditions()
    return rows(
        ["condition", "networks", "CPU seconds"],
        [
            [CONDITIONS[name], str(len(DIRECT + OTHER) * 140), f"{spent[spent.condition == name].seconds.sum():.0f}"]
            for name in names
        ],
    )


def interactions() -> dict[str, Found]:
    """How much the primary difference of a condition is above that of another, folds and queries being the same."""
    gaps = {}
    for name in conditions():
        pair = [values(name, chosen(name, losses)) for losses in (DIRECT, OTHER)]
        gaps[name] = pair[0] - pair[1]
    return {f"{a} − {b}": difference(gaps[a], gaps[b]) for a, b in itertools.combinations(gaps, 2)}
