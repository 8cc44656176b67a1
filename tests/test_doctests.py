"""The examples in docstrings of the mathematics are right, and every public class has one."""

from __future__ import annotations

import doctest
import inspect
from importlib import import_module
from pkgutil import iter_modules

import pytest
import torch

import rerank.losses
import rerank.measures
import rerank.relaxations
from rerank.losses.shorthands import TABLE

MODULES = ["rerank.described"] + [
    f"{room.__name__}.{module.name}"
    for room in (rerank.relaxations, rerank.measures, rerank.losses)
    for module in iter_modules(room.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    module = import_module(name)
    found = doctest.testmod(module, extraglobs={"torch": torch})
    assert found.failed == 0
    for kind in vars(module).values():
        if inspect.isclass(kind) and kind.__module__ == name and not kind.__name__.startswith(("_", *TABLE)):
            assert ">>> " in (kind.__doc__ or ""), f"{kind.__name__} has no example"
