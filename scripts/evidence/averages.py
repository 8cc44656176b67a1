"""What averages of trainings are worth on features, next to the choice of a loss."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from scripts.evidence.kept import study, study_values
from scripts.evidence.statistics import Found, difference, holm, mean, plain, probability, signed, table
from scripts.evidence.where import CONDITIONS, MARGIN, RELATIVE, chosen

EACH = "one of each"
"""Eight networks that are averaged, one of each loss, in place of five of one."""


def values(condition: str, loss: str, ranks: str) -> pd.DataFrame:
    """nDCG@10 ``[fold and query, group of seeds]`` of one network, or of the average."""
    return study_values("averages", condition=condition, loss=loss, ranks=ranks)


def liked(condition: str) -> str:
    """The loss that validation likes best."""
    return chosen(condition, RELATIVE)


def gain(condition: str, loss: str = "") -> Found:
    """Five networks averaged, of a loss or of the one that validation likes best, less one of them."""
    return difference(*(values(condition, loss or liked(condition), ranks) for ranks in ("average", "one")))


def choice(condition: str) -> pd.DataFrame:
    """What validation gains by choosing the loss: its choice less the mean of the eight, each by one network."""
    return values(condition, liked(condition), "one") - values(condition, EACH, "one")


def gaps(condition: str, loss: str) -> pd.DataFrame:
    return values(condition, loss, "average") - values(condition, loss, "one")


def gain_of_all(condition: str) -> Found:
    """Five networks of a loss averaged, less one of them: the mean over the eight losses."""
    total = sum((gaps(condition, loss) for loss in RELATIVE[1:]), gaps(condition, RELATIVE[0])) / len(RELATIVE)
    return difference(total, total * 0)


def conditions() -> list[str]:
    there = set(study("averages").condition)
    return [name for name in CONDITIONS if name in there]


@table("averages")
def averages() -> Iterator[list[object]]:
    yield ["condition", "loss", "one", "five averaged", "gain, 95 %", "p (Holm)", "finds", "within .005"]
    gains = {name: gain(name) for name in conditions()}
    for (name, found), p in zip(gains.items(), holm([found.p for found in gains.values()]), strict=True):
        means = [mean(values(name, liked(name), ranks)) for ranks in ("one", "average")]
        finds, verdict = plain(found.finds(), 3), found.verdict(MARGIN)
        yield [CONDITIONS[name], liked(name), *means, found, probability(p), finds, verdict]


@table("averages-choice")
def averages_choice() -> Iterator[list[object]]:
    """Averaging next to choosing, and one of each loss in place of five of one."""
    average = "one of each loss, averaged", "less five of the chosen"
    yield ["condition", "choosing the loss", "averaging less choosing", *average]
    for name in conditions():
        one, five = (values(name, liked(name), ranks) for ranks in ("one", "average"))
        eight = values(name, EACH, "average")
        by_choice = choice(name)
        zero = by_choice * 0
        row = difference(by_choice, zero), difference(five - one, by_choice), mean(eight), difference(eight, five)
        yield [CONDITIONS[name], *row]


@table("averages-losses")
def averages_losses() -> Iterator[list[object]]:
    """The gain of every loss, and their mean."""
    yield ["", *RELATIVE, "their mean, 95 %"]
    for name in conditions():
        yield [CONDITIONS[name], *(signed(gain(name, loss).mean) for loss in RELATIVE), gain_of_all(name)]
