"""One HTML file that needs nothing outside it."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank import __version__
from rerank.errors import UserError
from rerank.evaluation.measures import PerQuery, Qrels
from rerank.evaluation.render import Section
from rerank.lists.view import Lists
from rerank.report.charts import Bars, precision_recall
from rerank.report.queries import query_data, relevant_from
from rerank.retrieval.runs import Run
from rerank.storage.locks import written

if TYPE_CHECKING:
    from jinja2 import Template


@dataclass(frozen=True)
class Report:
    """What a page shows.

    Attributes:
        values: values per query, by run; what the difference plots are drawn from.
        runs: rankings by run, under the same names; without them there are no rankings and no precision-recall curves.
    """

    title: str
    tables: Sequence[Section]
    values: Mapping[str, PerQuery]
    baseline: str
    runs: Mapping[str, Run] = field(default_factory=dict)
    qrels: Qrels | None = None
    lists: Sequence[Lists] = ()
    notes: Sequence[str] = ()
    bars: Bars | None = None


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
    data = None
    if first is not None:
        data = query_data(report.values, report.baseline, report.runs, report.qrels, report.lists)
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
    with written(path) as file:
        file.write(content)


def check_suffix(path: str | Path) -> None:
    """Raise a UserError where a report's name is not that of a page; meant to be called before any work is done."""
    if Path(path).suffix not in (".html", ".htm"):
        raise UserError(f"{path}: a report is a web page; the name must end in .html")


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
