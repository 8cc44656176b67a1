"""Compare runs in several measures with a baseline."""

from __future__ import annotations

import re
import reprlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import Any, get_args

import numpy as np
from ir_measures import Measure

from rerank.collections import as_qrels
from rerank.errors import NotFoundError, UserError, nearest
from rerank.evaluation.crossed import interval
from rerank.evaluation.measures import COUNTS, Empty, Evaluator, PerQuery, Qrels, check_overlap, parse_measures
from rerank.evaluation.significance import Correction, Test, cohens_d, correct, differences, p_value, wins_ties_losses
from rerank.evaluation.table import Difference, Part, Table
from rerank.lists.neighbours import seen_queries
from rerank.lists.view import Lists
from rerank.progress import tqdm
from rerank.retrieval.runs import Run, RunTable, Scored, as_float32, as_run, best_first
from rerank.settings.ranges import check_arguments
from rerank.storage.files import plain_name

TESTS: tuple[Test, ...] = get_args(Test)
SEEN, UNSEEN = "seen", "unseen"


def compare(
    tables: Mapping[str, PerQuery],
    baseline: str | None = None,
    tests: Sequence[Test] = TESTS,
    correction: Correction = "holm",
) -> Table:
    """Compare runs that were scored in the same measures on the same queries.

    P-values of each test are corrected over the whole table: all runs but the baseline, times all measures.
    """
    check_arguments(compare, {"tests": tests, "correction": correction})
    first = next(iter(tables.values()))
    tested = [str(measure) for measure in first.measures if measure.NAME not in COUNTS]
    cells = [(name, measure) for name in tables if name != baseline for measure in tested] if baseline else []
    compared: dict[tuple[str, str], Difference] = {}
    for name, measure in cells:
        difference = differences(tables[name][measure], tables[str(baseline)][measure])
        compared[name, measure] = Difference(
            *mean_and_interval(difference),
            cohens_d(difference),
            *wins_ties_losses(difference),
            p={test: p_value(test, difference) for test in tests},
        )
    count = sum(one.wins + one.losses > 0 for one in compared.values())  # a copy of the baseline is not a comparison
    for test in tests:
        corrected = correct([one.p[test] for one in compared.values()], correction, planned=count).tolist()
        for one, p in zip(compared.values(), corrected, strict=True):
            one.p_corrected[test] = p
    return Table(dict(tables), baseline, tuple(tests), correction, count, compared)


def compare_runs(
    qrels: Any,
    runs: Any,
    measures: str | Measure | Sequence[str | Measure],
    baseline: str | None = None,
    tests: Sequence[Test] = TESTS,
    correction: Correction = "holm",
    empty: Empty = "0",
    trained_on: Sequence[Any] = (),
) -> Table:
    """Read judgments and runs, score the runs and compare them: ``rerank evaluate``.

    :func:`rerank.evaluate` explains the arguments. The run of a file is named after the file, and after its folder too
    if the file is called ``run`` or two have the same name. A baseline that is not among the runs is added.

    Raises:
        UserError: invalid files or arguments.
    """
    parsed = parse_measures(measures)
    lists = qrels if isinstance(qrels, Lists) else None
    forms = named_forms(runs, lists)
    baseline, forms = _with_baseline(baseline, forms, lists)
    judgments = judgments_of(qrels)
    source = str(lists.store) if lists is not None else str(qrels) if isinstance(qrels, str | Path) else "the qrels"
    trained = [judgments_of(one, "trained_on") for one in trained_on]
    evaluator = Evaluator(judgments, parsed, empty)
    depths = sorted({measure.params["cutoff"] for measure in parsed if "cutoff" in measure.params}) or [10]
    tables, unjudged, ties = {}, {}, {}
    for name, form in tqdm(forms.items(), desc="runs", disable=None, delay=2, leave=False):
        run, ties[name] = ranking(form, name, judgments, lists, source)
        tables[name] = evaluator(run, _label(form, name))
        unjudged[name] = {depth: unjudged_share(run, judgments, depth) for depth in depths}
    table = compare(tables, baseline, tests, correction)
    paths = {name: str(form) for name, form in forms.items() if isinstance(form, str | Path)}
    parts: tuple[Part, ...] = ()
    if trained:
        documents = [one.store.documents for one in (lists, *trained_on) if isinstance(one, Lists)]
        parts = tuple(parts_of(tables, baseline, seen_queries(judgments, trained, documents)))
    return replace(table, unjudged=unjudged, paths=paths, qrels=source, ties=ties, parts=parts)


