"""Fingerprints of settings, and how two of them differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rerank.losses import DirectMetric, SmoothINDCG
from rerank.relaxations import SmoothI
from rerank.settings.arguments import Described, canonical, fingerprint, first_difference

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


def test_fingerprint_counts_values_and_not_how_they_are_written() -> None:
    assert fingerprint(Mine()) == fingerprint(Mine(depth=3)) == fingerprint(Mine(3.0)) != fingerprint(Mine(4))
    assert fingerprint(Options()) == fingerprint({"mine": Mine(), "rate": 1})
    assert fingerprint([1e300]) != fingerprint([10**300])
    assert fingerprint(float("inf")) != fingerprint(float("nan")) != fingerprint(None)


def test_resolve_names_our_classes_and_hashes_the_source_of_others() -> None:
    ours = canonical(DirectMetric("nDCG", SmoothI()))
    assert (ours["class"], ours["relaxation"]["class"]) == ("DirectMetric", "SmoothI")
    mine = canonical(Mine())
    assert mine["class"] == f"{__name__}.Mine" and len(mine["source"]) == 64


@given(VALUES, VALUES)
def test_first_difference_is_found_if_fingerprints_differ(one: Any, other: Any) -> None:
    assert (first_difference([one], [other]) is None) == (fingerprint([one]) == fingerprint([other]))


def test_first_difference_names_the_key() -> None:
    old, new = canonical({"loss": SmoothINDCG(alpha=10.0)}), canonical({"loss": SmoothINDCG(alpha=1.0)})
    key, before, after = first_difference(old, new) or ("", 0, 0)
    assert (key.rpartition(".")[2], before, after) == ("alpha", 10, 1)
    assert first_difference({"a": {"b": 1}}, {"a": {}}) == ("a.b", 1, None)
    assert first_difference({"x": {"class": "A", "y": 1}}, {"x": {"class": "B", "z": 1}}) == ("x", "A", "B")
