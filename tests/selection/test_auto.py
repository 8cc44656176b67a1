"""Model selection: candidates, the choice, held-out queries, reuse after a kill, and errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.collections import open_collection
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.evaluation.significance import correct, p_value
from rerank.lists.build import build_lists
from rerank.lists.view import Lists
from rerank.models.folder import TRAINED_ON, read_contract
from rerank.scoring.in_sample import shared_queries
from rerank.selection import comparison as selection
from rerank.selection.comparison import Candidate, Comparison, Selection
from rerank.storage.files import write_json
from tests.builders import make_model, random_run, write_collection
from tests.evaluation.scored import evaluate

SPLITS = {"train": range(60), "validation": range(60, 80), "test": range(80, 100)}
FIRST = "bm25 (first stage)"


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Lists of random candidates; the column ``good`` is a noisy grade, ``bad`` its negative."""
    folder = tmp_path_factory.mktemp("lists")
    name = write_collection(folder / "collection", queries=100)
    lists = build_lists(open_collection(name), random_run(name, [12] * 100), folder / "all")
    good = (lists.grades + np.random.default_rng(1).normal(size=lists.size)).astype(np.float32)
    lists.store.add_column("good", good)
    lists.store.add_column("bad", -good)
    places = {}
    for split, queries in SPLITS.items():
        lists.select([query for query in queries if lists.judged[query]]).save(folder / split)
        places[split] = str(folder / split)
    return places


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny embedding model in sentence-transformers' layout."""
    from sentence_transformers import SentenceTransformer, models

    folder = tmp_path_factory.mktemp("embedder")
    reads = models.Transformer(str(make_model(folder / "bert")))
    pools = models.Pooling(reads.get_word_embedding_dimension())
    SentenceTransformer(modules=[reads, pools]).save(str(folder / "tiny"))
    return str(folder / "tiny")


@pytest.fixture(scope="module")
def full(splits: dict[str, str], embedder: str, tmp_path_factory: pytest.TempPathFactory) -> Selection:
    """A selection with an embedding model that is fine-tuned."""
    return rerank.auto(**splits, models=embedder, epochs=1, output=tmp_path_factory.mktemp("auto") / "full")


