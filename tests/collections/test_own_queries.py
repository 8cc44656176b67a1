from __future__ import annotations

import rerank
from rerank import Texts
from rerank.collections.texts import OwnQueries

TEXTS = Texts(
    {
        "a": "The flow over wings\nAir moves faster above. It is slower below the wing.",
        "b": "the flow over wings\nThe same title a second time, in small letters.",
        "c": "Heat\nA title of one word is not a query, and stays no query.",
        "d": "Shock waves in nozzles\ntoo short",
        "e": "No line break is here. The second sentence has five words.",
        "g": "Blunt bodies at high speed\nHeat transfer to the nose of the body.",
        "h": "",
    },
    {"q": "a query"},
)


def test_titles_that_one_document_has_are_queries() -> None:
    own = OwnQueries(TEXTS)
    assert {query.id: query.text for query in own.queries()} == {"g": "Blunt bodies at high speed"}
    assert own.qrels() == {"g": {"g": 1}}
    documents = {document.id: document.text for document in own.documents()}
    assert list(documents) == [document.id for document in TEXTS.documents()]
    assert documents["g"] == "Heat transfer to the nose of the body."
    assert documents["e"] == "No line break is here. The second sentence has five words."
    assert own.fingerprint() != TEXTS.fingerprint()


def test_retrieve_takes_titles_as_queries() -> None:
    lists = rerank.retrieve(TEXTS, run={"mine": {"g": {"a": 2.0, "g": 1.0}}}, queries="titles")
    assert lists.query_texts == ["Blunt bodies at high speed"] and lists.grades.tolist() == [0, 1]
