"""Whether the tests of a room notice when its code is changed: one small change at a time, by seed.

    python scripts/try_mutants.py rerank/files.py --tests tests/test_files.py tests/test_hashes.py [--mutants 60]
    python scripts/try_mutants.py rerank/lists --tests tests/lists --first 20

Changes are those that slips make: another comparison, ``and`` for ``or``, a condition negated, a number one more, True
for False, + for -, a statement or a keyword argument gone. Each is written to a copy of the repository, in which pytest
runs until its first failure; a mutant that no test fails for survived, and is printed with its place.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is},
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult},
}


def mutants(tree: ast.Module) -> Iterator[tuple[int, str, ast.Module]]:
    """Every small change of a module: its line, what it is, and the module with it."""
    for number, node in enumerate(ast.walk(tree)):
        for what in _changes(node):
            changed = copy.deepcopy(tree)
            there = next(other for i, other in enumerate(ast.walk(changed)) if i == number)
            _change(there, what)
            yield getattr(node, "lineno", 0), f"{what} at {ast.unparse(node).splitlines()[0][:80]!r}", changed


def _changes(node: ast.AST) -> list[str]:
    match node:
        case ast.Compare(ops=[operator]) if type(operator) in COMPARED:
            return ["another comparison"]
        case ast.BoolOp():
            return ["and for or"]
        case ast.If() | ast.IfExp() | ast.While():
            return ["condition negated"]
        case ast.Constant(value=bool()):
            return ["True for False"]
        case ast.Constant(value=int()):
            return ["one more"]
        case ast.BinOp(op=operator) if type(operator) in COMPUTED:
            return ["another operator"]
        case ast.Call(keywords=[_, *_]):
            return ["last keyword gone"]
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign():
            return ["statement gone"]
    return []


def _change(node: ast.AST, what: str) -> None:
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


def main() -> None:
    """Print the mutants that survive, and how many there were."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("room", type=Path)
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--mutants", type=int, default=60)
    parser.add_argument("--first", type=int, default=0, help="go on with this one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=int, default=1800)
    options = parser.parse_args()
    files = sorted(options.room.rglob("*.py")) if options.room.is_dir() else [options.room]
    every = [(file, *mutant) for file in files for mutant in mutants(ast.parse(file.read_text()))]
    chosen = random.Random(options.seed).sample(every, min(options.mutants, len(every)))
    survived = 0
    with tempfile.TemporaryDirectory() as temporary:
        copied = Path(temporary) / "repository"
        shutil.copytree(ROOT, copied, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
        pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *options.tests]
        environment = os.environ | {"PYTHONPATH": str(copied)}
        for number, (file, line, what, changed) in enumerate(chosen[options.first :], options.first):
            place = copied / file.resolve().relative_to(ROOT)
            whole = place.read_text()
            place.write_text(ast.unparse(ast.fix_missing_locations(changed)))
            try:
                done = subprocess.run(
                    pytest, cwd=copied, env=environment, capture_output=True, timeout=options.seconds, check=False
                )
                noticed = done.returncode not in (0, 5)
            except subprocess.TimeoutExpired:
                noticed = True
            place.write_text(whole)
            survived += not noticed
            print(f"{number} {file}:{line}: {what}: {'noticed' if noticed else 'SURVIVED'}", flush=True)
    print(f"{survived} of {len(chosen) - options.first} survived (of {len(every)} possible)")


if __name__ == "__main__":
    main()
