from __future__ import annotations

import gzip
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rerank.collections import Document, Query, open_collection
from rerank.errors import UserError
from rerank.retrieval import Scored, read_run


def row(q: str = "q1", d: str = "d1", score: Any = 1.0, **more: Any) -> dict[str, Any]:
    return {"query_id": q, "query": f"text of {q}", "doc_id": d, "text": f"text of {d}", "score": score} | more


def write(path: Path, rows: list[Any]) -> Path:
    if path.suffix == ".parquet":
        keys = dict.fromkeys(key for record in rows for key in record)
        pq.write_table(pa.Table.from_pylist([dict.fromkeys(keys) | r for r in rows]), path, row_group_size=2)
    else:
        data = "".join(json.dumps(record) + "\n" for record in rows).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def read(path: Path, queries: list[Query] | None = None, **options: Any) -> list[tuple[Query, dict[str, Any]]]:
    """Each query, and of each of its hits text, scores and grade."""
    collection = open_collection(f"hits:{path}", **options)
    if queries is not None:
        collection.ask(queries)
    return [(query, {hit.id: (hit.text, hit.scores, hit.grade) for hit in hits}) for query, hits in collection.lists()]


ROWS = [row("q1", "d1", 2.5, grade=1), row("q1", "d2", 1), row("q2", "d1", 3.0, bm25=7)]
READ = [
    (Query("q1", "text of q1"), {"d1": ("text of d1", {"score": 2.5}, 1), "d2": ("text of d2", {"score": 1.0}, None)}),
    (Query("q2", "text of q2"), {"d1": ("text of d1", {"score": 3.0, "bm25": 7.0}, None)}),
]


@pytest.mark.parametrize("name", ["h.jsonl", "h.jsonl.gz", "h.ndjson", "h.json", "h.parquet"])
def test_rows_are_the_same_in_every_format(tmp_path: Path, name: str) -> None:
    assert read(write(tmp_path / name, ROWS)) == READ


def test_rows_may_have_fields_of_the_names_of_answers(tmp_path: Path) -> None:
    found = read(
        write(tmp_path / "h.jsonl", [row("q", "a", 1.0, error=None), row("q", "b", 0.5, error=0.3, results=3)])
    )
    assert [hits for _, hits in found] == [
        {
            "a": ("text of a", {"score": 1.0}, None),
            "b": ("text of b", {"score": 0.5, "error": 0.3, "results": 3.0}, None),
        }
    ]


def test_a_line_may_be_a_list(tmp_path: Path) -> None:
    def hit(record: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in record.items() if key not in ("query_id", "query")}

    lists = [
        {"query_id": "q1", "query": "text of q1", "hits": [hit(ROWS[0]), hit(ROWS[1])]},
        {"query": {"qid": "q2", "text": "text of q2"}, "candidates": [hit(ROWS[2])]},  # rank_llm's requests
    ]
    assert read(write(tmp_path / "lists.jsonl", lists)) == READ
    (tmp_path / "lists.json").write_text(json.dumps(lists, indent=1), encoding="utf-8-sig")
    assert read(tmp_path / "lists.json") == READ
    del lists[1]["query"]
    pq.write_table(pa.Table.from_pylist(lists[:1]), tmp_path / "lists.parquet")
    assert read(tmp_path / "lists.parquet") == READ[:1]


def test_a_folder_is_its_shards_in_the_order_of_names(tmp_path: Path) -> None:
    write(tmp_path / "part-1.parquet", ROWS[1:2])
    write(tmp_path / "part-0.jsonl", ROWS[:1])
    write(tmp_path / "part-2.jsonl.gz", ROWS[2:])
    for name in ("_SUCCESS", ".part-0.crc", "README.md"):
        (tmp_path / name).write_text("not hits")
    assert read(tmp_path) == READ, "a query's rows may go on in the next shard"


def test_fields_have_other_names_elsewhere(tmp_path: Path) -> None:
    rows = [{"question": "why", "qid": 7, "pid": 3, "passage": "so", "head": "Answer", "sim": 0.5, "clicks": 0.25}]
    columns = ["query=question", "doc_id=pid", "text=passage", "score=sim"]
    path = write(tmp_path / "h.jsonl", rows)
    assert read(path, columns=columns) == [(Query("7", "why"), {"3": ("so", {"score": 0.5, "clicks": 0.25}, None)})]
    assert read(path, columns=columns, fields=["head", "text"])[0][1]["3"][0] == "Answer\nso"


