from __future__ import annotations

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.collections.base import checked_id, joined
from rerank.errors import UserError


@given(st.text())
def test_ids_are_single_words(text: str) -> None:
    if text.split() == [text]:
        assert checked_id(text, "here") == text
    else:
        with pytest.raises(UserError, match="here: "):
            checked_id(text, "here")


@pytest.mark.parametrize("value", [None, 1.5, True, b"a", ["a"], "", pd.NA])
def test_ids_are_strings_or_whole_numbers(value: object) -> None:
    assert checked_id(17, "here") == "17"
    with pytest.raises(UserError, match="no id"):
        checked_id(value, "here")


def test_fields_are_joined_one_a_line_without_the_empty_ones_and_utf8_can_hold_them() -> None:
    assert joined([" title ", None, "", "body\n", 7]) == "title\nbody\n7"
    assert joined(["a\ud800b"]).encode().decode().startswith("a�")
