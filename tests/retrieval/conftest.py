from __future__ import annotations

from pathlib import Path

import pytest

from rerank.collections import Collection, open_collection

DOCUMENTS = {
    "d10": "red apple red",
    "d9": "green apple pear",
    "d2": "blue plum plum plum plum",
    "d1": "blue cherry",
    "blank": " ",
    "control": "\x01\x1f",
    "stop": "the of and",
    "unicode": "Ärger 😀 naïve \u2028 café",
    "d30": "blue cherry",
}


@pytest.fixture
def fruit(tmp_path: Path, home: Path) -> Collection:
    folder = tmp_path / "fruit"
    folder.mkdir()
    (folder / "docs.tsv").write_text("".join(f"{id}\t{text}\n" for id, text in DOCUMENTS.items()), encoding="utf-8")
    (folder / "queries.tsv").write_text("q3\tred plum\nq1\tapples\nnone\tthe zebra\nempty\t\nq2\tCherry!\n")
    (folder / "qrels").write_text("q1 0 d9 1\nq2 0 d30 2\nq3 0 d2 1\nq3 0 d10 -1\n")
    return open_collection(f"files:{folder}")
