"""Workers of an experiment on this machine: processes that take one job after the other."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import ModuleType

import torch

from rerank.experiments.worker import Job, do_job
from rerank.kernels.precision import on_cpu
from rerank.progress import log
from rerank.settings.arguments import find_own_classes

STARTING = threading.Lock()
"""Held while a process starts, because it inherits the environment of this one."""


class Worker:
    """A process that is started at its first job, and again after it died."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._environment, self._log = environment, log
        self._pool: ProcessPoolExecutor | None = None
        self._process = 0
        self._stopping = False

    def do(self, job: Job) -> str:
        """Do a job; return an error, or nothing."""
        try:
            pool = self._pool or self._start()
            if self._stopping:  # while the process started
                return "stopped before it began"
            try:
                doing = pool.submit(do_job, job)
            except BrokenProcessPool:  # it died after its last job
                doing = self._start().submit(do_job, job)
            return doing.result()
        except BrokenProcessPool:
            self._pool = None
            return f"its process died (out of memory?); see {self._log}"

    def _start(self) -> ProcessPoolExecutor:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _prepare, (str(self._log),))
        with STARTING, _inherited(self._environment):
            started = pool.submit(os.getpid)
        self._pool, self._process = pool, started.result()
        return pool

    def stop(self, number: signal.Signals) -> None:
        """Send a signal to the process, if there is one: SIGTERM lets it write a checkpoint."""
        self._stopping = True
        if self._pool is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process, number)

    def end(self) -> None:
        """End the process after its job."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


@contextlib.contextmanager
def _inherited(environment: dict[str, str]) -> Iterator[None]:
    """Set variables for a process that starts in the block, and keep it from running the program's script again."""
    before, main = dict(os.environ), sys.modules["__main__"]
    os.environ.update(environment)
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
        os.environ.update(before)
        for name in environment.keys() - before.keys():
            del os.environ[name]


def _prepare(output: str) -> None:
    """Send what the process prints to a file, leave Ctrl-C to the experiment, and end with the experiment."""
    with open(output, "a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    find_own_classes()
    log.setLevel(logging.INFO)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


class Workers:
    """Threads that each have a job done; the same interface serves this machine and a Ray cluster.

    Args:
        count: jobs that are done at the same time.
        do: does a job, and returns an error, or nothing.
        stop: lets jobs under way stop, or kills them.
        end: cleans up.
    """

    def __init__(
        self, count: int, do: Callable[[Job], str], stop: Callable[[signal.Signals], None], end: Callable[[], None]
    ) -> None:
        self._threads = ThreadPoolExecutor(count)
        self._do, self.stop, self._end = do, stop, end

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if kind is not None:
            self.stop(signal.SIGKILL)
        self._end()
        self._threads.shutdown()

    def submit(self, job: Job) -> Future[str]:
        """Queue a job."""
        return self._threads.submit(self._do, job)


def local_workers(jobs: int | None, logs: Path) -> Workers:
    """Start processes on this machine when they are needed: ``jobs``, by default one per GPU, or else one per core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = environments(jobs, cores, visible_gpus())
    workers = [Worker(share, logs / f"worker-{i}.log") for i, share in enumerate(shares)]
    unused, own = iter(workers), threading.local()

    def do(job: Job) -> str:
        if not hasattr(own, "worker"):  # each thread has its own, so no more processes start than are needed
            own.worker = next(unused)
        worker: Worker = own.worker
        return worker.do(job)

    def stop(number: signal.Signals) -> None:
        for worker in workers:
            worker.stop(number)

    def end() -> None:
        for worker in workers:
            worker.end()

    return Workers(len(workers), do, stop, end)


def environments(jobs: int | None, cores: int, gpus: list[str]) -> list[dict[str, str]]:
    """Divide cores among workers as threads, unless ``OMP_NUM_THREADS`` is set; workers take turns at GPUs."""
    count = jobs or len(gpus) or cores
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // count))
    common = {"OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false", "PYTHONSAFEPATH": "1"}
    return [common | ({"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}) for i in range(count)]


def visible_gpus() -> list[str]:
    """List the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none if the CPU is asked for."""
    if on_cpu():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]
