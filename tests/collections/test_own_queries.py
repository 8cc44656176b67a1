"""Titles and first sentences as queries: what they are taken from is relevant, and no longer holds them."""

from __future__ import annotations

import pytest

from rerank import Texts
from rerank.collections.own_queries import OwnQueries

TEXTS = Texts(
    {
        "a": "The flow over wings\nAir moves faster above. It is slower below the wing.",
        "b": "the flow over wings\nThe same title a second time, in small letters.",
        "c": "Heat\nA title of one word is no query, and stays no query.",
        "d": "Shock waves in nozzles\ntoo short",
        "e": "No line break is here. The second sentence has five words.",
        "f": "Jets at e.g. high speed are loud. They are louder than slow ones are.",
        "g": "Blunt bodies at high speed\nHeat transfer to the nose of the body.",
        "h": "",
    },
    {"q": "a query"},
)


def test_titles_that_one_document_has_are_queries() -> None:
    own = OwnQueries(TEXTS)
    assert {query.id: query.text for query in own.queries()} == {"g": "Blunt bodies at high speed"}
    assert own.qrels() == {"g": {"g": 1}}


def test_first_sentences() -> None:
    own = OwnQueries(TEXTS, "first-sentences")
    texts = {query.id: query.text for query in own.queries()}
    assert texts["e"] == "No line break is here." and texts["f"] == "Jets at e.g. high speed are loud."
    assert own.qrels().keys() == texts.keys()


def test_a_heading_stays_above_the_rest() -> None:
    texts = {
        "heading": "span(a, b)\n\nReturn the span of two wings\n\nNeither of the wings changes.",
        "sentence": "Kites fly in wind. So do we.\n\nKites have lines, and wings have none.",
        "line": "span(a, b)\nReturn the span of wings. Neither of the wings changes.",
    }
    own = OwnQueries(Texts(texts, {"q": "a query"}), "first-sentences")
    taken = {query.id: query.text for query in own.queries()}
    assert taken["heading"] == "Return the span of two wings", "a sentence ends where a paragraph does"
    assert taken["sentence"] == "Kites fly in wind."
    assert taken["line"] == "span(a, b) Return the span of wings."
    rest = {document.id: document.text for document in own.documents()}
    assert rest["heading"] == "span(a, b)\n\nNeither of the wings changes."


@pytest.mark.parametrize("kind", ["titles", "first-sentences"])
def test_no_document_holds_its_query_any_more_and_none_is_lost(kind: str) -> None:
    own = OwnQueries(TEXTS, kind)
    documents = {document.id: document.text for document in own.documents()}
    assert list(documents) == [document.id for document in TEXTS.documents()]
    for query in own.queries():
        assert query.text not in documents[query.id]
    for document in TEXTS.documents():
        assert "".join(document.text.split()).endswith("".join(documents[document.id].split()))


def test_some_are_drawn_by_their_ids_alone() -> None:
    texts = Texts(
        {str(i): f"The title of number {i}\nOne two three four five {i}" for i in range(50)}, {"q": "a query"}
    )
    some = [query.id for query in OwnQueries(texts, count=10).queries()]
    more = [query.id for query in OwnQueries(texts, count=20).queries()]
    assert len(some) == 10 and len(more) == 20 and set(some) < set(more)
    assert some == sorted(some, key=int)
    assert len(list(OwnQueries(texts, count=99).queries())) == 50


def test_what_is_taken_is_part_of_the_fingerprint() -> None:
    prints = {OwnQueries(TEXTS).fingerprint(), OwnQueries(TEXTS, "first-sentences").fingerprint(), TEXTS.fingerprint()}
    assert len(prints) == 3
