"""Report of an evaluation as one self-contained HTML file."""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rerank import __version__
from rerank.evaluation.compare import judgments_of, ranking
from rerank.evaluation.measures import COUNTS, PerQuery, Qrels
from rerank.evaluation.render import Best, Section
from rerank.evaluation.table import Table
from rerank.lists.store import is_lists_folder
from rerank.lists.view import Lists
from rerank.retrieval.runs import Run

if TYPE_CHECKING:
    from jinja2 import Template

TOP = 10
"""Ranks shown of each run."""

QUERIES = 300
"""Queries whose rankings are shown, which bounds the page to some megabytes."""

LENGTH = 600
"""Characters shown of a query or document."""

RELEVANT = 20
"""Relevant documents shown below the tops of a query."""


def render_page(
    title: str,
    sections: Sequence[Section],
    values: Mapping[str, PerQuery],
    baseline: str,
    runs: Mapping[str, Run],
    qrels: Qrels,
    lists: Lists | None = None,
) -> str:
    """Render a page: tables and, of measures of quality, differences and rankings query by query.

    Text enters it through the template, which escapes it, also in JSON. The page's security policy blocks other scripts
    and anything that would be loaded.
    """
    data = None
    if any(measure.NAME not in COUNTS for measure in values[baseline].measures):
        data = query_data(values, baseline, runs, qrels, lists)
    style, script = _part("page.css"), _part("page.js")
    page = _template().render(
        title=title,
        sections=sections,
        version=__version__,
        data=data,
        left_out=[query for i, query in enumerate(data["queries"]) if i not in data["shown"]] if data else [],
        style=style,
        script=script,
        style_hash=_hash(style),
        script_hash=_hash(script),
    )
    return page.encode("utf-8", "replace").decode()


@functools.cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.tests["best"] = lambda cell: isinstance(cell, Best)
    return environment.from_string(_part("page.html"))


def _part(name: str) -> str:
    return files("rerank.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Return a hash in the form of a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def evaluation_page(table: Table) -> str:
    """Render a comparison of run files and columns, with the texts if the judgments are those of a lists folder."""
    lists = Lists.open(table.qrels) if is_lists_folder(Path(table.qrels)) else None
    qrels = judgments_of(table.qrels if lists is None else lists)
    return render_page(
        f"{len(table.tables)} runs on {'/'.join(Path(table.qrels).parts[-2:])}",
        table.sections(),
        table.tables,
        table.baseline or next(iter(table.tables)),
        {name: ranking(form, name, qrels, lists)[0] for name, form in table.paths.items()},
        qrels,
        lists,
    )


def query_data(
    tables: Mapping[str, PerQuery], baseline: str, runs: Mapping[str, Run], qrels: Qrels, lists: Lists | None
) -> dict[str, Any]:
    """Collect the data of the page's script.

    Returns:
        ``runs``, ``measures``, ``baseline``, ``relevant`` (the lowest grade that is relevant to any measure),
        ``queries`` (all ids), ``values`` ``[run][measure][query]``, ``shown`` (by the query's position: its text and
        ``[document, grade, [rank in each run]]``), ``documents`` (id, text).
    """
    first, names = tables[baseline], list(tables)
    kept = [i for i, measure in enumerate(first.measures) if measure.NAME not in COUNTS]
    shown = most_changed(tables, kept, names.index(baseline))
    documents: dict[str, int] = {}
    relevant = min((of.params.get("rel", 1) for of in first.measures if "rel" in of.SUPPORTED_PARAMS), default=1)
    ranked = [runs[name] for name in names]
    entries: dict[int, dict[str, Any]] = {}
    for i in shown:
        query = first.queries[i]
        entries[i] = {"text": "", "entries": _entries(query, ranked, qrels.get(query, {}), documents, relevant)}
    texts: dict[str, str] = {}
    if lists is not None and lists.store.has_text:
        queries = dict(zip(lists.query_ids, lists.query_texts, strict=True))
        for i in shown:
            entries[i]["text"] = cut(queries.get(first.queries[i], ""))
        table = lists.store.documents
        table = table.filter(pc.is_in(table.column("doc_id"), value_set=pa.array(list(documents), pa.string())))
        texts = dict(zip(table.column("doc_id").to_pylist(), table.column("text").to_pylist(), strict=True))
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


def most_changed(tables: Mapping[str, PerQuery], kept: Sequence[int], baseline: int) -> list[int]:
    """Choose the queries whose rankings are shown: those that differ most from the baseline in any measure."""
    values = np.stack([table.values[list(kept)] for table in tables.values()])  # [runs, measures, queries]
    change = np.nan_to_num(np.abs(values - values[baseline])).max(axis=(0, 1))
    return sorted(np.argsort(-change, kind="stable")[:QUERIES].tolist())


def cut(text: str, length: int = LENGTH) -> str:
    """Cut a text to one line of at most ``length`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def _entries(
    query: str, runs: Sequence[Run], grades: Mapping[str, int], documents: dict[str, int], lowest: int
) -> list[list[Any]]:
    """List ``[document, grade, [rank in each run]]`` of the tops, and of relevant documents below them."""
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
