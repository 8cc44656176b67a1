"""Classes of one's own: the pages about them, run from a module and from the command line's configuration."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rerank.commands.cli import main
from tests.builders import make_lists
from tests.conftest import ROOT

PAGES = sorted(path for path in (ROOT / "docs" / "own").glob("*.md") if path.name not in ("README.md", "index.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_example_works(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    module, used = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    name = re.match(r"# (\w+)\.py\n", module)
    (tmp_path / f"{name[1]}.py").write_text(module)
    make_lists(tmp_path / "made", [6] * 8).save(tmp_path / "lists" / "own")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    exec(compile(used, page.name, "exec"), {})
    if (config := next(iter(sorted(tmp_path.glob("runs/*/config.yaml"))), None)) is not None:
        assert main(["train", "--config", str(config), "--output", str(tmp_path / "again")]) == 0
        first, second = (folder / "best" / "model.safetensors" for folder in (config.parent, tmp_path / "again"))
        assert first.read_bytes() == second.read_bytes()
    sys.modules.pop(name[1], None)


def test_every_kind_has_a_page() -> None:
    kinds = {"collection", "model", "loss", "relaxation", "sampler", "normaliser", "measure"}
    assert {page.stem for page in PAGES} == kinds
    for page in PAGES:
        assert f"({page.name})" in (page.parent / "README.md").read_text()
