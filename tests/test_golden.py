"""Golden digits: results on real collections that a refactoring may not move."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.golden import FILE, GROUPS, processor

pytestmark = pytest.mark.slow

TOLERANCE = 1e-5
"""Largest difference on another processor or release of PyTorch, relative where a series exceeds 1.

On the recorded processor and release the digits are equal to the last bit.
"""


@pytest.mark.parametrize("group", GROUPS)
def test_golden_digits_do_not_move(group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    if (data := os.environ.get("RERANK_DATA")) is None:
        pytest.skip("RERANK_DATA names no folder with MQ2008, scifact and ir_datasets")
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("IR_DATASETS_HOME", f"{data}/ir_datasets")  # before ir_datasets is imported
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    compute: Callable[[Path, Path], dict[str, list[float]]] = GROUPS[group]
    try:
        found = compute(Path(data), tmp_path)
    finally:
        torch.set_num_threads(threads)
    recorded = json.loads(FILE.read_text())
    assert found.keys() == recorded[group].keys()
    same = recorded["processor"] == processor() and recorded["torch"] == torch.__version__
    for name, values in recorded[group].items():
        old, new = np.array(values), np.array(found[name])
        assert old.shape == new.shape, name
        if same:
            np.testing.assert_array_equal(new, old, err_msg=name)
        else:
            assert np.abs(new - old).max() <= TOLERANCE * max(1.0, np.abs(old).max()), name
