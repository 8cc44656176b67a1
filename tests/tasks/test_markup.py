"""Markup in names, ids and texts stays text on every page and in every table."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rerank.commands.cli import main
from tests.builders import make_lists, train

EVIL = "<script>alert(1)</script>&\"'<img src=x onerror=alert(2)><b>"


class Page(HTMLParser):
    """Counts the elements that a browser would make."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.scripts, self.foreign = 0, list[str]()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag in ("img", "b") or any(name.startswith("on") for name, _ in attributes):
            self.foreign.append(tag)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collection and two runs, harmless or not, and what the commands make of them."""
    folder = tmp_path_factory.mktemp("markup")
    for kind, text, id, name in (
        ("plain", "wing", "", "n"),
        ("evil", EVIL, "<b>&\"'<script>", EVIL.partition("<img")[0]),
    ):
        place = folder / kind
        (place / "c" / "qrels").mkdir(parents=True)
        documents, queries = [f"d{i}{id}" for i in range(6)], [f"q{i}{id}" for i in range(3)]
        for file, ids in (("corpus", documents), ("queries", queries)):
            rows = [json.dumps({"_id": one, "title": text, "text": f"{text} </script><!-- {one}"}) for one in ids]
            (place / "c" / f"{file}.jsonl").write_text("\n".join(rows))
        judged = [f"{query}\t{documents[i]}\t1" for i, query in enumerate(queries)]
        (place / "c" / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]))
        for run in ("a", "b"):
            ranked = documents if run == "a" else documents[::-1]
            lines = [f"{query} Q0 {d} {i + 1} {9 - i} t" for query in queries for i, d in enumerate(ranked)]
            (place / f"{run}.trec").write_text("\n".join(lines))
        runs, lists = [str(place / "a.trec"), str(place / "b.trec")], str(place / "lists")
        assert main(["retrieve", "--collection", f"beir:{place}/c/test", "--run", *runs, "--output", lists]) == 0
        qrels = str(place / "c" / "qrels" / "test.tsv")
        words = ["evaluate", "--qrels", qrels, "--measures", "nDCG@3", "--lists", lists]
        words += ["--runs", f"{name}={runs[0]}", f"other{name}={runs[1]}", "--baseline", name]
        tables = [str(place / f"t.{suffix}") for suffix in ("md", "tex", "csv", "txt")]
        assert main([*words, "--html", str(place / "e.html"), "--table", *tables]) == 0
    return folder


def test_a_page_has_the_elements_that_it_has_of_harmless_names(place: Path) -> None:
    evil, plain = Page(place / "evil" / "e.html"), Page(place / "plain" / "e.html")
    assert evil.scripts == plain.scripts and evil.foreign == plain.foreign == []
    assert "alert(1)" in (place / "evil" / "e.html").read_text(), "it is shown"


def test_a_table_has_no_markup(place: Path) -> None:
    markdown, latex = ((place / "evil" / name).read_text() for name in ("t.md", "t.tex"))
    for sign in ("<script", "<img", "<b>"):
        assert sign not in markdown and sign not in latex
    assert markdown.count("&lt;script>alert(1)") >= 4, "in the tables and in the sentence below them"
    assert {line.count("&") - line.count(r"\&") for line in latex.splitlines() if line.endswith(r"\\")} == {2, 8}


def test_a_card_has_no_markup(tmp_path: Path) -> None:
    lists = make_lists(tmp_path / "<b>x")
    folder = tmp_path / "<img src=x>"
    words = (
        "--data ListsData --data.validation_share 0.3 --epochs 1 --loss ListNet --model MLP --model.columns ['bm25']"
    )
    train([*words.split(), "--data.train", str(lists.store.folder), "--output", str(folder)])
    card = (folder / "best" / "README.md").read_text().partition("\n---\n\n")[2]
    assert "# &lt;img src=x>" in card and "<img" not in card and "<b>" not in card