def test_a_field_gives_way_to_the_one_that_is_named(tmp_path: Path) -> None:
    for fields in (["text", "passage"], ["passage", "text"]):
        given = {"query_id": 1, "query": "x", "doc_id": 2, "score": 1} | {field: field for field in fields}
        found = read(write(tmp_path / "h.jsonl", [given]), columns=["text=passage"])
        assert found[0][1] == {"2": ("passage", {"score": 1.0}, None)}
    both = {"query_id": 1, "query": "x", "doc_id": 2, "text": "a", "mine": 9.0, "_score": 1.0}
    assert read(write(tmp_path / "h.jsonl", [both]), columns=["score=mine"])[0][1]["2"][1] == {"score": 9.0}
    assert read(write(tmp_path / "h.jsonl", [both | {"score": 2.0}]))[0][1]["2"][1]["score"] == 2.0


def answer(*ids: str, **more: Any) -> dict[str, Any]:
    hits = [
        {"_index": "i", "_id": id, "_score": 9.5 - i, "_source": {"text": id, "year": 1999}} for i, id in enumerate(ids)
    ]
    return {"took": 1, "timed_out": False, "_shards": {"total": 1, "failed": 0}, "hits": {"hits": hits}} | more


ASKED = [Query("q1", "one"), Query("q2", "two"), Query("q3", "three")]
ANSWERED = [
    (ASKED[0], {"a": ("a", {"score": 9.5}, None), "b": ("b", {"score": 8.5}, None)}),
    (ASKED[1], {}),
    (ASKED[2], {"a": ("a", {"score": 9.5}, None)}),
]


def test_answers_of_a_search_api_go_with_the_queries_in_order(tmp_path: Path) -> None:
    answers = [answer("a", "b"), answer(), answer("a")]
    for indent in (None, 2):
        (tmp_path / "msearch.json").write_text(json.dumps({"took": 3, "responses": answers}, indent=indent))
        assert read(tmp_path / "msearch.json", ASKED) == ANSWERED
    assert read(write(tmp_path / "search.jsonl", answers), ASKED) == ANSWERED
    (tmp_path / "several").mkdir()
    for number, response in enumerate(answers):
        (tmp_path / f"several/{number}.json").write_text(json.dumps(response, indent=1))
    assert read(tmp_path / "several", ASKED) == ANSWERED
    named = [{"query_id": q.id, "query": q.text} | response for q, response in zip(ASKED, answers, strict=True)]
    assert read(write(tmp_path / "named.jsonl", named)) == ANSWERED


def test_a_source_gives_its_fields(tmp_path: Path) -> None:
    response = answer("a")
    response["hits"]["hits"][0] |= {
        "_source": {"title": "Wing", "body": ["gives", "lift"]},
        "matched_queries": {"bm25": 3.0, "knn": 0.5},
    }
    found = read(write(tmp_path / "s.json", [response]), ASKED[:1], fields=["title", "body"])
    assert found[0][1] == {"a": ("Wing\ngives\nlift", {"score": 9.5, "bm25": 3.0, "knn": 0.5}, None)}


def test_fields_of_answers_have_other_names_too(tmp_path: Path) -> None:
    response = answer("made")
    response["hits"]["hits"][0]["_source"] = {"passage": "hello", "pid": "P1", "clicks": 3, "mine": 2}
    columns = ["text=passage", "doc_id=pid", "bm25=_score", "grade=mine"]
    found = read(write(tmp_path / "s.json", [response]), ASKED[:1], columns=columns)
    assert found[0][1] == {"P1": ("hello", {"bm25": 9.5}, 2)}


def test_decimals_are_numbers(tmp_path: Path) -> None:
    rows = [row("q1", "d1", Decimal("2.5"), bm25=Decimal(3)), row("q1", "d2", Decimal("1.5"), bm25=None)]
    found = read(write(tmp_path / "h.parquet", rows))[0][1]
    assert {id: scores for id, (_, scores, _) in found.items()} == {
        "d1": {"score": 2.5, "bm25": 3},
        "d2": {"score": 1.5},
    }


