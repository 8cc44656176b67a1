"""The site builds without warnings and has an entry for every public name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", f"{folder}/cache"]
    done = subprocess.run([*command, "docs", f"{folder}/html"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder / "html"


def test_every_public_name_has_an_entry(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    from public import ROOMS, found, public
    from sphinx.util.inventory import InventoryFile

    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="").data
    kinds = ("py:class", "py:data", "py:exception", "py:function")
    documented = {id(found(name)) for kind in kinds for name in inventory.get(kind, ())}
    wanted = [name for room in ("rerank", *ROOMS) for name in public(room)]
    assert len(wanted) > 100
    missing = [name for name in wanted if id(found(name)) not in documented]
    assert missing == []


def test_pages_need_no_network(site: Path) -> None:
    page = (site / "reference" / "losses.html").read_text()
    assert page.count("<math") > 30
    assert ":math:" not in page and ":class:" not in page
    for file in site.rglob("*.html"):
        text = file.read_text()
        assert 'src="http' not in text and 'rel="stylesheet" href="http' not in text, file
