"""Workers of an experiment on this machine: processes that take one job after the other."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

import torch

from rerank.experiments.worker import STOP
from rerank.kernels.precision import on_cpu
from rerank.progress import log

Job = dict[str, Any]
"""Settings and folder of a cell, and the fingerprint of the training; without one, its test lists are ranked."""


class Reply(TypedDict, total=False):
    """Answer of a worker; ``died`` if its process ended."""

    error: str
    stopped: str
    died: bool


class Process:
    """A process of :mod:`rerank.experiments.worker`, started at its first job and again after it died."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        self._environment, self._log = environment, log
        self._process: subprocess.Popen[str] | None = None
        self._stopping = False

    def do(self, job: Job) -> Reply:
        """Do a job; one whose process died is tried again once, from its last checkpoint."""
        reply = self._do(job)
        if "died" in reply and not self._stopping:
            log.warning("%s: %s; trying again", job["folder"], reply["error"])
            reply = self._do(job)
        return reply

    def _do(self, job: Job) -> Reply:
        if self._stopping:
            return {"stopped": "before it began"}
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        line = ""
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            if self._stopping:  # asked for while the process was about to start
                self.ask_to_stop()
            line = process.stdout.readline()
        if line:
            reply: Reply = json.loads(line)
            return reply
        code, self._process = process.wait(), None
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        hint = " (out of memory?)" if code == -signal.SIGKILL else ""
        return {"error": f"its process ended with {how}{hint}; see {self._log}", "died": True}

    def _start(self) -> subprocess.Popen[str]:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "rerank.experiments.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=os.environ | self._environment,
            )
        return self._process

    def ask_to_stop(self) -> None:
        """Let the process write a checkpoint and stop."""
        self._stopping = True
        if (process := self._process) is not None and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(STOP)
                process.stdin.flush()

    def end(self) -> None:
        """Kill the process."""
        self._stopping = True
        if (process := self._process) is not None:
            process.kill()
            process.wait()


class Workers:
    """Threads that each have a job done; the same interface serves this machine and a Ray cluster.

    Args:
        count: jobs that are done at the same time.
        do: does a job.
        ask_to_stop: lets jobs under way stop.
        end: cleans up.
    """

    def __init__(
        self, count: int, do: Callable[[Job], Reply], ask_to_stop: Callable[[], None], end: Callable[[], None]
    ) -> None:
        self._threads = ThreadPoolExecutor(count)
        self._do, self.ask_to_stop, self._end = do, ask_to_stop, end

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._end()
        self._threads.shutdown()

    def submit(self, job: Job) -> Future[Reply]:
        """Queue a job."""
        return self._threads.submit(self._do, job)


def local_workers(jobs: int | None, logs: Path) -> Workers:
    """Start processes on this machine when they are needed: ``jobs``, by default one per GPU, or else one per core."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = environments(jobs, cores, visible_gpus())
    processes = [Process(share, logs / f"worker-{i}.log") for i, share in enumerate(shares)]
    free: queue.LifoQueue[Process] = queue.LifoQueue()  # those that have started are taken first
    for process in reversed(processes):
        free.put(process)

    def do(job: Job) -> Reply:
        process = free.get()
        try:
            return process.do(job)
        finally:
            free.put(process)

    def each(method: Callable[[Process], None]) -> None:
        for process in processes:
            method(process)

    return Workers(len(processes), do, lambda: each(Process.ask_to_stop), lambda: each(Process.end))


def environments(jobs: int | None, cores: int, gpus: list[str]) -> list[dict[str, str]]:
    """Divide cores among workers as threads, unless ``OMP_NUM_THREADS`` is set; workers take turns at GPUs."""
    count = jobs or len(gpus) or cores
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // count))
    common = {"OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
    return [common | ({"CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else {}) for i in range(count)]


def visible_gpus() -> list[str]:
    """List the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none if the CPU is asked for."""
    if on_cpu():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]
