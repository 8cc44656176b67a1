"""Requests for scores over HTTP: how many a second, how long each takes, and memory, beside what scores without HTTP.

Each request has the first 50 passages of a query's list. The contenders: `rerank serve`, sentence-transformers'
CrossEncoder behind the same HTTP layer, infinity's server where a Python that has it is named, and `predict`, called
for one request after the other, without any. `--words` cuts passages, as each would cut long ones in its own place.

    python scripts/bench/serve.py --model runs/x/best --lists lists/scifact-test --infinity infinity/bin/python
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import head, parser_of, rerank_command, row

PASSAGES = 50


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True, help="a cross-encoder's folder, or its name on the hub")
    parser.add_argument("--lists", help="lists folder whose texts are asked about")
    parser.add_argument("--requests", type=int, default=64, help="requests of each row")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--words", type=int, help="words of a passage at most")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of each row at most; fewer requests then")
    parser.add_argument("--infinity", metavar="PYTHON", help="that has infinity-emb[server,torch]")
    parser.add_argument("--peer", type=int, metavar="PORT", help="serve the model by sentence-transformers instead")
    options = parser.parse_args()
    if options.peer is not None:
        serve_peer(options.model, options.peer)
        return
    asked = questions(options.lists, options.requests, options.words)
    head("", "at once", "requests/s", "p50, ms", "p95, ms", "p99, ms", "processor, ms a request", "memory after, MB")
    row("predict", 1, *measured(predicting(options.model), asked, 1, time.process_time, options.seconds), "")
    commands = {
        "rerank serve": rerank_command("serve", f"m={options.model}", "--port=0", "--timeout=600"),
        "sentence-transformers": [sys.executable, __file__, "--model", options.model, "--peer", "0"],
    }
    if options.infinity:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        own = ["v2", "--model-id", options.model, "--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
        more = ["--engine", "torch", "--no-bettertransformer", "--batch-size", str(PASSAGES)]
        commands["infinity"] = [str(Path(options.infinity).parent / "infinity_emb"), *own, *more]
    for name, command in commands.items():
        with service(command) as port:
            for count in options.concurrency:
                busy = partial(metric, port, "process_cpu_seconds_total")
                numbers = measured(posting(port), asked, count, busy, options.seconds)
                row(name, count, *numbers, f"{metric(port, 'process_resident_memory_bytes') / 1e6:.0f}")


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
        answer = local.connection.getresponse()
        if len(json.loads(answer.read()).get("results", ())) != len(passages):
            sys.exit(f"refused: {answer.status}")

    return ask


def metric(port: int, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    return float(re.search(rf"^{name} (\S+)", text, re.MULTILINE)[1])  # type: ignore[index]


def ready(port: int) -> bool:
    """Whether a service answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except ConnectionError:
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


def serve_peer(model: str, port: int) -> None:
    """The same service, but its scores are those of sentence-transformers."""
    from sentence_transformers import CrossEncoder

    from rerank.serving.app import application
    from rerank.serving.connections import server_of
    from rerank.serving.limits import Limits
    from rerank.serving.questions import Question
    from rerank.serving.ranker import Ranker

    class Peer(Ranker):
        def __init__(self) -> None:
            self.name, self.model = "m", CrossEncoder(model)
            self.model.calibration = None
            self.reads_text, self.columns, self.cosines, self.features = True, [], [], {}

        def scores(self, questions: Sequence[Question]) -> list[Any]:
            pairs = [(asked.query, text) for asked in questions for text in asked.texts]
            scores = self.model.predict(pairs, show_progress_bar=False)
            return np.split(scores, np.cumsum([len(asked.texts) for asked in questions])[:-1])

    limits = Limits(timeout=600.0)
    with socket.create_server(("127.0.0.1", port)) as listening:
        print(f"127.0.0.1:{listening.getsockname()[1]}", file=sys.stderr, flush=True)
        server_of(application({"m": Peer()}, limits, None), limits).run(sockets=[listening])


if __name__ == "__main__":
    main()
