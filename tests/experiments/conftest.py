"""Experiments that train in the process of the tests, one job at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from rerank.experiments.engines import Worker
from rerank.experiments.worker import Job, do_job

FRESH = Worker.do
LOCK = threading.Lock()


def _do(worker: Worker, job: Job) -> str:
    with LOCK:
        return do_job(job)


@pytest.fixture(scope="module", autouse=True)
def _in_this_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Worker, "do", _do)
        yield


@pytest.fixture
def fresh_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use processes of their own, as outside of tests."""
    monkeypatch.setattr(Worker, "do", FRESH)
