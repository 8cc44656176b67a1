"""Answers have the shapes of three APIs, and the scores of ``predict`` and ``rank``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rerank.models.load import load_model
from tests.builders import WORDS
from tests.serving.client import Client, process

QUERY = "shock wave on a blunt body"
TEXTS = [" ".join(WORDS[i : i + 1 + i % 9]) for i in range(20)]
BM25 = [20.0 - i for i in range(20)]
DENSE = [None if i % 3 == 0 else i * 0.37 % 1 for i in range(20)]


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[Client]:
    with process(*folders.values(), f"again={folders['text']}", "--precision=fp32") as client:
        yield client


def documents(**fields: list[Any]) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in zip(fields, row, strict=True)} for row in zip(*fields.values(), strict=True)
    ]


def test_texts_have_the_scores_of_predict(client: Client, folders: dict[str, Path]) -> None:
    for name in ("text", "decoder"):
        expected = load_model(folders[name]).predict([(QUERY, text) for text in TEXTS], precision="fp32")
        assert client.scores(name, QUERY, TEXTS) == expected.tolist()  # the batch is the same, and so are the bits
        assert client.scores(name, QUERY, documents(text=TEXTS)) == expected.tolist()


def test_columns_are_read_from_fields_of_documents(client: Client, folders: dict[str, Path]) -> None:
    asked = documents(text=TEXTS, bm25=BM25, dense=DENSE)
    for one in asked:
        if one["dense"] is None:
            del one["dense"]  # as good as null
    columns = {"bm25": BM25, "dense": DENSE}
    mixed, start, fusion = (load_model(folders[name]) for name in ("mixed", "start", "fusion"))
    expected = mixed.scores_of(QUERY, TEXTS, columns, precision="fp32").tolist()
    assert client.scores("mixed", QUERY, asked) == pytest.approx(expected, abs=1e-5)
    expected = start.scores_of(QUERY, TEXTS, {"bm25": BM25}, precision="fp32").tolist()
    assert client.scores("start", QUERY, asked) == pytest.approx(expected, abs=1e-5)
    expected = {hit["corpus_id"]: hit["score"] for hit in fusion.rank(QUERY, TEXTS, columns=columns)}
    without = [{name: one[name] for name in one if name != "text"} for one in asked]
    assert client.scores("fusion", "", without) == [expected[i] for i in range(20)]


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
def test_answer_has_shape_of_cohere_and_jina(client: Client, path: str) -> None:
    status, answer = client.ask({"model": "text", "query": QUERY, "documents": TEXTS, "top_n": 3}, path)
    assert (status, list(answer)) == (200, ["id", "object", "model", "results"])
    assert answer["model"] == "text" and len(answer["results"]) == 3
    assert all(list(one) == ["index", "relevance_score"] for one in answer["results"])
    body = {"query": QUERY, "documents": TEXTS, "return_documents": True, "top_n": 99}
    results = client.ask(body, path)[1]["results"]
    assert [one["document"] for one in results] == [{"text": TEXTS[one["index"]]} for one in results]
    objects = [{"text": text, "id": i, "more": {"\ud800": None}} for i, text in enumerate(TEXTS)]
    results = client.ask(body | {"documents": objects}, path)[1]["results"]
    assert [one["document"] for one in results] == [objects[one["index"]] for one in results]


def test_answer_has_shape_of_text_embeddings_inference(client: Client) -> None:
    status, answer = client.ask({"query": QUERY, "texts": TEXTS, "truncate": True})
    expected = client.scores("text", QUERY, TEXTS)
    assert status == 200
    assert answer == [
        {"index": i, "score": expected[i]} for i in np.argsort(-np.array(expected), kind="stable").tolist()
    ]
    answer = client.ask({"query": QUERY, "texts": TEXTS, "return_text": True})[1]
    assert [one["text"] for one in answer] == [TEXTS[one["index"]] for one in answer]


def test_calibrated_ranker_answers_with_probabilities(client: Client) -> None:
    raw = client.scores("calibrated", QUERY, TEXTS, raw_scores=True)
    assert raw == client.scores("text", QUERY, TEXTS) == client.scores("text", QUERY, TEXTS, raw_scores=True)
    expected = [1 / (1 + math.exp(0.5 - 2 * score)) for score in raw]
    assert client.scores("calibrated", QUERY, TEXTS) == pytest.approx(expected, rel=1e-12)
    answer = client.ask({"model": "calibrated", "query": QUERY, "texts": TEXTS})[1]
    assert [one["score"] for one in answer] == pytest.approx(sorted(expected, reverse=True), rel=1e-12)


def test_rankers_go_by_their_names(client: Client, folders: dict[str, Path]) -> None:
    assert client.scores("again", QUERY, TEXTS) == client.scores("text", QUERY, TEXTS)
    status, answer = client.ask({"model": "txt", "query": "a", "documents": ["b"]})
    assert status == 404 and "did you mean 'text'" in answer["message"]
    assert all(name in answer["message"] for name in (*folders, "again"))


def test_metrics_count_requests_and_documents(client: Client) -> None:
    before = client.metrics()
    client.scores("text", QUERY, TEXTS)
    client.ask(b"")
    after = client.metrics()

    def more(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert more('rerank_requests_total{status="200"}') == 1 == more('rerank_requests_total{status="400"}')
    assert more('rerank_documents_total{model="text"}') == len(TEXTS)
    assert more('rerank_scoring_seconds_total{model="text"}') > 0
    assert after["rerank_requests_inside"] == 0
