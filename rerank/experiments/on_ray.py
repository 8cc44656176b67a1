"""Workers on a Ray cluster: an actor around the same worker process, on each machine as many as have room."""

from __future__ import annotations

import logging
import os
import secrets
import signal
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch

import rerank
from rerank.errors import UserError, one_line
from rerank.experiments.engines import Process, Reply, Workers
from rerank.kernels.precision import resolve
from rerank.progress import log
from rerank.storage.files import digest, temporary_beside

LOOK = 2.0
"""Seconds after which the cluster is asked again which machines it has."""

ANSWER, FIRST = 60.0, 300.0
"""Seconds that machines may take at the start to say what they see, and the first of them: who is later joins later."""

AGAIN = 300.0
"""Seconds after which a machine that was left out is asked again."""

TAKEN_ALONG = ("HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "PYTHONPATH", "RERANK_HOME")
"""Variables of this process's environment that cells on other machines have, too, where they are set."""


def look(file: Path, nonce: str, folder: Path, code: str, gpus: bool, auto: bool) -> tuple[str, dict[str, str]]:
    """Why this machine cannot run our cells, empty where it can; and what decides its digits."""
    if gpus:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides the GPUs from what needs none for itself
    problem = ""
    if not file.is_file() or file.read_text() != nonce:
        needed = "Ray needs output and data on a disk that all share, at the same path"
        problem = f"does not see {file.parent} as this machine does; {needed}"
    elif not folder.is_dir():
        problem = f"has no folder {folder}, from which relative paths start; start from one on the shared disk"
    elif code != code_hash():
        problem = "has another version of rerank; install the same on all machines"
    return problem, arithmetic(gpus, auto)


def arithmetic(gpus: bool, auto: bool) -> dict[str, str]:
    """What decides the digits that this machine computes, beside our own code."""
    found = {name: version(name) for name in ("torch", "transformers", "tokenizers")}
    if gpus:
        names = {torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())}
        found |= {"CUDA": str(torch.version.cuda), "GPU": " and ".join(sorted(names)) or "none"}
    if auto:
        found["precision auto"], _ = resolve("auto", torch.device("cuda" if gpus else "cpu"))
    return found


@cache
def code_hash() -> str:
    """The hash of this library's source files: other code might compute something else."""
    root = Path(rerank.__file__).parent
    return digest(*sorted(root.rglob("*.py")))


