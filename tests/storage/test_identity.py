"""Canonical JSON, ids, and what of objects counts for them."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.losses import DirectMetric, SmoothINDCG
from rerank.relaxations import SmoothI
from rerank.settings.described import Described
from rerank.storage.identity import canonical, first_difference, id_of, identify

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


class Mine(Described):
    """A user's class."""

    def __init__(self, depth: float = 3, other: Any = None) -> None:
        pass


@dataclass
class Options:
    """A data class."""

    rate: float = 1.0
    mine: Mine = field(default_factory=Mine)


def test_numbers_are_written_in_one_way() -> None:
    assert canonical({"b": 1.0, "a": [1, True, -0.0, 0.5]}) == '{"a":[1,true,0,0.5],"b":1}'
    assert id_of({"a": 1}) == id_of({"a": 1.0}) == hashlib.sha256(b'{"a":1}').hexdigest()
    assert id_of([1e300]) != id_of([10**300]), "a float is written as an integer only where it is one exactly"
    assert canonical([float("nan"), float("inf")]) == '["nan","inf"]'


@given(VALUES)
def test_the_order_of_keys_does_not_count(value: Any) -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(inner) for key, inner in reversed(value.items())}
        return [turned(inner) for inner in value] if isinstance(value, list) else value

    assert id_of(turned(value)) == id_of(value)


@given(VALUES, VALUES)
def test_there_is_a_difference_where_ids_differ(one: Any, other: Any) -> None:
    assert (first_difference(one, other) is None) == (id_of(one) == id_of(other))


def test_the_first_difference_is_named_by_its_key() -> None:
    old = identify({"loss": SmoothINDCG(alpha=10.0), "epochs": 3})
    key, before, after = first_difference(old, identify({"loss": SmoothINDCG(alpha=1.0), "epochs": 3})) or ("", 0, 0)
    assert (key.rpartition(".")[2], before, after) == ("alpha", 10.0, 1.0)
    assert first_difference({"a": {"b": 1}}, {"a": {}}) == ("a.b", 1, "null")
    assert first_difference({"class": "A", "x": 1}, {"class": "B", "y": 1}) == ("class", "A", "B")


def test_defaults_and_how_arguments_are_given_do_not_count() -> None:
    assert id_of(identify(Mine())) == id_of(identify(Mine(depth=3))) == id_of(identify(Mine(3.0)))
    assert id_of(identify(Mine(4))) != id_of(identify(Mine()))
    assert identify(Options()) == {"rate": 1.0, "mine": identify(Mine())}


def test_our_classes_go_by_their_names_and_a_users_by_its_code() -> None:
    ours = identify(DirectMetric("nDCG", SmoothI()))
    assert (ours["class"], ours["relaxation"]["class"]) == ("DirectMetric", "SmoothI")
    mine = identify(Mine())
    assert mine["class"] == f"{__name__}.Mine"
    assert mine["source"] == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def test_a_raised_revision_is_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    before = id_of(identify(DirectMetric("nDCG", SmoothI())))
    monkeypatch.setattr(SmoothI, "revision", 7, raising=False)
    assert id_of(identify(DirectMetric("nDCG", SmoothI()))) != before


def test_a_class_without_a_file_counts_by_its_functions() -> None:
    code = """
from rerank.settings.described import Described
from rerank.storage.identity import id_of, identify
def made(body):
    names = {"Described": Described, "__name__": "__main__"}
    exec("class Mine(Described):\\n  def f(self):\\n    return " + body, names)
    return id_of(identify(names["Mine"]()))
assert made("1") == made("1") and made("1") != made("2 * self")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_option_that_is_null_counts_as_absent() -> None:
    """So an option that is added later leaves the ids of what does not use it."""

    class Before(Described):
        def __init__(self, depth: int = 1) -> None: ...

    class After(Described):
        def __init__(self, depth: int = 1, start: str | None = None) -> None: ...

    After.__name__ = After.__qualname__ = Before.__name__ = Before.__qualname__ = "Reranker"
    assert identify(Before()) == identify(After())
    assert identify(After(start="bm25")) != identify(After())
