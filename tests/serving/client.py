"""Run a service in a process or a thread, and send it real HTTP."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from rerank.serving.app import Service, server_of
from rerank.serving.ranker import Ranker
from tests.forked import Command, wait_for

OPEN = build_opener(ProxyHandler({}))
PATIENCE = 120.0
"""Seconds for what takes much less on a quiet machine."""


class Client:
    """Client of a service at a port, with headers of its own."""

    def __init__(self, port: int, process: Command | None = None, **headers: str) -> None:
        self.port, self.process, self.headers = port, process, headers

    def get(self, path: str) -> tuple[int, str]:
        return self._send(Request(f"http://127.0.0.1:{self.port}{path}", headers=self.headers))

    def ask(self, body: Any, path: str = "/rerank") -> tuple[int, Any]:
        """Return the status and the answer, which is strict JSON; a body that is not bytes is written as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        status, text = self._send(Request(f"http://127.0.0.1:{self.port}{path}", data, headers))
        assert text.count("\n") == 1 and text.endswith("\n")
        return status, json.loads(text, parse_constant=_refuse)

    def scores(self, model: str, query: str, documents: list[Any], **more: Any) -> list[float]:
        """Return scores in the order of the documents."""
        body = {"model": model, "query": query, "documents": documents, **more}
        status, answer = self.ask(body)
        assert status == 200, answer
        results = answer["results"]
        assert [one["relevance_score"] for one in results] == sorted(
            (one["relevance_score"] for one in results), reverse=True
        )
        assert sorted(one["index"] for one in results) == list(range(len(documents)))
        return [one["relevance_score"] for one in sorted(results, key=lambda one: one["index"])]

    def metrics(self) -> dict[str, float]:
        """Return counts by their names with labels; every line has Prometheus's form."""
        found: dict[str, float] = {}
        for line in self.get("/metrics")[1].splitlines():
            match = re.fullmatch(r"([a-z_]+(?:\{[a-z]+=\"[^\"]+\"\})?) ([0-9.e+-]+)", line)
            assert match, line
            found[match[1]] = float(match[2])
        return found

    def until(self, name: str, count: float) -> None:
        """Wait until a metric has a value."""
        wait_for(lambda: self.metrics().get(name) == count)

    def is_up(self) -> bool:
        with suppress(OSError):
            return self.get("/health") == (200, '{"status": "ok"}\n')
        return False

    def half(self, body: bytes, path: str = "/rerank") -> tuple[socket.socket, bytes]:
        """Send a request's head and half of its body; return the connection and the other half."""
        sent = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        sent.sendall(head + body[: len(body) // 2])
        return sent, body[len(body) // 2 :]

    @staticmethod
    def _send(request: Request) -> tuple[int, str]:
        try:
            with OPEN.open(request, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def read_all(connection: socket.socket) -> bytes:
    """Receive until the other side closes."""
    received = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            received += part
            if b"\r\n\r\n" in received and received.endswith(b"}\n"):
                break
    connection.close()
    return received


@contextmanager
def process(*words: str | Path, environment: Mapping[str, str] | None = None) -> Iterator[Client]:
    """Run ``rerank serve WORDS`` at a free port, and stop it at the end."""
    command = Command(["serve", *map(str, words), "--port=0"], environment)
    try:
        address = r"at http://127\.0\.0\.1:(\d+)\n"
        found = wait_for(lambda: re.search(address, command.said) or command.poll() is not None)
        assert isinstance(found, re.Match), command.said
        client = Client(int(found[1]), command)
        wait_for(client.is_up)
        yield client
    finally:
        command.send_signal(signal.SIGTERM)
        command.communicate(PATIENCE)


@contextmanager
def thread(rankers: Mapping[str, Ranker], queue: int = 64, timeout: float = 60.0) -> Iterator[Client]:
    """Run the same service in a thread, so that a test can hold the lock that scoring waits for."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = server_of(Service(rankers, None, 1000, 1 << 20, queue, timeout))
        running = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        running.start()
        client = Client(listening.getsockname()[1])
        try:
            wait_for(client.is_up)
            yield client
        finally:
            server.should_exit = True
            running.join(PATIENCE)
            assert not running.is_alive()
