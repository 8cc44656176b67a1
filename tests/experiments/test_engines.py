"""Where cells are trained: on this machine, on a Ray cluster, in shares; with equal results wherever that is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import yaml

from rerank.commands.cli import main
from rerank.experiments.cells import Job
from rerank.experiments.conduct import configured
from rerank.experiments.engines import Reply, Workers
from rerank.experiments.on_ray import Cluster, variables
from rerank.experiments.plan import ExperimentPlan
from rerank.experiments.run import Experiment, Task
from rerank.experiments.worker import train_cell
from rerank.storage.files import read_json
from tests.builders import write_folds
from tests.conftest import ROOT
from tests.experiments.settings import write_experiment
from tests.forked import python

SHARES = 3


def write_config(folder: Path) -> Path:
    """Two methods over six seeds, with a learning rate chosen on validation: 24 cells of a small network."""
    write_folds(folder / "letor")
    methods = {
        name: {"set": {"loss": name}, "search": {"optimization.head_lr": [0.01, 0.001]}}
        for name in ("ListNet", "RankNet")
    }
    data = {"class_path": "LetorData", "init_args": {"path": str(folder / "letor"), "fold": 1}}
    base = {"data": data, "model": {"class_path": "MLP", "init_args": {"hidden": [8]}}, "loss": "ListNet"}
    base |= {"epochs": 2, "batch_size": 4, "monitor": "nDCG@5", "measures": "AP"}
    settings = {"base": base, "methods": methods, "seeds": [1, 2, 3, 4, 5, 6], "folds": None, "jobs": 2}
    settings |= {"output": str(folder / "here"), "measures": "nDCG@5 AP", "first_stage": "hide"}
    write_experiment(folder, **settings)
    return folder / "experiment.yaml"


def found(output: Path) -> dict[str, bytes]:
    """What cells found, by their place."""
    names = ("cells/**/measures.json", "cells/**/test-*.json")
    return {str(path.relative_to(output)): path.read_bytes() for name in names for path in output.glob(name)}


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The experiment, done by processes of this machine."""
    folder = tmp_path_factory.mktemp("engines")
    assert main(["experiment", "--config", str(write_config(folder))]) == 0
    assert len(found(folder / "here")) == 24 + 12
    return folder


