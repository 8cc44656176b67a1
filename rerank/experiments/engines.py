"""Workers that take jobs side by side, here or on other machines; one that dies is replaced."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, TypedDict

import torch

from rerank.experiments.worker import STOP
from rerank.kernels.precision import on_cpu


class Worker(Protocol):
    """Does one job after the other; ``lost`` once its machine is gone."""

    lost: bool

    def do(self, job: dict[str, Any]) -> Reply: ...

    def ask_to_stop(self) -> None:
        """Let it stop where what it does can be resumed; its job is answered then."""

    def stop(self) -> None: ...


class Reply(TypedDict, total=False):
    """What comes of a job; ``died`` where a process or machine ended, through no fault of the job that can be told."""

    error: str
    stopped: str
    died: bool
    place: str


class Process:
    """A process of :mod:`rerank.experiments.worker` on this machine, started at its first job."""

    lost = False

    def __init__(self, environment: dict[str, str], log: Path, folder: Path | None = None) -> None:
        self._environment, self._log, self._folder = environment, log, folder
        self._process: subprocess.Popen[str] | None = None
        self._stopping = False

    def do(self, job: dict[str, Any]) -> Reply:
        """The reply to a job; where the process ended, the next job starts another."""
        process = self._process or self._start()
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(job) + "\n")
            process.stdin.flush()
            if self._stopping:  # asked for while the process was about to start
                self.ask_to_stop()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if line:
            reply: Reply = json.loads(line)
            if "stopped" in reply:
                process.wait()
                self._process = None
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
                cwd=self._folder,
            )
        return self._process

    def ask_to_stop(self) -> None:
        self._stopping = True
        if (process := self._process) is not None and process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(STOP)
                process.stdin.flush()

    def stop(self) -> None:
        if (process := self._process) is not None:
            process.kill()
            process.wait()


class Workers:
    """Workers at one place or several, as many as these have room for at the time.

    Args:
        room: how many jobs each place takes side by side; asked again and again, since places come and go.
        start: a worker at a place; the number is the lowest that no other worker there has.
    """

    def __init__(
        self,
        room: Callable[[], Mapping[str, int]],
        start: Callable[[str, int], Worker],
        most: int | None = None,
        end: Callable[[], None] | None = None,
    ) -> None:
        self._room, self._make, self._most, self._end = room, start, most, end
        self._workers: dict[tuple[str, int], Worker] = {}
        self._busy: set[tuple[str, int]] = set()
        self._threads = ThreadPoolExecutor(1024)  # it starts one when none is idle
        self._stopping = False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in list(self._workers.values()):
            worker.stop()
        self._threads.shutdown()
        if self._end is not None:
            self._end()

    def ask_to_stop(self) -> None:
        self._stopping = True
        for worker in list(self._workers.values()):
            worker.ask_to_stop()

    def submit(self, job: dict[str, Any], avoid: str | None = None) -> Future[Reply] | None:
        """Start a job, not at the place ``avoid`` if there is any other; None while no worker is free."""
        if self._most is not None and len(self._busy) >= self._most:
            return None
        room = self._room()
        places = [place for place in room if place != avoid] or list(room)
        free = [key for place in places for i in range(room[place]) if (key := (place, i)) not in self._busy]
        if not free:
            return None
        key = min(free, key=lambda key: (key not in self._workers, key[1], places.index(key[0])))  # warm ones first
        if key not in self._workers:
            self._workers[key] = self._make(*key)
        self._busy.add(key)
        return self._threads.submit(self._do, key, job)

    def _do(self, key: tuple[str, int], job: dict[str, Any]) -> Reply:
        worker = self._workers[key]
        try:
            reply = Reply(stopped="before it began") if self._stopping else worker.do(job)
        finally:
            if worker.lost:
                del self._workers[key]
            self._busy.discard(key)
        return {**reply, "place": key[0]} if "died" in reply or "stopped" in reply else reply


def local_workers(jobs: int | None, logs: Path) -> Workers:
    """Processes on this machine; ``jobs`` of them, or one per GPU, or one per core where there is none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    shares = environments(jobs, cores, devices_at_hand())
    host = socket.gethostname()
    return Workers(lambda: {host: len(shares)}, lambda _, i: Process(shares[i], logs / f"worker-{i}.log"))


def environments(jobs: int | None, cores: int, devices: list[str]) -> list[dict[str, str]]:
    """What differs in the environment of each of ``jobs`` workers; None takes one per device, or per core without any.

    Cores are shared out evenly as threads, unless ``OMP_NUM_THREADS`` says how many each has; devices take turns.
    """
    count = jobs or len(devices) or cores
    threads = os.environ.get("OMP_NUM_THREADS") or str(max(1, cores // count))
    common = {"OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
    gpus = [{"CUDA_VISIBLE_DEVICES": devices[i % len(devices)]} if devices else {} for i in range(count)]
    return [common | gpu for gpu in gpus]


def devices_at_hand() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them; none where the CPU is asked for."""
    if on_cpu():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]
