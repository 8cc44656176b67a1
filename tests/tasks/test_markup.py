"""Markup in names stays text in tables and on cards; pages are in tests/report."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.commands.cli import main
from tests.builders import make_lists, train

EVIL = "<script>alert(1)</script>&\"'<b>"


def test_a_table_has_no_markup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qrels").write_text("".join(f"q{i} 0 d{i} 1\n" for i in range(3)))
    for run, documents in (("a.trec", "012345"), ("b.trec", "543210")):
        lines = [f"q{q} Q0 d{d} {i + 1} {9 - i} t\n" for q in range(3) for i, d in enumerate(documents)]
        (tmp_path / run).write_text("".join(lines))
    words = ["evaluate", "--qrels", "qrels", "--measures", "nDCG@3", "--runs", f"{EVIL}=a.trec", f"other{EVIL}=b.trec"]
    assert main([*words, "--baseline", EVIL, "--table", "t.md", "t.tex"]) == 0
    markdown, latex = ((tmp_path / name).read_text() for name in ("t.md", "t.tex"))
    for sign in ("<script", "<b>"):
        assert sign not in markdown and sign not in latex
    assert markdown.count("&lt;script>alert(1)") >= 4, "in the tables and in the sentence below them"
    assert {line.count("&") - line.count(r"\&") for line in latex.splitlines() if line.endswith(r"\\")} == {2, 8}


def test_a_card_has_no_markup(tmp_path: Path) -> None:
    lists = make_lists(tmp_path / "<b>x")
    folder = tmp_path / "<img src=x>"
    words = "--data ListsData --data.validation_share 0.3 --epochs 1 --loss ListNet --model MLP --model.columns [bm25]"
    train([*words.split(), "--data.train", str(lists.store.folder), "--output", str(folder)])
    card = (folder / "best" / "README.md").read_text().partition("\n---\n\n")[2]
    assert "# &lt;img src=x>" in card and "<img" not in card and "<b>" not in card
