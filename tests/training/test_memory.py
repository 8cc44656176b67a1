"""The memory of a step with cached gradients does not grow with the documents of a list."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.builders import make_model
from tests.forked import python

STEP = """
import sys
from pathlib import Path
import torch
import rerank
from rerank.training.accumulate import MemoryLimits
from tests.training.helpers import accumulator_of, whole_batch

def kilobytes(name):
    return int(Path("/proc/self/status").read_text().partition(name + ":")[2].split()[0])

torch.set_num_threads(1)
folder, counts = sys.argv[1], map(int, sys.argv[2:])
model = rerank.CrossEncoder(folder, query_length=8, document_length=60)
for count in counts:
    texts = [f"{number} " + "wing flow heat jet " * 15 for number in range(count)]
    rows = {"query": ["drag"] * count, "text": texts, "grade": [1] + [0] * (count - 1)}
    lists = rerank.Lists.from_dataframe(rows)
    step = accumulator_of(model, lists, rerank.SoftmaxCE(), MemoryLimits(1024), gradient="cached")
    model.train()
    model.zero_grad(set_to_none=False)
    Path("/proc/self/clear_refs").write_text("5")
    before = kilobytes("VmRSS")
    step.accumulate(whole_batch(lists), 1)
    print(kilobytes("VmHWM") - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_of_cached_gradients_does_not_grow_with_a_list(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", hidden=256)
    _, few, many = map(int, python(STEP, str(model), "20", "50", "400").stdout.split())
    assert many < few + 50_000, "kilobytes"
