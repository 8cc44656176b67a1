"""Workers of experiments that are forks of a warm process, see `tests.forked`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rerank.experiments.engines import Process
from tests.forked import as_file, fork, pipe

FRESH = Process._start


def _work(jobs: Any, replies: Any, log: str) -> None:
    """Do what ``python -m rerank.experiments.worker`` does."""
    from rerank.experiments import worker

    with open(log, "a") as file:
        for number, given in enumerate((jobs, replies, file)):
            os.dup2(given.fileno(), number)
    jobs.close()
    replies.close()
    sys.stdin = os.fdopen(0)
    worker.main()


class Forked:
    """A forked worker, as `Process` looks at its process."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        (jobs, give), (take, replies) = pipe(), pipe()
        self._process = fork(_work, jobs, replies, str(log), environment=environment)
        jobs.close()
        replies.close()
        self.stdin, self.stdout = as_file(give, "w"), as_file(take, "r")
        self.kill = self._process.kill

    def wait(self) -> int:
        """Its exit code."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode


def _start(worker: Process) -> Any:
    worker._log.parent.mkdir(parents=True, exist_ok=True)
    worker._log.touch()
    worker._process = Forked(worker._environment, worker._log)  # type: ignore[assignment]
    return worker._process


@pytest.fixture(scope="module", autouse=True)
def _forked_workers() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Process, "_start", _start)
        yield


@pytest.fixture
def fresh_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers as everybody has them: processes of their own, from their first import on."""
    monkeypatch.setattr(Process, "_start", FRESH)
