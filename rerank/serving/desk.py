"""Requests that wait, the one thread that scores them, oldest first, those of one ranker together; and their counts."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rerank.kernels.memory import give_back
from rerank.serving.limits import Refusal
from rerank.serving.ranker import Question, Ranker
from rerank.storage.arrow import Array

TOGETHER = 512
"""Documents of requests that are scored in one batch: what a GPU needs to be busy. One request may have more."""

LARGE = 1_000_000
"""Characters from which on a batch's tokens took so much memory that it is given back: some 400 bytes a character."""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends of the buckets of the histogram."""

STATM = Path("/proc/self/statm")


@dataclass(eq=False)
class Waiting:
    """A request whose scores somebody waits for."""

    ranker: Ranker
    question: Question
    scores: asyncio.Future[Array]


class Desk:
    """Takes in as many requests as it may, and scores them."""

    def __init__(self, most: int, metrics: Metrics) -> None:
        self.most, self.metrics = most, metrics
        self._queue: deque[Waiting] = deque()
        self._arrived = asyncio.Event()

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for a request, from its first byte to its answer; a Refusal where all are taken."""
        if self.metrics.inside >= self.most:
            raise Refusal(429, f"{self.most} requests are waiting already; try again in a second")
        self.metrics.inside += 1
        try:
            yield
        finally:
            self.metrics.inside -= 1

    async def scores(self, ranker: Ranker, question: Question) -> Array:
        """Raw scores of a question's documents, when its turn has come; whoever stops waiting leaves the queue."""
        waiting = Waiting(ranker, question, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._arrived.set()
        try:
            return await waiting.scores
        finally:
            if waiting in self._queue:
                self._queue.remove(waiting)

    async def work(self) -> None:
        """Score what waits, until cancelled."""
        with ThreadPoolExecutor(1, "scoring") as thread:
            while True:
                await self._arrived.wait()
                if not (batch := self._next()):
                    self._arrived.clear()
                    continue
                started = time.perf_counter()
                found = await asyncio.get_running_loop().run_in_executor(thread, _scores, batch)
                if sum(len(text) for one in batch for text in one.question.texts) >= LARGE:
                    give_back()
                scored = [one for one, result in zip(batch, found, strict=True) if not isinstance(result, Exception)]
                documents = sum(len(one.question.texts) for one in scored)
                self.metrics.scored(batch[0].ranker.name, documents, time.perf_counter() - started)
                for one, result in zip(batch, found, strict=True):
                    if one.scores.done():  # its client is gone, or was told that it took too long
                        continue
                    if isinstance(result, Exception):
                        one.scores.set_exception(result)
                    else:
                        one.scores.set_result(result)

    def _next(self) -> list[Waiting]:
        """The oldest request and, as long as they are few documents, those after it that ask the same ranker."""
        batch: list[Waiting] = []
        documents = 0
        for one in [one for one in self._queue if one.ranker is self._queue[0].ranker]:
            documents += len(one.question.texts)
            if batch and documents > TOGETHER:
                break
            batch.append(one)
            self._queue.remove(one)
        return batch


def _scores(batch: list[Waiting]) -> list[Array | Exception]:
    """Scores of each request; where a batch fails, of each alone, so that one does not spoil the others."""
    try:
        return list(batch[0].ranker.scores([one.question for one in batch]))
    except Exception as error:
        return [error] if len(batch) == 1 else [result for one in batch for result in _scores([one])]


class Metrics:
    """Counters of a service; written by the event loop alone."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.documents: Counter[str] = Counter()
        self.batches: Counter[str] = Counter()
        self.scoring: Counter[str] = Counter()  # seconds
        self.buckets = [0] * len(SECONDS)
        self.seconds = 0.0
        self.inside = 0

    def took(self, seconds: float) -> None:
        """Count a request that was answered with scores."""
        self.seconds += seconds
        for number, end in enumerate(SECONDS):
            self.buckets[number] += seconds <= end

    def scored(self, model: str, documents: int, seconds: float) -> None:
        self.batches[model] += 1
        self.documents[model] += documents
        self.scoring[model] += seconds  # type: ignore[assignment]

    def text(self) -> str:
        answered = self.requests[200]
        lines = _family("rerank_requests_total", "counter", "Requests for scores, by status.")
        lines += [f'rerank_requests_total{{status="{status}"}} {n}' for status, n in sorted(self.requests.items())]
        for name, about, counts in (
            ("rerank_documents_total", "Documents that were scored.", self.documents),
            ("rerank_batches_total", "Batches in which requests were scored together.", self.batches),
            ("rerank_scoring_seconds_total", "Seconds spent scoring.", self.scoring),
        ):
            lines += _family(name, "counter", about)
            lines += [f'{name}{{model="{model}"}} {count}' for model, count in sorted(counts.items())]
        lines += _family("rerank_request_seconds", "histogram", "Seconds from a request to its scores.")
        ends = zip((*SECONDS, "+Inf"), (*self.buckets, answered), strict=True)
        lines += [f'rerank_request_seconds_bucket{{le="{end}"}} {count}' for end, count in ends]
        lines += [f"rerank_request_seconds_sum {self.seconds}", f"rerank_request_seconds_count {answered}"]
        lines += _family("rerank_requests_inside", "gauge", "Requests that are read, wait or are scored.")
        lines += [f"rerank_requests_inside {self.inside}"]
        lines += _family("process_cpu_seconds_total", "counter", "Seconds of all processors.")
        lines += [f"process_cpu_seconds_total {time.process_time()}"]
        if STATM.exists():
            pages = int(STATM.read_text().split()[1])
            lines += _family("process_resident_memory_bytes", "gauge", "Memory of the process.")
            lines += [f"process_resident_memory_bytes {pages * os.sysconf('SC_PAGE_SIZE')}"]
        return "\n".join(lines) + "\n"


def _family(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
