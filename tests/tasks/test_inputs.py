from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerank.commands.cli import main
from tests.builders import write_collection
from tests.forked import python


def check(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[object, list[str]]:
    with pytest.raises(SystemExit) as end:
        main(["retrieve", *words, "--output", "lists", "--check"])
    return end.value.code, capsys.readouterr().out.splitlines()


def test_retrieve_check_passes_when_all_inputs_are_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = write_collection(tmp_path / "c")
    (tmp_path / "run.trec").write_text("q0 Q0 d0 1 1.0 x\n")
    run = tmp_path / "run.trec"
    assert check(capsys, "--collection", name, "--run", f"x={run}") == (0, [f"{name}: ok", f"run {run}: ok"])
    assert check(capsys, "--records", str(run)) == (0, [f"dataset {run}: ok"])
    words = ["--collection", name, "--index", str(tmp_path), "--qrels", name]
    assert check(capsys, *words) == (0, [f"{name}: ok", f"index {tmp_path}: ok"]), "each once"
    assert not (tmp_path / "lists").exists()


def test_retrieve_check_names_missing_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSERINI_CACHE", str(tmp_path / "pyserini"))
    (tmp_path / "docs.tsv").write_text("a\tb\n")
    words = ["--collection", f"files:{tmp_path}", "--queries", "nowhere.tsv", "--run", "x=nowhere.trec"]
    code, lines = check(capsys, *words, "--dense", "nobody/nothing")
    assert code == 1 and lines[0] == f"files:{tmp_path}: ok"
    assert lines[1].startswith("nowhere.tsv: missing: unknown collection 'nowhere.tsv'")
    assert lines[2] == f"run nowhere.trec: missing: no such file; put it at {Path('nowhere.trec').absolute()}"
    assert lines[3].startswith("model nobody/nothing: missing: no such file or folder; from the hub, it goes to")
    code, lines = check(capsys, "--collection", "lucene:robust04", "--index", "robust")
    assert code == 1 and lines[0].startswith(f"index robust04: missing: {tmp_path}/pyserini/indexes/")
    assert ", unpacked; 1.78GB from http" in lines[0]
    assert lines[1] == "index robust: missing: neither a folder nor one of Pyserini's prebuilt indexes"


@pytest.mark.slow
def test_retrieve_check_lists_files_of_ir_datasets(tmp_path: Path) -> None:
    script = """
import json
from rerank.tasks.inputs import retrieve_inputs
names = "msmarco-passage/trec-dl-2019/judged", "disks45/nocr/trec-robust-2004"
print(json.dumps([list(retrieve_inputs(name)) for name in names]))
"""
    home = tmp_path / "home"
    (home / "disks45").mkdir(parents=True)
    (home / "disks45" / "qrels.robust2004.txt").touch()
    msmarco, robust = json.loads(python(script, IR_DATASETS_HOME=str(home)).stdout)
    place = f"{home}/msmarco-passage/collectionandqueries.tar.gz, 1.06GB from https://"
    assert msmarco[0][0] == "docs of msmarco-passage/trec-dl-2019/judged" and msmarco[0][1].startswith(place)
    assert len(msmarco) == 3 and all(advice for _, advice in msmarco)
    put = f"put them at {home}/disks45/corpus, see https://trec.nist.gov/data/cd45/index.html"
    assert robust[0] == ["docs of disks45/nocr/trec-robust-2004", put]
    assert robust[1][1].startswith(f"{home}/disks45/04.testset.gz, 34.3kB from https://")
    assert robust[2] == ["qrels of disks45/nocr/trec-robust-2004", ""]
    (home / "disks45" / "corpus" / "FBIS").mkdir(parents=True)
    (home / "disks45" / "corpus" / "FBIS" / "FB396001").touch()
    _, robust = json.loads(python(script, IR_DATASETS_HOME=str(home)).stdout)
    assert robust[0][1].startswith(f"found 1 of 2295 files in {home}/disks45/corpus, called **/FBIS/FB*, ")
