from __future__ import annotations

import re

from rerank.collections import open_collection
from rerank.collections.demo import DemoCollection

DEMO = open_collection("demo")
TEXTS = dict(DEMO.documents())
QUERIES = dict(DEMO.queries())
QRELS = DEMO.qrels() or {}
SENTENCES = {entry["id"]: entry["sentence"] for entry in DemoCollection().entries()}


def test_documents_are_the_public_library() -> None:
    assert len(TEXTS) == len(SENTENCES) == 4811
    assert TEXTS["shutil.disk_usage"] == "shutil disk usage (path)"
    for name, text in TEXTS.items():
        assert re.fullmatch(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*", name), name
        assert " at 0x" not in text, name


def test_queries_name_the_module_or_class_and_judge_its_members_with_that_sentence() -> None:
    assert QRELS.keys() == QUERIES.keys()
    for query, text in QUERIES.items():
        assert len({name.rpartition(".")[0] for name in QRELS[query]}) == 1, "of one module or class"
        sentence = text.partition(": ")[2]
        assert {SENTENCES[name].lower().rstrip(".") for name in QRELS[query]} == {sentence.lower().rstrip(".")}
    assert QUERIES["shutil.disk_usage?"] == "shutil: Return disk usage statistics about the given path."