ERROR = {"error": {"type": "index_not_found_exception", "reason": "no such index [x]"}, "status": 404}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([row(doc_id="\ud800")], "h.jsonl:1: doc_id: the id '\\ud800' holds half of a character"),
        ([ROWS[0], row("q1", "d2", text=None)], "h.jsonl:2: document 'd2' has no text"),
        ([ROWS[0], row("q1", "d2", text={"a": 1})], "h.jsonl:2: 'text' is no text but dict"),
        ([ROWS[0], row("q2", "d1", text="other")], "h.jsonl:2: document 'd1' has another text than before"),
        ([ROWS[0], row("q1", "d1")], "h.jsonl:2: document 'd1' is in the list of query 'q1' already"),
        ([ROWS[0], row("q2"), row("q1", "d3")], "h.jsonl:3: query 'q1' again, after others"),
        ([ROWS[0], row("q1", "d2", query="other")], "h.jsonl:2: query 'q1' has another text"),
        ([{"qid": "q1", "doc_id": "d1", "text": "t", "score": 1}], "h.jsonl:1: query 'q1' has no text"),
        ([row(query=["a"])], "h.jsonl:1: the text of query 'q1' is list"),
        ([{"doc_id": "d1", "text": "t", "query": "x"}], "h.jsonl:1: no query id among the fields doc_id, text, query"),
        ([{"query_id": "q", "text": "t", "query": "x"}], "h.jsonl:1: no document id among the fields query_id"),
        ([row(doc_id=1.5)], "h.jsonl:1: doc_id: no id, but '1.5' (float)"),
        ([row(query_id=None)], "h.jsonl:1: query_id: no id"),
        ([row(score=math.inf)], "h.jsonl:1: score 'inf'; expected a finite number"),
        ([row(score=10**400)], "h.jsonl:1: score '1000"),
        ([row(score="high")], "h.jsonl:1: score 'high'"),
        ([row(dense=1), row("q1", "d2", dense="x")], "h.jsonl:2: dense 'x'; expected a number as before"),
        ([row(grade=0.5)], "h.jsonl:1: grade '0.5'; expected a whole number"),
        ([row(grade=10**6)], "h.jsonl:1: grade '1000000'"),
        ([ERROR], "h.jsonl:1: an error in place of hits (index_not_found_exception: no such index [x])"),
        (
            [{"responses": [answer("a", query_id="q", query="x"), ERROR]}],
            "h.jsonl:1: response 2: an error in place of hits",
        ),
        ([{"responses": [answer("a", query_id="q", query="x"), 3]}], "h.jsonl:1: response 2: not a JSON object"),
        ([answer("a", timed_out=True)], "h.jsonl:1: an incomplete answer"),
        ([answer("a", _shards={"total": 2, "failed": 1})], "h.jsonl:1: an incomplete answer (1 shards failed"),
        ([answer("a")], "h.jsonl:1: an answer has no query"),
        ([{"query_id": "q", "query": "x", "hits": 3}], "h.jsonl:1: hits are int; expected a list"),
        ([{"query_id": "q", "query": "x", "hits": [3]}], "h.jsonl:1: hit 1: not a JSON object"),
        ([], "no hits; expected rows like"),
        ([[1]], "h.jsonl:1: not a JSON object"),
    ],
)
def test_bad_hits_are_one_line_with_their_place(tmp_path: Path, rows: list[Any], said: str) -> None:
    path = write(tmp_path / "h.jsonl", rows)
    with pytest.raises(UserError) as error:
        list(open_collection(f"hits:{path}").documents())
    assert said in str(error.value) and "\n" not in str(error.value)


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    whole = write(tmp_path / "h.parquet", ROWS).read_bytes()
    (tmp_path / "h.parquet").write_bytes(whole[:-20])
    (tmp_path / "h.json").write_text(json.dumps({"responses": [answer("a")]}, indent=1)[:-20])
    (tmp_path / "h.json.gz").write_bytes(gzip.compress(json.dumps([answer("a")], indent=1).encode())[:-20])
    (tmp_path / "h.csv").write_text("query_id,doc_id")
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 100_000 + "\n")
    (tmp_path / "empty").mkdir()
    for name, said in {
        "h.parquet": "not a readable Parquet file",
        "h.json": "is it cut short?",
        "h.json.gz": "is it cut short?|cannot be decompressed",
        "h.csv": "no hits; expected .jsonl",
        "list.json": "entry 1: not a JSON object",
        "deep.json": "not JSON",
        "empty": "no hits; expected .jsonl",
        "nowhere.jsonl": "no such file",
    }.items():
        with pytest.raises(UserError, match=said) as error:
            read(tmp_path / name)
        assert "\n" not in str(error.value) and name in str(error.value)