def test_a_cell_that_somebody_else_still_trains_is_waited_for(here: Path) -> None:
    """A machine that was taken for dead may still be at it."""
    cell = next((here / "here").glob("cells/**/measures.json")).parent
    settings, training = yaml.safe_load((cell / "config.yaml").read_text()), read_json(cell / "measures.json")["id"]
    holds = (
        "import sys\nfrom rerank.storage.locks import exclusive_lock\n"
        "with exclusive_lock(sys.argv[1]): print(flush=True), sys.stdin.read()"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", holds, str(cell)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        assert other.stdin is not None and other.stdout is not None
        other.stdout.readline()
        waiting = pool.submit(train_cell, settings, cell, training)
        time.sleep(1)
        assert not waiting.done()
        other.stdin.close()
        waiting.result(60)


def results(output: Path) -> Any:
    return json.loads((output / "results.json").read_text())["table"]


class Places:
    """Workers that do a job when they are told to, at places that come and go."""

    def __init__(self, **room: int) -> None:
        self.room = room
        self.made: list[tuple[str, int]] = []
        self.go = threading.Event()
        self.dies: set[str] = set()

    def start(self, place: str, number: int) -> _At:
        self.made.append((place, number))
        return _At(self, place)


@dataclass
class _At:
    places: Places
    place: str
    lost: bool = False

    def do(self, job: dict[str, Any]) -> Reply:
        self.places.go.wait(10)
        if self.place in self.places.dies:
            self.lost = True
            return {"error": "gone", "died": True}
        return {}

    def ask_to_stop(self) -> None:
        self.places.go.set()

    def stop(self) -> None:
        self.places.go.set()


def test_places_take_as_many_jobs_as_they_have_room_for_at_the_time() -> None:
    places = Places(a=1, b=2)
    with Workers(lambda: places.room, places.start) as workers:
        first = [workers.submit({}) for _ in range(4)]
        assert [future is not None for future in first] == [True, True, True, False]
        assert sorted(places.made) == [("a", 0), ("b", 0), ("b", 1)]
        places.room = {"a": 1, "b": 2, "c": 1}
        assert workers.submit({}) is not None
        assert places.made[-1] == ("c", 0)
        places.go.set()
        for future in first[:3]:
            assert future is not None and future.result() == {}
        places.room = {"b": 1}
        assert workers.submit({}) is not None
        assert len(places.made) == 4, "warm workers are taken first"


def test_what_died_at_a_place_is_tried_at_another_if_there_is_one() -> None:
    places = Places(a=1, b=1)
    places.dies = {"a"}
    places.go.set()
    with Workers(lambda: places.room, places.start, most=1) as workers:
        died = submitted(workers)
        assert died == {"error": "gone", "died": True, "place": "a"}
        assert submitted(workers, avoid="a") == {}
        assert places.made == [("a", 0), ("b", 0)]
        places.room = {"a": 1}
        assert submitted(workers, avoid="a") == died, "the only place is better than none"
        assert places.made[2:] == [("a", 0)], "a lost worker is replaced"


def submitted(workers: Workers, **options: Any) -> Reply:
    future: Future[Reply] | None = None
    until = time.monotonic() + 10
    while future is None and time.monotonic() < until:
        future = workers.submit({}, **options)
    assert future is not None
    return future.result()


def test_a_cell_is_tried_again_once_and_whenever_it_got_further(tmp_path: Path) -> None:
    """As on machines that are taken away again and again, and not where memory does not suffice."""
    experiment = Experiment(ExperimentPlan(configured(write_config(tmp_path))))
    task = Task(Job.TRAIN, experiment.plan.cell(experiment.plan.groups[0], {"optimization.head_lr": 0.01}))
    died = Reply(error="gone", died=True, place="a")
    assert not experiment._try_again(task, Reply(error="failed"))
    assert [experiment._try_again(task, died) for _ in range(2)] == [True, False]
    for step in (10, 20):
        (task.cell.folder / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
        assert [experiment._try_again(task, died) for _ in range(2)] == [True, False]


@pytest.mark.slow
def test_a_cell_whose_process_was_killed_is_tried_once_more(here: Path, tmp_path: Path) -> None:
    """The first process that trains is killed, as when memory runs out."""
    output = tmp_path / "out"
    command = [sys.executable, "-m", "rerank.commands.cli", "experiment", "--config", str(here / "experiment.yaml")]
    command += ["--output", str(output), "--seeds=[1]", "--jobs=1", "--base.epochs=100"]
    process = subprocess.Popen([*command, "--base.checkpoint_every=10"], stderr=subprocess.PIPE, text=True)
    waiting = time.monotonic()
    while not list(output.glob("cells/**/checkpoints/*")):
        assert time.monotonic() - waiting < 900 and process.poll() is None
        time.sleep(0.05)
    (worker,) = psutil.Process(process.pid).children()
    worker.kill()
    _, said = process.communicate(timeout=1800)
    assert process.returncode == 0, said
    assert said.count("trying again") == 1
    assert "SIGKILL" in said
    assert len(found(output)) == 4 + 2


@pytest.mark.slow
def test_shares_do_it_side_by_side(here: Path, tmp_path: Path) -> None:
    """As an array of Slurm's does; the command without a share then has nothing to train."""
    words = ["--config", str(here / "experiment.yaml"), "--output", str(tmp_path / "out"), "--jobs=1"]
    script = ["bash", str(ROOT / "configs" / "slurm" / "experiment.sh"), *words]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    array = [
        subprocess.Popen(
            script,
            env=os.environ | {"PATH": path, "SLURM_ARRAY_TASK_ID": str(task), "SLURM_ARRAY_TASK_COUNT": str(SHARES)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for task in range(SHARES)
    ]
    said = [job.communicate(timeout=1800)[1] for job in array]
    assert [job.returncode for job in array] == [0] * SHARES, said
    assert all(f"share {task}/{SHARES} is through" in text for task, text in enumerate(said))
    assert all(text.count(": validation nDCG@5") == 24 // SHARES for text in said)
    assert not (tmp_path / "out" / "results.json").exists()
    assert main(["experiment", *words]) == 0
    assert not list((tmp_path / "out" / "workers").glob("*")), "no process was needed"
    assert found(tmp_path / "out") == found(here / "here")
    assert results(tmp_path / "out") == results(here / "here")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--share=3/3"], "share: '3/3' is no NUMBER/COUNT"),
        (["--share=1"], "share: '1' is no NUMBER/COUNT"),
        (["--num_gpus=1"], "num_cpus, num_gpus: are for engine: ray"),
        (["--engine=ray", "--num_cpus=0"], "num_cpus: must be at least 1"),
        (["--engine=ray", "--num_gpus=1.5"], "num_gpus: 1.5; several GPUs are whole ones"),
        (["--engine=rey"], "rey"),
    ],
)
def test_engines_refuse(words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["experiment", "--config", str(write_config(tmp_path)), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "here").exists()


def test_ray_is_imported_only_where_it_is_asked_for_and_said_to_be_missing(here: Path, tmp_path: Path) -> None:
    words = ["experiment", f"--config={here / 'experiment.yaml'}", f"--output={tmp_path / 'out'}"]
    code = f"import sys; from rerank.commands.cli import main; assert main([*{words!r}, '--dry-run']) == 0; "
    code += f"assert 'ray' not in sys.modules; sys.modules['ray'] = None; sys.exit(main([*{words!r}, '--engine=ray']))"
    said = python(code, ends=2).stderr
    assert said.endswith("rerank: error: engine: Ray is not installed; pip install 'rerank-direct[ray]'\n")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Ray on two nodes of one CPU each, on this machine."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rerank-direct[ray]'")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    polite = {"worker_niceness": 0}  # its workers would wait for whatever else the machine does
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": polite}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


def on_ray(here: Path, output: Path, address: str, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "rerank.commands.cli", "experiment", "--config", str(here / "experiment.yaml")]
    command += ["--engine=ray", "--jobs=null", "--output", str(output), *words]
    environment = os.environ | {"RAY_ADDRESS": address}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def workers_of_actors() -> list[psutil.Process]:
    """Worker processes that Ray's actors started."""
    found = []
    for one in psutil.process_iter(["cmdline", "ppid"]):
        words = one.info["cmdline"] or []
        if "rerank.experiments.worker" in words and psutil.Process(one.info["ppid"]).name().startswith("ray::"):
            found.append(one)
    return found


@pytest.mark.slow
def test_cells_on_ray_equal_those_of_this_machine(here: Path, tmp_path: Path) -> None:
    """On an instance of Ray that the command starts, and stops."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'rerank-direct[ray]'")
    process = on_ray(here, tmp_path / "out", "local", "--seeds=[1]")
    _, said = process.communicate(timeout=1800)
    assert process.returncode == 0, said
    assert "Ray: room for " in said
    there, whole = found(tmp_path / "out"), found(here / "here")
    assert len(there) == 4 + 2
    assert all(whole[name] == content for name, content in there.items())
    assert list((tmp_path / "out" / "workers").glob("worker-*-0.log")), "logs come home"


def test_cells_on_other_machines_have_the_variables_that_decide_what_they_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", "/shared/models")
    monkeypatch.setenv("RERANK_HOME", "/shared/rerank")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    found = variables(8, 0.5)
    assert (found["HF_HOME"], found["RERANK_HOME"]) == ("/shared/models", "/shared/rerank")
    assert found["OMP_NUM_THREADS"] == "8", "of this machine's own it has none"
    assert not {"HF_TOKEN", "PATH", "CUDA_VISIBLE_DEVICES"} & found.keys(), "Ray chooses the GPUs"
    assert variables(1, 0)["CUDA_VISIBLE_DEVICES"] == ""


def test_machines_that_compute_otherwise_than_the_first_are_refused() -> None:
    """In a line that says which, in what, and what to do."""
    from importlib.metadata import version

    from rerank.experiments.on_ray import arithmetic, unlike

    first = arithmetic(gpus=False, auto=True)
    assert first["torch"] == version("torch") and first["precision auto"] in ("bf16", "fp32")
    assert "precision auto" not in arithmetic(gpus=False, auto=False)
    assert unlike(("b", arithmetic(gpus=False, auto=True)), ("a", first)) == ""
    for name, told in {"tokenizers": "1.0", "GPU": "Tesla T4", "precision auto": "fp16"}.items():
        said = unlike(("b", first | {"GPU": "NVIDIA H100"} | {name: told}), ("a", first | {"GPU": "NVIDIA H100"}))
        assert said.startswith(f"b has {name} {told}, a has ") and "\n" not in said
        assert said.endswith("set precision") == (name == "precision auto")


@pytest.mark.slow
def test_machines_that_answer_late_or_are_mended_join_then(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two nodes does not answer at first; asked again, it cannot run anything, and then it can."""
    import ray

    from rerank.experiments import on_ray as module

    ray.init(address=cluster.address, log_to_driver=False)
    late, see = str(ray.nodes()[1]["NodeID"]), module.look

    def look(*told: Any) -> Any:
        while ray.get_runtime_context().get_node_id() == late and not (tmp_path / "awake").exists():
            time.sleep(0.1)
        if ray.get_runtime_context().get_node_id() == late and not (tmp_path / "mended").exists():
            raise OSError("no space left on device")
        return see(*told)

    for name, value in {"look": look, "ANSWER": 40.0, "LOOK": 0.1, "AGAIN": 0.1}.items():
        monkeypatch.setattr(module, name, value)
    there = module.Cluster(tmp_path / "out", tmp_path / "logs", 1, 0, False)
    try:
        assert late not in there.room() and len(there.room()) == 1
        (tmp_path / "awake").touch()
        until = time.monotonic() + 300
        while late not in there._answers and time.monotonic() < until:
            time.sleep(0.2)
            assert len(there.room()) == 1
        assert "no space left on device" in there._answers[late].problem
        (tmp_path / "mended").touch()
        while len(there.room()) == 1 and time.monotonic() < until:
            time.sleep(0.2)
        assert len(there.room()) == 2
    finally:
        there.close()
        ray.shutdown()
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_cells_of_a_node_that_is_killed_are_done_by_others(here: Path, tmp_path: Path, cluster: Any) -> None:
    """A third node joins while cells are trained, gets some, and is killed."""
    words = ["--base.epochs=400", "--base.patience=400"]  # or the others are through before it has started
    local = ["--config", str(here / "experiment.yaml"), "--output", str(tmp_path / "here")]
    assert main(["experiment", *local, *words]) == 0
    process = on_ray(here, tmp_path / "out", cluster.address, *words)
    while not list((tmp_path / "out").glob("cells/**/measures.json")):
        assert process.poll() is None
        time.sleep(0.1)
    node = cluster.add_node(num_cpus=2)
    log = f"worker-{node.node_id[:8]}-0.log"
    while not (tmp_path / "out" / "workers" / log).exists():
        assert process.poll() is None
        time.sleep(0.1)
    cluster.remove_node(node, allow_graceful=False)
    _, said = process.communicate(timeout=3600)
    assert process.returncode == 0, said
    assert "trying again" in said
    assert "room for 4 cells on 3 machines, before for 2" in said
    assert found(tmp_path / "out") == found(tmp_path / "here")
    assert results(tmp_path / "out") == results(tmp_path / "here")


@pytest.mark.slow
def test_ctrl_c_stops_actors_with_checkpoints_written(here: Path, tmp_path: Path, cluster: Any) -> None:
    words = ["--base.epochs=20000", "--base.checkpoint_every=1000000", "--base.patience=20000"]
    process = on_ray(here, tmp_path / "out", cluster.address, *words)
    while len(list((tmp_path / "out").glob("cells/**/metrics.jsonl"))) < 2:
        assert process.poll() is None
        time.sleep(0.1)
    time.sleep(3)
    asked = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert time.monotonic() - asked < 30
    assert process.returncode == 130
    assert len(list((tmp_path / "out").glob("cells/**/checkpoints/*/"))) >= 2
    assert psutil.wait_procs(workers_of_actors(), timeout=10)[1] == []


@pytest.mark.slow
def test_a_node_that_does_not_share_the_disk_is_refused(here: Path, tmp_path: Path, cluster: Any) -> None:
    """A node in a namespace of its own, in which an empty disk lies over the experiment's folder."""
    import ray

    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", str(tmp_path)], check=False).returncode:
        pytest.skip("this user may not mount anything")
    output = tmp_path / "out"
    output.mkdir()
    start = f"mount -t tmpfs none {output} && exec ray start --address {cluster.address} --num-cpus=1 --block"
    node = subprocess.Popen(["unshare", "-m", "bash", "-c", start], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        ray.init(address=cluster.address, log_to_driver=False)
        while sum(one["Alive"] for one in ray.nodes()) < 3:
            assert node.poll() is None
            time.sleep(0.5)
        ray.shutdown()
        process = on_ray(here, output, cluster.address)
        _, said = process.communicate(timeout=300)
    finally:
        os.killpg(node.pid, signal.SIGKILL)
    assert process.returncode == 2
    assert "Ray node" in said
    assert f"does not see {output} as this machine does; Ray needs output and data on a disk that all share" in said
    assert not list(output.glob("cells/*"))


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "fits"), [(0, 16), (0.05, 16), (0.2, 10), (0.6, 2), (1, 2), (2, 1), (4, 0)])
def test_a_share_of_a_gpu_is_of_one_gpu(gpus: float, fits: int) -> None:
    cluster: Any = SimpleNamespace(cpus=1, gpus=gpus)
    assert Cluster._fits(cluster, {"Resources": {"CPU": 16.0, "GPU": 2.0}}) == fits


@pytest.mark.slow
def test_a_node_without_room_for_a_cell_is_refused(here: Path, tmp_path: Path, cluster: Any) -> None:
    process = on_ray(here, tmp_path / "out", cluster.address, "--num_cpus=8", "--num_gpus=1")
    _, said = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "no machine of the Ray cluster has 8 CPUs and 1 GPUs for a cell" in said
