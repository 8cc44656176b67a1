from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerank.collections import Query, open_collection
from rerank.collections.hits import HitsCollection
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.hits import lists_of_hits


def build(path: Path, rows: list[dict[str, Any]], queries: list[Query] | None = None, **options: Any) -> Lists:
    path.mkdir(exist_ok=True)
    (path / "h.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = open_collection(f"hits:{path}/h.jsonl")
    assert isinstance(source, HitsCollection)
    if queries is not None:
        source.ask(queries)
    return lists_of_hits(source, path / "lists", replace=True, **options)


IDS = st.text(st.characters(exclude_categories=("Z", "C")), min_size=1, max_size=5)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
HIT = st.fixed_dictionaries(
    {"score": FLOATS | st.integers(-1000, 1000)},
    optional={"bm25": FLOATS | st.none(), "f/1": FLOATS, "f/2": FLOATS, "grade": st.integers(-2, 3) | st.none()},
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    texts=st.dictionaries(IDS, st.text(st.characters(exclude_categories=("Cs",))), min_size=1, max_size=8),
    queries=st.dictionaries(IDS, st.text(st.characters(exclude_categories=("Cs",))), min_size=1, max_size=4),
    data=st.data(),
)
def test_rows_come_back_equal(
    tmp_path: Path, texts: dict[str, str], queries: dict[str, str], data: st.DataObject
) -> None:
    rows = []
    for query, asked in queries.items():
        for document in data.draw(st.lists(st.sampled_from(list(texts)), min_size=1, unique=True)):
            ids = {"query_id": query, "query": asked, "doc_id": document, "text": texts[document]}
            rows.append(ids | data.draw(HIT))
    lists = build(tmp_path, rows)
    by_order = sorted(rows, key=lambda row: (list(queries).index(row["query_id"]), -np.float32(row["score"])))
    frame = lists.to_dataframe()
    assert {*frame.columns} == {"grade", *(key for row in rows for key in row if row[key] is not None)}
    expected = pd.DataFrame(by_order).reindex(columns=frame.columns).astype(frame.dtypes)
    pd.testing.assert_frame_equal(frame, expected, check_exact=True)
    judged = {(row["query_id"], row["doc_id"]): row["grade"] for row in rows if row.get("grade") is not None}
    found = {(query, doc): grade for query, given in (lists.qrels or {}).items() for doc, grade in given.items()}
    assert found == judged
    assert lists.store.order == "score" and set(lists.store.documents.column("doc_id").to_pylist()) == {
        row["doc_id"] for row in rows
    }


def row(query: str, document: str, **more: Any) -> dict[str, Any]:
    return {"query_id": query, "query": f"text of {query}", "doc_id": document, "text": f"text of {document}"} | more


def order_of(lists: Lists) -> list[list[str]]:
    return [[hit.id for hit in hits] for hits in lists.run().values()]


def test_many_lists_are_as_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    rows = [
        row(f"q{q}", f"d{d}", score=float(random.random()), **({"late": 1.5 * q} if q > 25 else {}))
        for q in range(40)
        for d in random.choice(60, random.integers(1, 9), replace=False).tolist()
    ]
    whole = build(tmp_path / "a", rows)
    for name, value in (("HITS", 7), ("PAIRS", 11)):
        monkeypatch.setattr(f"rerank.lists.hits.{name}", value)
    parts = build(tmp_path / "b", rows)
    assert whole.to_dataframe().equals(parts.to_dataframe())
    late = parts.column("late")
    queries = np.repeat([int(id[1:]) for id in parts.query_ids], parts.lengths)
    np.testing.assert_array_equal(late, np.where(queries > 25, 1.5 * queries, np.nan).astype(np.float32))


def test_the_order_is_score_or_what_is_asked_for(tmp_path: Path) -> None:
    rows = [row("q", "a", bm25=1, score=2), row("q", "b", bm25=3, score=1), row("q", "c", bm25=2, score=2)]
    assert order_of(build(tmp_path, rows)) == [["a", "c", "b"]], "ties keep the file's order"
    assert order_of(build(tmp_path, rows, order="bm25")) == [["b", "c", "a"]]
    others = [{key: value for key, value in given.items() if key != "score"} for given in rows]
    assert build(tmp_path, others).store.order == "bm25"
    with pytest.raises(UserError, match=r"h.jsonl:1: no number 'bm52' \(did you mean 'bm25'\?\); numbers: score, bm25"):
        build(tmp_path, rows, order="bm52")
    with pytest.raises(UserError, match=r"h.jsonl:3: no number 'score'"):
        build(tmp_path, [*rows[:2], row("q", "c", bm25=2, score=None)])
    with pytest.raises(UserError, match=r"h.jsonl:1: no number 'score'"):
        build(tmp_path, [row("q", "a", year=1, score=None), *rows[1:]])
    numbered = [{"id": 10 - i} | given for i, given in enumerate(others)]
    lists = build(tmp_path, numbered)
    assert lists.store.order == "bm25" and lists.store.column_names == ["bm25"], "row numbers are no scores"
    with pytest.raises(UserError, match=r"h.jsonl:1: no score"):
        build(tmp_path, [row("q", "a")])
    ranked = [row("q", "a", bm25=1, rank=2), row("q", "b", bm25=3, rank=3), row("q", "c", bm25=2, rank=1)]
    assert order_of(build(tmp_path, ranked)) == [["c", "a", "b"]], "a rank counts from the best"


def test_depth_leaves_the_best_and_their_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [row("q", "a", score=1, grade=1), row("q", "b", score=3), row("q", "c", score=2)]
    with caplog.at_level(logging.INFO, "rerank"):
        lists = build(tmp_path, rows, depth=2)
    assert order_of(lists) == [["b", "c"]] and lists.store.documents.column("doc_id").to_pylist() == ["b", "c"]
    assert lists.qrels == {"q": {"a": 1}}, "a judgment stays, as recall counts it"
    assert "1 hits beyond depth 2" in caplog.text


def test_queries_that_were_asked_for(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [row("q1", "a", score=1), row("q2", "b", score=3), row("q3", "c", score=3)]
    queries = [Query("none", "nothing"), Query("q3", "third"), Query("q1", "first")]
    with caplog.at_level(logging.WARNING, "rerank"):
        lists = build(tmp_path, rows, queries)
    assert lists.query_ids == ["q1", "q3", "none"] and lists.query_texts == ["first", "third", "nothing"]
    assert order_of(lists) == [["a"], ["c"], []]
    assert "1 queries are not among those that were asked for" in caplog.text
    assert "1 queries without candidates" in caplog.text
    with pytest.raises(UserError, match="no hits for any of the queries"):
        build(tmp_path, rows, queries[:1])


def test_judgments_given_replace_the_grades(tmp_path: Path) -> None:
    rows = [row("q", "a", score=2, grade=3), row("q", "b", score=1)]
    lists = build(tmp_path, rows, qrels={"q": {"b": 2, "z": 1, "a": -1}, "other": {"a": 1}})
    assert lists.grades.tolist() == [0, 2] and lists.qrels == {"q": {"b": 2, "z": 1, "a": -1}}
    assert build(tmp_path, [row("q", "a", score=2)]).qrels is None
    with pytest.raises(UserError, match="is judged in the qrels"):
        build(tmp_path, rows, qrels={"7": {"a": 1}})
    many = {f"x{i}": 1 for i in range(50)}
    build(tmp_path, rows, qrels={"q": many | {"a": 1}})  # few hits of many judgments are usual, none is a mistake
    with pytest.raises(UserError, match="has only 0 of the 50 documents that are judged"):
        build(tmp_path, rows, qrels={"q": many})


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row("q", "a", score=1), row("r", "a", score=1, text="other")], "h.jsonl:2: document 'a' has another text"),
        ([row("q", "a", score=1, **{"f/1": 1, "f": 2})], "has columns f and f/1|has columns f/1 and f"),
        ([row("q", "a", score=1, **{"my column": 2})], "column 'my column': a name has letters"),
    ],
)
def test_what_cannot_be_stored_is_one_line_and_leaves_nothing(
    tmp_path: Path, rows: list[dict[str, Any]], said: str
) -> None:
    with pytest.raises(UserError, match=said) as error:
        build(tmp_path, rows)
    assert "\n" not in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["h.jsonl"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = {"responses": [{"hits": {"hits": [{"_id": "a", "_score": 2.5, "_source": {"text": "wing"}}]}}]}
    (tmp_path / "msearch.json").write_text(json.dumps(answers))
    (tmp_path / "queries.tsv").write_text("7\twhat is a wing\n")
    (tmp_path / "qrels").write_text("7 0 a 1\n")
    hits = ["retrieve", "--collection", f"hits:{tmp_path}/msearch.json", "--output", str(tmp_path / "lists")]
    assert main(hits) == 2 and "--queries" in capsys.readouterr().err
    judged = ["--queries", str(tmp_path / "queries.tsv"), "--qrels", str(tmp_path / "qrels")]
    assert main([*hits, *judged, "--add-relevant"]) == 2
    assert main([*hits, *judged]) == 0
    lists = Lists.open(tmp_path / "lists")
    assert lists.query_texts == ["what is a wing"] and lists.grades.tolist() == [1]
    assert (tmp_path / "lists/run.trec").read_text() == "7 Q0 a 1 2.5 score\n"
    assert main([*hits, *judged]) == 2 and "--overwrite" in capsys.readouterr().err
    searched = ["--collection", "demo", "--order", "score", "--output", str(tmp_path / "other")]
    assert main(["retrieve", *searched]) == 2 and "order: no column" in capsys.readouterr().err
