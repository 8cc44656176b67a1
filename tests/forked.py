"""Start processes as forks of one that has imported everything, which saves five seconds each.

They can be killed, hold locks and communicate like torchrun's. A few tests start real processes, too, so that the start
itself is tested.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.warm"])


def wait_for(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait until a condition holds; return its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return value


def python(code: str, *words: str, ends: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a new interpreter, and check its exit code."""
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == ends, done.stderr
    return done


def fork(
    target: Callable[..., Any], *arguments: Any, environment: Mapping[str, str] | None = None
) -> multiprocessing.Process:
    """Start a function of a module in a process of its own; ``environment`` has the variables that differ from ours."""
    given = (target, arguments, os.environ | dict(environment or {}), os.getcwd())
    process = _context.Process(target=_run, args=given, daemon=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))  # for the first one, which starts the process that is forked
        process.start()
    return process


def _run(target: Callable[..., Any], arguments: Sequence[Any], environment: Mapping[str, str], folder: str) -> None:
    import torch

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", "1")))
    target(*arguments)


class Command:
    """``rerank WORDS`` in a process of its own, used like `subprocess.Popen`.

    With ``file_limit``, files may not grow beyond that number of bytes, as on a full disk.
    """

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str] | None = None, file_limit: int | None = None
    ) -> None:
        with tempfile.NamedTemporaryFile("w", delete=False) as file:
            self._said = Path(file.name)
        self.process = fork(_command, list(words), str(self._said), file_limit, environment=environment)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def send_signal(self, number: int) -> None:
        """Send it a signal; one that has ended gets none, as with `subprocess.Popen`."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; return its exit code."""
        self.process.join(timeout)
        assert self.process.exitcode is not None, "it is still running"
        return self.process.exitcode

    @property
    def said(self) -> str:
        """Return the text that it has written to stderr so far."""
        return self._said.read_text()

    def communicate(self, timeout: float | None = None) -> str:
        """Wait until it has ended; return the text that it wrote to stderr."""
        self.wait(timeout)
        said = self.said
        self._said.unlink()
        return said


def _command(words: list[str], said: str, file_limit: int | None) -> None:
    from rerank.commands.cli import main

    if file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_limit, file_limit))
    multiprocessing.process._parent_process = None  # a command is no worker: it may start Java
    with open(said, "a") as file, open(os.devnull, "w") as nowhere:
        os.dup2(file.fileno(), sys.stderr.fileno())
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    code = 1
    try:
        code = main(words)
    finally:
        sys.stderr.flush()
        os._exit(code)


def started(count: int, words: Sequence[str]) -> list[Command]:
    """Start ``rerank WORDS`` in several processes, as torchrun does."""
    return [Command(words, rank if count > 1 else None) for rank in ranks(count)]


def ranks(count: int) -> list[dict[str, str]]:
    """Return the variables that torchrun sets for each of several processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    shared = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def together(count: int, words: Sequence[str]) -> None:
    """Run ``rerank WORDS`` in several processes to the end."""
    processes = started(count, words)
    said = [process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0] * count, "\n".join(said)
