"""A column of a model's scores: what the model says of every candidate, whatever happens meanwhile."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rerank.collections import open_collection
from rerank.commands.cli import main
from rerank.features.normalise import QueryZScore
from rerank.lists import Lists
from rerank.lists.build import build_lists
from rerank.models.contract import write_contract
from rerank.models.load import load_model
from rerank.models.scorer import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.attention import SelfAttention
from rerank.models.vectors.lightgbm import LightGBM
from rerank.models.vectors.mlp import MLP
from rerank.scoring import parts as scoring
from rerank.scoring.in_sample import remember, shared_queries
from rerank.scoring.outputs import add_model
from rerank.tasks.rerank_lists import rerank_lists
from tests.builders import make_lists, make_lists_with_added, random_run, train, write_collection
from tests.forked import python


def save(model: CrossEncoder | SelfAttention, lists: Lists, folder: Path) -> Path:
    """A model with fresh weights."""
    model.prepare(lists, seed=3)
    folder.mkdir(parents=True)
    model.save(folder)
    return folder


@pytest.fixture
def cross_encoder(tiny_model: Path, tmp_path: Path) -> Path:
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    torch.nn.init.normal_(next(p for n, p in model.named_parameters() if n in model.head_parameters()))
    return save(model, make_lists(tmp_path / "t", seed=5), tmp_path / "runs" / "x.v1" / "best")


def test_the_column_is_what_the_model_says(
    cross_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "PAIRS", 10)
    lists = make_lists_with_added(tmp_path)
    covered = add_model(tmp_path / "lists", cross_encoder)
    every = lists.with_added()
    model = CrossEncoder.load(cross_encoder)
    stored = Lists.open(tmp_path / "lists")
    np.testing.assert_allclose(
        stored.with_added().column("x.v1"), score_lists(model, model.inputs(every), every), rtol=0, atol=1e-5
    )
    assert covered.added == (int(lists.store.added.sum()),) * 2 and lists.store.added.any()
    columns, names = tmp_path / "lists" / "columns", ["bm25.arrow", "x.v1.arrow"]
    assert sorted(path.name for path in columns.iterdir()) == names
    (columns / ".x.v1.parts").mkdir()
    add_model(tmp_path / "lists", cross_encoder)
    assert sorted(path.name for path in columns.iterdir()) == names, "what was killed behind the column is cleared away"


def test_added_documents_change_nothing_for_the_others(tmp_path: Path) -> None:
    """A model that looks at whole lists sees them as they are ranked later, without what was added to train on."""
    lists = make_lists_with_added(tmp_path)
    values = np.random.default_rng(0).normal(size=(len(lists.store.document), 3))
    lists.store.add_column("features", values, names=["1", "2", "3"])
    lists = Lists.open(tmp_path / "lists")
    for name, made in (("attention", SelfAttention(8, 8)), ("z", MLP(hidden=[4], normalise=[QueryZScore()]))):
        best = save(made, lists, tmp_path / "runs" / name / "best")
        add_model(tmp_path / "lists", best, name)
        model = load_model(best)
        assert isinstance(model, SelfAttention | MLP)
        expected = score_lists(model, model.inputs(lists), lists)
        np.testing.assert_allclose(Lists.open(tmp_path / "lists").column(name), expected, atol=1e-6)
        shown, visible = lists.with_added(), ~lists.store.added_rows
        np.testing.assert_allclose(model.predict(shown)[visible], expected, atol=1e-6)
        deeper = rerank_lists(str(best), shown, depth=3)  # of which some are added
        assert all({*ranked} < {*deeper[query]} for query, ranked in rerank_lists(str(best), lists, depth=3).items())


def test_parts_of_a_killed_scoring_are_of_their_texts(cross_encoder: Path, tmp_path: Path) -> None:
    model, name = CrossEncoder.load(cross_encoder), write_collection(tmp_path / "c")
    run = random_run(name, [5] * 12)
    killed = scoring.Parts(tmp_path, model, build_lists(open_collection(name), run, tmp_path / "lists"), {})
    killed.write(0, np.zeros(60, np.float32))
    assert not scoring.Parts(tmp_path, model, Lists.open(tmp_path / "lists"), {}).missing("again")
    corpus = tmp_path / "c" / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace('"text": "', '"text": "not '))
    other = build_lists(open_collection(name), run, tmp_path / "lists", replace=True)
    assert scoring.Parts(tmp_path, model, other, {}).missing("other texts") == [0]


def test_interrupted_scoring_resumes_with_the_same_bytes(
    cross_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scoring, "PAIRS", 10)
    for name in ("whole", "cut"):
        make_lists(tmp_path / name)
    add_model(tmp_path / "whole" / "lists", cross_encoder, "ce")
    write, written = scoring.Parts.write, list[int]()

    def write_some(self: scoring.Parts, part: int, scores: np.ndarray) -> None:
        if len(written) == 4:
            raise KeyboardInterrupt
        write(self, part, scores)
        written.append(part)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(scoring.Parts, "write", write_some)
        add_model(tmp_path / "cut" / "lists", cross_encoder, "ce")
    rest = list[int]()
    monkeypatch.setattr(
        scoring.Parts, "write", lambda self, part, scores: rest.append(part) or write(self, part, scores)
    )
    add_model(tmp_path / "cut" / "lists", cross_encoder, "ce")
    assert rest and not {*rest} & {*written}
    whole, cut = (tmp_path / name / "lists" / "columns" / "ce.arrow" for name in ("whole", "cut"))
    assert cut.read_bytes() == whole.read_bytes()


def test_parts_on_a_gpu_are_larger_by_the_model(cross_encoder: Path) -> None:
    model = CrossEncoder.load(cross_encoder)
    assert scoring.pairs_of(model) == scoring.PAIRS
    assert scoring.pairs_of(model.to("meta")) == scoring.MOST
    assert scoring.pairs_of(LightGBM()) == scoring.PAIRS


SMALL = """
import sys
from rerank.commands.cli import main
from rerank.scoring import parts
parts.PAIRS = 10
sys.exit(main(sys.argv[1:]))
"""
KILLED = """
import os, random, signal, sys, time
from pathlib import Path
from rerank.commands.cli import main
from rerank.scoring import parts as scoring
import rerank.models.text.cross_encoder
scoring.PAIRS = 10
folder, model, seed, wanted = sys.argv[1:]
words = ["add", "--lists", folder, "--model", model, "--name", "ce"]
rng, kills, longest = random.Random(int(seed)), 0, 1.5
columns = Path(folder) / "columns"
parts = lambda: len(list(columns.glob(".ce.parts/*/*.arrow")))
while kills < int(wanted):
    if (child := os.fork()) == 0:
        os._exit(main(words))
    before = parts()
    if kills % 2:  # from the first part that it stores; otherwise from its start
        while parts() <= before and not (columns / "ce.arrow").exists():
            time.sleep(0.001)
    time.sleep(rng.uniform(0, 0.05 if kills % 2 else longest))
    os.kill(child, signal.SIGKILL)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL:
        kills += 1
    if (columns / "ce.arrow").exists():  # it was done: from the start again, and sooner
        longest *= 0.7
        assert main(words) == 0 and not list(columns.glob(".ce.*"))
        (columns / "ce.arrow").unlink()
