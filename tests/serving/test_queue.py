"""Requests that wait: scored together, oldest first, bounded in number and time, and finished before the service ends.

A test that holds ``ALONE`` holds the thread that scores, so that what waits is known.
"""

from __future__ import annotations

import signal
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rerank.commands.cli import main
from rerank.models.load import load_model
from rerank.models.scorer import ALONE
from rerank.serving import desk
from rerank.serving.limits import Limits
from rerank.serving.ranker import Ranker
from tests.serving.client import PATIENCE, Client, process, read_all, thread

GOOD = {"query": "a wing", "documents": ["jet", "wing"]}
BODY = b'{"query": "a wing", "documents": ["jet", "wing"]}'
VECTORS = {"model": "mlp", "query": "", "documents": [{"features": [1, 2]}]}


@pytest.fixture(scope="module")
def rankers(folders: dict[str, Path]) -> dict[str, Ranker]:
    return {name: Ranker(name, str(folders[name]), "fp32") for name in ("text", "mlp")}


def batches(client: Client, model: str = "text") -> float:
    return client.metrics().get(f'rerank_batches_total{{model="{model}"}}', 0)


def statuses(client: Client, bodies: list[dict[str, Any]]) -> list[int]:
    """Of requests that come one by one, and wait until all are there."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        with ALONE:
            asked = []
            for number, body in enumerate(bodies):
                asked.append(pool.submit(client.ask, body))
                client.until("rerank_requests_inside", number + 1)
        return [one.result()[0] for one in asked]


def test_what_waits_is_scored_together(rankers: dict[str, Ranker], folders: dict[str, Path]) -> None:
    with thread(rankers, Limits()) as client, ThreadPoolExecutor(10) as pool:
        texts = [f"wing {i}" for i in range(8)]
        with ALONE:
            first = pool.submit(client.ask, GOOD)
            client.until("rerank_requests_inside", 1)
            others = [pool.submit(client.ask, GOOD | {"documents": texts[i:]}) for i in range(8)]
            client.until("rerank_requests_inside", 9)
        assert first.result()[0] == 200
        model = load_model(folders["text"])
        for i, other in enumerate(others):
            results = sorted(other.result()[1]["results"], key=lambda one: one["index"])
            expected = model.text_scores([("a wing", text) for text in texts[i:]], precision="fp32")
            assert [one["relevance_score"] for one in results] == pytest.approx(expected.tolist(), abs=1e-5)
        assert batches(client) == 2


def test_the_oldest_is_first_and_few_go_together(rankers: dict[str, Ranker], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(desk, "TOGETHER", 5)
    seen: list[list[int]] = []
    score = desk._scores
    monkeypatch.setattr(
        desk, "_scores", lambda batch: seen.append([len(o.question.texts) for o in batch]) or score(batch)
    )
    with thread(rankers, Limits()) as client:
        bodies = [GOOD, GOOD, VECTORS, GOOD, GOOD | {"documents": ["wing"] * 9}, VECTORS]
        assert statuses(client, bodies) == [200] * 6
        # The first alone, as nothing else waited; then four texts; vectors; and what is larger than a batch alone.
        assert seen == [[2], [2, 2], [1, 1], [9]]
        assert (batches(client), batches(client, "mlp")) == (3, 1)


def test_one_that_fails_spoils_no_other(rankers: dict[str, Ranker]) -> None:
    with thread(rankers, Limits()) as client:
        nothing = VECTORS | {"documents": [{"features": [1, None]}]}
        assert statuses(client, [VECTORS, nothing, VECTORS]) == [200, 400, 200]


def test_a_full_queue_refuses_and_empties(rankers: dict[str, Ranker]) -> None:
    with thread(rankers, Limits(queue=2)) as client:
        held = [client.half(BODY) for _ in range(2)]
        client.until("rerank_requests_inside", 2)
        for _ in range(3):
            status, answer = client.ask(GOOD)
            assert status == 429 and "2 requests are waiting" in answer["message"]
        for connection, rest in held:
            connection.sendall(rest)
            assert read_all(connection).startswith(b"HTTP/1.1 200")
        assert client.ask(GOOD)[0] == 200
        assert client.metrics()['rerank_requests_total{status="429"}'] == 3


def test_who_waits_too_long_is_told_and_leaves_the_queue(rankers: dict[str, Ranker]) -> None:
    with thread(rankers, Limits(timeout=2.0)) as client, ThreadPoolExecutor(3) as pool:
        with ALONE:
            told = [pool.submit(client.ask, GOOD) for _ in range(3)]
            for one in told:
                status, answer = one.result()
                assert status == 503 and "within 2 seconds" in answer["message"]
        client.until("rerank_requests_inside", 0)
        client.until('rerank_batches_total{model="text"}', 1)  # the one that was at it; the two others were left out
        assert client.ask(GOOD)[0] == 200 and batches(client) == 2


def test_who_goes_away_leaves_the_queue(rankers: dict[str, Ranker]) -> None:
    with thread(rankers, Limits()) as client:
        with ALONE:
            for _ in range(3):
                connection, rest = client.half(BODY)
                connection.sendall(rest)
                client.until("rerank_requests_inside", 1)
                connection.close()
                client.until("rerank_requests_inside", 0)
        assert client.ask(GOOD)[0] == 200
        assert client.metrics()['rerank_documents_total{model="text"}'] == 4  # of the first, and the last


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_lets_what_was_accepted_finish(folders: dict[str, Path], number: int, code: int) -> None:
    with process(folders["text"]) as client:
        connection, rest = client.half(BODY)
        many = {"query": "a", "documents": ["wing " * 50] * 900}
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(client.ask, many) for _ in range(4)]
            client.until("rerank_requests_inside", 5)
            client.process.send_signal(number)
            assert [one.result()[0] for one in asked] == [200] * 4
        _until_refused(client.port)
        connection.sendall(rest)
        assert read_all(connection).startswith(b"HTTP/1.1 200")
        assert client.process.wait(PATIENCE) == code
        with socket.create_server(("127.0.0.1", client.port)):
            pass  # the port is free


def _until_refused(port: int) -> None:
    end = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
        except ConnectionRefusedError:
            return
        assert time.monotonic() < end
        time.sleep(0.05)


def test_bad_calls_are_refused_before_work(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = str(folders["text"])
        for words, message in (
            ([text, f"--port={port}"], "choose another --port"),
            ([text, "--port=65536"], "port: must be in [0, 65535]"),
            ([text, "--host=203.0.113.7"], "nothing can listen at"),
            ([text, text], "there is a ranker 'text' already"),
            ([f"a b={text}"], "is no name"),
            (["--rankers=[]"], "rankers: is empty"),
            ([text, "--queue=0"], "queue: must be at least 1"),
            ([str(folders["trees"]), "--port=0", "--precision=bf16"], "precision: LightGBM scores"),
        ):
            assert main(["serve", *words]) == 2
            assert message in capsys.readouterr().err
