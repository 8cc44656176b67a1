from __future__ import annotations

from rerank.errors import nearest


def test_the_nearest_name_is_suggested() -> None:
    assert nearest("cranfeld", ["vaswani", "cranfield", "cisi"]) == " (did you mean 'cranfield'?)"


def test_nothing_is_suggested_when_nothing_is_near() -> None:
    assert nearest("zzz", ["vaswani", "cranfield"]) == ""
    assert nearest("cranfield", []) == ""
