from __future__ import annotations

import codecs
import json
import math
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from hypothesis import example, given
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.retrieval import Scored, read_run, write_run
from rerank.retrieval.runs import strictly_decreasing
from tests.builders import write_packed

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


@given(SCORES)
@example([-LARGEST] * 5)
@example([LARGEST] * 5)
@example([TINY, 0.0, -0.0, -TINY])
def test_strictly_decreasing_scores_stay_finite(scores: list[float]) -> None:
    result = strictly_decreasing(scores)
    assert result.dtype == np.float32
    assert len(result) == len(scores)
    assert np.isfinite(result).all()
    assert (result[1:] < result[:-1]).all()


IDS = st.text("abz019-_.é😀", min_size=1, max_size=4)
LISTS = st.lists(st.tuples(IDS, NUMBERS), max_size=20, unique_by=lambda pair: pair[0])


@given(st.dictionaries(IDS, LISTS, max_size=4))
def test_write_run_keeps_the_order_for_every_reader(tmp_path_factory: pytest.TempPathFactory, lists: dict) -> None:
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


def test_write_run_uses_trecs_format(tmp_path: Path) -> None:
    write_run(
        tmp_path / "run.trec", {"q1": [Scored("a", 2.5), Scored("b", -1)], "empty": [], "q2": [Scored("a", 0)]}, "bm25"
    )
    assert (tmp_path / "run.trec").read_text() == "q1 Q0 a 1 2.5 bm25\nq1 Q0 b 2 -1 bm25\nq2 Q0 a 1 0 bm25\n"


def test_read_run_breaks_ties_by_rank_then_line(tmp_path: Path) -> None:
    path = tmp_path / "run"
    # 0.1 and 0.1 + 1e-9 are the same float32.
    path.write_text("1 Q0 c 2 0.1 t\n1 Q0 b 1 0.1 t\n1 Q0 a 2.0 0.100000001 t\r\n\n1 Q0 d 9 7e-1 t\n")
    assert [document.id for document in read_run(path)["1"]] == ["d", "b", "c", "a"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 Q0 b 2 1.0", r"run:2: 5 columns; expected 6 \(query, q0, document, rank, score, tag\)"),
        ("1 Q0 a 2 1.0 t", "run: query '1' has document 'a' twice; keep one"),
        ("1 Q0 b 2 high t", "run:2: score 'high'; expected a finite number"),
        ("1 Q0 b 2 1e39 t", "run:2: score '1e39'"),
        ("1 Q0 b second 1.0 t", "run:2: rank 'second'"),
        (f"1 Q0 b {'9' * 400} 1.0 t", "run:2: rank '9"),
        ("1 Q0 b 1.5 1.0 t", "run:2: rank '1.5'; expected a whole number"),
        *((f"1 Q0 b{blank}c 2 1.0 t", "run:2: 7 columns") for blank in "\t\v\f\r\x1c\x1f\x85\u00a0\u2003"),
    ],
)
def test_read_run_names_bad_lines(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "run").write_bytes(f"1 Q0 a 1 2.0 t\n{line}\n".encode())
    with pytest.raises(UserError, match=message):
        read_run(tmp_path / "run")


def test_run_table_is_a_mapping_and_a_table(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("2 Q0 b 1 3.0 t\n1 Q0 a 1 2.0 t\n2 Q0 c 2 1.0 t\n")
    run = read_run(tmp_path / "run")
    assert "1" in run and "2" in run and "3" not in run
    assert run.get("3") is None and list(run) == ["2", "1"] and len(run) == 2
    rows = run.to_dataframe()[["query_id", "doc_id", "rank", "score"]].values.tolist()
    assert rows == [["2", "b", 1, 3.0], ["2", "c", 2, 1.0], ["1", "a", 1, 2.0]]


def test_write_run_refuses_bad_names_before_writing(tmp_path: Path) -> None:
    good = [Scored("a", 1.0)]
    for run, tag in [({"q 1": good}, "t"), ({"q": [Scored("", 1.0)]}, "t"), ({"q": good}, "my tag")]:
        with pytest.raises(UserError, match="which a run file cannot express"):
            write_run(tmp_path / "run", run, tag)
    for suffix in (".jsonl", ".parquet", ".json", ".csv", ".gz"):  # they would be read otherwise
        with pytest.raises(UserError, match=rf"plain TREC files; choose a name without \{suffix}"):
            write_run(tmp_path / f"run{suffix}", {"q": good})
    with pytest.raises(ValueError, match="has a document twice"):
        write_run(tmp_path / "run", {"q": good * 2})
    with pytest.raises(ValueError, match="not a number"):
        write_run(tmp_path / "run", {"q": good, "r": [Scored("a", math.nan)]})
    assert list(tmp_path.iterdir()) == []


def test_read_run_ignores_blanks_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "run"
    for odd in (" ", "\t", "  ", " \t "):
        for end in ("\n", "\r\n", " \n", "\n\n", "\n \n", "\n# pooled depth 100 of run\n"):
            lines = ["1 Q0 a 1 2.5 t", "1 Q0 é 2 1e-3 t", "2 Q0 a 1 -7 t"]
            path.write_bytes(codecs.BOM_UTF8 + "".join(line.replace(" ", odd) + end for line in lines).encode())
            assert read_run(path) == {"1": [("a", 2.5), ("é", 1e-3)], "2": [("a", -7.0)]}


RUN = {"7": [Scored("b", 2.5), Scored("a", 2.5), Scored("c", -1.0)], "q8": [Scored("a", 0.125)]}
ROWS = [(query, document.id, document.score) for query, ranking in RUN.items() for document in ranking]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".json", ".csv", ".parquet"])
def test_read_run_reads_tables(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    rows = [{"qid": q, "docno": d, "score": s, "text": "…"} for q, d, s in ROWS]
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    elif suffix in (".json", ".csv"):
        path.write_text(json.dumps(rows) if suffix == ".json" else pd.DataFrame(rows).to_csv(index=False))
    else:
        write_packed(path, "".join(json.dumps(row) + "\n" for row in rows))
    assert read_run(path) == RUN


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "run.jsonl",
            '{"qid": "1", "document_id": "a", "score": 1}\n',
            ": columns 'qid', 'document_id', 'score' are of no known shape",
        ),
        ("run.jsonl", '{"qid": "1", "docno": "a"}\n', ": has no column score; there are query_id, doc_id"),
        ("run.jsonl", "1 Q0 a 1 2.5 tag\n", ":1: not JSON"),
        ("run.parquet", "no parquet", ": not a readable parquet file"),
        ("run.jsonl", None, ": no such file"),
        ("run.tsv", "7\tb\t2\n7\tc\t0\n", ":2: rank '0'; expected a whole number from 1"),
    ],
)
def test_read_run_names_bad_files(tmp_path: Path, name: str, text: str | None, said: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=re.escape(name + said)):
        read_run(tmp_path / name)
