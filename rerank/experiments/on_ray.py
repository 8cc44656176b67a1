"""Trials on a Ray cluster: a remote function call for each, which Ray repeats if the machine is lost."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

from rerank.errors import UserError, needed, one_line
from rerank.experiments.engines import Workers
from rerank.experiments.worker import Job, do_job

PASSED_ON = ("HF_ENDPOINT", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN", "PYTHONPATH", "RERANK_HOME")
"""Environment variables that trials on other machines have as well."""

LOST = 3
"""Number of times that a trial is repeated whose machine or process was lost."""


def do(job: Job, folder: str) -> str:
    """Do a job on a machine of the cluster, with relative paths from the same folder as on the first machine."""
    if not (Path(folder).is_dir() and Path(job["output"]).is_dir()):
        missing, where = job["output"] if Path(folder).is_dir() else folder, os.uname().nodename
        return f"{missing}: no such folder on {where}; Ray needs output and data on a shared disk"
    os.chdir(folder)
    from rerank.settings.arguments import find_own_classes

    find_own_classes()
    return do_job(job)


def ray_workers(output: Path, cpus: int, gpus: float, jobs: int | None) -> Workers:
    """Connect to the cluster of ``RAY_ADDRESS``, or start one on this machine; at most ``jobs`` trials run at once."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = needed("engine: ray", "ray", "ray")
    from ray.exceptions import RayError

    connected = ray.is_initialized()
    if not connected:
        connect(os.environ.get("RAY_ADDRESS") or "local")
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(of.get("CPU", 0) >= cpus and of.get("GPU", 0) >= gpus for of in resources):
        raise UserError(f"engine: no machine of the Ray cluster has {cpus} CPUs and {gpus:g} GPUs for a run")
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= {"OMP_NUM_THREADS": str(cpus), "TOKENIZERS_PARALLELISM": "false"}
    remote = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=LOST, runtime_env={"env_vars": environment})(do)
    here, running = os.getcwd(), []

    def do_there(job: Job) -> str:
        reference = remote.remote({**job, "output": str(output.absolute())}, here)
        running.append(reference)
        try:
            return str(ray.get(reference))
        except RayError as error:
            return f"Ray: {one_line(error)}"

    def cancel(_: signal.Signals) -> None:
        for reference in running:
            ray.cancel(reference)  # the trial resumes from its last checkpoint

    def end() -> None:
        if not connected:
            ray.shutdown()

    return Workers(jobs or 1024, do_there, cancel, end)


def connect(address: str) -> None:
    """Connect this process to a cluster, or start one on this machine (``local``)."""
    import ray

    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        dashboard = False if address == "local" else None
        ray.init(address=address, include_dashboard=dashboard, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"RAY_ADDRESS: no cluster at {address}: {one_line(error)}") from error
    for number, handler in handlers.items():  # Ray replaces SIGTERM's
        signal.signal(number, handler)