@pytest.fixture(scope="module")
def reranker(full: Selection, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with a trained head and unknown training queries."""
    folder = shutil.copytree(full.folder / "trainings" / "tiny" / "best", tmp_path_factory.mktemp("published") / "x")
    known = read_contract(folder)
    write_json(folder / "rerank.json", {key: known[key] for key in known if key != TRAINED_ON})
    return str(folder)


def test_auto_compares_columns_fusion_and_models(full: Selection, splits: dict[str, str]) -> None:
    names = list(full.table["candidate"])
    assert names == [
        *(FIRST, "bad", "good", "cosine-tiny", "fusion, equal weights", "fusion, tuned weights"),
        *("tiny fine-tuned", "tiny fine-tuned + fusion"),
    ]
    assert list(full.table["p"].notna()) == [False] * 6 + [True] * 2
    assert list(full.table["ms"].notna()) == [name not in (FIRST, "good", "bad") for name in names]
    for place in splits.values():
        assert set(Lists.open(place).store.column_names) == {"bm25", "good", "bad"}, "the given lists stay unchanged"
    reports = (full.folder / "report.txt").read_text(), json.loads((full.folder / "report.json").read_text())
    assert reports[0] == f"{full}\n" and full.chosen in full._repr_html_()
    assert [row["candidate"] for row in reports[1] if row["chosen"]] == [full.chosen]


def test_saved_candidates_rank_as_they_were_measured(full: Selection, tmp_path: Path) -> None:
    folder = shutil.copytree(full.folder, tmp_path / "auto")
    lists = {split: Lists.open(folder / "lists" / split) for split in SPLITS}
    comparison = Comparison(folder, lists, "nDCG@10", 42, [])
    for _, row in full.table.iterrows():
        model = str(folder / "trainings" / "tiny" / "best") if "fine-tuned" in row["candidate"] else None
        candidate = Candidate(row["candidate"], tuple(row["weights"].items()), np.zeros(1), model)
        comparison._write_best(candidate)
        scores = rerank.load_model(folder / "best").predict(lists["test"])
        run = lists["test"].run(scores)
        assert evaluate(run, lists["test"].qrels or {}, "nDCG@10").mean["nDCG@10"] == pytest.approx(row["test"])


def test_training_sees_no_validation_or_test_query(full: Selection, splits: dict[str, str]) -> None:
    best = full.folder / "trainings" / "tiny" / "best"
    assert shared_queries(Lists.open(splits["train"]), best)
    for split in ("validation", "test"):
        assert shared_queries(Lists.open(splits[split]), best) == []


def test_tuned_weights_are_measured_out_of_fold(full: Selection) -> None:
    lists = {split: Lists.open(full.folder / "lists" / split) for split in SPLITS}
    comparison = Comparison(full.folder, lists, "nDCG@10", 42, [])
    comparison.columns = ["bm25", "good"]
    seen = []

    def choose(queries: np.ndarray) -> selection.Weights:
        seen.append(queries)
        return (("good", 1.0),) if len(seen) % 2 else (("bm25", 1.0),)

    comparison._add_out_of_fold("x", choose)
    *parts, everything = seen
    assert everything.all() and (sum(~part for part in parts) == 1).all()
    single = {name: comparison.validation.values(((name, 1.0),)) for name in ("good", "bm25")}
    for number, part in enumerate(parts):
        expected = single["bm25" if number % 2 else "good"]
        assert (comparison.candidates[0].values[~part] == expected[~part]).all()


def test_model_is_chosen_only_if_significantly_better(
    full: Selection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(full.folder / "lists", tmp_path / "lists")
    lists = {split: Lists.open(tmp_path / "lists" / split) for split in SPLITS if split != "test"}
    comparison = Comparison(tmp_path, lists, "nDCG@10", 42, [])
    monkeypatch.setattr(comparison, "_write_best", lambda best: None)
    rng, count = np.random.default_rng(0), len(lists["validation"])
    base = rng.random(count)
    noise = rng.normal(size=count)
    column = Candidate("bm25", (("bm25", 1.0),), base)

    def chosen(*gains: float) -> tuple[str, list[float]]:
        models = [Candidate(f"m{i}", (("good", 1.0),), base + gain + 0.1 * noise, "m") for i, gain in enumerate(gains)]
        comparison.candidates = [column, Candidate("worse", (("bad", 1.0),), base - 0.1), *models]
        found = comparison.finish()
        p = [p_value("t-test", gain + 0.1 * noise) for gain in gains]
        assert found.table["p"].dropna().to_list() == pytest.approx(correct(p, "holm"))
        return found.chosen, found.table["p"].dropna().to_list()

    assert chosen(0.2)[0] == "m0" and chosen(-0.2)[0] == "bm25" and chosen(0.1, 0.3)[0] == "m1"
    gain = next(g for g in np.linspace(0, 0.2, 400) if g > 0 and 0.02 < p_value("t-test", g + 0.1 * noise) < 0.04)
    assert chosen(gain)[0] == "m0"
    name, p = chosen(gain, gain)
    assert (name, p[0] > 0.05) == ("bm25", True), "Holm's correction counts all models"


def test_rerankers_are_compared_without_training(splits: dict[str, str], reranker: str, tmp_path: Path) -> None:
    other = tmp_path / "y"
    rerank.CrossEncoder(reranker, residual_columns="bm25").save(other)
    found = rerank.auto(splits["train"], models=[reranker, str(other)], epochs=0, output=tmp_path / "auto")
    assert list(found.table["candidate"])[-4:] == ["x", "x + fusion", "y", "y + fusion"]
    assert found.table["test"].isna().all() and any("optimistic" in note for note in found.notes)
    assert len(Lists.open(tmp_path / "auto" / "lists" / "validation")) == len(Lists.open(splits["train"]))
    assert not (tmp_path / "auto" / "trainings").exists()


def test_validation_is_held_out_if_none_is_given(splits: dict[str, str], reranker: str, tmp_path: Path) -> None:
    found = rerank.auto(splits["train"], models=reranker, epochs=1, output=tmp_path / "auto")
    parts = [set(Lists.open(tmp_path / "auto" / "lists" / split).query_keys) for split in ("train", "validation")]
    assert not parts[0] & parts[1] and parts[0] | parts[1] == set(Lists.open(splits["train"]).query_keys)
    assert "x fine-tuned" in list(found.table["candidate"]) and any("held out" in note for note in found.notes)


def test_completed_steps_are_reused(
    full: Selection, splits: dict[str, str], embedder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(full.folder, tmp_path / "auto")
    for name in ("report.json", "report.txt"):  # as a kill leaves it
        (folder / name).unlink()
    shutil.rmtree(folder / "best")
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*.safetensors")}
    monkeypatch.setattr("rerank.training.trainer.Trainer.run", lambda self: pytest.fail("trained again"))
    again = rerank.auto(**splits, models=embedder, epochs=1, output=folder)
    assert again.table.drop(columns="ms").equals(full.table.drop(columns="ms")) and (folder / "report.json").is_file()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    with pytest.raises(UserError, match="made from other lists"):
        rerank.auto(**splits | {"test": splits["validation"], "validation": splits["test"]}, epochs=0, output=folder)


def test_training_queries_with_the_text_of_a_test_query_are_left_out(splits: dict[str, str], tmp_path: Path) -> None:
    frame, test = Lists.open(splits["train"]).to_dataframe(), Lists.open(splits["test"])
    twin = frame["query_id"].iloc[0]
    frame.loc[frame["query_id"] == twin, "query"] = test.query_texts[0].upper()
    training = Lists.from_dataframe(frame.drop(columns="rank", errors="ignore"))
    found = rerank.auto(training, test=test, output=tmp_path / "auto")
    assert any(note.startswith("1 training queries") for note in found.notes)
    assert twin not in Lists.open(tmp_path / "auto" / "lists" / "validation").query_ids


def test_errors_are_raised_before_any_work(splits: dict[str, str], full: Selection, tmp_path: Path) -> None:
    trained = str(full.folder / "trainings" / "tiny" / "best")
    few = Lists.open(splits["train"]).select(range(5))
    unjudged = Lists.from_dataframe(
        Lists.open(splits["train"]).to_dataframe().drop(columns=["grade", "rank"], errors="ignore")
    )
    lacking = shutil.copytree(splits["test"], tmp_path / "test")
    Lists.open(lacking).store.drop_column("good")
    cases: list[tuple[dict[str, Any], str]] = [
        ({"train": few}, "validation: 5 queries are too few"),
        ({"train": unjudged}, "train: .* has no judgments"),
        (splits | {"test": splits["validation"]}, "test: .* are in the training or validation lists"),
        (splits | {"test": str(lacking)}, "test: .* has no column good"),
        ({"train": splits["train"], "models": trained, "epochs": 0}, "was trained on .* of the validation queries"),
        (splits | {"models": "no/such/model"}, "no/such/model"),
        (splits | {"models": ["a/x/best", "b/x"]}, "models: two are called x"),
        (splits | {"epochs": -1}, "epochs: must be at least 0"),
    ]
    for options, message in cases:
        with pytest.raises(UserError, match=message) as caught:
            rerank.auto(**options, output=tmp_path / "auto")
        assert "\n" not in str(caught.value) and not (tmp_path / "auto").exists()
    (tmp_path / "best").mkdir()
    with pytest.raises(UserError, match="no model selection in it"):
        rerank.auto(**splits, output=tmp_path)


@pytest.mark.slow
def test_command_prints_the_table(
    splits: dict[str, str], reranker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*(f"--{name}={place}" for name, place in splits.items()), "--models", reranker, "--epochs=1"]
    assert main(["auto", *words, f"--output={tmp_path / 'auto'}"]) == 0
    text = capsys.readouterr().out
    assert text == (tmp_path / "auto" / "report.txt").read_text() and "x fine-tuned + fusion" in text
    run = str(tmp_path / "run.trec")
    assert (
        main(["rerank", f"--model={tmp_path / 'auto' / 'best'}", f"--lists={splits['test']}", f"--output={run}"]) == 0
    )
