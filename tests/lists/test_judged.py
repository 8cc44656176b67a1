from __future__ import annotations

from pathlib import Path

import pytest

from rerank.collections import Qrels, open_collection
from rerank.collections.judgments import check_known
from rerank.errors import UserError
from rerank.lists import build_lists
from tests.builders import random_run, write_collection


def build(folder: Path, qrels: Qrels) -> None:
    name = write_collection(folder / "c", queries=4, documents=60)
    build_lists(open_collection(name), random_run(name, [3] * 4), folder / "lists", qrels=qrels)


def test_judgments_of_unknown_documents_and_queries_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    known = {f"d{i}": 1 for i in range(50)}
    build(tmp_path / "1", {"q0": known | {"gone": 1}, "q1": {"gone": 0, "lost": 2}, "q2": known, "q9": {"d1": 1}})
    assert "lacks 2 of the 52 judged documents, such as 'gone'; they count as not retrieved" in caplog.text
    assert "lacks 1 of the 4 judged queries, such as 'q9'; left out" in caplog.text
    caplog.clear()
    build(tmp_path / "2", {f"q{i}": {"d7": 1, "d59": 0} for i in range(4)})
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_judgments_of_another_collection_are_refused(tmp_path: Path) -> None:
    judged = dict.fromkeys(["d1", *(f"other{i}" for i in range(10))], 1)
    with pytest.raises(UserError, match="only 1 of the 11 judged documents, and not 'other0'"):
        build(tmp_path / "1", {"q0": judged})
    assert not (tmp_path / "1/lists").exists()
    build(tmp_path / "2", {"q0": dict.fromkeys([*judged][:10], 1)})


@pytest.mark.parametrize(("judged", "known", "searched"), [(99, 2, 2), (1, 1, 100)])
def test_judged_queries_may_be_a_small_part_of_the_queries_or_the_reverse(
    judged: int, known: int, searched: int
) -> None:
    ids = [str(i) for i in range(judged)]
    check_known("c", "judged queries", ids, ids[known:], min(judged, searched))
    with pytest.raises(UserError, match=f"c: has only 0 of the {judged} judged queries, and not '0'"):
        check_known("c", "judged queries", ids, ids, min(judged, searched))
