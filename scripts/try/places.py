"""The recipes of docs/places.md, each in an environment of its own: what they print, and whether they order as predict.

    python scripts/try/places.py --model runs/x/best --lists lists/scifact-test --environments environments

A recipe is a heading, what it installs and its code. It finds a ``query``, ``texts`` (the first 30 words of a list's
candidates, which the model reads whole), the model as ``runs/x/best`` and a running ``rerank serve`` in place of
127.0.0.1:8000, and has to leave ``order``. ``environments/NAME`` is made where it is not there. Prints a Markdown
table, which also shows what could not be installed.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts" / "bench")]

from common import head, parser_of, rerank_command, row  # noqa: E402
from serve import service  # noqa: E402

from rerank import CrossEncoder, Lists  # noqa: E402

TIE = 1e-4
"""Scores that are as near as this may change places: other libraries' products round otherwise."""

PROGRAM = """
import contextlib, importlib.metadata, io, json, re, sys
query, texts, packages, code = json.load(sys.stdin)
names, said = {"query": query, "texts": texts}, io.StringIO()
with contextlib.redirect_stdout(said):
    exec(code, names)
versions = [f"{name} {importlib.metadata.version(name)}" for name in packages]
order = [int(number) for number in names["order"]]
print("\\n" + json.dumps([versions, order, said.getvalue().strip().splitlines()[-1]]))
"""


class Recipe(NamedTuple):
    """A section of the page: its heading, what it installs and what it runs."""

    name: str
    packages: list[str]
    code: str


def recipes(page: str) -> list[Recipe]:
    """The sections that have code."""
    found = []
    for section in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        name, _, text = section.partition("\n")
        shell, code = (re.search(rf"```{kind}\n(.*?)```", text, re.DOTALL) for kind in ("sh", "python"))
        if shell and code:
            packages = shlex.split(shell[1].removeprefix("pip install "))
            found.append(Recipe(name.strip(), ["rerank-direct"] if "-e" in packages else packages, code[1]))
    return found


def python_of(recipe: Recipe, environments: Path) -> Path | str:
    """The Python of an environment with the recipe's packages, or why there is none."""
    if recipe.packages == ["rerank-direct"]:  # an extra of this checkout
        return Path(sys.executable)
    place = environments / re.sub(r"\W+", "-", recipe.name).strip("-")
    python = place / "bin" / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
        words = ["-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), *recipe.packages]
        done = subprocess.run([python, *words], capture_output=True, text=True)
        if done.returncode:
            return done.stderr.strip().splitlines()[-1]
    return python


def question(model: CrossEncoder, folder: str, count: int = 20) -> tuple[str, list[str]]:
    """A query and texts that the model reads whole, no two alike."""
    frame = Lists.open(folder).to_dataframe()
    query = frame["query"].iloc[0]
    texts = dict.fromkeys(" ".join(text.split()[:30]) for text in frame["text"][frame["query"] == query])
    return query, [text for text in texts if len(model.tokenizer.tokenize(text)) <= model.document_length][:count]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--model", required=True, help="folder of a trained cross-encoder")
    parser.add_argument("--lists", required=True, help="lists folder")
    parser.add_argument("--environments", required=True, type=Path, help="folder of environments")
    parser.add_argument("--only", action="append", help="a part of a recipe's heading")
    options = parser.parse_args()
    model = CrossEncoder(options.model, start=[])
    query, texts = question(model, options.lists)
    scores = model.text_scores([(query, text) for text in texts], precision="fp32")
    best = np.argsort(-scores, kind="stable")
    print(f"predict: {best[:3].tolist()} are the best of {len(texts)}, the first with {scores[best[0]]:.4f}\n")
    head("", "versions", "printed", "order of predict")
    serve = rerank_command("serve", f"x={options.model}", "--port=0", "--precision=fp32", "--timeout=600")
    with tempfile.TemporaryDirectory() as folder, service(serve) as port:
        (Path(folder) / "runs" / "x").mkdir(parents=True)
        (Path(folder) / "runs" / "x" / "best").symlink_to(Path(options.model).resolve())
        for recipe in recipes((ROOT / "docs" / "places.md").read_text()):
            if not any(part in recipe.name for part in options.only or [""]):
                continue
            python = python_of(recipe, options.environments)
            if isinstance(python, str):
                row(recipe.name, "", f"not run: {python}", "")
                continue
            packages = [re.sub(r"\[.*", "", name) for name in recipe.packages]
            code = recipe.code.replace("127.0.0.1:8000", f"127.0.0.1:{port}")
            asked = json.dumps([query, texts, packages, code])
            quiet = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONPATH": ""}
            program = [python.absolute(), "-c", PROGRAM]
            done = subprocess.run(program, input=asked, cwd=folder, env=quiet, capture_output=True, text=True)
            if done.returncode:
                row(recipe.name, ", ".join(packages), f"failed: {done.stderr.strip().splitlines()[-1][:300]}", "no")
                continue
            versions, order, said = json.loads(done.stdout.splitlines()[-1])
            row(recipe.name, ", ".join(versions), f"`{said}`", said_of(order, scores))


def said_of(order: list[int], scores: np.ndarray) -> str:
    """Whether an order is that of the scores."""
    if sorted(order) != list(range(len(scores))):
        return f"no: has {len(order)} of {len(scores)}"
    if order == np.argsort(-scores, kind="stable").tolist():
        return "yes"
    off = float(np.max(np.diff(scores[order]), initial=0.0))
    return "yes, but for ties" if off < TIE else f"no: off by {off:.2g}"


if __name__ == "__main__":
    main()
