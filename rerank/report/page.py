"""One HTML file of an evaluation that needs nothing outside it, with its queries."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from ir_measures import Measure

from rerank import __version__
from rerank.collections import read_qrels
from rerank.evaluation.compare import Table, judgments_of, ranking
from rerank.evaluation.measures import COUNTS, PerQuery, Qrels
from rerank.evaluation.render import Section, interval, number, sections
from rerank.evaluation.significance import LEVEL
from rerank.lists.layout import is_lists_folder
from rerank.lists.view import Lists
from rerank.report.charts import precision_recall
from rerank.retrieval.runs import Run
from rerank.storage.files import atomic_write

if TYPE_CHECKING:
    from jinja2 import Template

TOP = 10
"""Ranks shown of each run."""

ENTRIES = 10_000
"""Ranks shown in all, so that a page stays below some ten megabytes: 500 queries of two runs, 100 of ten."""

LENGTH = 600
"""Characters shown of a document; a query may have as many."""

RELEVANT = 20
"""Relevant documents told of a query below the tops, those nearest to them."""


@dataclass(frozen=True)
class Report:
    """What a page shows."""

    title: str
    tables: Sequence[Section]
    values: Mapping[str, PerQuery]  # by run; what the difference plots are drawn from
    baseline: str
    runs: Mapping[str, Run] = field(default_factory=dict)  # none: no rankings and no precision-recall curves
    qrels: Qrels | None = None
    lists: Sequence[Lists] = ()
    notes: Sequence[str] = ()


def render_page(report: Report) -> str:
    """The page.

    Text reaches it in two ways only: through the template, which escapes it, and as JSON without any character that
    means something in HTML, from which the script makes text nodes. The page's policy lets no other script run, and
    nothing be loaded.
    """
    first = next(iter(report.values.values()), None)
    curves = []
    if first is not None and report.runs and report.qrels:
        judged = {query: report.qrels[query] for query in first.queries if query in report.qrels}
        curves += [precision_recall(report.runs, judged, first.empty, rel) for rel in relevant_from(first.measures)]
    about = report.values, report.baseline, report.runs, report.qrels, report.lists
    counts_alone = first is None or all(measure.NAME in COUNTS for measure in first.measures)
    data = None if counts_alone else query_data(*about)
    style, script = _part("page.css"), _part("page.js")
    page = _template().render(
        report=report,
        version=__version__,
        curves=curves,
        data=data,
        left_out=[query for i, query in enumerate(data["queries"]) if i not in data["shown"]] if data else [],
        json=None if data is None else safe_json(data),
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    return page.encode("utf-8", "replace").decode()


def write_report(report: Report, path: str | Path) -> None:
    """Write the page, whole or not at all."""
    content = render_page(report)
    with atomic_write(path) as file:
        file.write(content)


def safe_json(data: Any) -> str:
    """JSON in ASCII, without ``<``, ``>`` and ``&``: nothing in it can end a script element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_part("page.html"))


