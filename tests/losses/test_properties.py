"""The properties of every loss: see `properties.py` for the checks and `cases.py` for the losses."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.losses import properties
from tests.losses.cases import CASES
from tests.losses.properties import Case

torch.set_num_threads(1)


def those(wanted: Callable[[Case], bool]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [case for case in CASES if wanted(case)], ids=lambda case: case.name)


every_loss = those(lambda case: True)
every_defined_loss = those(lambda case: case.plain is not None)
quick = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@every_loss
@quick
@given(data=st.data())
def test_padding_changes_nothing(case: Case, data: st.DataObject) -> None:
    properties.check_padding(case, data.draw(properties.ranked_lists(case)), data)


@every_loss
@quick
@given(data=st.data())
def test_a_batch_is_its_lists(case: Case, data: st.DataObject) -> None:
    properties.check_batch(case, data.draw(properties.ranked_lists(case)))


@every_defined_loss
@quick
@given(data=st.data())
def test_order_and_shift_change_nothing(case: Case, data: st.DataObject) -> None:
    properties.check_symmetry(case, data.draw(properties.ranked_lists(case)), data)


@every_defined_loss
@quick
@given(data=st.data())
def test_value_and_gradient_are_the_definition(case: Case, data: st.DataObject) -> None:
    properties.check_definition(case, data.draw(properties.ranked_lists(case)))


@those(lambda case: case.smooth)
@quick
@given(data=st.data())
def test_gradient_is_the_derivative(case: Case, data: st.DataObject) -> None:
    properties.check_finite_differences(case, data.draw(properties.ranked_lists(case, most=2, longest=4)))


@every_loss
def test_extremes_stay_finite(case: Case) -> None:
    for name, lists in properties.extremes().items():
        try:
            properties.check_extreme(case, *lists)
        except (AssertionError, RuntimeError, IndexError) as error:
            raise AssertionError(f"lists {name!r}") from error


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_float32(case: Case, dtype: torch.dtype) -> None:
    properties.check_precision(case, dtype)


@every_loss
def test_the_host_never_waits(case: Case) -> None:
    properties.check_no_waiting(case)
