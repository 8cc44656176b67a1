"""The ladder: rungs earn their places, rankers rank as they were measured, kills change nothing, mistakes are named."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import rerank
from rerank.collections import open_collection
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.evaluation.measures import evaluate
from rerank.features.letor import letor_lists
from rerank.ladder import budget, plan
from rerank.ladder.own import own_lists
from rerank.ladder.plan import planned, whole
from rerank.ladder.result import Ladder
from rerank.ladder.split import Blend, Split, kept
from rerank.lists.build import build_lists
from rerank.lists.view import Lists
from rerank.models.contract import FILES, TRAINED_ON, read_contract, write_contract
from rerank.models.load import load_model
from rerank.models.mixed import write_ranker
from rerank.scoring.in_sample import shared_queries
from rerank.scoring.outputs import add_cosines, cosine_name
from rerank.storage.hashes import read_sealed
from tests.builders import make_model, random_run, write_collection, write_folds

MONITOR = "nDCG@10"
plan.STEPS = 20  # two passes over 30 queries
SPLITS = {"train": range(30), "validation": range(30, 48), "test": range(48, 60)}


def make_splits(folder: Path, shuffled: tuple[str, ...] = (), seed: int = 0) -> dict[str, str]:
    """Lists of random candidates, of which the column ``good`` knows something; the documents have titles."""
    name = write_collection(folder / "collection", queries=60, seed=seed)
    corpus = folder / "collection" / "corpus.jsonl"
    documents = [json.loads(line) for line in corpus.read_text().splitlines()]
    for document in documents:
        words = document["text"].split()
        document |= {"title": " ".join(words[:5]), "text": " ".join(words[5:])} if len(words) > 10 else {}
    corpus.write_text("".join(json.dumps(document) + "\n" for document in documents))
    lists = build_lists(open_collection(name), random_run(name, [12] * 60, seed), folder / "all")
    noise = np.random.default_rng(seed + 1).normal(size=lists.size)
    lists.store.add_column("good", (lists.grades + noise).astype(np.float32))
    places = {}
    for split, queries in SPLITS.items():
        part = lists.select([query for query in queries if lists.judged[query]])
        if split in shuffled:
            frame = part.to_dataframe()
            frame["grade"] = np.random.default_rng(seed + 2).permutation(frame["grade"])
            part = Lists.from_dataframe(frame.drop(columns=["rank"], errors="ignore"))
        part.save(folder / split)
        places[split] = str(folder / split)
    return places


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_splits(tmp_path_factory.mktemp("lists"))


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny embedding model, as sentence-transformers saves it."""
    from sentence_transformers import SentenceTransformer, models

    folder = tmp_path_factory.mktemp("embedder")
    reads = models.Transformer(str(make_model(folder / "bert")))
    pools = models.Pooling(reads.get_word_embedding_dimension())
    SentenceTransformer(modules=[reads, pools]).save(str(folder / "tiny"))
    return str(folder / "tiny")


@pytest.fixture(scope="module")
def text(splits: dict[str, str], embedder: str, tmp_path_factory: pytest.TempPathFactory) -> Ladder:
    """A whole ladder over texts."""
    output = tmp_path_factory.mktemp("ladders") / "text"
    return rerank.auto(**splits, model=embedder, output=output)


@pytest.fixture(scope="module")
def trained(text: Ladder) -> str:
    """A model that remembers the training queries."""
    return str(text.folder / "trainings" / "seed-1" / "best")