sys.exit(main(words))
"""


@pytest.mark.slow
@pytest.mark.parametrize("wanted", [6, 20])
def test_kills_end_with_the_same_bytes(wanted: int, cross_encoder: Path, tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        make_lists(tmp_path / name, [60] * 12)
    here = ["add", "--lists", str(tmp_path / "whole" / "lists"), "--model", str(cross_encoder), "--name", "ce"]
    words = [sys.executable, "-c", KILLED, str(tmp_path / "killed" / "lists"), str(cross_encoder), "1", str(wanted)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=1800)
    python(SMALL, *here)
    columns = [tmp_path / name / "lists" / "columns" for name in ("whole", "killed")]
    assert [sorted(p.name for p in c.iterdir()) for c in columns] == [["bm25.arrow", "ce.arrow"]] * 2
    assert (columns[0] / "ce.arrow").read_bytes() == (columns[1] / "ce.arrow").read_bytes()
    assert done.stderr.count("resuming") > wanted / 5, "some were killed between parts"


def test_queries_of_the_training_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_model: Path
) -> None:
    lists, other = make_lists(tmp_path), make_lists(tmp_path / "other", seed=7)
    run = tmp_path / "runs" / "x"
    words = ["--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--model=CrossEncoder", f"--output={run}"]
    words += [f"--model.name={tiny_model}", "--model.query_length=8", "--model.document_length=24", "--loss=RankNet"]
    train([*words, "--data.validation_share=0.25", "--epochs=1"])
    trained = shared_queries(lists, run / "best")
    judged = [query for query in lists.query_ids if (lists.qrels or {}).get(query)]
    assert set(trained) < set(judged) and len(trained) == len(judged) - round(len(judged) * 0.25)
    assert shared_queries(other, run / "best") == []
    capsys.readouterr()
    command = ["add", "--lists", str(tmp_path / "lists"), "--model", str(run / "best")]
    assert main(command) == 2
    message = f"was trained on {len(trained)} of these 12 queries, e.g. {trained[0]!r}"
    assert message in capsys.readouterr().err
    assert main([*command, "--in-sample"]) == 0
    assert main([*command, "--drop", "x"]) == 2 and "x" in Lists.open(tmp_path / "lists").store.column_names
    load_model(run / "best", mix=False).save(tmp_path / "copy")
    assert shared_queries(lists, tmp_path / "copy") == trained, "a copy knows it, too"
    assert main(["add", "--lists", str(tmp_path / "other" / "lists"), "--model", str(run / "best")]) == 0
    assert "x" in Lists.open(tmp_path / "lists").store.column_names
    further = tmp_path / "runs" / "further"  # what starts from a model has its memory
    swap = {words[1]: f"--data.train={tmp_path / 'other' / 'lists'}", words[3]: f"--output={further}"}
    swap[words[4]] = f"--model.name={run / 'best'}"
    train([*(swap.get(word, word) for word in words), "--epochs=1"])
    assert shared_queries(lists, further / "best") == trained
    assert shared_queries(other, further / "best")


def test_the_same_text_under_another_id_is_the_same_query(tmp_path: Path) -> None:
    frame = make_lists(tmp_path).to_dataframe()
    one = Lists.from_dataframe(frame)
    frame["query_id"] = "n" + frame["query_id"]
    frame["query"] = frame["query"].str.upper() + "  "
    (tmp_path / "m").mkdir()
    write_contract(tmp_path / "m", remember(one.select(np.arange(5))))
    assert shared_queries(Lists.from_dataframe(frame), tmp_path / "m") == ["n" + id for id in one.query_ids[:5]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "nowhere"], "nowhere"),
        (["--model", "{model}", "--name", "bm25"], "has a column bm25 already, made from something else"),
        (["--model", "{model}", "--name", "a/b"], "letters, digits"),
        (["--model", "{lists}"], "no such model|not a model folder"),
    ],
)
def test_what_cannot_be_scored(
    cross_encoder: Path, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_lists(tmp_path)
    words = [word.format(model=cross_encoder, lists=tmp_path / "lists") for word in words]
    assert main(["add", "--lists", str(tmp_path / "lists"), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line), line


def test_a_pipe_gets_the_run(cross_encoder: Path, tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    read, write = os.pipe()
    words = ["rerank", "--model", str(cross_encoder), "--lists", str(tmp_path / "lists"), "--depth", "2"]
    assert main([*words, "--output", f"/dev/fd/{write}"]) == 0
    os.close(write)
    with os.fdopen(read) as file:
        assert len(file.readlines()) == lists.top(2).size


@pytest.mark.slow
def test_two_processes_write_the_column_of_one(cross_encoder: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        make_lists(tmp_path / name)
    (tmp_path / "parts.py").write_text(SMALL)
    for name, count in (("one", 1), ("two", 2)):
        launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={count}", "--standalone"]
        words = ["add", "--lists", str(tmp_path / name / "lists"), "--model", str(cross_encoder), "--precision=fp32"]
        subprocess.run([*launch, str(tmp_path / "parts.py"), *words], check=True, timeout=1800)
    columns = [tmp_path / name / "lists" / "columns" / "x.v1.arrow" for name in ("one", "two")]
    assert columns[0].read_bytes() == columns[1].read_bytes()
