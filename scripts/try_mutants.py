"""Whether the tests of a room notice when its code is changed: one small change at a time, by seed.

    pip install coverage
    python scripts/try_mutants.py rerank/files.py --tests tests/test_files.py tests/test_hashes.py [--mutants 60]
    python scripts/try_mutants.py rerank/lists --tests tests/lists --only 3 17
    python scripts/try_mutants.py rerank/lists --tests tests/lists --recorded lists.json --first 20

Changes are those that slips make: another comparison, ``and`` for ``or``, a condition negated, a number one more, True
for False, + for -, a statement or a keyword argument gone. Each is written to a copy of the repository, in which the
tests run that execute the changed lines, until one fails: the quickest first, and as many as take a minute. A mutant
that none of them fails for survived, and is printed with its place. What tests execute is recorded beforehand, their
fixtures included, a file of tests at a time; in ``--recorded``, it is there for the next run. Lines that only run at
import, or in processes that tests start, stand for all of their file, and such a file for all of the room.

Every run is a fork. Changes of what runs at import come first, when nothing of ours has been imported; then all tests
are, and the functions that are there get the changed code, which is quicker by far.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import gc
import importlib
import inspect
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from py_compile import PycInvalidationMode
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest
from coverage import Coverage
from hypothesis import Phase, settings

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 60
"""As much of the tests runs for one mutant, by the processor's time that they took when they were recorded."""
RECORDING = 900
"""Seconds after which a file of tests is left out."""
WORDS = ("-q", "-n", "0", "-p", "no:cacheprovider")
WARM = ("accelerate", "datasets", "ir_measures", "jsonargparse", "lightgbm", "pandas", "pyarrow.dataset", "scipy.stats")
WARM += ("tokenizers", "torch._dynamo", "torch.utils.tensorboard", "transformers.models.bert.modeling_bert")
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
}


class Mutant(NamedTuple):
    """A change: of a file, the node that comes as number so and so in `ast.walk`."""

    file: Path
    number: int
    node: ast.AST
    what: str

    @property
    def lines(self) -> range:
        """The lines that are changed."""
        node = self.node.test if isinstance(self.node, ast.If | ast.While) else self.node
        return range(node.lineno, node.end_lineno + 1)  # type: ignore[attr-defined]

    def tree(self) -> ast.Module:
        """The file with the change."""
        tree = ast.parse(self.file.read_text())
        _change(next(node for number, node in enumerate(ast.walk(tree)) if number == self.number))
        return ast.fix_missing_locations(tree)

    @property
    def at_import(self) -> bool:
        """Whether what is changed runs at import, as bodies of modules and classes do, and defaults of arguments."""
        before, after = (_parts(compile(tree, "x", "exec")) for tree in (ast.parse(self.file.read_text()), self.tree()))
        changed = [code for key, code in after.items() if key not in before or _own(code) != _own(before[key])]
        return any(code.co_name == "<lambda>" or not code.co_flags & inspect.CO_OPTIMIZED for code in changed)

    def swap(self, path: Path) -> None:
        """Let the functions that were imported from a path do what they do with the change."""
        after = _parts(compile(self.tree(), str(path), "exec"))
        for found in gc.get_objects():
            named = isinstance(found, FunctionType) and found.__name__ != "<lambda>"
            if named and found.__code__.co_filename == str(path):
                found.__code__ = after.get(_key(found.__code__), found.__code__)

    def __str__(self) -> str:
        line = ast.unparse(self.node).splitlines()[0][:80]
        return f"{self.file.relative_to(ROOT)}:{self.lines[0]}: {self.what} at {line!r}"


