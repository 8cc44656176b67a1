from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from rerank.collections import open_collection
from rerank.collections.demo import entries, split_name

DEMO = open_collection("demo")
TEXTS = dict(DEMO.documents())
QUERIES = dict(DEMO.queries())
QRELS = DEMO.qrels()
SENTENCES = {entry.name: entry.sentence for entry in entries()}


def test_documents_are_the_public_library() -> None:
    assert 4000 < len(TEXTS) == DEMO.document_count() < 9000
    for name, text in TEXTS.items():
        assert re.fullmatch(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", name), name
        assert text.startswith(split_name(name)), name
        assert " at 0x" not in text, name
    left_out = {"antigravity", "this", "tkinter", "turtle", "idlelib", "test", "lib2to3", "distutils"}
    assert not left_out & {name.split(".")[0] for name in TEXTS}


def test_queries_name_the_module_or_class_and_judge_its_members_with_that_sentence() -> None:
    assert QRELS.keys() == QUERIES.keys()
    for query, text in QUERIES.items():
        (parent,) = {name.rpartition(".")[0] for name in QRELS[query]}
        head, _, sentence = text.partition(": ")
        assert head == (split_name(parent) or "builtins")
        assert {SENTENCES[name].lower().rstrip(".") for name in QRELS[query]} == {sentence.lower().rstrip(".")}
    assert QUERIES["shutil.disk_usage?"] == "shutil: Return disk usage statistics about the given path."


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["0", "1"])
def test_collecting_is_silent_stable_and_changes_nothing(seed: str) -> None:
    program = (
        "import os, sys\n"
        "from rerank.collections.demo import DemoCollection\n"
        "before = dict(os.environ), list(sys.path), set(sys.modules)\n"
        "fingerprint = DemoCollection().fingerprint()\n"
        "assert before == (dict(os.environ), list(sys.path), set(sys.modules))\n"
        "print(fingerprint)\n"
    )
    environment = os.environ | {"PYTHONHASHSEED": seed, "COLUMNS": seed}
    command = [sys.executable, "-W", "always", "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", f"{DEMO.fingerprint()}\n")