def parts_of(tables: Mapping[str, PerQuery], baseline: str | None, seen: Collection[str]) -> Iterator[Part]:
    """Average every run and measure over the seen and over the unseen queries."""
    for run, table in tables.items():
        is_seen = np.array([query in seen for query in table.queries], dtype=bool)
        for i, measure in enumerate(table.measures):
            if measure.NAME in COUNTS:
                continue
            for part, chosen in ((SEEN, is_seen), (UNSEEN, ~is_seen)):
                values = table.values[i][chosen]
                scored = values[~np.isnan(values)]
                other = None if baseline in (None, run) else tables[str(baseline)].values[i][chosen]
                gain = scored[:0] if other is None else differences(values, other)
                summary = *mean_and_interval(scored), *mean_and_interval(gain)
                yield Part(run, str(measure), part, len(scored), *summary)


def mean_and_interval(values: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Compute the mean over queries and its bootstrap interval."""
    return float(values.mean()) if len(values) else float("nan"), interval(values)


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


def unjudged_share(run: Run, qrels: Qrels, depth: int) -> float:
    """Compute the share of documents without a judgment in the top of each ranking, over the queries of the qrels."""
    top = [document.id in qrels[query] for query in run if query in qrels for document in run[query][:depth]]
    return top.count(False) / len(top) if top else float("nan")


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
    if runs is None and lists is not None:
        runs = [lists.store.order] if lists.store.order else lists.store.column_names
    runs = [runs] if isinstance(runs, str | Path) else runs
    if isinstance(runs, Sequence | Mapping) and not runs:
        raise UserError("no run given; name at least one")
    if isinstance(runs, Mapping):
        return {str(name): form for name, form in runs.items()}
    if not isinstance(runs, Sequence) or not all(isinstance(run, str | Path) for run in runs):
        raise UserError(f"runs: expected runs by name, such as {{'ours': scores}}, not {type(runs).__name__}")
    stems = Counter(_stem(str(run)) for run in runs)
    named: dict[str, Any] = {}
    for name, form in (_name_run(str(run), lists, stems) for run in runs):
        if name in named:
            raise UserError(f"{form}: there is a run called {name!r} already; write NAME={form}")
        named[name] = form
    return named


def _name_run(word: str, lists: Lists | None, stems: Mapping[str, int]) -> tuple[str, str]:
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
    name = _stem(path)
    if name == "run" or stems.get(name, 0) > 1:
        name = f"{Path(path).absolute().parent.name}/{name}"
    return label or name, path


def _stem(path: str) -> str:
    return re.sub(r"\.(trec|run|txt|tsv|jsonl?|parquet)$", "", plain_name(Path(path)).name) or Path(path).name


def _with_baseline(
    baseline: str | None, forms: dict[str, Any], lists: Lists | None
) -> tuple[str | None, dict[str, Any]]:
    """Return the name of the baseline, and the runs, to which a baseline that is not among them is added."""
    if baseline is None:
        return None, forms
    baseline = str(baseline)
    for name, form in forms.items():
        path = _label(form, name)
        if baseline in (name, path, f"{name}={path}"):
            return name, forms
    column = lists is not None and _of_lists(baseline, lists)
    if not column and "=" not in baseline and not Path(baseline).is_file():
        known = [*forms, *(lists.store.column_names if lists is not None else [])]
        raise UserError(f"baseline {baseline!r}: neither a file nor one of the runs{nearest(baseline, known)}")
    ((name, form),) = named_forms([baseline], lists).items()
    if name in forms:
        raise UserError(f"baseline: there is a run called {name!r} already; write NAME={form}")
    return name, {name: form, **forms}
