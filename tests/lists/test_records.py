"""Lists made of records, in every shape and from every kind of source."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from rerank import Lists
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists.concat import concat


def shown(lists: Lists) -> list[tuple[Any, ...]]:
    """Query, text and grade of each candidate."""
    frame = lists.to_dataframe()
    return [
        (q, t, None if g is pd.NA else g) for q, t, g in zip(frame["query"], frame["text"], frame["grade"], strict=True)
    ]


ROWS = [("x", "s", 1), ("x", "t", 0), ("x", "u", 0), ("y", "s", 1), ("y", "v", 0), ("y", "w", 0)]


def passage(text: str) -> dict[str, str]:
    return {"docid": f"d{text}", "title": "", "text": text}


SHAPES: dict[str, list[dict[str, Any]]] = {
    "a row per candidate": [{"query": q, "passage": t, "label": g} for q, t, g in ROWS],
    "query, docs, labels": [
        {"query": "x", "docs": ["s", "t", "u"], "labels": [1, 0, 0]},
        {"query": "y", "docs": ["s", "v", "w"], "labels": [1, 0, 0]},
    ],
    "n-tuples": [
        {"anchor": "x", "positive": "s", "negative_1": "t", "negative_2": "u"},
        {"anchor": "y", "positive": "s", "negative_1": "v", "negative_2": "w"},
    ],
    "triplets": [
        {"query": "x", "positive": "s", "negative": "t"},
        {"query": "x", "positive": "s", "negative": "u"},
        {"query": "y", "positive": "s", "negative": "v"},
        {"query": "y", "positive": "s", "negative": "w"},
    ],
    "FlagEmbedding": [
        {"query": "x", "pos": ["s"], "neg": ["t", "u"], "pos_scores": [3.0], "neg_scores": [1.0, 0.5], "prompt": "do"},
        {"query": "y", "pos": ["s"], "neg": ["v", "w"], "pos_scores": [2.0], "neg_scores": [1.0, 0.0], "prompt": "do"},
    ],
    "tevatron": [
        {
            "query_id": query,
            "query": query,
            "positive_passages": [passage("s")],
            "negative_passages": [passage(text) for text in texts],
        }
        for query, texts in (("x", "tu"), ("y", "vw"))
    ],
    "pairs": [{"sentence1": q, "sentence2": t, "label": g} for q, t, g in ROWS],
    "rank_llm lists": [
        {
            "query": query,
            "hits": [
                {"content": t, "qid": i, "docid": f"d{t}", "rank": rank, "score": 9.0 - rank, "grade": int(rank == 1)}
                for rank, t in enumerate(texts, 1)
            ],
        }
        for i, (query, texts) in enumerate({"x": "stu", "y": "svw"}.items())
    ],
    "rank_llm requests": [
        {
            "query": {"text": query, "qid": query},
            "candidates": [
                {"docid": f"d{t}", "score": 9.0 - i, "doc": {"title": "", "segment": t}, "grade": int(i == 0)}
                for i, t in enumerate(texts)
            ],
        }
        for query, texts in {"x": "stu", "y": "svw"}.items()
    ],
    "hits of Elasticsearch": [
        {
            "query_id": query,
            "query": query,
            "hits": {
                "hits": [
                    {"_id": f"d{t}", "_score": 9.0 - i, "_source": {"text": t}, "grade": int(i == 0)}
                    for i, t in enumerate(texts)
                ]
            },
        }
        for query, texts in {"x": "stu", "y": "svw"}.items()
    ],
    "a dictionary of lists": [
        {"qid": q, "question": q, "passages": {"pid": list(texts), "passage": list(texts), "rel": [1, 0, 0]}}
        for q, texts in {"x": "stu", "y": "svw"}.items()
    ],
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["rows", "dataset", "json", "parquet"])
def test_from_dataset_recognises_every_shape(
    shape: str, form: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given: Any = SHAPES[shape]
    if form == "dataset":
        given = Dataset.from_list(given)
    elif form == "json":
        (tmp_path / "x.json").write_text(json.dumps(given, indent=1))
        given = tmp_path / "x.json"
    elif form == "parquet":
        pq.write_table(pa.Table.from_pylist(given), tmp_path / "x.parquet")
        given = str(tmp_path / "x.parquet")
    with caplog.at_level(logging.INFO, "rerank"):
        lists = Lists.from_dataset(given)
    assert shown(lists) == ROWS
    assert ": read as " in caplog.text and not [
        r for r in caplog.records if r.levelname == "WARNING" and shape != "triplets"
    ]
    assert shown(lists.save(tmp_path / "lists")) == ROWS


@pytest.mark.parametrize("shape", SHAPES)
def test_from_dataset_refuses_columns_of_two_shapes(shape: str) -> None:
    of_candidates = shape in ("a row per candidate", "query, docs, labels", "pairs")
    more = {"positive": "s"} if of_candidates else {"text": "s"}
    with pytest.raises(UserError, match=r"columns fit two shapes, .* or .*; leave the columns of one out"):
        Lists.from_dataset([row | more for row in SHAPES[shape]])


def test_from_dataset_keeps_teacher_scores_and_instructions(tmp_path: Path) -> None:
    lists = Lists.from_dataset(SHAPES["FlagEmbedding"])
    assert lists.column("teacher").tolist() == [3, 1, 0.5, 2, 1, 0]
    assert lists.instructions == ["do", "do"]
    saved = lists.save(tmp_path / "lists")
    assert saved.instructions == ["do", "do"]
    again = Lists.from_dataset(Dataset.from_pandas(saved.to_dataframe()))
    pd.testing.assert_frame_equal(again.to_dataframe(), lists.to_dataframe())
    other = Lists.from_dataset([{"query": "z", "text": "s"}])
    assert concat([lists, other]).instructions == ["do", "do", ""] and other.instructions == [""]
    two = [{"query": "x", "instruction": name, "text": "s"} for name in ("a", "b")]
    assert len(Lists.from_dataset(two)) == 2, "another instruction makes another query"


def test_labels_with_fractions_are_scores(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"sentence1": "x", "sentence2": text, "label": label} for text, label in (("s", 0.8), ("t", 0.1))]
    lists = Lists.from_dataset(rows)
    assert lists.qrels is None and lists.column("label").tolist() == pytest.approx([0.8, 0.1])
    assert "label has fractions" in caplog.text and "Term(MSE(), target='label')" in caplog.text
    scored = Lists.from_dataset([{"sentence1": "x", "sentence2": "s", "score": 4.5}])
    assert scored.qrels is None and scored.store.order == "score"
    assert Lists.from_dataset([{"query": "x", "text": "s", "label": 1.0}]).qrels is not None


def test_columns_rename_fields_inside_hits_too() -> None:
    rows = [{"q": "x", "cands": [{"body": "s", "key": 7, "clicks": 0.5}, {"body": "t", "key": 8, "clicks": None}]}]
    lists = Lists.from_dataset(rows, columns={"query": "q", "hits": "cands", "text": "body", "doc_id": "key"})
    assert lists.document_ids(lists.documents) == ["7", "8"] and lists.query_texts == ["x"]
    assert str(lists.column("clicks")) == "[0.5 nan]"
    for columns, message in [
        ({"text": "nowhere"}, "has no column 'nowhere'"),
        ("text=body", "columns: expected field and column"),
    ]:
        with pytest.raises(UserError, match=message):
            Lists.from_dataset([{"query": "x", "text": "s"}], columns=columns)


def answer(*ids: str, **more: Any) -> dict[str, Any]:
    hits = [
        {"_index": "i", "_id": id, "_score": 9.5 - i, "_source": {"text": id, "title": "T", "year": 1999}}
        for i, id in enumerate(ids)
    ]
    return {"took": 1, "timed_out": False, "_shards": {"total": 1, "failed": 0}, "hits": {"hits": hits}} | more


QUERIES = {"q1": "one", "q2": "two", "q3": "three"}


def test_named_queries_of_an_engine_are_columns() -> None:
    response = answer("a", query_id="q", query="x")
    response["hits"]["hits"][0]["matched_queries"] = {"bm25": 3.0, "knn": 0.5}
    lists = Lists.from_dataset([response])
    assert {name: lists.column(name).tolist() for name in lists.store.column_names} == {
        "bm25": [3.0],
        "knn": [0.5],
        "score": [9.5],
    }


def test_queries_give_texts_by_id(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"query_id": query, "text": "s", "score": 1.0, "doc_id": "a"} for query in ("q1", "other")]
    lists = Lists.from_dataset(rows, queries=QUERIES)
    assert dict(zip(lists.query_ids, lists.query_texts, strict=True)) == QUERIES
    assert lists.lengths.tolist() == [1, 0, 0]
    assert "1 queries are not among those given" in caplog.text and "2 queries without candidates" in caplog.text


def test_order_is_a_score_or_what_is_asked_for() -> None:
    rows = pd.DataFrame({"query": "x", "text": [*"abc"], "bm25": [1, 3, 2], "score": [2.0, 1.0, 2.0]})

    def order(**options: Any) -> str:
        return "".join(Lists.from_dataset(options.pop("given", rows), **options).to_dataframe()["text"])

    assert order() == "acb" and order(order="bm25") == "bca"
    assert order(given=rows.assign(rank=[2, 3, 1])) == "cab", "ties in the order of ranks"
    times = pd.to_datetime(["2020-01-01", "2021-01-01", None])
    assert order(given=pd.concat([pd.DataFrame({"date": times}), rows], axis=1)) == "acb", "times are no scores"
    with pytest.raises(UserError, match=r"order: no column 'bm52' \(did you mean 'bm25'\?\)"):
        order(order="bm52")
    with pytest.raises(UserError, match="order: bm25 is missing in 1 rows"):
        order(given=rows.assign(bm25=[1, None, 2]), order="bm25")


PAIR = {"query": "x", "text": "s"}
REFUSED: dict[str, tuple[Any, str]] = {
    "unknown shape": (
        [{"premise": "x", "passage_list": "s"}],
        r"columns 'premise', 'passage_list' are of no known shape; the nearest are '.*' and '.*'",
    ),
    "no text": ([{"query": "x", "negativ": "t"}], r"nearest are .*query, positive, negative"),
    "splits": (DatasetDict(a=Dataset.from_list([PAIR]), b=Dataset.from_list([PAIR])), r"has the splits a, b; name one"),
    "negative of no text": (
        [{"query": "x", "positive": "s", "negative": 3}],
        "row 0: negative: int in place of a text",
    ),
    "contradiction": ([{"query": "x", "positive": "s", "negative": "s"}], r"another grade; keep one"),
    "no hits": ([{"query": "x", "hits": []}], "no candidates in any"),
    "hit of another kind": ([{"query": "x", "hits": [3]}], "row 0: hits: int in place of a text or a hit"),
    "lists of two lengths": ([{"query": "x", "hits": {"text": ["s"], "pid": [1, 2]}}], "have different lengths"),
    "error": ([answer("a"), {"hits": None, "error": {"reason": "no such index"}}], "an incomplete answer"),
    "failed": ([answer("a", _shards={"total": 2, "failed": 1})], "an incomplete answer"),
    "answers without queries": ([answer("a")], "of no known shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_from_dataset_refuses_bad_records_in_one_line(case: str) -> None:
    given, message = REFUSED[case]
    with pytest.raises(UserError, match=message) as caught:
        Lists.from_dataset(given)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_from_dataset_opens_saved_data_sets_and_names_missing_ones(tmp_path: Path) -> None:
    two = {"train": Dataset.from_list(SHAPES["n-tuples"]), "test": Dataset.from_list(SHAPES["triplets"])}
    DatasetDict(two).save_to_disk(tmp_path / "two")
    DatasetDict(train=two["train"]).save_to_disk(tmp_path / "one")
    for path in (tmp_path / "two/train", tmp_path / "two/test", tmp_path / "one"):
        assert shown(Lists.from_dataset(path)) == ROWS
    for name, message in {
        str(tmp_path / "two"): r"has the splits train, test; name one, such as train",
        str(tmp_path / "two/tests"): "no such file or folder",
        str(tmp_path / "nowhere.jsonl"): "no such file or folder",
        "~/nowhere/at/all": "no such file or folder",
        "nobody/nothing:train": "neither a file nor a data set on the hub",
        "a:b:c:d": "no such file or folder",
    }.items():
        with pytest.raises(UserError, match=message) as caught:
            Lists.from_dataset(name)
        assert "\n" not in str(caught.value)
    arrow = next((tmp_path / "one/train").glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:200])
    with pytest.raises(UserError, match="not a data set that was saved whole"):
        Lists.from_dataset(tmp_path / "one")


def test_tsv_has_no_quotes(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text('query\ttext\tlabel\nx\t"so\t1\nx\t"A sentence."\t0\nx\tno"\t0\n')
    assert [text for _, text, _ in shown(Lists.from_dataset(tmp_path / "x.tsv"))] == ['"so', '"A sentence."', 'no"']
    (tmp_path / "x.csv").write_text('query,text\nx,"so, ""no"""\n')
    assert Lists.from_dataset(tmp_path / "x.csv").to_dataframe()["text"].tolist() == ['so, "no"']


