"""The Python of the README and of the pages about it, run."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from rerank.lists import Lists
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import make_lists
from tests.conftest import ROOT

PAGES = ("README.md", "docs/python.md", "docs/lists.md", "docs/training.md")
BLOCKS = [
    pytest.param(code, id=f"{page}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL))
]


@pytest.mark.parametrize("code", BLOCKS)
def test_examples_run(code: str, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "pyterrier" in code:
        pytest.importorskip("pyterrier")
    monkeypatch.chdir(tmp_path)
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    model.save(tmp_path / "runs" / "scifact-smoothi" / "best")
    start = CrossEncoder(str(tiny_model), query_length=8, document_length=24, start="bm25")
    start.save(tmp_path / "runs" / "scifact-start" / "best")
    make_lists(tmp_path / "made")
    for name in ("train", "test"):
        shutil.copytree(tmp_path / "made" / "lists", tmp_path / "lists" / f"scifact-{name}")
    dl20 = Lists.open(shutil.copytree(tmp_path / "made" / "lists", tmp_path / "lists" / "dl20"))
    for seed, name in enumerate(("splade", "tasb")):
        dl20.store.add_column(name, np.random.default_rng(seed).random(dl20.size))
    exec(compile(code, "an example", "exec"), {})


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 7
