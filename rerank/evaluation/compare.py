"""Compare runs in several measures with a baseline."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from ir_measures import Measure

from rerank.collections.names import as_qrels
from rerank.errors import NotFoundError, UserError, nearest
from rerank.evaluation.measures import COUNTS, Empty, Evaluator, PerQuery, Qrels, check_overlap, parse_measures
from rerank.evaluation.paired import compare_values, corrected
from rerank.evaluation.significance import Correction, Test
from rerank.evaluation.table import Table
from rerank.lists.neighbours import seen_queries
from rerank.lists.view import Lists
from rerank.progress import tqdm
from rerank.retrieval.runs import Run, RunTable, Scored, as_float32, as_run, best_first
from rerank.storage.files import plain_name


def compare(
    tables: Mapping[str, PerQuery], baseline: str | None = None, test: Test = "t-test", correction: Correction = "holm"
) -> Table:
    """Compare runs that were scored in the same measures on the same queries.

    P-values are corrected over the whole table: all runs but the baseline, times all measures.
    """
    first = next(iter(tables.values()))
    tested = [str(measure) for measure in first.measures if measure.NAME not in COUNTS]
    compared = [
        compare_values((name, baseline), measure, table[measure][None], tables[baseline][measure][None], test)
        for name, table in tables.items()
        for measure in tested
        if baseline is not None and name != baseline
    ]
    return Table(dict(tables), baseline, test, correction, corrected(compared, correction))


def compare_runs(
    qrels: Any,
    runs: Any,
    measures: str | Measure | Sequence[str | Measure],
    baseline: str | None = None,
    test: Test = "t-test",
    correction: Correction = "holm",
    empty: Empty = "0",
    trained_on: Sequence[Any] = (),
) -> Table:
    """Read judgments and runs, score the runs and compare them; :func:`rerank.evaluate` explains the arguments.

    A run file is named after the file; a baseline that is not among the runs is added.

    Raises:
        UserError: invalid files or arguments.
    """
    parsed = parse_measures(measures)
    lists = qrels if isinstance(qrels, Lists) else None
    baseline, forms = _with_baseline(baseline, named_forms(runs, lists), lists)
    judgments = judgments_of(qrels)
    source = str(lists.store) if lists is not None else str(qrels) if isinstance(qrels, str | Path) else "the qrels"
    trained = [judgments_of(one, "trained_on") for one in trained_on]
    documents = [one.store.documents for one in (lists, *trained_on) if isinstance(one, Lists)]
    seen = seen_queries(judgments, trained, documents)
    if len(seen) == len(judgments):
        raise UserError("trained_on: every query has a relevant document that was trained on; leave it out")
    unseen = {query: grades for query, grades in judgments.items() if query not in seen}
    evaluator = Evaluator(unseen, parsed, empty)
    tables, ties = {}, {}
    for name, form in tqdm(forms.items(), desc="runs", disable=None, delay=2, leave=False):
        run, ties[name] = ranking(form, name, unseen, lists, source)
        tables[name] = evaluator(run, _label(form, name))
    paths = {name: str(form) for name, form in forms.items() if isinstance(form, str | Path)}
    table = compare(tables, baseline, test, correction)
    return replace(table, paths=paths, qrels=source, ties=ties, seen=len(seen))


def ranking(form: Any, name: str, qrels: Qrels, lists: Lists | None, source: str = "the qrels") -> tuple[Run, int]:
    """Read a run of any form, and count its ties, see :func:`ties_by_id`."""
    if lists is not None and _of_lists(form, lists):
        if not isinstance(form, str) and np.asarray(form).dtype.kind not in "fiub":
            raise UserError(f"{name}: expected numbers, or the name of a column, not {reprlib.repr(form)}")
        return ties_by_id(lists.run(form), qrels)
    run = as_run(form, name)
    check_overlap(run, qrels, _label(form, name), source)
    return ties_by_id(run, qrels)


def _label(form: Any, name: str) -> str:
    return str(form) if isinstance(form, str | Path) else name


def judgments_of(qrels: Any, name: str = "qrels") -> Qrels:
    """Return the judgments of lists without unjudged queries, or judgments in any form."""
    if not isinstance(qrels, Lists):
        return as_qrels(qrels, name=name)
    if qrels.qrels is None:
        raise UserError(f"{qrels.store}: has no judgments; give them with qrels=, or make the lists again with some")
    return {query: grades for query, grades in qrels.qrels.items() if grades}


def ties_by_id(run: Run, qrels: Qrels) -> tuple[Run, int]:
    """Order ties as trec_eval does, and count the documents that tie with the one before them.

    Scores that are equal as float32 tie; trec_eval orders them by descending document id and ignores ranks in the
    file. Other queries than those of the qrels are left out.

    >>> ties_by_id({"q": [Scored("a", 2.0), Scored("b", 2.0), Scored("c", 1.0)]}, {"q": {"a": 1}})
    ({'q': [Scored(id='b', score=2.0), Scored(id='a', score=2.0), Scored(id='c', score=1.0)]}, 1)
    """
    ordered: dict[str, Sequence[Scored]] = {}
    ties = 0
    for query in run:
        if query not in qrels:
            continue
        documents = run[query]
        scores = as_float32([document.score for document in documents])
        if tied := int((scores[1:] == scores[:-1]).sum()):
            documents = [documents[i] for i in best_first([document.id for document in documents], scores)]
            ties += tied
        ordered[query] = documents
    return ordered, ties


def _of_lists(form: Any, lists: Lists) -> bool:
    """Return True for a column of the lists, or scores of their candidates."""
    if isinstance(form, str):
        return form.partition("/")[0] in lists.store.column_names and not Path(form).is_file()
    if isinstance(form, list | tuple):
        return not any(hasattr(scored, "query_id") for scored in form[:1])
    return isinstance(form, np.ndarray) or (hasattr(form, "__array__") and not hasattr(form, "columns"))


def is_one_run(given: Any) -> bool:
    """Return True for a run, and False for runs by name or a sequence of files."""
    if not isinstance(given, Mapping) or isinstance(given, RunTable):
        return given is not None and not isinstance(given, list | tuple)
    ranking = next((one for one in given.values() if isinstance(one, Mapping | list | tuple) and len(one)), None)
    if isinstance(ranking, Mapping):
        return isinstance(next(iter(ranking.values())), Real)
    return ranking is not None and isinstance(ranking[0], list | tuple) and len(ranking[0]) == 2


def named_forms(runs: Any, lists: Lists | None = None) -> dict[str, Any]:
    """Return runs of any form by name, see :func:`compare_runs`."""
    runs = [runs] if isinstance(runs, str | Path) else runs
    if isinstance(runs, Sequence | Mapping) and not runs:
        raise UserError("no run given; name at least one")
    if isinstance(runs, Mapping):
        return {str(name): form for name, form in runs.items()}
    if not isinstance(runs, Sequence) or not all(isinstance(run, str | Path) for run in runs):
        raise UserError(f"runs: expected runs by name, such as {{'ours': scores}}, not {type(runs).__name__}")
    named: dict[str, str] = {}
    for name, form in (_name_run(str(run), lists) for run in runs):
        if name in named:
            raise UserError(f"{form}: there is a run called {name!r} already; write NAME={form}")
        named[name] = form
    return named


def _name_run(word: str, lists: Lists | None) -> tuple[str, str]:
    """Split ``NAME=PATH``, or name a column after itself and a file after its stem."""
    if lists is not None and _of_lists(word, lists):
        return word, word
    label, equals, path = word.partition("=")
    if not (equals and label) or Path(word).exists():
        label, path = "", word
    if not Path(path).expanduser().is_file():
        columns = [] if lists is None else lists.store.column_names
        nor = f", nor a column{nearest(path, columns)}; there are {', '.join(columns)}" if columns else ""
        raise NotFoundError(f"{path}: no such run file{nor}")
    stem = re.sub(r"\.(trec|run|txt|tsv|jsonl?|parquet)$", "", plain_name(Path(path)).name)
    return label or stem, path


def _with_baseline(
    baseline: str | None, forms: dict[str, Any], lists: Lists | None
) -> tuple[str | None, dict[str, Any]]:
    """Return the baseline's name, and the runs, to which a baseline that is not among them is added."""
    if baseline is None:
        return None, forms
    known = {_label(form, name): name for name, form in forms.items()} | {name: name for name in forms}
    if (word := str(baseline)) in known:
        return known[word], forms
    try:
        name, form = _name_run(word, lists)
    except NotFoundError as error:
        raise UserError(f"baseline: {error}{nearest(word, forms)}") from error
    if forms.get(name, form) != form:
        raise UserError(f"baseline: there is a run called {name!r} already; write NAME={form}")
    return name, {name: form, **forms}
