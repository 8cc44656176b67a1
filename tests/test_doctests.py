"""Examples in docstrings run, and every loss, measure, relaxation and public function has one."""

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
SHOWN_ELSEWHERE = {
    "build_index": "starts Java; tests/retrieval",
    "auto": "docs/auto.md; tests/tasks",
    "Selection": "docs/auto.md; tests/tasks",
    "Decoder": "docs/decoders.md; tests/models/text",
    "Training": "the example of train",
    **dict.fromkeys(rerank.losses._LOSSES["shorthands"], "the example of their module"),
}
"""Names whose example would need Java, a network, weights, an extra or minutes, and where they are shown."""


@pytest.mark.parametrize("name", [*MATHEMATICS, *OTHERS])
def test_examples_of_docstrings_run(name: str) -> None:
    module = import_module(name)
    found = doctest.testmod(module, extraglobs={"torch": torch})
    assert found.failed == 0
    assert found.attempted or name in MATHEMATICS
    for kind in vars(module).values() if name in MATHEMATICS else ():
        ours = inspect.isclass(kind) and kind.__module__ == name
        if ours and not kind.__name__.startswith("_") and kind.__name__ not in SHOWN_ELSEWHERE:
            assert ">>> " in (kind.__doc__ or ""), f"{kind.__name__} has no example"


def test_public_names_have_a_tested_example() -> None:
    """Names of ``rerank`` and functions of its rooms."""
    values = {name: value for name in rerank.__all__ if not inspect.ismodule(value := getattr(rerank, name))}
    for room in ROOMS:
        module = import_module(f"rerank.{room}")
        values |= {name: value for name in module.__all__ if inspect.isfunction(value := getattr(module, name))}
    lacking = {name for name, value in values.items() if ">>> " not in (value.__doc__ or "")}
    assert lacking == set(SHOWN_ELSEWHERE)
    assert {value.__module__ for name, value in values.items() if name not in lacking} <= {*MATHEMATICS, *OTHERS}