def _part(name: str) -> str:
    return files("rerank.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A part's hash as a content security policy names it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_evaluation(comparison: Table, path: str | Path, lists: str | None = None) -> None:
    """Write the report of a comparison of run files, or of columns of a lists folder, whose texts it shows then."""
    judged = Lists.open(comparison.qrels) if is_lists_folder(Path(comparison.qrels)) else None
    qrels = read_qrels(comparison.qrels) if judged is None else judgments_of(judged)
    shown = Lists.open(lists) if lists else judged
    report = Report(
        title=f"{len(comparison.tables)} runs on {'/'.join(Path(comparison.qrels).parts[-2:])}",
        tables=comparison_tables(comparison),
        values=comparison.tables,
        baseline=comparison.baseline or next(iter(comparison.tables)),
        runs={name: ranking(form, name, qrels, judged)[0] for name, form in comparison.paths.items()},
        qrels=qrels,
        lists=[] if shown is None else [shown],
    )
    write_report(report, path)


def comparison_tables(comparison: Table) -> list[Section]:
    """The tables of a comparison, the means with each run's difference from the baseline and its interval."""
    first, *others = sections(comparison)
    rows, said = [list(row) for row in first.rows], list(first.caption)
    for name, row in zip(comparison.tables, rows, strict=True):
        for i, measure in enumerate(comparison.measures, 1):
            if found := comparison.differences.get((name, measure)):
                row[i] = row[i]._replace(below=f"{number(found.difference, '+')} {interval(found.interval)}")
    if comparison.differences:
        what = f"its {LEVEL:.0%} bootstrap interval over queries"
        said.append(f"Below a value: the difference from {comparison.baseline}, and {what}.")
    if comparison.unjudged:
        said.append("unjudged@k: share of the documents in the top k that nobody judged.")
    return [replace(first, rows=rows, caption=said), *others]


def relevant_from(measures: Sequence[Measure]) -> list[int]:
    """The lowest grades that count as relevant (``rel``) to measures that know only relevant and other documents.

    >>> from ir_measures import AP, nDCG
    >>> relevant_from([nDCG, AP(rel=2), AP]), relevant_from([nDCG])
    ([1, 2], [1])
    """
    return sorted({measure.params.get("rel", 1) for measure in measures if "rel" in measure.SUPPORTED_PARAMS} or {1})


def query_data(
    tables: Mapping[str, PerQuery], baseline: str, runs: Mapping[str, Run], qrels: Qrels | None, lists: Sequence[Lists]
) -> dict[str, Any]:
    """What the page's script reads.

    Returns:
        ``runs``, ``measures``, ``baseline``, ``relevant`` (the lowest grade that any measure holds relevant),
        ``queries`` (all ids), ``values`` ``[run][measure][query]``, ``shown``
        (by the query's position: its text and ``[document, grade, [rank in each run]]``), ``documents`` (id, text).
    """
    first = next(iter(tables.values()))
    names = list(tables)
    kept = [i for i, measure in enumerate(first.measures) if measure.NAME not in COUNTS]
    shown = choose(tables, kept, names.index(baseline)) if runs else []
    text_of = query_texts(lists, [first.queries[i] for i in shown])
    documents: dict[str, int] = {}
    relevant = relevant_from(first.measures)[0]
    ranked = [runs.get(name, {}) for name in names]
    entries: dict[int, dict[str, Any]] = {}
    for i in shown:
        query = first.queries[i]
        told = _entries(query, ranked, (qrels or {}).get(query, {}), documents, relevant)
        entries[i] = {"text": cut(text_of.get(query, "")), "entries": told}
    texts = document_texts(lists, list(documents))
    return {
        "runs": names,
        "baseline": names.index(baseline),
        "measures": [str(first.measures[i]) for i in kept],
        "queries": list(first.queries),
        "values": [[_rounded(table.values[i]) for i in kept] for table in tables.values()],
        "top": TOP,
        "relevant": relevant,
        "shown": entries,
        "documents": [[id, cut(texts.get(id, ""))] for id in documents],
        "texts": bool(texts),
    }


def choose(tables: Mapping[str, PerQuery], kept: Sequence[int], baseline: int) -> list[int]:
    """Positions of the queries whose rankings are shown: all, or those that differ most from the baseline anywhere."""
    values = np.stack([table.values[list(kept)] for table in tables.values()])  # [runs, measures, queries]
    count = max(1, ENTRIES // (TOP * len(tables)))
    if values.shape[-1] <= count or not kept:
        return list(range(min(count, values.shape[-1])))
    change = np.nan_to_num(np.abs(values - values[baseline])).max(axis=(0, 1))
    return sorted(np.argsort(-change, kind="stable")[:count].tolist())


def cut(text: str, length: int = LENGTH) -> str:
    """A text in one line, and no longer than so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def query_texts(lists: Sequence[Lists], ids: Sequence[str]) -> dict[str, str]:
    """The text of queries by id, as far as the lists have them."""
    wanted, parts = set(ids), [part for part in lists if part.store.has_text]
    known = (pair for part in parts for pair in zip(part.query_ids, part.query_texts, strict=True))
    return {id: text for id, text in known if id in wanted}


def document_texts(lists: Sequence[Lists], ids: Sequence[str]) -> dict[str, str]:
    """The text of documents by id, as far as the lists have them."""
    found: dict[str, str] = {}
    for table in {id(part.store): part.store.documents for part in lists}.values():
        if "text" in table.column_names:
            chosen = table.filter(pc.is_in(table.column("doc_id"), value_set=pa.array(ids, pa.string())))
            found |= dict(zip(chosen.column("doc_id").to_pylist(), chosen.column("text").to_pylist(), strict=True))
    return found


def _entries(
    query: str, runs: Sequence[Run], grades: Mapping[str, int], documents: dict[str, int], lowest: int
) -> list[list[Any]]:
    """``[document, grade or None, [rank in each run or None]]``: the tops, and relevant documents below them."""
    ranks = [{document.id: rank for rank, document in enumerate(run.get(query, []), 1)} for run in runs]
    tops = dict.fromkeys(document.id for run in runs for document in run.get(query, [])[:TOP])
    relevant = [id for id, grade in grades.items() if grade >= lowest and id not in tops]
    relevant.sort(key=lambda id: min(rank.get(id, math.inf) for rank in ranks))
    return [
        [documents.setdefault(id, len(documents)), grades.get(id), [rank.get(id) for rank in ranks]]
        for id in [*tops, *relevant[:RELEVANT]]
    ]


def _rounded(values: np.ndarray) -> list[float | None]:
    return [round(value, 9) if math.isfinite(value) else None for value in values.tolist()]