def _parts(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Code and what is in it, by name and line."""
    inner = [_parts(const) for const in code.co_consts if isinstance(const, CodeType)]
    return {_key(code): code} | {key: part for parts in inner for key, part in parts.items()}


def _key(code: CodeType) -> tuple[str, int]:
    return code.co_qualname, code.co_firstlineno


def _own(code: CodeType) -> tuple[Any, ...]:
    """Code without what is in it."""
    return code.co_code, code.co_names, [const for const in code.co_consts if not isinstance(const, CodeType)]


def mutants(file: Path) -> Iterator[Mutant]:
    """Every small change of a file."""
    for number, node in enumerate(ast.walk(ast.parse(file.read_text()))):
        if what := _what(node):
            yield Mutant(file, number, node, what)


def _what(node: ast.AST) -> str | None:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
            return "another comparison"
        case ast.BoolOp():
            return "and for or"
        case ast.If() | ast.IfExp() | ast.While():
            return "condition negated"
        case ast.Constant(value=bool()):
            return "True for False"
        case ast.Constant(value=int()):
            return "one more"
        case ast.BinOp(op=operator) if type(operator) in COMPUTED:
            return "another operator"
        case ast.Call(keywords=[_, *_]):
            return "last keyword gone"
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign():
            return "statement gone"
    return None


def _change(node: ast.AST) -> None:
    match node:
        case ast.Compare():
            node.ops = [COMPARED[type(node.ops[0])]()]
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.If() | ast.IfExp() | ast.While():
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.Constant(value=bool()):
            node.value = not node.value
        case ast.Constant(value=int()):
            node.value += 1
        case ast.BinOp():
            node.op = COMPUTED[type(node.op)]()
        case ast.Call():
            node.keywords.pop()
        case _:  # a statement becomes one that does nothing
            node.__class__ = ast.Pass
            node._fields = ()


class Repeatable:
    """Hypothesis tries the same examples each time, and looks for none that are simpler."""

    def pytest_sessionstart(self) -> None:
        """After the tests' own settings, before theirs are read."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings.default, derandomize=True, database=None, phases=phases)
        settings.load_profile("mutants")


class Recorder(Repeatable):
    """Which lines each test executes, or each fixture before it, and how long tests take; of those that pass."""

    def __init__(self, room: Path) -> None:
        files = str(room / "*" if room.is_dir() else room)
        self.coverage = Coverage(data_file=None, include=[files], config_file=False, messages=False)
        self.tests: dict[str, tuple[float, list[str]]] = {}
        self.context = ""
        self.coverage.start()

    def switch(self, context: str) -> str:
        """What is executed from here on belongs to this; returns what it belonged to."""
        before, self.context = self.context, context
        self.coverage.switch_context(context)
        return before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """One test."""
        self.switch(item.nodeid)
        before = os.times()
        self.tests[item.nodeid] = 0.0, [item.nodeid, *getattr(item, "fixturenames", [])]
        result = yield
        if item.nodeid in self.tests:
            seconds = sum(os.times()[:4]) - sum(before[:4])  # of children, too
            self.tests[item.nodeid] = seconds, self.tests[item.nodeid][1]
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Any:
        """A fixture, which other tests may get, too."""
        before = self.switch(fixturedef.argname)
        try:
            return (yield)
        finally:
            self.switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test has ended."""
        if not report.passed:
            self.tests.pop(report.nodeid, None)

    def write(self, path: Path) -> None:
        """What was recorded."""
        self.coverage.stop()
        data = self.coverage.get_data()
        lines = {os.path.relpath(file): data.contexts_by_lineno(file) for file in data.measured_files()}
        path.write_text(json.dumps({"tests": self.tests, "lines": lines}))


class Chosen(Repeatable):
    """Some tests, and the first of them that fails."""

    def __init__(self, tests: dict[str, float], said: Path) -> None:
        self.tests, self.said = tests, said

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out the others; the quickest file first, as fixtures are made once a file."""
        total: defaultdict[Path, float] = defaultdict(float)
        items[:] = [item for item in items if item.nodeid in self.tests]
        for item in items:
            total[item.path] += self.tests[item.nodeid]
        items.sort(key=lambda item: (total[item.path], item.path, self.tests[item.nodeid]))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A part of a test has ended."""
        if report.failed:
            self.said.write_text(report.nodeid)


def choose(mutant: Mutant, recorded: dict[str, Any]) -> dict[str, float]:
    """The quickest of the tests that execute what is changed, with the seconds that they took."""
    name, at_import = str(mutant.file.relative_to(ROOT)), mutant.at_import
    changed, whole, every = [], [], []
    for found in recorded.values():
        lines = {int(line): {*contexts} - {""} for line, contexts in found["lines"].get(name, {}).items()}
        for test, (seconds, made_of) in found["tests"].items():
            every.append((seconds, test))
            if any(not contexts.isdisjoint(made_of) for contexts in lines.values()):
                whole.append((seconds, test))
            # What runs at import is recorded for the one test that happened to import it first.
            if not at_import and any(not lines.get(line, set()).isdisjoint(made_of) for line in mutant.lines):
                changed.append((seconds, test))
    chosen, total = {}, 0.0
    for seconds, test in sorted(changed or whole or every):
        if (total := total + seconds) <= SECONDS:
            chosen[test] = seconds
    return chosen


def forked(action: Callable[[], int], log: Path, folder: Path, seconds: int) -> int | None:
    """The exit code of an action in a process of its own, in a copy of the repository; None where it hangs.

    It may take so many seconds of the processor, and ten times as many by the clock.
    """
    if (child := os.fork()) == 0:
        code = 1
        try:
            os.setsid()
            os.dup2(os.open(log, os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 1)
            os.dup2(1, 2)
            os.chdir(folder)
            os.environ["PYTHONPATH"] = sys.path[0] = str(folder)
            sys.modules["__main__"].__file__ = None  # processes that tests start have no need of this script
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
            code = action()
        finally:
            os._exit(code)
    end, code = time.monotonic() + 10 * seconds, None
    while code is None and time.monotonic() < end:
        time.sleep(0.05)
        pid, status = os.waitpid(child, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if pid else None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # with what its tests have started
    if code is None:
        os.waitpid(child, 0)
    return code


def record(room: Path, file: str, said: Path) -> int:
    """Run a file of tests, and write down what they execute."""
    recorder = Recorder(room)
    code = int(pytest.main([*WORDS, file], [recorder]))
    recorder.write(said)
    return code


def record_all(room: Path, tests: Sequence[str], copied: Path, kept: Path | None) -> dict[str, Any]:
    """What the tests of each file execute, as far as it is not written down already."""
    found: dict[str, Any] = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    said, log = copied.with_name("said"), copied.with_name("log")
    for word in tests:
        folder = ROOT / word
        files = sorted(str(file.relative_to(ROOT)) for file in folder.rglob("test_*.py")) if folder.is_dir() else [word]
        for file in files:
            if file in found:
                continue
            said.unlink(missing_ok=True)
            if forked(partial(record, room, file, said), log, copied, RECORDING) not in (0, 5):  # 5: all are deselected
                print(log.read_text()[-2000:], file=sys.stderr)
            found[file] = json.loads(said.read_text()) if said.exists() else {"tests": {}, "lines": {}}
            seconds = sum(took for took, _ in found[file]["tests"].values())
            print(f"{file}: {len(found[file]['tests'])} tests, {seconds:.0f} s", flush=True)
            if kept is not None:
                kept.write_text(json.dumps(found))
    return found


def run(chosen: dict[str, float], said: Path, mutant: Mutant | None, place: Path) -> int:
    """Run some tests until one fails, and write down which; a mutant changes functions that are there."""
    said.write_text("an error at import, or a hang")
    if mutant is not None:
        mutant.swap(place)
    files = sorted({test.partition("::")[0] for test in chosen})
    return int(pytest.main([*WORDS, "-x", *files], [Chosen(chosen, said)]))


def import_tests(folder: Path, tests: Sequence[str]) -> None:
    """Import tests, and what they do, from a copy of the repository."""
    os.chdir(folder)
    os.environ["PYTHONPATH"] = sys.path[0] = str(folder)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = pytest.main([*WORDS, "--collect-only", *tests], [Repeatable()])
    assert code == 0, said.getvalue()[-2000:]


def main() -> None:
    """Print the mutants that survive, and how many there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", type=Path)
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of mutants, as they are printed")
    parser.add_argument("--first", type=int, default=0, help="the number to go on with")
    parser.add_argument("--recorded", type=Path, help="file of what tests execute; made where it is not there")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    given = options.room.resolve()
    files = sorted(given.rglob("*.py")) if given.is_dir() else [given]
    every = [mutant for file in files for mutant in mutants(file)]
    sample = list(enumerate(random.Random(options.seed).sample(every, min(options.mutants, len(every)))))
    sample = [entry for entry in sample[options.first :] if options.only is None or entry[0] in options.only]
    for name in WARM:
        importlib.import_module(name)
    survived = 0
    with tempfile.TemporaryDirectory() as temporary:
        copied, said, log = (Path(temporary).resolve() / name for name in ("repository", "said", "log"))
        shutil.copytree(ROOT, copied, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
        # By their hash, as a mutant may have the size and the second of the one before it.
        compileall.compile_dir(copied / "rerank", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        recorded = record_all(copied / given.relative_to(ROOT), options.tests, copied, options.recorded)
        imported = False
        for number, mutant in sorted(sample, key=lambda entry: not entry[1].at_import):
            if not imported and not mutant.at_import:
                imported = True
                import_tests(copied, sorted(recorded))
            place = copied / mutant.file.relative_to(ROOT)
            chosen, code = choose(mutant, recorded), 0
            if chosen:
                whole = place.read_text()
                place.write_text(ast.unparse(mutant.tree()))  # for processes that tests start
                there = mutant if imported else None
                code = forked(
                    partial(run, chosen, said, there, place), log, copied, 120 + 5 * int(sum(chosen.values()))
                )
                place.write_text(whole)
            survived += code == 0
            found = f"SURVIVED {len(chosen)} tests" if code == 0 else f"noticed by {said.read_text()}"
            print(f"{number} {mutant}: {found}", flush=True)
    print(f"{survived} of {len(sample)} survived (of {len(every)} possible)")


if __name__ == "__main__":
    main()
