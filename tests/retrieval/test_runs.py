from __future__ import annotations

import gzip
import lzma
import math
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import example, given
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.retrieval import Scored, read_run, write_run
from rerank.retrieval.runs import as_float32, strictly_decreasing

LARGEST = float(np.finfo(np.float32).max)
TINY = float(np.finfo(np.float32).smallest_subnormal)
NUMBERS = st.one_of(
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False),
    st.integers(-3, 3).map(float),
    st.sampled_from(
        [0.0, -0.0, TINY, -TINY, 1e-40, -1e-40, LARGEST, -LARGEST, 1e39, -1e39, math.inf, -math.inf, 16777217.0]
    ),
)
SCORES = st.lists(NUMBERS, max_size=30)
SORTED = SCORES.map(lambda scores: sorted(scores, reverse=True))


def is_strictly_decreasing(scores: np.ndarray) -> bool:
    return bool((scores[1:] < scores[:-1]).all())


@given(SCORES)
@example([-LARGEST] * 5)
@example([LARGEST] * 5)
@example([TINY, 0.0, -0.0, -TINY])
def test_scores_strictly_decrease_and_stay_finite(scores: list[float]) -> None:
    result = strictly_decreasing(scores)
    assert result.dtype == np.float32
    assert len(result) == len(scores)
    assert np.isfinite(result).all()
    assert is_strictly_decreasing(result)


@given(SORTED)
def test_scores_that_decrease_already_are_kept(scores: list[float]) -> None:
    distinct = sorted(set(as_float32(scores).tolist()), reverse=True)
    assert strictly_decreasing(distinct).tolist() == distinct


@given(SORTED)
def test_a_score_is_lowered_no_further_than_needed(scores: list[float]) -> None:
    """The definition, one score after the other: below the one before, or as it was."""
    expected: list[np.float32] = []
    for score in as_float32(scores):
        with np.errstate(over="ignore"):
            below = np.nextafter(expected[-1], np.float32(-np.inf)) if expected else np.float32(np.inf)
        expected.append(min(score, below))
    if expected and np.isfinite(expected[-1]):
        assert strictly_decreasing(scores).tolist() == [float(score) for score in expected]


def test_scores_are_numbers() -> None:
    with pytest.raises(ValueError, match="not a number"):
        strictly_decreasing([1.0, math.nan])


IDS = st.text("abz019-_.é😀", min_size=1, max_size=4)
LISTS = st.lists(st.tuples(IDS, NUMBERS), max_size=20, unique_by=lambda pair: pair[0])


@given(st.dictionaries(IDS, LISTS, max_size=4))
def test_every_reader_sees_the_order_that_was_written(tmp_path_factory: pytest.TempPathFactory, lists: dict) -> None:
    path = tmp_path_factory.getbasetemp() / "run.hypothesis"
    run = {query: [Scored(*pair) for pair in pairs] for query, pairs in lists.items()}
    write_run(path, run, "tag")
    order = {query: [document.id for document in documents] for query, documents in run.items() if documents}
    read = read_run(path)
    assert {query: [document.id for document in documents] for query, documents in read.items()} == order
    for query, documents in read.items():
        assert (
            np.float32([score for _, score in documents]).tolist()
            == strictly_decreasing([score for _, score in run[query]]).tolist()
        )
    # trec_eval: each document is found at its rank by its reciprocal rank, as the only relevant one.
    with path.open() as file:
        theirs = pytrec_eval.parse_run(file)
    for query, ids in order.items():
        for rank, id in enumerate(ids, 1):
            evaluator = pytrec_eval.RelevanceEvaluator({query: {id: 1}}, {"recip_rank"})
            assert evaluator.evaluate({query: theirs[query]})[query]["recip_rank"] == pytest.approx(1 / rank)


def test_the_format_is_trecs(tmp_path: Path) -> None:
    write_run(
        tmp_path / "run.trec", {"q1": [Scored("a", 2.5), Scored("b", -1)], "empty": [], "q2": [Scored("a", 0)]}, "bm25"
    )
    assert (tmp_path / "run.trec").read_text() == "q1 Q0 a 1 2.5 bm25\nq1 Q0 b 2 -1 bm25\nq2 Q0 a 1 0 bm25\n"


def test_ties_go_by_rank_then_by_line(tmp_path: Path) -> None:
    path = tmp_path / "run"
    # 0.1 and 0.1 + 1e-9 are the same float32.
    path.write_text("1 Q0 c 2 0.1 t\n1 Q0 b 1 0.1 t\n1 Q0 a 2 0.100000001 t\r\n\n1 Q0 d 9 7e-1 t\n")
    assert [document.id for document in read_run(path)["1"]] == ["d", "b", "c", "a"]


def test_compressed_runs_are_read(tmp_path: Path) -> None:
    line = b"1 Q0 a 1 2.5 t\n"
    (tmp_path / "run.gz").write_bytes(gzip.compress(line))
    (tmp_path / "run.xz").write_bytes(lzma.compress(line))
    assert read_run(tmp_path / "run.gz") == read_run(tmp_path / "run.xz") == {"1": [Scored("a", 2.5)]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 Q0 b 2 1.0", "run:2: 5 columns; expected six"),
        ("1 Q0 b 2 1.0 my tag", "run:2: 7 columns; expected six"),
        ("1 Q0 a 2 1.0 t", "run:2: document 'a' is in the list of query '1' already"),
        ("1 Q0 b 2 high t", "run:2: score 'high'; expected a finite number"),
        ("1 Q0 b 2 nan t", "run:2: score 'nan'"),
        ("1 Q0 b 2 -inf t", "run:2: score '-inf'"),
        ("1 Q0 b 2 1e999 t", "run:2: score '1e999'"),
        ("1 Q0 b second 1.0 t", "run:2: rank 'second'"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "run").write_text(f"1 Q0 a 1 2.0 t\n{line}\n")
    with pytest.raises(UserError, match=message):
        read_run(tmp_path / "run")


def test_what_the_format_cannot_express_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    good = [Scored("a", 1.0)]
    for run, tag in [({"q 1": good}, "t"), ({"q": [Scored("", 1.0)]}, "t"), ({"q": good}, "my tag")]:
        with pytest.raises(UserError, match="which a run file cannot express"):
            write_run(tmp_path / "run", run, tag)
    with pytest.raises(UserError, match=r"choose a name without \.gz"):
        write_run(tmp_path / "run.gz", {"q": good})
    with pytest.raises(ValueError, match="has a document twice"):
        write_run(tmp_path / "run", {"q": good * 2})
    with pytest.raises(ValueError, match="not a number"):
        write_run(tmp_path / "run", {"q": good, "r": [Scored("a", math.nan)]})
    assert list(tmp_path.iterdir()) == []
