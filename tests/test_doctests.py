"""The examples in docstrings are right; every loss, measure, relaxation and public function has one."""

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

MATHEMATICS = [
    f"{room.__name__}.{module.name}"
    for room in (rerank.relaxations, rerank.measures, rerank.losses)
    for module in iter_modules(room.__path__)
]
OTHERS = [
    "rerank.settings.described",
    "rerank.settings.ranges",
    "rerank.losses",
    "rerank.relaxations",
    "rerank.collections.names",
    "rerank.retrieval.fuse",
    "rerank.retrieval.runs",
    "rerank.evaluation.calibration",
    "rerank.evaluation.measures",
    "rerank.evaluation.weights",
    "rerank.models.calibration",
    "rerank.tasks.compared",
]
ROOMS = ("losses", "relaxations", "measures", "collections", "retrieval")
ELSEWHERE = {
    "build_index": "starts Java; tests/retrieval",
    "prebuilt_index": "downloads; docs/collections.md",
    "start_jvm": "starts Java; tests/retrieval",
    "tune": "starts Java; tests/retrieval",
}
"""Functions whose example would start Java or need a network, and where they are shown."""


@pytest.mark.parametrize("name", [*MATHEMATICS, *OTHERS])
def test_examples(name: str) -> None:
    module = import_module(name)
    found = doctest.testmod(module, extraglobs={"torch": torch})
    assert found.failed == 0
    assert found.attempted or name in MATHEMATICS
    for kind in vars(module).values() if name in MATHEMATICS else ():
        if inspect.isclass(kind) and kind.__module__ == name and not kind.__name__.startswith("_"):
            assert ">>> " in (kind.__doc__ or ""), f"{kind.__name__} has no example"


def test_every_public_function_has_an_example() -> None:
    lacking = set()
    for room in ROOMS:
        module = import_module(f"rerank.{room}")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                assert value.__module__ in [*MATHEMATICS, *OTHERS] or name in ELSEWHERE, f"{name} is not tried"
                if ">>> " not in (value.__doc__ or ""):
                    lacking.add(name)
    assert lacking == set(ELSEWHERE)
