"""Pooled experiments as a table, and as a page that starts with the forest plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from rerank.evaluation.render import Cell, interval, number, probability
from rerank.experiments.pool import Pool
from rerank.experiments.table import CORRECTED, Table
from rerank.report.page import Picture, Report, write_report
from rerank.report.tables import page_table


def pooled_table(pool: Pool) -> Table:
    """Header and rows: a pair and measure a row."""
    header = ["row", "against", "measure", "collections", "difference", "95% interval", "prediction", "I²", "p"]
    rows = []
    for one in pool.pairs:
        shown = [one.row, one.against, one.measure, str(len(one.parts))]
        if one.total is None:
            shown += ["-"] * 5
        else:
            other = "-" if np.isnan(one.total.prediction[0]) else interval(one.total.prediction)
            shown += [number(one.total.mean, "+"), interval(one.total.interval), other]
            shown += [_percent(one.total.heterogeneity), probability(one.corrected)]
        rows.append([*map(Cell, shown)])
    return header, rows


def collections_table(pool: Pool) -> Table:
    """Header and rows: a pair, measure and collection a row."""
    header = ["row", "against", "measure", "collection", "methods", "seeds", "queries", "difference", "95% interval"]
    rows = []
    for one in pool.pairs:
        for name, part in one.parts.items():
            assert part.found is not None
            shown = [one.row, one.against, one.measure, name, " − ".join(part.methods), str(part.found.seeds)]
            shown += [str(part.found.queries), number(part.found.mean, "+"), interval(part.found.interval)]
            rows.append([*map(Cell, shown)])
    return header, rows


def caption(pool: Pool) -> list[str]:
    """Sentences that say what the numbers are."""
    names = ", ".join(result.name for result in pool.results)
    sentences = [
        f"Collections: {names}.",
        "Differences of a collection: paired by query, means over seeds, bootstrap intervals over queries and seeds.",
        "Pooled: random effects (DerSimonian-Laird; Hartung-Knapp-Sidik-Jonkman interval); prediction: where the "
        "difference on another such collection would lie; I²: share of the spread between collections beyond chance.",
        f"p: {CORRECTED[pool.correction]} for {len(pool.pairs)} comparisons.",
    ]
    if any(pool.chosen.values()):
        chosen = "; ".join(
            f"{name}: {', '.join(f'{group} {method}' for group, method in found.items())}"
            for name, found in pool.chosen.items()
        )
        sentences.append(f"Best of a group: chosen by the mean validation measure of each collection ({chosen}).")
    return sentences


def write_page(pool: Pool, drawn: Mapping[str, bytes], path: str | Path) -> None:
    """Write the report: forest plots, the pooled differences, those of each collection."""
    pictures = []
    for measure, png in drawn.items():
        said = "; ".join(
            f"{one.row} minus {one.against}: {number(one.total.mean, '+')} {interval(one.total.interval)}"
            for one in pool.pairs
            if one.measure == measure and one.total is not None
        )
        pictures.append(Picture(f"Differences in {measure} over collections", png, f"Forest plot. {said}."))
    tables = [
        page_table("Pooled differences", pooled_table(pool), caption(pool)),
        page_table("Collections", collections_table(pool), ["p-values are of the pooled differences only."]),
    ]
    names = ", ".join(result.name for result in pool.results)
    write_report(Report(f"Experiments on {names}", tables, {}, "", pictures=pictures), path)


def _percent(share: float) -> str:
    return "-" if share != share else f"{share:.0%}"
