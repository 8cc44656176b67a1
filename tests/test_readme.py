"""The README's Python, run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rerank.models.cross_encoder import CrossEncoder
from tests.conftest import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_examples_run(code: str, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    CrossEncoder(str(tiny_model)).save(tmp_path / "runs" / "scifact-smoothi" / "best")
    exec(compile(code, "README.md", "exec"), {})


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 2
