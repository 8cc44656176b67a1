"""Waiting requests are bounded in number and time, and finish before the service ends.

A test that holds ``SCORING_LOCK`` holds the thread that scores.
"""

from __future__ import annotations

import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rerank.commands.cli import main
from rerank.models.scorer import SCORING_LOCK
from rerank.serving.ranker import Ranker
from tests.forked import wait_for
from tests.serving.client import PATIENCE, process, read_all, thread

GOOD = {"query": "a wing", "documents": ["jet", "wing"]}
BODY = b'{"query": "a wing", "documents": ["jet", "wing"]}'


@pytest.fixture(scope="module")
def rankers(folders: dict[str, Path]) -> dict[str, Ranker]:
    return {"text": Ranker("text", str(folders["text"]), "fp32")}


def test_full_queue_refuses_requests(rankers: dict[str, Ranker]) -> None:
    with thread(rankers, queue=2) as client:
        held = [client.half(BODY) for _ in range(2)]
        client.until("rerank_requests_inside", 2)
        for _ in range(3):
            status, answer = client.ask(GOOD)
            assert status == 429 and "2 requests are waiting; try" in answer["message"]
        for connection, rest in held:
            connection.sendall(rest)
            assert read_all(connection).startswith(b"HTTP/1.1 200")
        assert client.ask(GOOD)[0] == 200
        assert client.metrics()['rerank_requests_total{status="429"}'] == 3


def test_timed_out_requests_leave_the_queue(rankers: dict[str, Ranker]) -> None:
    with thread(rankers, timeout=2.0) as client, ThreadPoolExecutor(3) as pool:
        with SCORING_LOCK:
            told = [pool.submit(client.ask, GOOD) for _ in range(3)]
            for one in told:
                status, answer = one.result()
                assert status == 503 and "within 2 seconds" in answer["message"]
        client.until("rerank_requests_inside", 0)
        assert client.ask(GOOD)[0] == 200
        assert client.metrics()['rerank_documents_total{model="text"}'] == 4, "the second and third were not scored"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_signal_lets_accepted_requests_finish(folders: dict[str, Path], number: int, code: int) -> None:
    with process(folders["text"]) as client:
        connection, rest = client.half(BODY)
        many = {"query": "a", "documents": ["wing " * 50] * 900}
        with ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(client.ask, many) for _ in range(4)]
            client.until("rerank_requests_inside", 5)
            client.process.send_signal(number)
            assert [one.result()[0] for one in asked] == [200] * 4
        wait_for(lambda: is_refused(client.port))
        connection.sendall(rest)
        assert read_all(connection).startswith(b"HTTP/1.1 200")
        assert client.process.wait(PATIENCE) == code
        with socket.create_server(("127.0.0.1", client.port)):
            pass  # the port is free


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
    except ConnectionRefusedError:
        return True
    return False


def test_serve_fails_before_loading(folders: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = str(folders["text"])
        for words, message in (
            ([text, f"--port={port}"], "choose another --port"),
            ([text, "--port=65536"], "port: must be in [0, 65535]"),
            ([text, "--host=203.0.113.7"], "nothing can listen at"),
            ([text, text], "there is a ranker 'text' already"),
            (["--rankers=[]"], "rankers: empty"),
            ([text, "--queue=0"], "queue: must be at least 1"),
            ([str(folders["text"].parent / "features"), "--port=0"], "reads features, not texts"),
        ):
            assert main(["serve", *words]) == 2
            assert message in capsys.readouterr().err