@pytest.fixture(scope="module")
def published(trained: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model whose head is trained, on nobody knows what."""
    folder = shutil.copytree(trained, tmp_path_factory.mktemp("published") / "model")
    known = read_contract(folder)
    write_contract(folder, {key: known[key] for key in known if key not in (FILES, TRAINED_ON)})
    return str(folder)


def check_same(one: Path, other: Path) -> None:
    """Two ladders have all in common but how long they took."""
    found, expected = (
        re.sub(r'"(seconds|sha256)": [^,}]+', "", (at / "ladder.json").read_text()) for at in (one, other)
    )
    assert found == expected


def check_ladder(ladder: Ladder) -> None:
    """What holds of every ladder: forms agree, and the choice follows from what was measured."""
    folder = ladder.folder
    content = json.loads((folder / "ladder.json").read_text())
    assert [rung["name"] for rung in content["rungs"]] == [rung.name for rung in ladder.rungs]
    for rung in content["rungs"]:
        assert {"name", "kept", "validation", "test", "difference", "low", "high", "seconds"} <= rung.keys()
    shown = (folder / "ladder.txt").read_text()
    assert max(map(len, shown.splitlines())) <= 100
    assert " ".join(ladder.sentence.split()) in " ".join(shown.split())
    page = (folder / "ladder.html").read_text()
    assert page.count('class="bar') == len(ladder.rungs) and "http" not in page.split("<body>")[1].split("<script")[0]
    steps = {path.stem: json.loads(path.read_text()) for path in (folder / "rungs").glob("*.json")}
    values = [np.array(steps[rung.name.replace(" ", "_")]["values"], dtype=float) for rung in ladder.rungs]
    for rung, of in zip(ladder.rungs, values, strict=True):
        assert rung.validation == pytest.approx(of[: ladder.queries["validation"]].mean())
    names = [rung.name for rung in ladder.rungs]
    shown = [n for n, name in enumerate(names) if n and name == "other evidence" and "fused" in names]
    assert not any(ladder.rungs[number].kept for number in shown)
    able = [number for number in range(len(values)) if number not in shown]
    assert [ladder.rungs[number].kept for number in able] == kept([values[number] for number in able])
    for number, rung in enumerate(ladder.rungs):
        below = next((other.name for other in reversed(ladder.rungs[:number]) if other.kept), None)
        assert (rung.below or {}).get("against", below) == below
    assert Ladder.read(folder).rungs == ladder.rungs


def worth(ladder: Ladder, lists: Lists) -> float:
    """The measure of the saved ranker."""
    run = lists.run(load_model(ladder.folder / "ranker").predict(lists))
    return evaluate(run, lists.qrels or {}, MONITOR).mean[MONITOR]


def test_ladder_over_texts_has_every_rung_that_applies(text: Ladder, splits: dict[str, str]) -> None:
    check_ladder(text)
    assert [rung.name for rung in text.rungs] == [
        *("first stage", "other evidence", "fused", "from documents alone", "fine-tuned", "averaged", "mixed")
    ]
    assert text.left_out.keys() == {"as published"}
    assert text.rungs[1].what == "good" and text.rungs[2].kept
    assert text.queries == {name: len(Lists.open(place)) for name, place in splits.items()}
    for lists in map(Lists.open, splits.values()):
        assert set(lists.store.column_names) == {lists.store.order, "good"}, "users' lists stay as they are"


def test_every_saved_ranker_ranks_as_it_was_measured(text: Ladder, tmp_path: Path) -> None:
    split = Split(text.folder, "test", MONITOR)
    steps = [json.loads(path.read_text()) for path in (text.folder / "rungs").glob("*.json")]
    for number, step in enumerate(step for step in steps if "values" in step):
        ranker = Blend(step["model"], tuple(step["columns"].items()), step["text"], step["by"])
        place = None if ranker.model is None else split.place(ranker.model)
        write_ranker(place, step["columns"], ranker.text if place else 0.0, tmp_path / str(number), ranker.by)
        measured = split.lists.run(split.scores(ranker))
        saved = split.lists.run(load_model(tmp_path / str(number)).predict(split.lists))
        assert {query: list(measured[query]) for query in measured} == {query: list(saved[query]) for query in saved}


def test_models_of_like_names_have_columns_of_their_own(text: Ladder, tmp_path: Path) -> None:
    """Names of columns are cut, and odd signs in them replaced."""
    shutil.copytree(text.folder / "lists", tmp_path / "ladder" / "lists")
    split = Split(tmp_path / "ladder", "test", MONITOR)
    trained = {"a b": "seed-1", "a_b": "seed-2"}
    for name, seed in trained.items():
        shutil.copytree(text.folder / "trainings" / seed / "best", tmp_path / name)
        shutil.copytree(text.folder / "trainings" / seed / "best", tmp_path / ("x" * 100 + name))
    models = [str(path) for path in tmp_path.iterdir() if path.name != "ladder"]
    assert len({split.column_of(model) for model in models}) == 4
    for model in models:
        scores = load_model(model, mix=False).predict(split.lists)
        np.testing.assert_allclose(split.lists.column(split.column_of(model)), scores, atol=1e-6)


def test_values_per_query_have_the_tables_means_and_the_ranker_that_of_the_kept_rung(
    text: Ladder, splits: dict[str, str]
) -> None:
    values = pd.read_csv(text.folder / "queries.csv", index_col="query_id", dtype={"query_id": str})
    assert list(values.index) == list(Lists.open(splits["test"]).query_ids)
    assert list(values) == [rung.name for rung in text.rungs]
    assert values.mean().to_numpy() == pytest.approx([rung.test for rung in text.rungs], abs=1e-5)
    assert worth(text, Lists.open(text.folder / "lists" / "test")) == pytest.approx(text.kept.test, abs=1e-12)


def test_the_end_names_the_ranker_and_what_a_query_brings_along(tmp_path: Path) -> None:
    """Cosines are computed, other columns are not; a model of feature vectors has no server."""
    ladder, place = Ladder(tmp_path, "nDCG@10", [], {}, [], {}, "test"), tmp_path / "ranker"
    cosines = {"dense": {"model": "some/model", "sha256": "0" * 64}}
    write_ranker(None, {"engine": 0.5, "dense": 0.5}, 0.0, place, "z", cosines)
    assert ladder.saved == f"Saved: {place}. Next: rerank serve {place}; it needs engine."
    write_contract(place, {"class": "MLP"})
    assert ladder.saved == f"Saved: {place}. Next: rerank rerank --model {place} --lists LISTS --output FILE."


def test_a_published_head_is_a_rung_and_the_start(
    splits: dict[str, str], published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [f"--{name}={place}" for name, place in splits.items()]
    assert main(["auto", *words, "--model", published, "--output", str(tmp_path / "ladder")]) == 0
    ladder = Ladder.read(tmp_path / "ladder")
    check_ladder(ladder)
    assert str(ladder) in capsys.readouterr().out
    assert "as published" in [rung.name for rung in ladder.rungs] and "averaged" not in ladder.left_out
    config = (tmp_path / "ladder" / "trainings" / "seed-1" / "config.yaml").read_text()
    assert published in config or str(ladder.folder / "trainings" / "documents" / "best") in config


def test_a_finished_ladder_is_not_climbed_again(text: Ladder, splits: dict[str, str], embedder: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in text.folder.rglob("*") if path.is_file()}
    again = rerank.auto(**splits, model=embedder, output=text.folder)
    assert again.rungs == text.rungs
    assert before == {path: path.stat().st_mtime_ns for path in text.folder.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match="other lists, models or hours"):
        rerank.auto(**splits, model=embedder, hours=1, output=text.folder)


@pytest.mark.parametrize("model", ["MLP", "LightGBM"])
def test_ladder_over_features(tmp_path: Path, home: Path, model: str) -> None:
    folder = write_folds(tmp_path) / "Fold1"
    files = {split: str(folder / f"{name}.txt") for split, name in zip(SPLITS, ("train", "vali", "test"), strict=True)}
    ladder = rerank.auto(**files, model=[model], output=tmp_path / "ladder")
    check_ladder(ladder)
    assert "first stage" in ladder.left_out and ladder.rungs[0].name == "other evidence"
    assert "fine-tuned" in [rung.name for rung in ladder.rungs]
    assert worth(ladder, letor_lists(folder / "test.txt")) == pytest.approx(ladder.kept.test, abs=1e-12)
    with pytest.raises(UserError, match="reads texts"):
        rerank.auto(**files, model="some/encoder", output=tmp_path / "other")

    rung = tmp_path / "ladder" / "rungs" / "fine-tuned.json"
    took = read_sealed(rung)["seconds"]
    for made in (rung, tmp_path / "ladder" / "ladder.json"):  # as a kill leaves them behind the last training
        made.unlink()
    rerank.auto(**files, model=[model], output=tmp_path / "ladder")
    assert read_sealed(rung)["seconds"] > took / 2, "trainings of an earlier process take their time, too"


def test_lists_that_no_first_stage_ordered_are_not_cut(tmp_path: Path, home: Path) -> None:
    folder = write_folds(tmp_path) / "Fold1"
    given = {"train": folder / "train.txt", "validation": folder / "vali.txt", "test": folder / "test.txt"}
    plan = planned(given, ["LightGBM"], None, MONITOR, 2, 42)
    whole = {name: letor_lists(file) for name, file in given.items()}
    assert whole["test"].lengths.max() > 2 and plan.lists["test"].size == whole["test"].size
    assert plan.lists["validation"].select(slice(plan.held)).size == whole["validation"].size


def test_training_lists_that_judge_the_rungs_are_in_the_id(splits: dict[str, str], published: str) -> None:
    def id_with(change: Callable[[Any], Any]) -> str:
        frame = Lists.open(splits["train"]).to_dataframe()
        given: dict[str, Any] = {"train": Lists.from_dataframe(frame.assign(good=change(frame["good"])))}
        given |= {"validation": Lists.open(splits["validation"]), "test": None}
        plan = planned(given, [published], 0, MONITOR, 12, 42)
        assert len(plan.lists["validation"]) > plan.held, "training lists judge as well"
        return plan.id

    assert id_with(lambda good: good) == id_with(lambda good: good + 0) != id_with(lambda good: -good)


def test_validation_is_kept_back_where_none_is_given(splits: dict[str, str], published: str, tmp_path: Path) -> None:
    """Of lists of one column, which is mixed with the model."""
    bare = shutil.copytree(splits["train"], tmp_path / "bare")
    assert main(["add", f"--lists={bare}", "--drop=good"]) == 0
    ladder = rerank.auto(bare, model=published, hours=0, output=tmp_path / "ladder")
    check_ladder(ladder)
    assert [rung.name for rung in ladder.rungs] == ["first stage", "as published", "mixed"]
    assert "bm25" in ladder.rungs[2].what and ladder.on == "validation" and "test" not in ladder.queries
    assert sum(ladder.queries.values()) == len(Lists.open(splits["train"]))
    assert any("kept back" in note for note in ladder.notes) and any("few" in note for note in ladder.notes)
    assert "fine-tuned" in ladder.left_out and not (tmp_path / "ladder" / "trainings").exists()


def test_no_query_judges_a_model_that_was_trained_on_it(splits: dict[str, str], trained: str, tmp_path: Path) -> None:
    train, output = Lists.open(splits["train"]), tmp_path / "ladder"
    refused("was trained on .* validation queries, .* give --validation", train=train, model=trained, output=output)
    seen, rest = train.select(slice(0, 15)), train.select(slice(15, None))
    refused(
        f"trained on {len(seen)} of the {len(seen)} test queries",
        **splits | {"train": rest, "test": seen},
        model=trained,
        output=output,
    )
    plan = planned(splits, [trained], 0, MONITOR, 12, 42)
    assert len(plan.lists["validation"]) == plan.held, "the training queries, which it knows, judge nothing"


def test_averages_remember_what_their_models_were_trained_on(text: Ladder, splits: dict[str, str]) -> None:
    train, averages = Lists.open(splits["train"]), [*(text.folder / "averages").iterdir()]
    assert len(averages) > 1
    for average in averages:
        assert shared_queries(train, average) == train.query_ids


def test_cosines_that_the_lists_have_are_evidence_once(splits: dict[str, str], embedder: str, tmp_path: Path) -> None:
    """Whatever precision they were made in."""
    given = {name: shutil.copytree(place, tmp_path / name) for name, place in splits.items()}
    cosine = cosine_name(embedder)
    for place in given.values():
        add_cosines(place, embedder, precision="fp32")
    ladder = rerank.auto(**given, model=embedder, hours=0, output=tmp_path / "ladder")
    check_ladder(ladder)
    fused = read_sealed(tmp_path / "ladder" / "rungs" / "fused.json")
    assert set(fused["columns"]) <= {"bm25", "good", cosine}
    assert fused["by"] == "rrf" or sum(fused["columns"].values()) == pytest.approx(1)


def test_a_killed_ladder_over_columns_goes_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"query_id": np.repeat(np.arange(60), 5), "doc_id": np.tile(np.arange(5), 60)})
    frame = frame.assign(grade=rng.integers(0, 2, len(frame)), a=rng.normal(size=len(frame)))
    frame["b"] = frame["grade"] + rng.normal(size=len(frame))
    given = {name: Lists.from_dataframe(frame[frame["query_id"].isin(of)]) for name, of in SPLITS.items()}
    before = rerank.auto(**given, model="LightGBM", output=tmp_path / "ladder")
    for made in ("rungs/fine-tuned.json", "ladder.json"):  # as a kill leaves it behind the last training
        (tmp_path / "ladder" / made).unlink()
    again = rerank.auto(**given, model="LightGBM", output=tmp_path / "ladder")
    assert [(rung.name, rung.test) for rung in again.rungs] == [(rung.name, rung.test) for rung in before.rungs]


def test_hours_bound_the_trainings(splits: dict[str, str], published: str, tmp_path: Path) -> None:
    ladder = rerank.auto(**splits, model=published, hours=1e-6, output=tmp_path / "ladder")
    assert "do not fit" in ladder.left_out["fine-tuned"]
    assert "does not fit" in ladder.left_out["from documents alone"]
    assert not (tmp_path / "ladder" / "trainings").exists()
    assert any(note.startswith("It took ") and "not 1e-06" in note for note in ladder.notes)


def test_a_ladder_ends_within_a_fifth_of_its_hours(splits: dict[str, str], embedder: str, tmp_path: Path) -> None:
    begun = time.perf_counter()
    ladder = rerank.auto(**splits, model=embedder, hours=0.02, output=tmp_path / "ladder")
    took = (time.perf_counter() - begun) / 3600
    assert took < 1.2 * 0.02 or any(note.startswith("It took ") for note in ladder.notes)
    decided = json.loads((tmp_path / "ladder" / "budget.json").read_text())
    assert decided["pace"]["seconds to train"] > 0 < decided["pace"]["seconds to score"]
    trained = [path.name for path in (tmp_path / "ladder" / "trainings").iterdir()]
    assert ("documents" in trained) == decided["documents"]
    assert ("seed-1" in trained) == (decided["passes"] > 0 or decided["steps"] > 0)
    check_ladder(ladder)


@pytest.mark.parametrize("share", [0.0, 0.6])
def test_many_queries_are_trained_on_as_far_as_there_is_time(
    splits: dict[str, str], embedder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    """Also where scoring both lists once, as a model from a fresh head needs it, takes that share of the hours."""
    rows = sum(Lists.open(splits[name]).size for name in ("validation", "test"))
    scoring = share * 0.06 * 3600 / rows
    pace = {"seconds to begin": 0.0, "seconds to train": 0.9, "documents a list": 12.0, "seconds to score": scoring}
    monkeypatch.setattr(budget.Budget, "_measured", lambda self, start: pace)
    monkeypatch.setattr(budget, "LEAST", 1)
    ladder = rerank.auto(**splits, model=embedder, hours=0.06, output=tmp_path / "ladder")
    decided = json.loads((tmp_path / "ladder" / "budget.json").read_text())
    assert decided["passes"] == 0 and 1 <= decided["steps"] <= 0.06 * 3600 / (0.9 * 12 * 4)
    lines = (tmp_path / "ladder" / "trainings" / "seed-1" / "metrics.jsonl").read_text().splitlines()
    assert max(json.loads(line).get("step", 0) for line in lines) == decided["steps"]
    tuned = next(rung for rung in ladder.rungs if rung.name == "fine-tuned")
    assert f"{4 * decided['steps']} of 30 training lists" in str(tuned)
    check_ladder(ladder)


def test_what_is_there_is_not_done_again(text: Ladder, splits: dict[str, str], embedder: str, tmp_path: Path) -> None:
    output = tmp_path / "ladder"
    shutil.copytree(text.folder, output)
    for name in ("ladder.json", "rungs/fused.json", "rungs/mixed.json", "ranker"):
        shutil.rmtree(output / name) if name == "ranker" else (output / name).unlink()
    trained = {path: path.stat().st_mtime_ns for path in (output / "trainings").rglob("*.safetensors")}
    left = [output / "lists" / ".train.0123abcd.tmp", output / "trainings" / "seed-1" / ".best.rerank-old"]
    for place in left:  # by a process that was killed
        (place / "columns").mkdir(parents=True)
    (output / "lists" / ".validation.lock").touch()
    rerank.auto(**splits, model=embedder, output=output)
    assert not any(place.exists() for place in [*left, output / "lists" / ".validation.lock"])
    check_same(output, text.folder)
    assert trained == {path: path.stat().st_mtime_ns for path in (output / "trainings").rglob("*.safetensors")}


@pytest.mark.slow
def test_killed_ladder_goes_on_and_ends_the_same(
    text: Ladder, splits: dict[str, str], embedder: str, tmp_path: Path
) -> None:
    output = tmp_path / "ladder"
    code = f"import sys; from rerank.ladder import plan; plan.STEPS = {plan.STEPS}\n"
    code += "from rerank.commands.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["auto", *(f"--{name}={place}" for name, place in splits.items()), f"--model={embedder}"]
    marks = ["rungs/other_evidence.json", "trainings/documents", "trainings/seed-1/metrics.jsonl", "averages"]
    for mark in marks:
        process = subprocess.Popen([sys.executable, "-c", code, *words, f"--output={output}"])
        deadline = time.monotonic() + 240
        while not (output / mark).exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert not (output / "ladder.json").exists()
    rerank.auto(**splits, model=embedder, output=output)
    check_same(output, text.folder)


@pytest.mark.slow
def test_shuffled_labels_keep_the_first_stage(tmp_path: Path, embedder: str) -> None:
    names = []
    for seed in range(20):
        places = make_splits(tmp_path / str(seed), shuffled=tuple(SPLITS), seed=seed)
        output = tmp_path / str(seed) / "ladder"
        ladder = rerank.auto(**places, model=embedder, output=output)
        assert "fine-tuned" in [rung.name for rung in ladder.rungs]
        names.append(ladder.kept.name)
    assert names == ["first stage"] * 20


def refused(match: str, **asked: Any) -> None:
    with pytest.raises(UserError, match=match) as caught:
        rerank.auto(**asked)
    assert "\n" not in str(caught.value)
    assert not Path(asked["output"]).exists(), "before any work"


def test_mistakes_are_named_before_any_work(splits: dict[str, str], tiny_model: Path, tmp_path: Path) -> None:
    output, model = tmp_path / "ladder", str(tiny_model)
    few = Lists.open(splits["train"]).select(range(5))
    refused("too few to keep some back", train=few, model=model, output=output)
    refused("test: .* are in the validation lists", **splits | {"test": splits["validation"]}, output=output)
    refused("validation: .* are in the train lists", **splits | {"validation": splits["train"]}, output=output)
    frame = Lists.open(splits["test"]).to_dataframe().drop(columns=["grade"])
    unjudged = Lists.from_dataframe(frame)
    refused("test: .*no judgments", **splits | {"test": unjudged}, model=model, output=output)
    shutil.copytree(splits["test"], tmp_path / "test")
    Lists.open(tmp_path / "test").store.drop_column("good")
    refused("test: .*no column good", **splits | {"test": str(tmp_path / "test")}, model=model, output=output)
    refused("hours: in 0 hours .* cannot be trained", **splits, model=model, hours=0, output=output)
    refused("hours: must be at least 0", **splits, model=model, hours=-1, output=output)
    refused("no/such/model", **splits, model="no/such/model", output=output)
    refused("LightGBM reads feature vectors", **splits, model=["LightGBM"], output=output)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UserError, match="holds no ladder"):
        rerank.auto(**splits, model=model, output=tmp_path)


def test_training_queries_with_the_text_of_a_test_query_are_left_out(splits: dict[str, str], tmp_path: Path) -> None:
    test, train = Lists.open(splits["test"]), Lists.open(splits["train"])
    frame = train.to_dataframe()
    twins = list(dict.fromkeys(frame["query_id"]))[:2]
    for query, text in zip(twins, dict.fromkeys(test.to_dataframe()["query"]), strict=False):
        frame.loc[frame["query_id"] == query, "query"] = text
    given = {"train": Lists.from_dataframe(frame), "validation": splits["validation"], "test": splits["test"]}
    plan = planned(given, ["sentence-transformers/all-MiniLM-L6-v2"], None, "nDCG@10", 50, 1)
    assert set(plan.lists["train"].query_ids) == set(train.query_ids) - set(twins)
    assert plan.notes[0] == "2 train queries have the text of a test query, and were left out."


def test_training_queries_judge_what_no_judgment_trains(text: Ladder, splits: dict[str, str]) -> None:
    validation, train = Lists.open(splits["validation"]), Lists.open(splits["train"])
    judged = Lists.open(text.folder / "lists" / "validation")
    assert judged.query_ids[: len(validation)] == validation.query_ids
    assert sorted(judged.query_ids[len(validation) :]) == sorted(train.query_ids)  # all: they are fewer than 500
    for path in (text.folder / "rungs").glob("*.json"):
        step = json.loads(path.read_text())
        if "values" in step and step["name"] != "mixed":  # whose folds may have taken different models
            learned = (step["model"] or "").startswith(("trainings/seed", "averages"))
            assert [value is None for value in step["values"]] == [False] * len(validation) + [learned] * len(train)


def test_added_documents_are_trained_on_only(tmp_path: Path) -> None:
    name = write_collection(tmp_path / "collection", queries=40, seed=3)
    run = random_run(name, [12] * 40, 3)
    lists = build_lists(open_collection(name), run, tmp_path / "all", add_relevant=True)
    assert lists.store.added.any()
    planned_for = planned({"train": lists, "validation": None, "test": None}, None, None, "nDCG@10", 5, 1)
    assert whole(planned_for.lists["train"]).size > planned_for.lists["train"].size
    assert planned_for.lists["validation"].lengths.max() <= 5
    shown = lists.with_added()
    given = {"train": shown.select(slice(0, 30)), "validation": shown.select(slice(30, None)), "test": None}
    planned_for = planned(given, None, None, "nDCG@10", 50, 1)
    assert whole(planned_for.lists["train"]).size == given["train"].size > planned_for.lists["train"].size
    held_back = planned_for.lists["validation"].select(slice(planned_for.held))
    assert held_back.size == lists.select(slice(30, None)).size < given["validation"].size
    assert whole(lists.top(5)).lengths.max() == 5, "cut lists are trained on as they are"


def test_one_rung_has_to_gain_what_changed_signs_do_one_time_in_two_hundred() -> None:
    base = np.full(12, 0.5)
    for worse in range(6):  # of 12 queries that differ by as much, some for the worse
        chance = sum(math.comb(12, number) for number in range(worse + 1)) / 2**12
        gains = base + np.where(np.arange(12) < worse, -0.1, 0.1)
        assert kept([base, gains]) == [True, chance <= 0.005], f"{worse} of 12: {chance}"
    assert kept([base, base]) == kept([base, base - 0.1]) == [True, False]


def test_rungs_are_compared_over_the_queries_that_neither_has_learned_from() -> None:
    rng = np.random.default_rng(0)
    base = rng.random(60)
    trained = np.where(np.arange(60) < 30, base + 0.2 + 0.1 * rng.normal(size=60), np.nan)
    for elsewhere in (-1.0, 0.0, 1.0):  # what the first stage is worth on what the other has learned from
        first = np.where(np.arange(60) < 30, base, elsewhere)
        assert kept([first, trained]) == kept([base[:30], trained[:30]]) == [True, True]
        assert kept([first, trained - 0.2])[1] == kept([base[:30], trained[:30] - 0.2])[1]
    assert kept([base, trained, np.where(np.arange(60) < 30, trained, base)]) == [True, True, False]


def ladders(rng: np.random.Generator, queries: int, gains: list[float]) -> list[np.ndarray]:
    """Values of rungs that agree with one another more than with the first, as those of one model do."""
    level, common = rng.beta(0.3, 0.7, size=queries), rng.normal(size=queries)
    own = rng.normal(size=(len(gains), queries))
    noise = np.concatenate([own[:1], np.sqrt(0.5) * (common + own[1:])])
    return list(np.clip(level + 0.2 * noise + np.array(gains)[:, None], 0, 1))


@pytest.mark.parametrize("queries", [25, 100])
def test_noise_keeps_the_first_stage(queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rerank.ladder.split.FLIPS", 1000)
    rng = np.random.default_rng(queries)
    climbed = [any(kept(ladders(rng, queries, [0.0] * 8))[1:]) for _ in range(2000)]
    assert np.mean(climbed) <= 0.01


def test_rungs_that_gain_are_kept_and_those_above_that_do_not_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rerank.ladder.split.FLIPS", 4000)
    rng = np.random.default_rng(0)
    stays = [kept(ladders(rng, 200, [0, 0, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2])) for _ in range(100)]
    share = np.mean(stays, axis=0)
    assert share[0] == 1 and share[2] > 0.9 and share[5] > 0.9
    assert (share[[1, 3, 4, 6, 7]] < 0.1).all()


def test_documents_alone_ask_no_validation_or_test_query(splits: dict[str, str], tmp_path: Path) -> None:
    train = Lists.open(splits["train"])
    own = own_lists(train, [], tmp_path / "all")
    assert own.store.manifest["retriever"]["left_out"] == 0 and (own.lengths > 0).all()
    ids = train.document_ids(np.arange(train.store.documents.num_rows))
    documents = dict(zip(ids, train.store.documents["text"].to_pylist(), strict=True))
    for query, text in zip(own.query_ids, own.query_texts, strict=True):
        assert documents[query].startswith(text) and own.qrels is not None and own.qrels[query] == {query: 1}
    assert (np.add.reduceat(own.grades, own.offsets[:-1]) == 1).all()
    asked = own.query_keys[:2]
    fewer = own_lists(train, [asked[0].upper().lower(), f"{asked[1]}."], tmp_path / "fewer")
    assert fewer.store.manifest["retriever"]["left_out"] == 2
    assert set(fewer.query_keys) == set(own.query_keys) - set(asked)
    few = train.select(range(1))
    with pytest.raises(UserError, match="too few"):
        own_lists(few, [], tmp_path / "few")
    assert not list(tmp_path.glob("*-index"))
