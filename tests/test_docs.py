"""The documentation: links have targets, commands have options, and its Python does what it says."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import sys
from contextlib import redirect_stdout, suppress
from dataclasses import fields
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.commands.cli import COMMANDS, main
from rerank.experiments.config import ExperimentConfig
from rerank.lists import Lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.training.config import TrainConfig
from tests.builders import make_decoder, make_lists
from tests.conftest import ROOT

PATTERNS = ("*.md", "docs/**/*.md", "scripts/*.md", "configs/**/*.md")
PAGES = {path: path.read_text(encoding="utf-8") for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))}
KEYS = {
    "train": {"config", *(field.name for field in fields(TrainConfig))},
    "experiment": {*(field.name for field in fields(ExperimentConfig))},
}
"""First parts of dotted options, most of which have no line of their own in the help."""

PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
SECTIONS = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGES[ROOT / "docs" / "extending.md"], re.DOTALL | re.MULTILINE)
FAST = ("README.md", "start.md")
SNIPPETS = [
    pytest.param(code, id=f"{path.name}-{number}", marks=() if path.name in FAST else pytest.mark.slow)
    for path, text in PAGES.items()
    if path.name not in ("extending.md", "troubleshooting.md")
    for number, code in enumerate(PYTHON.findall(text))
]
CHECKS = {
    'output="runs/first"': 'run.results.test and Path("runs/first/best").is_dir()',
    "CrossEncoderTrainer(": 'rerank.CrossEncoder("runs/theirs/final").predict([("heat", "a jet")]).shape == (1,)',
    'output="runs/ours"': 'last[0]["score"] >= last[1]["score"]',
    "run.model.predict(lists)": "(scores.dtype, len(scores)) == (np.float32, lists.size)",
    "run.history": 'all(word in str(last) for word in ("ours", "bm25", "nDCG@10", "AP"))',
    "\nmodel.rank(": 'last is None or last[0]["score"] >= last[1]["score"]',
    "loss(scores, labels, mask).backward()": "(scores.grad.abs().sum(dim=1) > 0).all()",
    "dl20.parquet": 'Path("dl20.parquet").is_file() and Path("splade.trec").is_file()',
    "\nlists.to_dataframe()": 'last["text"].tolist() == frame.filter(["passage", "text"]).iloc[:, 0].tolist()',
    "pt.Experiment": '[*last["name"]] == ["first", "reranked"]',
    "lists.matrix": 'last[1].shape == (lists.size, 2) and (last[1][:, 0] == lists.column("bm25")).all()',
    "fuse(runs": "last.keys() == {*lists.query_ids}",
    "loss(scores, labels, mask=None": "0 < float(last) < 1",
    ".probabilities(lists)": "last.shape == (lists.size,) and 0 < last.min() <= last.max() < 1",
    "rerank.Interpolated(": 'last[0]["score"] >= last[1]["score"] and scores.size == lists.size',
    '.save_pretrained("reranker")': 'rerank.load("reranker").predict([("what is a wing", "a jet")]).shape == (1,)',
    "merge_and_unload()": 'rerank.Decoder("merged").predict([("what is a wing", "a wing gives lift")]).shape == (1,)',
}
"""Conditions after the snippet that contains these words; ``last`` is the value of its last expression."""


@cache
def without_code(path: Path) -> str:
    return re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)


@cache
def anchors(path: Path) -> set[str]:
    """Return the names of a page's headings, as GitHub and the site make them."""
    heads = re.findall(r"^#+ (.*)$", without_code(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower().replace("`", "")).replace(" ", "-") for head in heads}


def test_links_have_targets() -> None:
    dead = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", without_code(page))):
            if target.startswith(("http", "mailto:")):
                continue
            name, _, anchor = target.partition("#")
            path = (page.parent / name).resolve() if name else page
            if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
                dead.append(f"{page.relative_to(ROOT)}: {target}")
    assert dead == []


def test_documented_tests_exist() -> None:
    missing = []
    for page, text in PAGES.items():
        for file, name in re.findall(r"(tests/[\w/]+\.py)(?: -k (\w+))?", "" if page.name == "CHANGELOG.md" else text):
            if not (ROOT / file).is_file() or name not in (ROOT / file).read_text(encoding="utf-8"):
                missing.append(f"{page.relative_to(ROOT)}: {file} -k {name}")
    assert missing == []


