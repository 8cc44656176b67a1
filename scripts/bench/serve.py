"""Requests for scores over HTTP: how many a second, how long each takes, and memory, next to `predict` without any.

Each request has the first 50 passages of a query's list, `predict` takes one request after the other.

    python scripts/bench/serve.py --model runs/x/best --lists lists/scifact-test
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import numpy as np
from common import head, parser_of, rerank_command, row

PASSAGES = 50


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True, help="a cross-encoder's folder, or its name on the hub")
    parser.add_argument("--lists", required=True, help="lists folder whose texts are asked about")
    parser.add_argument("--requests", type=int, default=64, help="requests of each row")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--words", type=int, help="words of a passage at most")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each row at most; fewer requests then")
    options = parser.parse_args()
    asked = questions(options.lists, options.requests, options.words)
    head("", "at once", "requests/s", "p50, ms", "p95, ms", "p99, ms", "processor, ms a request", "memory after, MB")
    row("predict", 1, *measured(predicting(options.model), asked, 1, time.process_time, options.seconds), "")
    with service(rerank_command("serve", f"m={options.model}", "--port=0", "--timeout=600")) as port:
        for count in options.concurrency:
            busy = partial(metric, port, "process_cpu_seconds_total")
            numbers = measured(posting(port), asked, count, busy, options.seconds)
            row("rerank serve", count, *numbers, f"{metric(port, 'process_resident_memory_bytes') / 1e6:.0f}")


def questions(folder: str, count: int, words: int | None) -> list[tuple[str, list[str]]]:
    """Queries with passages, again from the first where there are few."""
    from rerank.lists.view import Lists

    lists = Lists.open(folder)
    lists = lists.select(np.flatnonzero(lists.lengths >= PASSAGES)).top(PASSAGES)
    texts = lists.store.documents.column("text").take(lists.documents).to_pylist()
    texts = [" ".join(text.split()[:words]) for text in texts]
    asked = lists.store.queries.column("text").take(lists.queries).to_pylist()
    own = [(query, texts[i * PASSAGES : (i + 1) * PASSAGES]) for i, query in enumerate(asked)]
    return [own[i % len(own)] for i in range(count)]


def measured(
    ask: Any, asked: Sequence[tuple[str, list[str]]], at_once: int, processor: Callable[[], float], most: float
) -> list[str]:
    """Requests a second, percentiles of their seconds, and what one takes of the processors, whatever runs beside."""
    for one in asked[:at_once]:
        ask(*one)

    def timed(one: tuple[str, list[str]]) -> float | None:
        began = time.perf_counter()
        if began - started > most:
            return None
        ask(*one)
        return time.perf_counter() - began

    started, busy = time.perf_counter(), processor()
    with ThreadPoolExecutor(at_once) as pool:
        seconds = [one for one in pool.map(timed, asked) if one is not None]
    rate = len(seconds) / (time.perf_counter() - started)
    numbers = [*np.percentile(seconds, [50, 95, 99]), (processor() - busy) / len(seconds)]
    return [f"{rate:.2f}", *(f"{1000 * value:.0f}" for value in numbers)]


def predicting(model: str) -> Any:
    from rerank.models.load import load_model

    loaded: Any = load_model(model)
    return lambda query, passages: loaded.predict([(query, passage) for passage in passages])


def posting(port: int) -> Any:
    local = threading.local()

    def ask(query: str, passages: list[str]) -> None:
        if not hasattr(local, "connection"):
            local.connection = http.client.HTTPConnection("127.0.0.1", port)
        body = json.dumps({"query": query, "documents": passages})
        local.connection.request("POST", "/rerank", body, {"Content-Type": "application/json"})
        response = local.connection.getresponse()
        if len(json.loads(response.read()).get("results", ())) != len(passages):
            sys.exit(f"refused: {response.status}")

    return ask


def answer(port: int, path: str) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path)
    return connection.getresponse()


def metric(port: int, name: str) -> float:
    text = answer(port, "/metrics").read().decode()
    return float(re.search(rf"^{name} (\S+)", text, re.MULTILINE)[1])  # type: ignore[index]


def ready(port: int) -> bool:
    with suppress(ConnectionError):
        return answer(port, "/health").status == 200
    return False


@contextmanager
def service(command: Sequence[str]) -> Iterator[int]:
    """A service in a process of its own."""
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert started.stderr is not None
    port = next(int(found[1]) for line in started.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
    threading.Thread(target=started.stderr.read, daemon=True).start()
    try:
        while not ready(port):
            time.sleep(0.1)
        yield port
    finally:
        started.terminate()
        started.wait()


if __name__ == "__main__":
    main()
