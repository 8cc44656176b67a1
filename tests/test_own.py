"""The page about custom classes, run from a module and from the command line's configuration."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rerank.commands.cli import main
from tests.builders import make_lists
from tests.conftest import ROOT

SECTIONS = re.findall(
    r"^## (.*?)\n(.*?)(?=^## |\Z)", (ROOT / "docs" / "extending.md").read_text(), re.DOTALL | re.MULTILINE
)


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in SECTIONS])
def test_custom_classes_work_as_documented(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    module, used = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
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
