"""What a service counts, as the text that Prometheus reads."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper ends of the buckets of the histogram."""

STATM = Path("/proc/self/statm")


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
