"""The wheel has a name of our own and every file that the package needs."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from rerank import __version__
from tests.conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BUILD = "import sys; from hatchling import build; build.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, capture_output=True)
    return folder


def test_names_and_versions_agree() -> None:
    assert PROJECT["name"] == "rerank-direct"
    assert PROJECT["version"] == __version__
    assert f"version: {__version__}" in (ROOT / "CITATION.cff").read_text()
    assert "## Unreleased" in (ROOT / "CHANGELOG.md").read_text()
    assert "rerank-direct" in (ROOT / "docs" / "start.md").read_text()
    for file in (ROOT / "rerank").rglob("*.py"):
        assert "pip install 'rerank[" not in file.read_text(), f"{file}: the index has another project of that name"


def test_wheel_has_every_file_of_the_package_and_the_command(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = {p.relative_to(ROOT).as_posix() for p in (ROOT / "rerank").rglob("*") if p.is_file()}
    wanted = {name for name in files if "__pycache__" not in name}
    assert wanted == {name for name in names if ".dist-info/" not in name}
    (entry,) = (name for name in names if name.endswith("entry_points.txt"))
    assert "rerank = rerank.commands.cli:main" in zipfile.ZipFile(wheel).read(entry).decode()
