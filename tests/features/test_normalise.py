from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import zscore
from sklearn.preprocessing import StandardScaler

from rerank.errors import UserError
from rerank.features import normalise
from rerank.features.normalise import Normaliser, QueryZScore, ShiftedLog, SignedLog1p, Standardise
from rerank.storage.arrow import Array

ALL = [QueryZScore, Standardise, SignedLog1p, ShiftedLog]


@st.composite
def features(draw: st.DrawFn, values: st.SearchStrategy[float] | None = None) -> tuple[Array, Array]:
    """Features of a few lists, some empty, and their offsets."""
    lengths = draw(st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any))
    width = draw(st.integers(1, 4))
    values = st.floats(width=32, allow_nan=False, allow_infinity=False) if values is None else values
    matrix = draw(arrays(np.float32, (sum(lengths), width), elements=values))
    return matrix, np.concatenate([[0], np.cumsum(lengths)])


tame = st.integers(-50, 50).map(lambda i: i / 8)  # exact in float32, and so are their sums and halves


def random_lists(rows: int = 300, width: int = 5) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    inner = np.sort(rng.choice(np.arange(1, rows), 20, replace=False))
    return rng.lognormal(sigma=2, size=(rows, width)).astype(np.float32), np.array([0, *inner, rows])


@pytest.mark.parametrize("make", ALL)
@given(train=features(), unseen=features())
def test_apply_keeps_features_finite_and_its_input_unchanged(make: type[Normaliser], train, unseen) -> None:
    unseen = (np.resize(unseen[0], (len(unseen[0]), train[0].shape[1])), unseen[1])
    normaliser = make().fit(*train)
    for matrix, offsets in (train, unseen):
        before = matrix.copy()
        result = normaliser.apply(matrix, offsets)
        assert result.dtype == np.float32
        assert result.shape == matrix.shape
        assert np.isfinite(result).all()
        assert np.array_equal(matrix, before)


@pytest.mark.parametrize("make", ALL)
@given(train=features())
def test_state_round_trips_through_json(make: type[Normaliser], train) -> None:
    fitted = make().fit(*train)
    again = type(fitted)()
    again.load_state(json.loads(json.dumps(fitted.state())))
    assert np.array_equal(again.apply(*train), fitted.apply(*train))


@pytest.mark.parametrize("make", [QueryZScore, Standardise])
def test_constant_features_become_zero(make: type[Normaliser]) -> None:
    matrix, offsets = random_lists()
    matrix[:, 2] = 0.1  # not exact in binary: its mean is, only where it is taken with care
    result = make().fit(matrix, offsets).apply(matrix, offsets)
    assert (result[:, 2] == 0).all() and (result[:, 1] != 0).any()


@given(lists=features(tame))
def test_query_z_scores_equal_scipy(lists) -> None:
    matrix, offsets = lists
    result = QueryZScore().apply(matrix, offsets)
    for start, end in itertools.pairwise(offsets):
        if start < end:
            part = matrix[start:end].astype(np.float64)
            varies = (part != part[0]).any(axis=0)
            assert result[start:end, varies] == pytest.approx(zscore(part[:, varies], axis=0), abs=1e-6)
            assert (result[start:end, ~varies] == 0).all()


@pytest.mark.parametrize("rows", [1, 7, 1000])
@pytest.mark.parametrize("make", ALL)
def test_apply_does_not_depend_on_blocks(make: type[Normaliser], rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, offsets = random_lists()
    whole = make().fit(matrix, offsets).apply(matrix, offsets)
    monkeypatch.setattr(normalise, "ROWS", rows)
    assert make().fit(matrix, offsets).apply(matrix, offsets) == pytest.approx(whole, rel=1e-6)


def test_standardise_equals_scikit_learn() -> None:
    matrix, offsets = random_lists()
    theirs = StandardScaler().fit(matrix.astype(np.float64))
    ours = Standardise().fit(matrix, offsets)
    for other in (matrix, matrix[::-1] * 3 - 1):
        assert ours.apply(other, offsets) == pytest.approx(theirs.transform(other.astype(np.float64)), rel=1e-5)


def test_shifted_log_transforms_features_that_are_never_negative() -> None:
    """Columns are never negative, negated by an argument, left alone by another, and negative in training."""
    train = np.array([[0.99, -0.99, 5, 3], [0, 0, 7, -3]], dtype=np.float32)
    fitted = ShiftedLog(negated=[2], plain=[3]).fit(train, np.array([0, 2]))
    assert fitted.apply(train, np.array([0, 2])) == pytest.approx(
        np.array([[0, 0, 5, 3], [np.log(0.01), np.log(0.01), 7, -3]], dtype=np.float32), abs=1e-6
    )
    below = fitted.apply(np.array([[-2, 4, 1, 1]], dtype=np.float32), np.array([0, 1]))
    assert below == pytest.approx(np.array([[np.log(0.01), np.log(0.01), 1, 1]], dtype=np.float32), abs=1e-6)
    with pytest.raises(UserError, match="no feature 5; expected 1 to 4"):
        ShiftedLog(plain=[5]).fit(train, np.array([0, 2]))