class RayWorker:
    """An actor, which has the CPUs and GPUs of a cell on its machine, as a worker; ``where`` names the machine."""

    def __init__(self, actor: Any, where: str) -> None:
        self._actor, self._where = actor, where
        self.lost = False

    def do(self, job: dict[str, Any]) -> Reply:
        """The reply to a job; the worker is lost where Ray lost the actor."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        try:
            return ray.get(self._actor.do.remote(job))
        except RayTaskError as error:
            return {"error": f"{self._where}: {one_line(error.cause)}"}
        except RayError as error:
            self.lost = True
            with suppress(RayError):
                ray.kill(self._actor)  # it may be out of reach only
            return {"error": f"{self._where} was lost ({type(error).__name__})", "died": True}

    def ask_to_stop(self) -> None:
        if not self.lost:
            self._actor.ask_to_stop.remote()

    def stop(self) -> None:
        """End the actor; its process ends with it, since its input does."""
        import ray

        if not self.lost:
            ray.kill(self._actor)


class Answer(NamedTuple):
    """What a machine answered; ``ours`` where the problem is for the user to mend, and no failure of the machine."""

    problem: str
    ours: bool
    at: float


class Cluster:
    """The machines of a Ray cluster that have room for cells, see our disk and compute alike, as they come and go."""

    def __init__(self, output: Path, logs: Path, cpus: int, gpus: float, auto: bool) -> None:
        self.logs, self.cpus, self.gpus, self._auto = logs.absolute(), cpus, gpus, auto
        self._first: tuple[str, dict[str, str]] | None = None
        self._output, self._folder = output.absolute(), Path.cwd()
        self._output.mkdir(parents=True, exist_ok=True)
        self._nonce = secrets.token_hex(16)
        self._file = temporary_beside(self._output / "look")  # a name that is cleared away if this process is killed
        self._file.write_text(self._nonce)
        self._nodes: dict[str, dict[str, Any]] = {}
        self._asked: dict[str, Any] = {}
        self._answers: dict[str, Answer] = {}
        self._room: dict[str, int] = {}
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        until, refused = time.monotonic() + FIRST, self._update(ANSWER)
        while self._asked and not self._room and time.monotonic() < until:
            refused += self._update(LOOK)
        if mine := [answer.problem for answer in refused if answer.ours]:
            raise UserError(mine[0])
        if not self._nodes:
            raise UserError(
                f"engine: no machine of the Ray cluster has {self.cpus} CPUs and {self.gpus:g} GPUs for a cell"
            )
        if not self._room:
            late = f"{name_of(next(iter(self._nodes.values())))} does not answer within {FIRST:g} s"
            raise UserError(refused[0].problem if refused else late)
        self._warn(refused)
        if self._asked:
            log.warning("Ray: %d machines have not answered yet; they join when they do", len(self._asked))
        log.info("Ray: room for %d cells on %d machines", sum(self._room.values()), len(self._room))

    def room(self) -> Mapping[str, int]:
        """How many cells each machine takes, of those that are there now and see the disk."""
        if time.monotonic() - self._looked >= LOOK:
            before = sum(self._room.values())
            self._warn(self._update())
            if (now := sum(self._room.values())) != before:
                log.info("Ray: room for %d cells on %d machines, before for %d", now, len(self._room), before)
        return self._room

    def close(self) -> None:
        self._file.unlink(missing_ok=True)

    @staticmethod
    def _warn(refused: list[Answer]) -> None:
        for answer in refused:
            log.warning("%s; it is left out", answer.problem)

    def _update(self, patience: float = 0.0) -> list[Answer]:
        """Ask machines, and hear the answers that there are; gives those that are no good, and new."""
        import ray

        alive = {node["NodeID"]: node for node in ray.nodes() if node["Alive"] and self._fits(node)}
        self._nodes |= alive
        now = time.monotonic()
        for id in alive.keys() - self._asked.keys():
            answer = self._answers.get(id)
            if answer is None or (answer.problem and now - answer.at >= AGAIN):
                self._asked[id] = self._ask(id)
        self._asked = {id: asked for id, asked in self._asked.items() if id in alive}
        asked, refused = [*self._asked.values()], list[Answer]()
        heard = ray.wait(asked, num_returns=len(asked), timeout=patience)[0] if asked else []
        for id in [id for id, asked in self._asked.items() if asked in heard]:
            answer, before = self._heard(name_of(alive[id]), self._asked.pop(id)), self._answers.get(id)
            self._answers[id] = answer
            if answer.problem and (before is None or answer.problem != before.problem):
                refused.append(answer)
        good = {id for id, answer in self._answers.items() if not answer.problem}
        self._room = {id: self._fits(node) for id, node in alive.items() if id in good}
        self._looked = time.monotonic()
        return refused

    def _fits(self, node: Mapping[str, Any]) -> int:
        has = node["Resources"]
        fits, there = has.get("CPU", 0) // self.cpus, has.get("GPU", 0)
        if self.gpus:  # a share is of one GPU
            fits = min(fits, there // self.gpus if self.gpus >= 1 else there * int(1 / self.gpus + 1e-9))
        return int(fits)

    def _ask(self, id: str) -> Any:
        """Let a machine look at the file that was written here."""
        import ray

        task = ray.remote(max_calls=1)(look)  # in a process of its own, which sees the GPUs
        placed = task.options(num_cpus=0, scheduling_strategy=at(id))
        return placed.remote(self._file, self._nonce, self._folder, code_hash(), self.gpus > 0, self._auto)

    def _heard(self, where: str, asked: Any) -> Answer:
        import ray
        from ray.exceptions import RayError

        now = time.monotonic()
        try:
            problem, found = ray.get(asked)
        except RayError as error:
            return Answer(f"{where} cannot run cells: {one_line(error)[-200:]}", False, now)
        if problem:
            return Answer(f"{where} {problem}", True, now)
        self._first = self._first or (where, found)
        return Answer(unlike((where, found), self._first), True, now)

    def start(self, node: str, number: int) -> RayWorker:
        import ray

        needs = {"num_cpus": self.cpus, "num_gpus": self.gpus, "max_concurrency": 2}  # a job, and being stopped
        kind = ray.remote(Process).options(**needs, scheduling_strategy=at(node))
        actor = kind.remote(variables(self.cpus, self.gpus), self.logs / f"worker-{node[:8]}-{number}.log", Path.cwd())
        return RayWorker(actor, name_of(self._nodes[node]))


def variables(cpus: int, gpus: float) -> dict[str, str]:
    """What the environment of a cell has, over that of its machine."""
    taken = {name: os.environ[name] for name in TAKEN_ALONG if name in os.environ}
    hidden = {} if gpus else {"CUDA_VISIBLE_DEVICES": ""}  # otherwise a cell sees all GPUs of its machine
    return taken | hidden | {"OMP_NUM_THREADS": str(cpus), "TOKENIZERS_PARALLELISM": "false"}


def at(node: str) -> Any:
    """The strategy that places something on a machine and nowhere else."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(node, soft=False)


def name_of(node: Mapping[str, Any]) -> str:
    """A machine in words."""
    return f"{node['NodeManagerHostname']} (Ray node {node['NodeID'][:8]})"


def unlike(one: tuple[str, dict[str, str]], first: tuple[str, dict[str, str]]) -> str:
    """In what a machine computes otherwise than the first; empty where in nothing."""
    (where, ours), (there, theirs) = one, first
    for name, value in theirs.items():
        if ours[name] != value:
            more = "; set precision" if name == "precision auto" else ""
            return f"{where} has {name} {ours[name]}, {there} has {value}; a table needs the same on all machines{more}"
    return ""


def ray_workers(output: Path, logs: Path, cpus: int, gpus: float, auto: bool, most: int | None = None) -> Workers:
    """Workers on the cluster of ``RAY_ADDRESS``, or one that is started here; at the ``most`` so many side by side."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ModuleNotFoundError as error:
        raise UserError("engine: Ray is not installed; pip install 'rerank-direct[ray]'") from error
    with ExitStack() as stack:
        if not ray.is_initialized():
            connect(os.environ.get("RAY_ADDRESS") or "local")
            stack.callback(ray.shutdown)
        cluster = Cluster(output, logs, cpus, gpus, auto)
        stack.callback(cluster.close)
        return Workers(cluster.room, cluster.start, most, stack.pop_all().close)


def connect(address: str) -> None:
    """Connect this process to a cluster, or to one that is started for it on this machine (``local``)."""
    import ray

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        dashboard = False if address == "local" else None
        ray.init(address=address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"RAY_ADDRESS: no cluster at {address}: {one_line(error)}") from error
    for number, handler in handlers.items():  # Ray has replaced SIGTERM's by an exit
        signal.signal(number, handler)
