from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.collections import Document
from rerank.collections.base import checked_id, joined, unique
from rerank.errors import UserError


@given(st.lists(st.text("abcdef", min_size=1, max_size=3), max_size=40))
def test_unique_passes_all_through_and_refuses_repeated_ids(ids: list[str]) -> None:
    def records() -> Iterator[tuple[str, Document]]:
        return ((f"file:{line}", Document(id, "")) for line, id in enumerate(ids, 1))

    passed = []
    repeated = [place for place, id in enumerate(ids) if id in ids[:place]]
    try:
        for document in unique(records):
            passed.append(document.id)
    except UserError as error:
        again = repeated[0]
        assert str(error).startswith(f"file:{again + 1}: document id {ids[again]!r}")
        assert f"file:{ids.index(ids[again]) + 1};" in str(error)
    else:
        assert not repeated
    assert passed == ids


@given(st.text())
def test_ids_are_single_words(text: str) -> None:
    if text.split() == [text]:
        assert checked_id(text, "here") == text
    else:
        with pytest.raises(UserError, match="here: "):
            checked_id(text, "here")


@pytest.mark.parametrize("value", [None, 1.5, True, b"a", ["a"], ""])
def test_ids_are_strings_or_whole_numbers(value: object) -> None:
    assert checked_id(17, "here") == "17"
    with pytest.raises(UserError, match="no id"):
        checked_id(value, "here")


def test_fields_are_joined_one_a_line_without_the_empty_ones_and_utf8_can_hold_them() -> None:
    assert joined([" title ", None, "", "body\n", 7]) == "title\nbody\n7"
    assert joined(["a\ud800b"]).encode().decode().startswith("a�")
