"""Requests with bad bodies, keys or connections are refused."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving.client import Client, process, read_all

KEY = "ein Schlüssel, 25 Zeichen"
AUTHORISED = {"Authorization": f"Bearer {KEY}".encode().decode("latin-1")}  # in UTF-8, as curl sends it
DOCUMENTS, BODY = 50, 1 << 20
GOOD = {"query": "a wing", "documents": ["jet", "wing"]}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[Client]:
    names = ("text", "mixed", "fusion", "decoder")
    limits = (f"--documents={DOCUMENTS}", f"--body={BODY}", "--timeout=2")
    environment = {"RERANK_API_KEY": f"{KEY}\n"}  # as files of secrets end
    with process(*(folders[name] for name in names), *limits, environment=environment) as stranger:
        yield Client(stranger.port, **AUTHORISED)


def question(**more: Any) -> bytes:
    return json.dumps(GOOD | more).encode()


BODIES: list[tuple[bytes, int, str]] = [
    (b"", 400, "not JSON"),
    (b"[" * 1_000_000, 400, "not JSON"),
    (question(top_n=float("nan")), 400, "NaN is not JSON"),
    (b'{"query": "a", "documents": [{"text": "b", "more": 1e999}]}', 400, "1e999 is not JSON"),
    (b"null", 400, "not a JSON object"),
    (question(query=None), 400, "query: expected a text"),
    (question(query="\ud800"), 400, "unpaired surrogates"),
    (question(documents="jet"), 400, "documents: expected texts or objects"),
    (question(documents=["a", None]), 400, "number 1: expected a text"),
    (question(documents=[{"body": "a"}]), 400, "number 0: expected a text"),
    *((question(top_n=value), 400, "top_n: expected a whole number") for value in (0, True, 1.0, "1")),
    (question(model="../../etc/passwd"), 404, "model: unknown model"),
    (question(raw_scores="yes"), 400, "raw_scores: expected true or false"),
    # fields that would change the scores
    (question(rank_fields=["title"]), 400, "rank_fields: ['title'] is not supported"),
    (question(max_tokens_per_doc=9), 400, "max_tokens_per_doc: 9 is not supported"),
    (question(truncate=False), 400, "truncate: False is not supported"),
    (question(instruction="find wings", model="fusion"), 400, "instruction: fusion reads none"),
    # inputs of other rankers
    (question(model="mixed"), 400, "the ranker reads column bm25"),
    *((question(model="fusion", documents=[{"bm25": 1, "dense": x}]), 400, "value 0") for x in ("1", True, 1e39)),
    # limits
    (question(documents=["a"] * (DOCUMENTS + 1)), 413, "51 documents; send at most 50"),
    (b" " * (5 << 20), 413, f"more than {BODY} bytes"),
]


@pytest.mark.parametrize(("body", "status", "message"), BODIES, ids=[f"{i}-{case[2]}" for i, case in enumerate(BODIES)])
def test_bad_body_is_refused(client: Client, body: bytes, status: int, message: str) -> None:
    said, answer = client.ask(body)
    assert (said, list(answer)) == (status, ["message"]) and message in answer["message"]
    assert len(answer["message"]) < 600


def test_instruction_changes_scores_of_decoder(client: Client) -> None:
    usual = client.scores("decoder", **GOOD)
    assert client.scores("decoder", **GOOD, instruction="Find wings") != usual


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer x"}, {"Authorization": "Basic x"}])
def test_key_is_needed(client: Client, header: dict[str, str]) -> None:
    stranger = Client(client.port, **header)
    assert stranger.get("/metrics")[0] == 401 and client.get("/metrics")[0] == 200
    assert stranger.ask(GOOD)[0] == 401
    assert stranger.get("/health")[0] == 200


HEAD = f"POST /rerank HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n".encode()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", b"400"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (HEAD + b"Content-Length: 100\r\n\r\n{", b"408"),
    ],
)
def test_slow_or_broken_client_is_refused(client: Client, sent: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        connection.sendall(sent)
        received = read_all(connection)
    assert received.partition(b" ")[2].startswith(status)
    assert client.ask(GOOD)[0] == 200
