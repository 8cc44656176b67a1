from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerank.collections import Query, open_collection
from rerank.collections.jvm import java_class
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.retrieval import BM25, build_index
from rerank.retrieval.bm25 import ANALYZERS, analyzer, analyzer_name

WORDS = {
    "de": ("Häuser", "Haus"),
    "el": ("σπιτιών", "σπίτια"),
    "ro": ("caselor", "casele"),
    "ru": ("домами", "домах"),
    "ar": ("والكتاب", "كتاب"),
    "es": ("libros", "libro"),
    "hi": ("किताबें", "किताबों"),
    "tr": ("kitaplar", "kitabı"),
    "zh": ("中华人民", "华人"),
    "cs": ("domy", "domů"),
}
"""A word in a document, and another form of it in a query."""


def write(folder: Path, word: str, query: str) -> Path:
    folder.mkdir()
    (folder / "docs.tsv").write_text(f"d1\t{word}\nd2\tother\n", encoding="utf-8")
    (folder / "queries.tsv").write_text(f"q\t{query}\n", encoding="utf-8")
    (folder / "qrels").write_text("q 0 d1 1\n")
    return folder


@pytest.mark.parametrize("language", WORDS)
def test_forms_of_a_word_meet_in_their_own_language(home: Path, tmp_path: Path, language: str) -> None:
    word, form = WORDS[language]
    collection = open_collection(f"files:{write(tmp_path / 'c', word, form)}")
    own, english = build_index(collection, language=language), build_index(collection)
    assert own != english, "an index of another analyser is another index"
    assert [hit.id for hit in BM25(language=language).search(own, collection.queries())["q"]] == ["d1"]
    if language not in ("es", "zh"):  # English stemming takes the s off, and keeps single characters
        assert BM25().search(english, collection.queries())["q"] == []


def test_every_analyser_is_there() -> None:
    analyse = java_class("io.anserini.analysis.AnalyzerUtils").analyze
    for language in sorted(ANALYZERS.keys() - {"en", "th"}):
        found = analyzer(language)
        assert found.getClass().getName() == analyzer_name(language)
        assert analyse(found, "Zebra 7").size() > 0, language


def test_thai_works_or_says_what_it_takes(home: Path, tmp_path: Path) -> None:
    collection = open_collection(f"files:{write(tmp_path / 'c', 'ภาษาไทยง่าย', 'ไทย')}")
    if java_class("org.apache.lucene.analysis.th.ThaiTokenizer").DBBI_AVAILABLE:
        index = build_index(collection, language="th")
        assert len(BM25(language="th").search(index, collection.queries())["q"]) == 1
    else:
        with pytest.raises(UserError, match="set JAVA_HOME to a whole JDK"):
            build_index(collection, language="th")


def test_an_index_is_searched_as_it_was_made(home: Path, tmp_path: Path) -> None:
    collection = open_collection(f"files:{write(tmp_path / 'c', 'Häuser', 'Haus')}")
    index = build_index(collection, language="de")
    with pytest.raises(UserError, match="GermanAnalyzer"):
        BM25().search(index, [Query("q", "Haus")])
    with pytest.raises(UserError, match="no analyser for 'dee' \\(did you mean 'de'"):
        BM25(language="dee")
    with pytest.raises(UserError, match="no analyser for 'vi'"):
        build_index(collection, language="vi")


@pytest.mark.parametrize("language", ["no", "ru"])  # YAML takes `no` for false
def test_the_manifest_says_the_language(home: Path, tmp_path: Path, language: str) -> None:
    folder = write(tmp_path / "c", "дом", "дом")
    arguments = ["--collection", f"files:{folder}", "--language", language, "--output", str(tmp_path / "l")]
    assert main(["retrieve", *arguments]) == 0
    assert json.loads((tmp_path / "l/manifest.json").read_text())["retriever"]["bm25"]["language"] == language