def test_answers_and_queries_are_equally_many(tmp_path: Path) -> None:
    path = write(tmp_path / "h.jsonl", [answer("a"), answer("b")])
    with pytest.raises(UserError, match=r"h.jsonl: 2 answers for 3 queries"):
        read(path, ASKED)
    with pytest.raises(UserError, match=r"h.jsonl:2: more answers than the 1 queries"):
        read(path, ASKED[:1])


@pytest.mark.parametrize("columns", [["text"], ["=a"], ["text="], ["text=a", "text=b"], ["a=x", "b=x"]])
def test_columns_are_pairs(tmp_path: Path, columns: list[str]) -> None:
    with pytest.raises(UserError, match="columns: "):
        read(write(tmp_path / "h.jsonl", ROWS), columns=columns)
    with pytest.raises(UserError, match="columns: demo has no rows of hits"):
        open_collection("demo", columns=columns)


def test_documents_queries_and_judgments_for_others_runs(tmp_path: Path) -> None:
    collection = open_collection(f"hits:{write(tmp_path / 'h.jsonl', ROWS)}")
    assert list(collection.documents()) == [Document("d1", "text of d1"), Document("d2", "text of d2")]
    assert list(collection.queries()) == [query for query, _ in READ]
    assert collection.qrels() == {"q1": {"d1": 1}}
    before = collection.fingerprint()
    write(tmp_path / "h.jsonl", ROWS[:2])
    assert open_collection(f"hits:{tmp_path / 'h.jsonl'}").fingerprint() != before


def ranked(qid: int, docid: str, rank: int, score: float) -> dict:
    return {"content": f"text of {docid}", "qid": qid, "docid": docid, "rank": rank, "score": score}


RANKED = [
    {"query": "one", "hits": [ranked(1, "a", 1, 2.5), ranked(1, "b", 2, 2.5)]},
    {"query": "two", "hits": [ranked(2, "b", 1, 1.0), ranked(2, "c", 2, 3.0)]},
]


def test_rank_llm_has_documents_queries_and_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "lists.json"
    path.write_text(json.dumps([*RANKED, {"query": "three", "hits": []}]))
    collection = open_collection(f"rank_llm:{path}")
    assert list(collection.documents()) == [Document(id, f"text of {id}") for id in "abc"]
    assert list(collection.queries()) == [Query("1", "one"), Query("2", "two")]
    assert collection.qrels() is None
    assert read_run(path) == {"1": [Scored("a", 2.5), Scored("b", 2.5)], "2": [Scored("c", 3.0), Scored("b", 1.0)]}
    assert "list 3 has no hits" in caplog.text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{", "lists.json: not JSON"),
        ("7", "lists.json: is int, no list; expected "),
        ("{}", "lists.json: is dict, no list; expected "),
        ("[3]", "lists.json: list 1: TypeError"),
        (json.dumps([{"query": "one", "hits": [{"qid": 1, "docid": "a"}]}]), "lists.json: list 1: KeyError 'content'"),
        (json.dumps(RANKED * 2), "lists.json: list 3: query id '1' again"),
        (json.dumps([{"query": "x", "hits": [ranked(1, "a", 1, 1.0)] * 2}]), "list 1: document 'a' is in the list"),
        (json.dumps([{"query": "x", "hits": [ranked(1, "a", 1, "high")]}]), "list 1: score 'high'; expected a finite"),  # type: ignore[arg-type]
    ],
)
def test_bad_files_of_rank_llm_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "lists.json"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_run(path)
