"""Worker processes that take jobs side by side; one that dies is replaced."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rerank.experiments.worker import STOP


class Worker:
    """A process of :mod:`rerank.experiments.worker`, started at its first job.

    Args:
        environment: variables that differ from ours.
        log: file for whatever it prints.
        own_classes: whether it may import a user's classes from the working directory.
    """

    def __init__(self, environment: dict[str, str], log: Path, own_classes: bool = False) -> None:
        self._environment, self._log = environment, log
        self._options = [] if own_classes else ["-P"]
        self._process: subprocess.Popen[str] | None = None

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        """Its answer; ``{"error": ...}`` as well where the process ended."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            reply: dict[str, Any] = json.loads(line)
            if "stopped" in reply:
                process.wait()
                self._process = None
            return reply
        code, self._process = process.wait(), None
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        hint = " (out of memory?)" if code == -signal.SIGKILL else ""
        return {"error": f"its process ended with {how}{hint}; see {self._log}"}

    def _start(self) -> subprocess.Popen[str]:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("a") as file:
            self._process = subprocess.Popen(
                [sys.executable, *self._options, "-m", "rerank.experiments.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                env=os.environ | self._environment,
            )
        return self._process

    def ask_to_stop(self) -> None:
        """Let the process stop where what it does can be resumed; its job is answered then."""
        if (process := self._process) is not None and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(STOP)
                process.stdin.flush()

    def stop(self) -> None:
        """End the process, whatever it does."""
        if (process := self._process) is not None:
            process.kill()
            process.wait()


class Workers:
    """As many workers as jobs may run side by side.

    Args:
        environments: what differs in the environment of each.
        logs: folder for what they print.
        own_classes: whether they may import a user's classes from the working directory.
    """

    def __init__(self, environments: list[dict[str, str]], logs: Path, own_classes: bool = False) -> None:
        self.count = len(environments)
        self._workers = [Worker(env, logs / f"worker-{i}.log", own_classes) for i, env in enumerate(environments)]
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(self.count)
        self._stopping = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.stop()
        self._threads.shutdown()

    def submit(self, job: dict[str, Any]) -> Future[dict[str, Any]]:
        """Start a job as soon as a worker is idle."""
        return self._threads.submit(self._do, job)

    def ask_to_stop(self) -> None:
        """Let every worker stop where what it does can be resumed."""
        self._stopping = True
        for worker in self._workers:
            worker.ask_to_stop()

    def _do(self, job: dict[str, Any]) -> dict[str, Any]:
        worker = self._idle.get()
        try:
            if self._stopping:
                return {"stopped": "before it began"}
            return worker.do(job)
        finally:
            self._idle.put(worker)


def environments(jobs: int | None, cores: int, devices: list[str]) -> list[dict[str, str]]:
    """What differs in the environment of each of ``jobs`` workers.

    Args:
        jobs: workers; None takes one per device, or one per core where there is no device.
        cores: cores, shared out evenly as threads.
        devices: the GPUs, as CUDA_VISIBLE_DEVICES names them, taken in turn.
    """
    count = jobs or len(devices) or cores
    threads = str(max(1, cores // count))
    common = {"OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
    gpus = [{"CUDA_VISIBLE_DEVICES": devices[i % len(devices)]} if devices else {} for i in range(count)]
    return [common | gpu for gpu in gpus]


def cores_at_hand() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def devices_at_hand() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none where the CPU is asked for."""
    import torch

    from rerank.kernels.precision import on_cpu

    if on_cpu():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]
