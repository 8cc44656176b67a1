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
from tests.conftest import ROOT

MATHEMATICS = [
    f"{room.__name__}.{module.name}"
    for room in (rerank.relaxations, rerank.measures, rerank.losses)
    for module in iter_modules(room.__path__)
]
FILES = [path.relative_to(ROOT) for path in (ROOT / "rerank").rglob("*.py") if ">>> " in path.read_text("utf-8")]
OTHERS = sorted({".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in FILES} - {*MATHEMATICS})
ROOMS = ("losses", "relaxations", "measures", "collections", "retrieval")
ELSEWHERE = {
    "build_index": "starts Java; tests/retrieval",
    "prebuilt_index": "downloads; docs/collections.md",
    "start_jvm": "starts Java; tests/retrieval",
}
"""Functions whose example would start Java or need a network, and where they are shown."""
SHOWN_ELSEWHERE = {
    "auto": "docs/auto.md; tests/ladder",
    "Ladder": "docs/auto.md; tests/ladder",
    "Decoder": "docs/decoders.md; tests/models/text",
    "export_model": "docs/export.md; tests/tasks",
}
"""Names that one imports from ``rerank`` and whose example would need weights, an extra or minutes."""


@pytest.mark.parametrize("name", [*MATHEMATICS, *OTHERS])
def test_examples(name: str) -> None:
    module = import_module(name)
    found = doctest.testmod(module, extraglobs={"torch": torch})
    assert found.failed == 0
    assert found.attempted or name in MATHEMATICS
    for kind in vars(module).values() if name in MATHEMATICS else ():
        if inspect.isclass(kind) and kind.__module__ == name and not kind.__name__.startswith("_"):
            assert ">>> " in (kind.__doc__ or ""), f"{kind.__name__} has no example"


def test_every_name_of_the_package_has_an_example() -> None:
    """Tried where it stands; what needs weights or minutes is shown on a page."""
    lacking, homes = set(), set()
    for name in rerank.__all__:
        value = getattr(rerank, name)
        if ">>> " in (value.__doc__ or ""):
            homes |= {value.__module__}
        else:
            lacking.add(name)
    assert lacking == set(SHOWN_ELSEWHERE)
    assert homes <= {*MATHEMATICS, *OTHERS}


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
