from __future__ import annotations

from pathlib import Path

import pytest

from rerank.collections import Query, open_collection
from rerank.errors import UserError
from rerank.retrieval import BM25, build_index

WORDS = {
    "de": ("Häuser", "Haus"),
    "ar": ("والكتاب", "كتاب"),
    "zh": ("中华人民", "华人"),
}
"""A word in a document, and another form of it in a query."""


def write(folder: Path, word: str, query: str) -> Path:
    folder.mkdir()
    (folder / "docs.tsv").write_text(f"d1\t{word}\nd2\tother\n", encoding="utf-8")
    (folder / "queries.tsv").write_text(f"q\t{query}\n", encoding="utf-8")
    (folder / "qrels").write_text("q 0 d1 1\n")
    return folder


@pytest.mark.parametrize("language", WORDS)
def test_search_matches_forms_of_a_word_in_their_language(home: Path, tmp_path: Path, language: str) -> None:
    word, form = WORDS[language]
    collection = open_collection(f"files:{write(tmp_path / 'c', word, form)}")
    own, english = build_index(collection, language=language), build_index(collection)
    assert own != english, "an index of another analyser is another index"
    assert [hit.id for hit in BM25(language=language).search(own, collection.queries())["q"]] == ["d1"]
    if language not in ("zh",):  # English stemming takes the s off, and keeps single characters
        assert BM25().search(english, collection.queries())["q"] == []


def test_search_refuses_an_index_of_another_language(home: Path, tmp_path: Path) -> None:
    collection = open_collection(f"files:{write(tmp_path / 'c', 'Häuser', 'Haus')}")
    index = build_index(collection, language="de")
    with pytest.raises(UserError, match="GermanAnalyzer"):
        BM25().search(index, [Query("q", "Haus")])
    with pytest.raises(UserError, match="no analyser for 'vi'"):
        build_index(collection, language="vi")
