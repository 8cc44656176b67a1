"""Fixtures shared by all tests."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rerank.lists import Lists

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tests run side by side: threads that wait for each other are slow

with suppress(ModuleNotFoundError):  # a machine that is lent for its GPU need not have all that tests are made with
    from hypothesis import settings

    # without a deadline, since the machine may be busy
    settings.register_profile("default", deadline=None, max_examples=20)
    settings.register_profile("slow", deadline=None, max_examples=100)


def pytest_configure(config: pytest.Config) -> None:
    """Draw more examples in the slow tier."""
    with suppress(NameError):
        settings.load_profile("slow" if config.option.markexpr == "slow" else "default")


ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Seed torch, if it was imported, so that random weights do not depend on the tests that ran before."""
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(1)


@pytest.fixture(autouse=True)
def _no_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are whole, whatever some library has said of the terminal's width."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny BERT without dropout."""
    from tests.builders import make_model

    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Lists:
    """Ranked lists in a folder, with texts and judgments; they are not to be changed."""
    from tests.builders import make_lists

    return make_lists(tmp_path_factory.mktemp("lists"))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="session")
def shared_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real collections, unpacked once a process; tests that need them are skipped where there are none."""
    if not (SHARED / "unpack.sh").is_file():
        pytest.skip("no ../shared/data beside the checkout")
    folder = tmp_path_factory.mktemp("shared_data")
    subprocess.run([str(SHARED / "unpack.sh"), str(folder)], check=True)
    return folder