def commands(text: str) -> list[list[str]]:
    """Return the words of each ``rerank COMMAND …`` in blocks and between backquotes, without comments."""
    blocks = re.findall(r"```(?:sh|console)\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in re.sub(r"\\\n\s*", " ", block).splitlines()]
    inline = re.findall(r"`(rerank [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    found = []
    for line in (*lines, *(" ".join(code.split()) for code in inline)):
        if match := re.search(r"\brerank [a-z]+ .*", line + " "):
            command = re.split(r" [|;<>] |\"\$|&& ", re.sub(r"\s#.*", "", match[0]))[0]
            found.append(shlex.split(command.replace("'", "").replace('"', ""))[1:])
    return found


@cache
def options_of(command: str) -> set[str]:
    """Return the names of a command's options, with hyphens."""
    with redirect_stdout(StringIO()) as printed, suppress(SystemExit):
        main([command, "--help", *(["all"] if command == "train" else [])])
    names = {"help", *re.findall(r"--([\w.\-]+)", printed.getvalue()), *KEYS.get(command, ())}
    return {name.replace("_", "-") for name in names}


def test_documented_options_exist() -> None:
    unknown, count = [], 0
    for page, text in PAGES.items():
        for command, *rest in [] if page.name == "CHANGELOG.md" else commands(text):
            count += command in COMMANDS
            for match in (re.match(r"--([a-z][^=]*)", word) for word in rest if command in COMMANDS):
                name = match[1].replace("_", "-") if match else ""
                if match and not {name, name.partition(".")[0]} & options_of(command):
                    unknown.append(f"{page.relative_to(ROOT)}: rerank {command} {match[0]}")
    assert unknown == []
    assert count > 50


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in SECTIONS])
def test_custom_classes_work_as_documented(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """They are imported as a module, and named by a configuration."""
    module, used = PYTHON.findall(text)
    name = re.match(r"# (\w+)\.py\n", module)
    (tmp_path / f"{name[1]}.py").write_text(module)
    make_lists(tmp_path / "made", [6] * 8).save(tmp_path / "lists" / "own")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    exec(compile(used, name[1], "exec"), {})
    if (config := next(iter(sorted(tmp_path.glob("runs/*/config.yaml"))), None)) is not None:
        assert main(["train", "--config", str(config), "--output", str(tmp_path / "again")]) == 0
        first, second = (folder / "best" / "model.safetensors" for folder in (config.parent, tmp_path / "again"))
        assert first.read_bytes() == second.read_bytes()
    sys.modules.pop(name[1], None)


def prepare(folder: Path, code: str, tiny_model: Path) -> None:
    """Make the lists and models that the snippets name."""
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    model.save(folder / "runs" / "scifact-smoothi" / "best")
    CrossEncoder(str(tiny_model), query_length=8, document_length=24, residual_columns="bm25").save(
        folder / "runs" / "scifact-residual" / "best"
    )
    shutil.copytree(tiny_model, folder / "encoder")
    made = make_lists(folder / "made")
    made.to_dataframe()[["query", "text", "grade", "bm25"]].to_csv(folder / "candidates.csv", index=False)
    for name in ("scifact-train", "scifact-test", "new", "validation", "dl20"):
        shutil.copytree(folder / "made" / "lists", folder / "lists" / name)
    dl20 = Lists.open(folder / "lists" / "dl20")
    for seed, name in enumerate(("splade", "tasb")):
        dl20.store.add_column(name, np.random.default_rng(seed).random(dl20.size))
    if 'output="runs/mine"' not in code:  # otherwise the snippet trains it
        model.save(folder / "runs" / "mine" / "best")
    if 'CrossEncoder("decoder"' in code:
        make_decoder(folder / "decoder", prompt=None)
    if "merge_and_unload()" in code:
        (folder / "runs" / "x" / "best").mkdir(parents=True)
        base = str(make_decoder(folder / "base"))
        lora = rerank.LoRA(rank=2)
        rerank.Decoder(base, lora=lora).save(folder / "runs" / "x" / "best")


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippets_do_what_they_say(
    code: str, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    if "pyterrier" in code:
        pytest.importorskip("pyterrier")
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path, code, tiny_model)
    tree, names = ast.parse(code), dict[str, Any]()
    end = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "a snippet", "exec"), names)
    names["last"] = eval(compile(ast.Expression(end.value), "a snippet", "eval"), names) if end else None
    checks = [check for words, check in CHECKS.items() if words in code]
    assert checks, "add a check of what this snippet gives"
    for check in checks:
        assert eval(check, globals() | names), check
