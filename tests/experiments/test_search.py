from __future__ import annotations

import math
from typing import Any

import pytest

from rerank.errors import UserError
from rerank.experiments.search import Grid, Optuna, PointSearch, check_space, make_search

SPACE: dict[str, Any] = {
    "alpha": {"low": 0.1, "high": 100.0, "log": True},
    "layers": {"low": 1, "high": 4},
    "kind": ["a", "b"],
}


def go(search: PointSearch, failing: int = -1) -> list[dict[str, Any]]:
    """All points of a search for the best alpha, 10."""
    points: list[dict[str, Any]] = []
    while asked := search.ask():
        for point in asked:
            value = None if len(points) == failing else -abs(math.log10(point["alpha"]) - 1)
            points.append(point)
            search.tell(point, value)
    return points


def test_a_grid_has_every_combination_once() -> None:
    grid = Grid({"alpha": [1, 2, 3], "kind": ["a", "b"], "x": [{"class_path": "A"}]})
    points = go(grid)
    assert grid.size == len(points) == 6
    assert {(point["alpha"], point["kind"]) for point in points} == {(i, k) for i in (1, 2, 3) for k in "ab"}
    assert Grid({}).ask() == [{}], "a method without a search has one point"


def test_optuna_stays_in_the_ranges_and_finds_what_is_better() -> None:
    points = go(Optuna(SPACE, 60, seed=1))
    assert len(points) == 60
    for point in points:
        assert 0.1 <= point["alpha"] <= 100
        assert point["layers"] in (1, 2, 3, 4)
        assert isinstance(point["layers"], int)
        assert point["kind"] in ("a", "b")
    assert {point["layers"] for point in points} == {1, 2, 3, 4}

    def miss(some: list[dict[str, Any]]) -> float:
        return sum(abs(math.log10(point["alpha"]) - 1) for point in some) / len(some)

    assert miss(points[-20:]) < 0.6 * miss(points[:10]), "later suggestions are nearer to the best"


def test_optuna_takes_the_same_way_again() -> None:
    assert go(Optuna(SPACE, 15, seed=1)) == go(Optuna(SPACE, 15, seed=1))
    assert go(Optuna(SPACE, 15, seed=1)) != go(Optuna(SPACE, 15, seed=2))
    assert len(go(Optuna(SPACE, 15, seed=1), failing=3)) == 15, "a failed point does not end the search"


def test_a_suggestion_waits_for_the_value_before() -> None:
    search = Optuna(SPACE, 2, seed=0)
    (point,) = search.ask()
    assert search.ask() == []
    search.tell(point, 1.0)
    assert len(search.ask()) == 1


def test_small_grids_are_gone_through_in_full() -> None:
    lists = {"alpha": [1, 2, 3], "kind": ["a", "b"]}
    assert isinstance(make_search(lists, None, 0), Grid)
    assert isinstance(make_search(lists, 6, 0), Grid)
    assert isinstance(make_search(lists, 5, 0), Optuna)
    assert isinstance(make_search(SPACE, 100, 0), Optuna)


@pytest.mark.parametrize(
    ("space", "trials", "message"),
    [
        ({"a": []}, None, "search.a"),
        ({"a": 3}, None, "search.a"),
        ({"a": {"low": 1}}, 3, "search.a"),
        ({"a": {"low": 2, "high": 1}}, 3, "low must not be above high"),
        ({"a": {"low": 0, "high": 1, "log": True}}, 3, "above 0 if log"),
        ({"a": {"low": "x", "high": 1}}, 3, "is not a range"),
        ({"a": {"low": 1, "high": 2, "lgo": True}}, 3, "no such word 'lgo'"),
        ({"a": {"low": 1, "high": 2}}, None, "set trials"),
        ({}, 0, "trials"),
    ],
)
def test_what_is_no_search_is_refused(space: dict[str, Any], trials: int | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_space("M", space, trials)