def test_from_dataset_refuses_an_unknown_format(tmp_path: Path) -> None:
    (tmp_path / "words").write_text("query text\n")
    with pytest.raises(UserError, match="unknown format"):
        Lists.from_dataset(tmp_path / "words")


def test_retrieve_takes_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "answers.json").write_text(json.dumps([answer("a", "b", query_id="7")]))
    (tmp_path / "queries.tsv").write_text("7\twhat is a wing\n")
    (tmp_path / "qrels").write_text("7 0 a 1\n7 0 b 0\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    given = ["retrieve", "--records", "~/answers.json", "--output", str(tmp_path / "lists"), "--depth", "1"]
    assert main(given) == 2 and "but no query; texts need both" in capsys.readouterr().err
    judged = [*given, "--queries", str(tmp_path / "queries.tsv"), "--qrels", str(tmp_path / "qrels")]
    assert main([*judged, "--add-relevant"]) == 2
    assert main(judged) == 0
    lists = Lists.open(tmp_path / "lists")
    assert lists.query_texts == ["what is a wing"] and lists.grades.tolist() == [1]
    assert lists.qrels == {"7": {"a": 1, "b": 0}}, "a judgment beyond the depth stays, as recall counts it"
    assert (tmp_path / "lists/run.trec").read_text() == "7 Q0 a 1 9.5 score\n"
    assert main(judged) == 2 and "exists already; remove it" in capsys.readouterr().err
    assert main(["retrieve", "--output", str(tmp_path / "x")]) == 2 and "--records" in capsys.readouterr().err
    rows = [{"q": "x", "passage": "s", "bm25": 1.0}, {"q": "x", "passage": "t", "bm25": 0.5}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    named = ["retrieve", "--records", str(tmp_path / "rows.jsonl"), "--columns", "query=q", "text=passage"]
    assert main([*named, "--output", str(tmp_path / "named")]) == 0
    np.testing.assert_array_equal(Lists.open(tmp_path / "named").column("bm25"), np.float32([1, 0.5]))
