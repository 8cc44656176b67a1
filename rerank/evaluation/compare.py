"""Many runs, many measures, one baseline: everything that a table of results says, at full precision."""

from __future__ import annotations

import os
import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from pathlib import Path
from typing import Any, get_args

import numpy as np
from ir_measures import Measure

from rerank.collections import as_qrels
from rerank.errors import NotFoundError, UserError, nearest
from rerank.evaluation.crossed import interval
from rerank.evaluation.measures import COUNTS, Empty, Evaluator, PerQuery, Qrels, check_overlap, parse_measures
from rerank.evaluation.significance import (
    Correction,
    Test,
    cohens_d,
    correct,
    differences,
    p_value,
    wins_ties_losses,
)
from rerank.lists.neighbours import seen_queries
from rerank.lists.view import Lists
from rerank.progress import tqdm
from rerank.retrieval.runs import Run, RunTable, Scored, as_float32, as_run, best_first
from rerank.settings.ranges import check_arguments
from rerank.storage.files import plain_name

TESTS: tuple[Test, ...] = get_args(Test)
SEEN, UNSEEN = "seen", "unseen"
"""Queries of which training has seen a relevant document, and the others."""


@dataclass(frozen=True)
class Difference:
    """One run against the baseline, in one measure.

    Attributes:
        mean: mean of run minus baseline over the queries.
        interval: bootstrap confidence interval of that mean; NaN where all differences are equal.
        effect: Cohen's d of the paired differences.
        p: p-value by test; NaN where a test has nothing to go by: no difference in any query, and for the t-test the
            same one in each.
        corrected: the same after the correction over the whole table.
    """

    mean: float
    interval: tuple[float, float]
    effect: float
    wins: int
    ties: int
    losses: int
    p: dict[Test, float]
    corrected: dict[Test, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Unjudged:
    """Documents in the top ``k`` of a run without a judgment: ``count`` of ``retrieved``."""

    count: int
    retrieved: int

    @property
    def share(self) -> float:
        return self.count / self.retrieved if self.retrieved else float("nan")


@dataclass(frozen=True)
class Part:
    """A run in one measure, over the queries of one part; its mean difference from the baseline is NaN without one."""

    run: str
    measure: str
    part: str
    queries: int
    mean: float
    interval: tuple[float, float]
    difference: float
    difference_interval: tuple[float, float]


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found.

    Attributes:
        tables: per-query values by run name, in the order of the table.
        correction: the correction over all of a test's p-values in this table.
        comparisons: how many each correction was over: those with a difference in any query, p-value or not.
        unjudged: by run name and depth.
        paths: where each run was read from.
        ties: by run name, documents whose score equals that of the one before them, in the queries of the qrels.
        parts: the same over the queries with a relevant document that training has seen, and over the others.
    """

    tables: dict[str, PerQuery]
    baseline: str | None
    tests: tuple[Test, ...]
    correction: Correction
    comparisons: int
    differences: dict[tuple[str, str], Difference]
    unjudged: dict[str, dict[int, Unjudged]] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    qrels: str = ""
    ties: dict[str, int] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()

    @property
    def first(self) -> PerQuery:
        """Any run's values; measures, queries and policy are the same in all."""
        return next(iter(self.tables.values()))

    @property
    def measures(self) -> tuple[str, ...]:
        return tuple(map(str, self.first.measures))


def compare(
    tables: Mapping[str, PerQuery],
    baseline: str | None = None,
    tests: Sequence[Test] = TESTS,
    correction: Correction = "holm",
    progress: bool = False,
) -> Comparison:
    """Compare runs that were scored in the same measures on the same queries.

    The correction is over the whole table: all runs but the baseline, times all measures, per test.

    Raises:
        UserError: an unknown baseline, test or correction, or runs scored on different queries or measures.
    """
    check_arguments(compare, {"tests": tests, "correction": correction})
    first = next(iter(tables.values()))
    for name, table in tables.items():
        if (table.measures, table.queries, table.empty) != (first.measures, first.queries, first.empty):
            raise UserError(f"{name}: scored in other measures or on other queries than {next(iter(tables))}")
    if baseline is not None and baseline not in tables:
        raise UserError(f"baseline {baseline!r}: no such run{nearest(baseline, tables)}; known: {', '.join(tables)}")
    tested = [str(measure) for measure in first.measures if measure.NAME not in COUNTS]
    cells = [(name, measure) for name in tables if name != baseline for measure in tested] if baseline else []
    compared: dict[tuple[str, str], Difference] = {}
    for name, measure in tqdm(cells, desc="significance", disable=not progress or len(cells) < 2, leave=False):
        difference = differences(tables[name][measure], tables[str(baseline)][measure])
        compared[name, measure] = Difference(
            *mean_and_interval(difference),
            cohens_d(difference),
            *wins_ties_losses(difference),
            p={test: p_value(test, difference) for test in tests},
        )
    count = sum(one.wins + one.losses > 0 for one in compared.values())  # a copy of the baseline is no comparison
    for test in tests:
        corrected = correct([one.p[test] for one in compared.values()], correction, planned=count).tolist()
        for one, p in zip(compared.values(), corrected, strict=True):
            one.corrected[test] = p
    return Comparison(dict(tables), baseline, tuple(tests), correction, count, compared)


def compare_runs(
    qrels: Any,
    runs: Any,
    measures: str | Measure | Sequence[str | Measure],
    baseline: str | None = None,
    tests: Sequence[Test] = TESTS,
    correction: Correction = "holm",
    empty: Empty = "0",
    progress: bool = False,
    trained_on: Sequence[Any] = (),
) -> Comparison:
    """Read judgments and runs, check them, score and compare them: ``rerank evaluate``.

    Args:
        qrels: lists, whose judged queries count; or judgments: a qrels file (TREC or BEIR's TSV), the name of a
            collection, or any form that :func:`rerank.collections.as_qrels` takes.
        runs: run files, ``PATH`` or ``NAME=PATH``, or any forms of runs by name
            (:func:`rerank.retrieval.runs.as_run`); of lists also ``[T]`` arrays of scores, and names of columns.
            Without a name, a file's run is called after it, and after its folder too where the file is called ``run``
            or another has the same name.
        measures: see :func:`rerank.evaluation.measures.parse_measures`.
        baseline: the run to test against, written as in ``runs`` or by its name; one that is not among ``runs``, but a
            file or a column, is put first.
        tests: see :func:`compare`.
        correction: see :func:`compare`.
        empty: what queries without relevant documents score: ``"0"``, ``"1"``, or ``"drop"`` to leave them out.
        progress: show progress bars.
        trained_on: what the models were trained on, lists or judgments in any form: shows the queries with a relevant
            document that is relevant there, too, apart from the others.

    Raises:
        UserError: whatever is wrong with the files or the arguments.
    """
    check_arguments(compare_runs, {"tests": tests, "correction": correction})
    parsed = parse_measures(measures)
    lists = qrels if isinstance(qrels, Lists) else None
    forms = named_forms(runs, lists)
    chosen, forms = _with_baseline(baseline, forms, lists)
    judgments = as_qrels(qrels) if lists is None else judgments_of(lists)
    trained = [judgments_of(one) if isinstance(one, Lists) else as_qrels(one, name="trained_on") for one in trained_on]
    given = qrels if lists is None else lists.store
    source = str(given) if lists is not None or isinstance(qrels, str | Path) else "the qrels"
    evaluator = Evaluator(judgments, parsed, empty)
    depths = sorted({measure.params["cutoff"] for measure in parsed if "cutoff" in measure.params}) or [10]
    tables, unjudged, ties = {}, {}, {}
    for name, form in tqdm(forms.items(), desc="runs", disable=not progress or len(forms) < 2, leave=False):
        run, ties[name] = ranking(form, name, judgments, lists, source)
        tables[name] = evaluator(run, _where(form, name))
        unjudged[name] = {depth: count_unjudged(run, judgments, depth) for depth in depths}
    found = compare(tables, chosen, tests, correction, progress)
    paths = {name: str(form) for name, form in forms.items() if isinstance(form, str | Path)}
    parts: tuple[Part, ...] = ()
    if trained:
        documents = [one.store.documents for one in (lists, *trained_on) if isinstance(one, Lists)]
        parts = tuple(parts_of(tables, chosen, seen_queries(judgments, trained, documents)))
    return replace(found, unjudged=unjudged, paths=paths, qrels=source, ties=ties, parts=parts)


def parts_of(tables: Mapping[str, PerQuery], baseline: str | None, seen: Collection[str]) -> Iterator[Part]:
    """Every run in every measure, over the seen queries and over the others."""
    for run, table in tables.items():
        first = np.array([query in seen for query in table.queries], dtype=bool)
        for i, measure in enumerate(table.measures):
            if measure.NAME in COUNTS:
                continue
            for part, chosen in ((SEEN, first), (UNSEEN, ~first)):
                values = table.values[i][chosen]
                known = values[~np.isnan(values)]
                other = None if baseline in (None, run) else tables[str(baseline)].values[i][chosen]
                gain = known[:0] if other is None else differences(values, other)
                about = *mean_and_interval(known), *mean_and_interval(gain)
                yield Part(run, str(measure), part, len(known), *about)


def mean_and_interval(values: np.ndarray) -> tuple[float, tuple[float, float]]:
    """Mean over queries, and its bootstrap interval."""
    return float(values.mean()) if len(values) else float("nan"), interval(values)


def ranking(form: Any, name: str, qrels: Qrels, lists: Lists | None, source: str = "the qrels") -> tuple[Run, int]:
    """A run of any form as it is scored, and how many of its documents tie with the one before them."""
    if lists is not None and _of_lists(form, lists):
        if not isinstance(form, str) and np.asarray(form).dtype.kind not in "fiub":
            raise UserError(f"{name}: expected numbers, or the name of a column, not {reprlib.repr(form)}")
        return ties_by_id(lists.run(form), qrels)
    run = as_run(form, name)
    check_overlap(run, qrels, _where(form, name), source)
    return ties_by_id(run, qrels)


def _where(form: Any, name: str) -> str:
    return str(form) if isinstance(form, str | Path) else name


def judgments_of(lists: Lists) -> Qrels:
    """The judgments of the queries that have some."""
    if lists.qrels is None:
        raise UserError(f"{lists.store}: has no judgments; give them with qrels=, or make the lists again with some")
    return {query: grades for query, grades in lists.qrels.items() if grades}


def _of_lists(form: Any, lists: Lists) -> bool:
    """Whether a ranking is a column of the lists, or scores of their candidates."""
    if isinstance(form, str):
        return form.partition("/")[0] in lists.store.column_names and not Path(form).is_file()
    if isinstance(form, list | tuple):
        return not any(hasattr(scored, "query_id") for scored in form[:1])
    return isinstance(form, np.ndarray) or (hasattr(form, "__array__") and not hasattr(form, "columns"))


def is_one_run(given: Any) -> bool:
    """Return True for a run, and False for runs by name or a sequence of files."""
    if isinstance(given, Mapping) and not isinstance(given, RunTable):
        ranking = next((one for one in given.values() if isinstance(one, Mapping | list | tuple) and len(one)), None)
        if isinstance(ranking, Mapping):
            return isinstance(next(iter(ranking.values())), Real)
        return ranking is not None and isinstance(ranking[0], list | tuple) and len(ranking[0]) == 2
    return given is not None and (isinstance(given, str) or not isinstance(given, list | tuple))


def named_forms(runs: Any, lists: Lists | None = None) -> dict[str, Any]:
    """Runs of any form by name, see :func:`compare_runs`."""
    if isinstance(runs, Mapping):
        if not runs:
            raise UserError("no run given; name at least one")
        return {str(name): form for name, form in runs.items()}
    if runs is None and lists is not None:
        runs = [lists.store.order] if lists.store.order else lists.store.column_names
    if isinstance(runs, str | Path):
        runs = [runs]
    if not isinstance(runs, Sequence) or not all(isinstance(word, str | Path) for word in runs):
        raise UserError(f"runs: expected runs by name, such as {{'ours': scores}}, not {type(runs).__name__}")
    words = list(map(str, runs))
    columns = [word for word in words if lists is not None and _of_lists(word, lists)]
    files = [word for word in words if word not in columns]
    named = name_runs(files, lists.store.column_names if lists is not None else ()) if files or not columns else {}
    if both := next((name for name in columns if name in named), None):
        raise UserError(f"runs: {both} is a column and a file; write NAME={named[both]}, with another name")
    return {name: name for name in columns} | named


def _with_baseline(
    baseline: str | None, forms: dict[str, Any], lists: Lists | None
) -> tuple[str | None, dict[str, Any]]:
    """The name of the run to test against, and the runs with it."""
    if baseline is None:
        return None, forms
    baseline = str(baseline)
    column = lists is not None and _of_lists(baseline, lists)
    for name, form in forms.items():
        file = str(form) if isinstance(form, str | Path) else ""
        if column and baseline == name and file not in ("", name):
            raise UserError(f"baseline: {name} is a column and a file; write --runs NAME={file}, with another name")
        if baseline in (name, f"{name}={file}") or (file and os.path.realpath(file) == os.path.realpath(baseline)):
            return name, forms
    if column:
        return baseline, {baseline: baseline, **forms}
    if "=" not in baseline and not Path(baseline).is_file():
        known = [*forms, *(lists.store.column_names if lists is not None else [])]
        raise UserError(f"baseline {baseline!r}: neither a file nor one of the runs{nearest(baseline, known)}")
    ((name, path),) = name_runs([baseline]).items()
    if name in forms and path == baseline:  # another file of that name
        name = path
    if name in forms:
        raise UserError(f"baseline: there is a run called {name!r} already; write NAME={path}")
    return name, {name: path, **forms}


def ties_by_id(run: Run, qrels: Qrels) -> tuple[Run, int]:
    """A run with its ties in trec_eval's order, and how many documents tie with the one before them.

    Ties are equal as float32; trec_eval puts them in descending order of their ids, whatever the file says of ranks.
    Only queries of the qrels are looked at, and returned.

    >>> ties_by_id({"q": [Scored("a", 2.0), Scored("b", 2.0), Scored("c", 1.0)]}, {"q": {"a": 1}})
    ({'q': [Scored(id='b', score=2.0), Scored(id='a', score=2.0), Scored(id='c', score=1.0)]}, 1)
    """
    ordered: dict[str, Sequence[Scored]] = {}
    ties = 0
    for query in run:
        if query not in qrels:
            continue
        ranking = run[query]
        scores = as_float32([document.score for document in ranking])
        if tied := int((scores[1:] == scores[:-1]).sum()):
            ranking = [ranking[i] for i in best_first([document.id for document in ranking], scores)]
            ties += tied
        ordered[query] = ranking
    return ordered, ties


def count_unjudged(run: Run, qrels: Qrels, depth: int) -> Unjudged:
    """Documents without a judgment in the top of each ranking, over the queries of the qrels."""
    top = [document.id in qrels[query] for query in run if query in qrels for document in run[query][:depth]]
    return Unjudged(top.count(False), len(top))


def name_runs(runs: Sequence[str], columns: Sequence[str] = ()) -> dict[str, str]:
    """Paths by run name, see :func:`compare_runs`; every name once."""
    if not runs:
        raise UserError("no run given; name at least one run file")
    given: list[tuple[str | None, str]] = []
    for run in runs:
        label, equals, path = run.partition("=")
        given.append((label, path) if equals and label and not Path(run).exists() else (None, run))
    for _, path in given:
        if not Path(path).expanduser().is_file():
            nor = f", nor a column{nearest(path, columns)}; there are {', '.join(columns)}" if columns else ""
            raise NotFoundError(f"{path}: no such run file{nor}")
    stems = [_stem(path) for name, path in given if name is None]
    named: dict[str, str] = {}
    for name, path in given:
        called = name or _stem(path)
        if name is None and (called == "run" or stems.count(called) > 1):
            called = f"{Path(path).absolute().parent.name}/{called}"
        if name is None and called in named and path not in named.values():
            called = path
        if called in named:
            raise UserError(f"{path}: there is a run called {called!r} already; write NAME={path}")
        named[called] = path
    return named


def _stem(path: str) -> str:
    name = plain_name(Path(path)).name
    for suffix in (".trec", ".run", ".txt", ".tsv", ".json", ".jsonl", ".parquet"):
        name = name.removesuffix(suffix)
    return name or Path(path).name
