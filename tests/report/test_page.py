"""The page is valid, self-contained, escaped and bounded, and has the runs' rankings."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.collections import read_qrels
from rerank.commands.cli import run
from rerank.evaluation.render import Section, queries_sentence
from rerank.lists.build import ORDER
from rerank.report.page import LENGTH, QUERIES, TOP, most_changed, render_page
from rerank.retrieval.runs import Run, Scored, read_run
from tests.evaluation.tables import per_query
from tests.report.conftest import NAME
from tests.report.parsed import data_of, parsed

VISIBLE = st.text(st.characters(exclude_categories=["Cc", "Cs", "Cn"]), max_size=40)


def test_page_is_valid_html_and_asks_for_nothing(report: Path) -> None:
    tree = parsed(report.read_text())
    assert len(list(tree.iter("script"))) == 2, "the data and ours, none from names and texts"
    assert not list(tree.iter("img")) + list(tree.iter("link")) + list(tree.iter("iframe")) + list(tree.iter("b"))
    for element in tree.iter():
        for name in ("src", "href", "srcset", "action", "data"):
            assert (element.get(name) or "#").startswith("#"), "links stay in the page"
        assert not [name for name in element.attrib if str(name).startswith("on")] and "style" not in element.attrib
    style = "".join(style.text for style in tree.iter("style"))
    assert "url(" not in style and "@import" not in style
    ids = [element.get("id") for element in tree.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    named = [element.get("aria-labelledby") for element in tree.iter() if element.get("aria-labelledby")]
    assert set(named) <= set(ids)
    assert {link.get("href")[1:] for link in tree.iter("a")} <= set(ids)


def test_page_holds_what_the_runs_say(report: Path, folder: Path) -> None:
    data = data_of(parsed(report.read_text()))
    runs = {ORDER: read_run(folder / "a.trec"), NAME: read_run(folder / "b.trec")}
    qrels = read_qrels(folder / "lists" / "qrels.trec")
    texts = {row["_id"]: row["text"] for row in map(json.loads, (folder / "collection/corpus.jsonl").open())}
    assert data["runs"] == list(runs) and data["texts"]
    assert len(data["shown"]) == len(data["queries"]) == len(qrels)
    for i, query in enumerate(data["queries"]):
        entries = {data["documents"][doc][0]: (grade, ranks) for doc, grade, ranks in data["shown"][str(i)]["entries"]}
        for position, ranking in enumerate(runs.values()):
            order = [document.id for document in ranking[query]]
            assert set(order[:TOP]) <= set(entries)
            for id, (grade, ranks) in entries.items():
                assert ranks[position] == (order.index(id) + 1 if id in order else None)
                assert grade == qrels[query].get(id)
        assert {id for id, grade in qrels[query].items() if grade > 0} <= set(entries)
    for id, text in data["documents"]:
        whole = " ".join(texts.get(id, "").split())
        assert text == whole if len(whole) <= LENGTH else whole.startswith(text[:-1].rstrip()) and len(text) <= LENGTH
    assert any(text.endswith("…") for _, text in data["documents"])


def test_counts_alone_have_no_query_by_query() -> None:
    made = per_query("NumRet", np.ones((1, 3)))
    page = parsed(render_page("made", [], {"a": made, "b": made}, "a", {}, {}))
    assert len(list(page.iter("script"))) == 1, "no data"
    assert queries_sentence(made) == "3 queries."


@settings(max_examples=25)
@given(name=VISIBLE, shown=VISIBLE, caption=VISIBLE)
def test_any_text_is_shown_as_it_is(name: str, shown: str, caption: str) -> None:
    table = Section(name, ["run", name], [[name, shown]], [caption])
    tree = parsed(render_page(name, [table], {"a": per_query("NumRet", np.ones((1, 3)))}, "a", {}, {}))
    assert (next(tree.iter("h1")).text or "") == name
    assert [head.text or "" for head in tree.iter("th")] == ["run", name, name]
    cell = next(tree.iter("td"))
    assert (cell.text or "") == shown
    assert len(list(tree.iter("script"))) == 1


def test_pages_are_bounded_and_keep_what_changes_most() -> None:
    rng, queries = np.random.default_rng(0), [f"q{i}" for i in range(400)]
    tables = {f"run {i}": per_query("AP RR", rng.random((2, 400)), queries) for i in range(5)}
    first, *others = (table.values for table in tables.values())
    kept = most_changed(tables, [0, 1], 0)
    assert len(kept) == QUERIES
    change = np.max([np.abs(values - first).max(axis=0) for values in others], axis=0)
    left_out = sorted(set(range(400)) - set(kept))
    assert change[kept].min() >= change[left_out].max()
    assert kept == sorted(kept)
    runs: dict[str, Run] = {name: {query: [Scored("d", 1.0)] for query in queries} for name in tables}
    tree = parsed(render_page("many", [], tables, "run 0", runs, {query: {"d": 1} for query in queries}))
    told = next(details for details in tree.iter("details"))
    assert next(told.iter("summary")).text.startswith(f"{len(left_out)} of 400 queries are left out")
    assert next(told.iter("p")).text.split() == [queries[i] for i in left_out]


def test_reports_of_little_are_valid(folder: Path, tmp_path: Path) -> None:
    for name in ("one.html", "page.htm"):
        qrels, path = folder / "lists" / "qrels.trec", tmp_path / name
        run(["evaluate", f"--qrels={qrels}", "--runs", str(folder / "a.trec"), "--measures=AP", f"--html={path}"])
        tree = parsed(path.read_text())
        heads = [" ".join(head.text.split()) for head in tree.iter("h2")]
        assert heads == ["Measures", "Query by query"]
        assert not data_of(tree)["texts"]
