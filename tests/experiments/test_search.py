from __future__ import annotations

from typing import Any

import pytest

from rerank.errors import UserError
from rerank.experiments.search import check_space, grid


def test_a_grid_has_every_combination_once() -> None:
    points = grid({"alpha": [1, 2, 3], "kind": ["a", "b"], "x": [{"class_path": "A"}]})
    assert len(points) == 6
    assert {(point["alpha"], point["kind"]) for point in points} == {(i, k) for i in (1, 2, 3) for k in "ab"}
    assert grid({}) == [{}], "a method without a search has one point"


@pytest.mark.parametrize("values", [[], 3, {"low": 1, "high": 2}])
def test_what_is_no_search_is_refused(values: Any) -> None:
    with pytest.raises(UserError, match=r"methods.M.search.a: must be a list of values"):
        check_space("M", {"a": values})
