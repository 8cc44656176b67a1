from __future__ import annotations

import json
import logging
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from rerank import Texts
from rerank.collections import Collection, Document, Query, open_collection
from rerank.collections.lucene import java_class, prebuilt_index
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.retrieval import BM25, build_index

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


def foreign_index(folder: Path, documents: Iterable[tuple[str, str]], option: str = "-storeContents") -> Path:
    """Build an index as Anserini's users do, without our manifest."""
    arguments = ["-index", str(folder), "-input", "", "-collection", "JsonCollection", option]
    indexer = java_class("io.anserini.index.SimpleIndexer")(arguments)
    lines = [json.dumps({"id": id, "contents": text}) for id, text in documents]
    assert indexer.addRawDocuments(lines) == len(lines)
    indexer.close()
    return folder


def by_hand(query: str, k1: float, b: float) -> dict[str, float]:
    """Compute BM25 as Lucene does: without the constant factor k1 + 1, with an idf that is never negative."""
    no_terms = ("blank", "control", "stop")
    documents = {id: text.lower().split() for id, text in DOCUMENTS.items() if id not in no_terms}  # an emoji is a word
    average = sum(map(len, documents.values())) / len(documents)
    scores: dict[str, float] = {}
    for term in query.split():
        found = {id: Counter(words)[term] for id, words in documents.items() if term in words}
        idf = math.log(1 + (len(documents) - len(found) + 0.5) / (len(found) + 0.5))
        for id, frequency in found.items():
            length = len(documents[id]) / average
            scores[id] = scores.get(id, 0.0) + idf * frequency / (frequency + k1 * (1 - b + b * length))
    return scores


@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (2.0, 0.0), (0.5, 1.0), (0.0, 0.5)])
@pytest.mark.parametrize("query", ["blue", "red plum", "apple apple pear", "blue cherry plum café"])
def test_scores_are_bm25(fruit: Collection, query: str, k1: float, b: float) -> None:
    found = BM25(k1, b).search(build_index(fruit), [Query("q", query)])["q"]
    expected = by_hand(query, k1, b)
    assert dict(found) == pytest.approx(expected, abs=1e-4)
    assert [document.id for document in found] == sorted(expected, key=lambda id: (-round(expected[id], 4), id))


def test_queries_keep_their_order_and_may_find_nothing(fruit: Collection, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rerank"):
        index = build_index(fruit)
    assert "2 of 9 documents are empty" in caplog.text
    run = BM25().search(index, fruit.queries())
    assert {query: [document.id for document in documents] for query, documents in run.items()} == {
        "q3": ["d2", "d10"],
        "q1": ["d10", "d9"],
        "none": [],
        "empty": [],
        "q2": ["d1", "d30"],
    }
    assert list(run) == ["q3", "q1", "none", "empty", "q2"]
    assert [len(documents) for documents in BM25().search(index, fruit.queries(), depth=1).values()] == [1, 1, 0, 0, 1]


def test_search_takes_any_text(fruit: Collection) -> None:
    long = " ".join(f"word{n}" for n in range(3000)) + " cherry"
    texts = ['"( AND OR cherry*', "cherry \ud800", "cherry 🍒 \x00", long]
    run = BM25().search(build_index(fruit), [Query(str(n), text) for n, text in enumerate(texts)])
    assert all([document.id for document in documents] == ["d1", "d30"] for documents in run.values())


def one_document(text: str) -> Texts:
    return Texts({"a": text}, {"q": "x"}, name="own:docs/α")


def test_build_index_builds_once(home: Path) -> None:
    collection = one_document("text")
    index = build_index(collection)
    assert index.parent == home / "indexes"
    built = index.stat().st_ino
    collection.name = "another name"
    assert build_index(collection) == index and index.stat().st_ino == built
    assert build_index(one_document("other")) != index


def test_build_index_leaves_nothing_after_an_error(tmp_path: Path, home: Path) -> None:
    (tmp_path / "docs.tsv").write_text("a\tb\nc\n")
    with pytest.raises(UserError, match="2: 1 columns"):
        build_index(open_collection(f"files:{tmp_path}"))
    assert list((home / "indexes").iterdir()) == []


def test_search_refuses_a_folder_without_an_index(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a Lucene index that can be read"):
        BM25().search(tmp_path, [Query("1", "a")])


def test_unknown_prebuilt_indexes_get_the_nearest_name() -> None:
    for call in (prebuilt_index, lambda name: open_collection(f"lucene:{name}")):
        with pytest.raises(UserError, match=r"unknown Lucene index 'robust4' \(did you mean 'robust04'\?\)"):
            call("robust4")


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, Path]:
    """Indexes with several kinds of stored text."""
    options = ("-storeRaw", "-storeContents", "-storePositions")
    return {option: foreign_index(tmp_path / option, [("1", "plain <b>text</b>")], option) for option in options}


def test_lucene_collection_is_its_own_index(stored: dict[str, Path]) -> None:
    for option in ("-storeRaw", "-storeContents"):
        collection = open_collection(f"lucene:{stored[option]}")
        assert list(collection.documents()) == [Document("1", "plain <b>text</b>")]
        assert build_index(collection) == stored[option]
        assert collection.qrels() is None
        with pytest.raises(UserError, match="an index has no queries"):
            collection.queries()
    assert BM25().search(stored["-storeRaw"], [Query("1", "texts")])["1"][0].id == "1"
    prints = {open_collection(f"lucene:{folder}").fingerprint() for folder in stored.values()}
    assert len(prints) == 3


def test_retrieve_refuses_an_index_with_an_id_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign_index(tmp_path / "index", [(id, f"a wing {i}") for i, id in enumerate(["d1", "d2", "d1"])])
    (tmp_path / "queries.tsv").write_text("q1\twing\n")
    (tmp_path / "run.trec").write_text("q1 Q0 d1 1 2.0 x\n")
    words = ["retrieve", "--collection", f"lucene:{tmp_path / 'index'}", f"--queries={tmp_path / 'queries.tsv'}"]
    assert main([*words, f"--index={tmp_path / 'index'}", f"--output={tmp_path / 'a'}"]) == 2
    assert "has several documents of the id 'd1'" in capsys.readouterr().err
    assert main([*words, "--run", str(tmp_path / "run.trec"), f"--output={tmp_path / 'b'}"]) == 2
    assert "document 'd1' comes a second time" in capsys.readouterr().err


def test_language_chooses_the_analyser_of_index_and_queries(home: Path, tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("d1\tHäuser\nd2\tother\n", encoding="utf-8")
    collection, queries = open_collection(f"files:{tmp_path}"), [Query("q", "Haus")]
    german, english = build_index(collection, language="de"), build_index(collection)
    assert [hit.id for hit in BM25(language="de").search(german, queries)["q"]] == ["d1"]
    assert BM25().search(english, queries)["q"] == []
    with pytest.raises(UserError, match="GermanAnalyzer"):
        BM25().search(german, queries)
    with pytest.raises(UserError, match="no analyser for 'vi'"):
        build_index(collection, language="vi")
