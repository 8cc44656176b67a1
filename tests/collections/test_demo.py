from __future__ import annotations

import builtins
import inspect
import os
import pkgutil
import re
import subprocess
import sys

import pytest

from rerank.collections import open_collection
from rerank.collections.demo import FOLDER, summary

DEMO = open_collection("demo")
TEXTS = dict(DEMO.documents())
QUERIES = dict(DEMO.queries())
QRELS = DEMO.qrels()


def run(*arguments: str, **environment: str) -> str:
    """Run Python; what it writes to stderr, a warning too, fails the test."""
    command = [sys.executable, "-W", "always", *arguments]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_documents_are_the_public_library() -> None:
    assert 4000 < len(TEXTS) == DEMO.document_count() < 9000
    assert list(TEXTS) == sorted(TEXTS)
    for name, text in TEXTS.items():
        assert re.fullmatch(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", name), name
        assert text.startswith(name), name
        assert text.partition("\n\n")[2].strip(), name
        assert " at 0x" not in text.partition("\n\n")[0], name
        text.encode()
    left_out = {"antigravity", "this", "tkinter", "turtle", "idlelib", "test", "lib2to3", "distutils"}
    assert not left_out & {name.split(".")[0] for name in TEXTS}


@pytest.mark.parametrize(
    ("name", "aliases"),
    [
        ("str.split", ["typing.Text.split", "builtins.str.split"]),
        ("str", ["typing.Text"]),
        ("OSError", ["IOError", "EnvironmentError", "socket.error", "os.error", "select.error"]),
        ("open", ["io.open", "_io.open"]),
        ("os.path.join", ["posixpath.join", "ntpath.join"]),
        ("os.getcwd", ["posix.getcwd", "nt.getcwd"]),
        ("collections.deque", ["_collections.deque", "typing.Deque"]),
        ("collections.abc.Mapping.get", ["typing.Mapping.get", "_collections_abc.Mapping.get"]),
        ("asyncio.Queue", ["asyncio.queues.Queue"]),
        ("unittest.TestCase.assertRaises", ["unittest.case.TestCase.assertRaises"]),
        ("concurrent.futures.ThreadPoolExecutor", ["concurrent.futures.thread.ThreadPoolExecutor"]),
        ("random.choice", ["random.Random.choice", "secrets.choice", "random.SystemRandom.choice"]),
        ("str.maketrans", ["collections.UserString.maketrans"]),
        ("unicodedata.name", ["unicodedata.UCD.name"]),
        ("io.IOBase.readlines", ["io.FileIO.readlines", "_io._IOBase.readlines"]),
        ("contextlib.ExitStack.callback", ["contextlib.AsyncExitStack.callback"]),
        ("pathlib.Path.read_text", ["pathlib.PosixPath.read_text", "pathlib.WindowsPath.read_text"]),
    ],
)
def test_aliases_appear_once_under_their_own_name(name: str, aliases: list[str]) -> None:
    assert name in TEXTS
    assert not TEXTS.keys() & aliases


def test_names_lead_to_the_documented_objects() -> None:
    """The oracle is the library itself: import what the name says and compare its docstring."""
    judged = {name for grades in QRELS.values() for name in grades}
    values = {}
    for name in judged:
        within = f"builtins:{name}" if hasattr(builtins, name.split(".")[0]) else name
        value = values[name] = pkgutil.resolve_name(within)
        # A class may have no docstring but its constructor's.
        own = value.__doc__ or value.__init__.__doc__
        assert inspect.cleandoc(own) in TEXTS[name], name
    objects = [value for value in values.values() if inspect.isclass(value) or inspect.isfunction(value)]
    assert len(objects) == len(set(objects))


def test_signatures_are_readable() -> None:
    assert TEXTS["textwrap.wrap"].startswith("textwrap.wrap(text, width=70, **kwargs)\n\n")
    assert TEXTS["datetime.datetime.astimezone"].startswith("datetime.datetime.astimezone\n\n")  # C code without one
    assert TEXTS["sched.scheduler"].startswith("sched.scheduler(timefunc=..., delayfunc=...)\n\n")
    assert "Initialize a new instance" in TEXTS["sched.scheduler"]  # the constructor's docstring


@pytest.mark.parametrize("seed", ["0", "1"])
def test_collecting_is_silent_stable_and_without_effect(seed: str) -> None:
    program = (
        "import os, sys\n"
        "from rerank.collections.demo import DemoCollection\n"
        "before = dict(os.environ), list(sys.path), set(sys.modules)\n"
        "fingerprint = DemoCollection().fingerprint()\n"
        "assert before == (dict(os.environ), list(sys.path), set(sys.modules))\n"
        "print(fingerprint)\n"
    )
    assert run("-c", program, PYTHONHASHSEED=seed, COLUMNS=seed) == f"{DEMO.fingerprint()}\n"


def test_the_collector_opens_no_window_and_leaves_the_terminal_alone() -> None:
    program = (
        "import contextlib, io, json, runpy, sys\n"
        "with contextlib.redirect_stdout(io.StringIO()) as written:\n"
        f"    runpy.run_path({str(FOLDER / 'documents.py')!r}, run_name='__main__')\n"
        "names = 'antigravity', 'this', 'tkinter', 'turtle', 'readline', 'idlelib'\n"
        "print(len(json.loads(written.getvalue())), *filter(sys.modules.get, names))\n"
    )
    assert run("-I", "-S", "-B", "-c", program) == f"{len(TEXTS)}\n"


def test_questions_are_plain_and_do_not_repeat_the_answer() -> None:
    def words(text: str) -> set[str]:
        return set(re.findall(r"\w+", text.lower()))

    assert len(QUERIES) >= 120
    assert len(set(QUERIES.values())) == len(QUERIES)
    summaries = {document.id: summary(document) for document in DEMO.documents()}
    for id, text in QUERIES.items():
        assert id.isdecimal()
        assert 2 <= len(text.split()) <= 25, text
        assert text == " ".join(text.split())
        for name, grade in QRELS[id].items():
            assert "." not in name or name not in text
            assert grade < 2 or words(summaries[name]) != words(text)


def test_every_question_has_an_answer_on_this_python() -> None:
    assert QRELS.keys() == QUERIES.keys()
    for query, grades in QRELS.items():
        assert set(grades.values()) <= {1, 2}, query
        assert 2 in grades.values(), query
        assert not grades.keys() - TEXTS.keys(), query
    assert len({name.split(".")[0] for grades in QRELS.values() for name in grades}) > 60


def test_the_summary_is_the_first_sentence() -> None:
    documents = {document.id: document for document in DEMO.documents()}
    for document in documents.values():
        assert summary(document), document.id
        assert summary(document) in " ".join(document.text.split()), document.id
    assert summary(documents["shutil.disk_usage"]) == "Return disk usage statistics about the given path."
    assert "(" not in summary(documents["bytes.find"])  # what repeats the signature is no sentence
