from __future__ import annotations

from itertools import compress

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.lists import rows as module
from rerank.lists.rows import Rows

IDS = st.lists(st.text(max_size=3))


@given(st.lists(IDS), st.lists(st.text(max_size=3), unique=True), st.integers(0, 3), IDS)
def test_rows_are_those_of_a_dict(
    wanted: list[list[str]], documents: list[str], pending: int, asked: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PENDING", pending)
        rows = Rows(wanted)
    expected = {id for some in wanted for id in some}
    thirds = [documents[i::3] for i in range(3)]
    documents = [id for some in thirds for id in some]
    taken = [id for some in thirds for id in compress(some, rows.place(some))]
    assert taken == [id for id in documents if id in expected]
    places = {id: row for row, id in enumerate(taken)}
    stored = pa.chunked_array([taken[:2], taken[2:]], pa.string())
    assert rows.of(asked, stored).tolist() == [places.get(id, -1) for id in asked]


def test_ids_that_share_a_hash_are_not_confused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_hashes", lambda ids: np.array([len(id) for id in ids], dtype=np.int64))
    rows = Rows([["a", "bb"]])
    assert rows.place(["c", "a", "bb"]).all()
    stored = pa.chunked_array([["c", "a", "bb"]])
    assert rows.of(["bb", "a"], stored).tolist() == [2, 1]
    with pytest.raises(UserError, match="documents 'c' and 'a' have the same hash; run it again"):
        rows.of(["c"], stored)
