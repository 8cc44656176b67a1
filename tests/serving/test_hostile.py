"""Whatever is sent is answered or refused, the next request is answered, and memory comes back."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.serving.client import OPEN, Client, process, read_all

KEY = "ein Schlüssel, 25 Zeichen"
AUTHORISED = {"Authorization": f"Bearer {KEY}".encode().decode("latin-1")}  # in UTF-8, as curl sends it
DOCUMENTS, CHARACTERS, BODY = 50, 5000, 1 << 20
LARGE = "9" * 400
GOOD = {"query": "a wing", "documents": ["jet", "wing"]}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path]) -> Iterator[Client]:
    names = ("text", "mixed", "mlp", "trees", "fusion")
    limits = (f"--documents={DOCUMENTS}", f"--characters={CHARACTERS}", f"--body={BODY}", "--timeout=2")
    environment = {"RERANK_API_KEY": f"{KEY}\n"}  # as files of secrets end
    with process(*(folders[name] for name in names), *limits, environment=environment) as stranger:
        yield Client(stranger.port, **AUTHORISED)


def question(**more: Any) -> bytes:
    return json.dumps(GOOD | more).encode()


BODIES: list[tuple[bytes, int, str]] = [
    # what is no JSON
    (b"", 400, "not JSON"),
    (b"\xff\xfe{}", 400, "not JSON"),
    (b"\x00" * 1000, 400, "not JSON"),
    (b"[" * 1_000_000, 400, "not JSON"),
    (b'{"top_n": ' + b"9" * 5000 + b"}", 400, "not JSON"),
    (question() + question(), 400, "not JSON"),
    (question(top_n=float("nan")), 400, "NaN is no JSON"),
    (question(more=[float("-inf")]), 400, "-Infinity is no JSON"),
    (question().replace(b"jet", "caf\xe9".encode("latin-1")), 400, "not JSON"),
    # other types
    (b"null", 400, "not a JSON object"),
    (b"{}", 400, "documents: expected a list"),
    (question(query=None), 400, "query: expected a text"),
    (question(query="\ud800"), 400, "query: has half of a character"),
    (question(documents="jet"), 400, "documents: expected a list"),
    (question(documents=[]), 400, "documents: expected a list"),
    (question(documents=["a", None]), 400, "number 1: expected a text"),
    (question(documents=[{"body": "a"}]), 400, "number 0: text: expected a text"),
    (question(documents=["x\udc00"]), 400, "number 0: has half of a character"),
    *((question(top_n=value), 400, "top_n: expected a whole number") for value in (0, -1, True, 1.0, "1", [1], {})),
    (question(model=7), 400, "model: expected a name"),
    (question(model="../../etc/passwd"), 404, "model: there is no"),
    (question(model="\ud800" * 300), 404, "model: there is no"),
    (question(return_documents=1), 400, "return_documents: expected true or false"),
    (question(raw_scores="yes"), 400, "raw_scores: expected true or false"),
    (question(rank_fields=["title"]), 400, "rank_fields: only text"),
    (question(documents=[{"text": "a", "n": 0}], return_documents=True).replace(b"0}", b"1e999}"), 400, "too large"),
    # what other rankers read
    (question(model="mixed"), 400, "the ranker reads column bm25"),
    *(
        (question(model="fusion", documents=[{"bm25": 1, "dense": value}]), 400, "documents: dense: value 0")
        for value in ("1", True, [1], {}, 1e39)
    ),
    (question(model="fusion", documents=[{"bm25": 1, "dense": 7}]).replace(b"7", LARGE.encode()), 400, "value 0 is 9"),
    (question(model="mlp"), 400, "the ranker reads features"),
    (question(model="mlp", documents=[{"features": [1]}]), 400, "has 1 numbers, the ranker reads 2"),
    (question(model="mlp", documents=[{"features": [1, None]}]), 400, "has no value for 1 candidates"),
    (question(model="trees", documents=[{"features": [[1, 2], 3]}]), 400, "value 0"),
    # too much
    (question(documents=["a"] * (DOCUMENTS + 1)), 413, "51 documents, of which one request may have 50"),
    (question(documents=["a" * CHARACTERS]), 413, f"more than {CHARACTERS} characters"),
    (question(query="a" * CHARACTERS), 413, f"more than {CHARACTERS} characters"),
    (question(documents=["a"] * 1_000_000), 413, f"more than {BODY} bytes"),
    (b" " * (20 << 20), 413, f"more than {BODY} bytes"),
]


@pytest.mark.parametrize(("body", "status", "message"), BODIES, ids=[f"{i}-{case[2]}" for i, case in enumerate(BODIES)])
def test_a_bad_body_is_refused_and_the_next_answered(client: Client, body: bytes, status: int, message: str) -> None:
    told, answer = client.ask(body)
    assert (told, list(answer)) == (status, ["message"]) and message in answer["message"]
    assert len(answer["message"]) < 600
    assert client.ask(GOOD)[0] == 200


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Bearer x"}, {"Authorization": KEY}, {"Authorization": f"Basic {KEY}"}]
)
def test_who_has_no_key_learns_nothing(client: Client, header: dict[str, str]) -> None:
    stranger = Client(client.port, **header)
    for path in ("/info", "/metrics", "/openapi.json"):
        assert stranger.get(path)[0] == 401 and client.get(path)[0] == 200
    assert stranger.ask(GOOD) == (401, {"message": "this service asks for a key: Authorization: Bearer KEY"})
    assert stranger.ask(b"{" * 99)[0] == 401
    assert stranger.get("/health")[0] == 200


def test_other_paths_and_methods(client: Client) -> None:
    assert client.ask(GOOD, "/v3/rerank")[0] == client.ask(GOOD, "/rerank/")[0] == 404
    assert client.ask(GOOD, "/../../etc/passwd")[0] == 404
    assert client.ask(GOOD, "/health")[0] == 405
    status, text = client.get("/rerank")
    assert status == 405 and json.loads(text) == {"message": "/rerank does not take GET"}
    with pytest.raises(HTTPError) as caught:
        OPEN.open(f"http://127.0.0.1:{client.port}/rerank")
    assert caught.value.headers["Allow"] == "POST"


HEAD = f"POST /rerank HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n".encode()
RAW: list[tuple[bytes, bytes]] = [
    (b"GET / HTTP/9.9\r\n\r\n", b"4"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b""),  # TLS; cut when the time is up
    (b"POST /rerank HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", b"400"),
    (HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", b"400"),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
    (HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b" " * 65536 + b"\r\n", b"408"),
    (HEAD + b"Content-Length: 99999999999999999999\r\n\r\n{}", b"413"),
    (HEAD + b"Content-Length: 100\r\n\r\n{", b"408"),
    (HEAD + b"X: " + b"y" * 66_000, b"400"),
    (HEAD, b""),
    (b"", b""),
]


@pytest.mark.parametrize(("sent", "status"), RAW)
def test_a_slow_or_broken_client_is_refused_or_cut(client: Client, sent: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
        connection.sendall(sent)
        received = read_all(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.partition(b" ")[2].startswith(status)
    assert not head or (body.count(b"\n") == 1 and list(json.loads(body)) == ["message"])
    assert client.ask(GOOD)[0] == 200


def test_clients_that_go_away_leave_nothing_behind(client: Client) -> None:
    body = question(documents=["wing " * 15] * DOCUMENTS)
    for end in (len(body), len(body) // 2, 1):
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", client.port), timeout=60) as connection:
                connection.sendall(HEAD + f"Content-Length: {len(body)}\r\n\r\n".encode() + body[:end])
    client.until("rerank_requests_inside", 0)
    assert client.ask(GOOD)[0] == 200


def test_memory_comes_back(client: Client) -> None:
    def memory() -> float:
        for body, status, _ in BODIES:
            assert client.ask(body)[0] == status
        return client.metrics()["process_resident_memory_bytes"]

    memory()
    before = memory()
    for _ in range(3):
        after = memory()
    assert after - before < 32 << 20


def test_memory_of_a_long_text_comes_back(folders: dict[str, Path]) -> None:
    """A million tokens take hundreds of megabytes, which the C library would keep."""
    with process(folders["text"], "--characters=1100000") as client:
        assert client.ask(GOOD)[0] == 200
        before = client.metrics()["process_resident_memory_bytes"]
        assert client.ask(GOOD | {"documents": ["\u4e00" * 1_050_000]})[0] == 200
        assert client.metrics()["process_resident_memory_bytes"] - before < 100 << 20
