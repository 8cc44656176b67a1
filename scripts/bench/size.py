"""How large rerank is: lines, names, options, words to learn, and frames from a command to its arithmetic.

    python scripts/bench/size.py TREE [TREE …]

Prints Markdown tables with a column for each checkout, such as `git worktree add ../old 0e1359c` makes.
docs/internals/size.md has them. A line is a line of a file; code is what is neither blank, nor comment, docstring or
import. Options are those of `rerank COMMAND --help`, of training `--help all`. Frames are those of the package's own
files on the stack, from `main` to the first call into a relaxation (of a training step) and into a network's scoring.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from common import head, parser_of, row

HELP = """
import contextlib
from {module} import COMMANDS, main
for name in COMMANDS:
    print("\\f" + name)
    with contextlib.suppress(SystemExit):
        main([name, "--help", *(["all"] if name == "train" else [])])
"""

FRAMES = """
import os, sys, tempfile
import accelerate, rerank, rerank.training.trainer  # a watched import takes long
from {module} import main
folder = tempfile.mkdtemp()
texts = [f"text {{i}}" for i in range(40)]
table = {{"query": [f"query {{i // 4}}" for i in range(40)], "text": texts, "grade": [0, 1, 0, 0] * 10}}
rerank.Lists.from_dataframe(table | {{"bm25": [4.0, 3.0, 2.0, 0.1] * 10}}).save(folder + "/lists")
root, found = os.path.dirname(rerank.__file__), {{}}
def own(frame):
    names = []
    while frame is not None:
        if frame.f_code.co_filename.startswith(root):
            names.append((os.path.relpath(frame.f_code.co_filename, root), frame.f_code.co_name))
        frame = frame.f_back
    return names
def watch(frame, event, _):
    file = frame.f_code.co_filename
    kind = type(frame.f_locals.get("self"))
    if event == "call" and kind.__module__.startswith("rerank.relaxations") and "relaxation" not in found:
        names = own(frame)
        if any(name == "accumulate" for _, name in names):
            found["relaxation"] = len(names)
    if event == "call" and file.startswith(root + "/models/vectors") and frame.f_code.co_name in ("score", "forward"):
        found.setdefault("network", len(own(frame)))
lists, run = folder + "/lists", folder + "/run"
data = ["--data", "ListsData", "--data.train", lists, "--data.validation_share", "0", "--output", run]
sys.stderr = open(os.devnull, "w")
sys.setprofile(watch)
main(["train", *data, "--model", "MLP", "--model.columns", "[bm25]", "--loss", "TwinSigmoidNDCG", "--tracker", "[]"])
found.pop("network", None)
main(["rerank", "--model", run + "/best", "--lists", lists, "--output", folder + "/run.trec"])
sys.setprofile(None)
print(found.get("relaxation"), found.get("network"))
"""


def count(files: Iterator[Path]) -> list[int]:
    """Lines of files, and how many of them are code, docstrings and imports."""
    total = [0, 0, 0, 0]
    for path in files:
        source = path.read_text(encoding="utf-8")
        documented, imported = set[int](), set[int]()
        for node in ast.walk(ast.parse(source)):
            match node:
                case ast.Expr(ast.Constant(str())):
                    documented |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
                case ast.Import() | ast.ImportFrom():
                    imported |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
        lines = source.splitlines()
        apart = documented | imported
        code = sum(bool(line.strip()) and line.strip()[0] != "#" and i not in apart for i, line in enumerate(lines, 1))
        for i, value in enumerate((len(lines), code, len(documented), len(imported))):
            total[i] += value
    return total


def python(tree: Path, code: str) -> str:
    """What code prints in a process that imports the package of a tree."""
    environment = os.environ | {"PYTHONPATH": str(tree), "COLUMNS": "90"}
    return subprocess.check_output([sys.executable, "-c", code], env=environment, cwd=tree, text=True)


def options_of(tree: Path, module: str) -> dict[str, int]:
    """How many options each command has."""
    pages = python(tree, HELP.format(module=module)).split("\f")[1:]
    shown = (page.partition("\n")[::2] for page in pages)
    option = re.compile(r"(?m)^\s+(?:-\w, )?(--[\w.-]+|[A-Z]+(?= ?\.*$))")
    return {name: len(set(option.findall(page)) - {"--help"}) for name, page in shown}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("trees", type=Path, nargs="+", help="checkouts")
    trees = [tree.resolve() for tree in parser.parse_args().trees]
    modules = [tomllib.loads((tree / "pyproject.toml").read_text())["project"]["scripts"]["rerank"] for tree in trees]
    modules = [module.partition(":")[0] for module in modules]
    rooms = sorted({path.parent.name for tree in trees for path in (tree / "rerank").glob("*/*.py")})
    parts = {"loose files": "rerank/*.py"} | {f"`{room}`": f"rerank/{room}/**/*.py" for room in rooms}
    parts |= {"**package**": "rerank/**/*.py", "**tests**": "tests/**/*.py", "**scripts**": "scripts/**/*.py"}
    head("lines", *(tree.name for tree in trees))
    for part, pattern in parts.items():
        row(part, *(f"{lines:,}" if (lines := count(tree.glob(pattern))[0]) else "" for tree in trees))
    print()
    head("", *(tree.name for tree in trees))
    whole = [count(tree.glob("rerank/**/*.py")) for tree in trees]
    for i, what in enumerate(("code", "docstrings", "imports"), 1):
        row(f"lines of {what} in the package", *(f"{counts[i]:,}" for counts in whole))
    row("names of `rerank`", *(python(tree, "import rerank; print(len(rerank.__all__))").strip() for tree in trees))
    words = [[path.read_text(encoding="utf-8") for path in tree.glob("docs/**/glossary.md")] for tree in trees]
    row("words of the glossary", *(len(re.findall(r"(?m)^\| (?!word)", "".join(text))) for text in words))
    options = [options_of(tree, module) for tree, module in zip(trees, modules, strict=True)]
    for name in dict.fromkeys(name for found in options for name in found):
        row(f"options of `rerank {name}`", *(found.get(name, "") for found in options))
    row("options", *(sum(found.values()) for found in options))
    code = [FRAMES.format(module=module) for module in modules]
    frames = zip(*(python(*one).split()[-2:] for one in zip(trees, code, strict=True)), strict=True)
    for route, numbers in zip(("train` to a relaxation", "rerank` to the network"), frames, strict=True):
        row(f"frames from `rerank {route}", *numbers)


if __name__ == "__main__":
    main()
