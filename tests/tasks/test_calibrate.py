"""Probabilities of what is saved are those that were fitted, the order stays to the last tie, and the card says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.evaluation.calibration import sigmoid
from rerank.lists import Lists
from rerank.models.average import average_models
from rerank.models.base import Model
from rerank.models.contract import CALIBRATION, add_to_contract, read_contract
from rerank.models.load import load_model
from rerank.models.mixed import write_ranker
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import Decoder
from rerank.scoring.in_sample import remember
from rerank.storage.hashes import write_sealed
from rerank.tasks.calibrate import calibrate
from tests.builders import make_decoder, make_lists


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Lists:
    return make_lists(tmp_path_factory.mktemp("calibrate"))


def judged_by(model: Model, lists: Lists, irrelevant: bool = True, seed: int = 0) -> Lists:
    """The lists, judged so that a higher score makes relevance more likely; the others perhaps not at all."""
    scores = model.predict(lists).astype(float)
    likely = sigmoid(2 * (scores - scores.mean()) / scores.std() - 0.5)
    frame = lists.to_dataframe()
    relevant = np.random.default_rng(seed).random(len(frame)) < likely
    relevant[lists.offsets[:-1]] |= not irrelevant  # every query has a judgment
    frame["grade"] = np.where(relevant, 1.0, 0.0 if irrelevant else np.nan)
    return Lists.from_dataframe(frame)


KINDS: dict[str, dict[str, Any]] = {"hf": {}, "cls": {"head": "cls"}, "max": {"long": "max"}}
KINDS |= {"start": {"start": "bm25"}, "sum": {"document_length": 40, "long": "sum"}}


def made(kind: str, folder: Path, tiny_model: Path) -> Path:
    """A ranker's folder."""
    settings: dict[str, Any] = {"query_length": 8, "document_length": 24}
    best = folder / "best"
    if kind == "decoder":
        Decoder(str(make_decoder(folder / "decoder")), template="plain", **settings).save(best)
    elif kind == "mixed":
        CrossEncoder(str(tiny_model), **settings).save(folder / "text")
        write_ranker(folder / "text", {"bm25": 0.5}, 0.5, best)
    else:
        CrossEncoder(str(tiny_model), **settings | KINDS[kind]).save(best)
    (best / "README.md").write_text("# A model\n\n## Use\n\nAs ever.\n")
    return best


@pytest.fixture
def hf(plain: Lists, tmp_path: Path, tiny_model: Path) -> tuple[Path, Lists]:
    """A cross-encoder, and lists judged by it."""
    best = made("hf", tmp_path, tiny_model)
    return best, judged_by(load_model(best), plain)


def order(lists: Lists, scores: np.ndarray) -> list[int]:
    return np.lexsort((-scores, np.repeat(np.arange(len(lists)), lists.lengths))).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", ["hf", "cls", "max"])
def test_the_last_layer_gives_logits_in_the_same_order(
    kind: str, plain: Lists, tmp_path: Path, tiny_model: Path
) -> None:
    best = made(kind, tmp_path, tiny_model)
    lists = judged_by(load_model(best), plain)
    found = rerank.calibrate(str(best), lists, output=str(tmp_path / "new"))
    before, after = load_model(best).predict(lists), load_model(tmp_path / "new")
    assert found.folded
    assert order(lists, after.predict(lists)) == order(lists, before)
    assert after.predict(lists) == pytest.approx(found.a * before.astype(float) + found.b, abs=1e-4)
    assert after.probabilities(lists) == pytest.approx(sigmoid(found.a * before + found.b), abs=1e-5)
    weights = load_model(tmp_path / "new").network.state_dict()  # type: ignore[attr-defined]
    changed = [name for name, value in load_model(best).network.state_dict().items() if (value != weights[name]).any()]  # type: ignore[attr-defined]
    assert changed == ["classifier.weight", "classifier.bias"]
    said = read_contract(tmp_path / "new")[CALIBRATION]
    assert (said["a"], said["b"], said["grade"], said["n"]) == (1.0, 0.0, 1, lists.size)


def test_other_libraries_show_probabilities(hf: tuple[Path, Lists], tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder as Theirs
    from torch import nn

    best, lists = hf
    rerank.calibrate(str(best), lists, output=str(tmp_path / "new"))
    frame = lists.select([0]).to_dataframe()
    pairs = [(query, text) for query, text in zip(frame["query"], frame["text"], strict=True) if len(text) < 90]
    assert len(pairs) > 3  # that nobody cuts
    theirs = Theirs(str(tmp_path / "new"), device="cpu").predict(pairs, activation_fn=nn.Sigmoid())
    ours = load_model(tmp_path / "new")
    assert theirs == pytest.approx(sigmoid(ours.text_scores(pairs, precision="fp32")), abs=1e-5)
    ranked = ours.rank(pairs[0][0], [text for _, text in pairs])
    assert [entry["probability"] for entry in ranked] == sorted(ours.probabilities(pairs).tolist(), reverse=True)


@pytest.mark.parametrize("kind", ["mixed", "start", "sum", "decoder"])
def test_elsewhere_scores_stay_as_they_are(kind: str, plain: Lists, tmp_path: Path, tiny_model: Path) -> None:
    best, new = made(kind, tmp_path, tiny_model), tmp_path / "new"
    lists = judged_by(load_model(best), plain)
    found = rerank.calibrate(str(best), lists, output=str(new))
    assert not found.folded
    for path in best.iterdir():
        same = path.read_bytes() == (new / path.name).read_bytes()
        assert same == (path.name not in ("rerank.json", "README.md")), path.name
    lists.save(tmp_path / "lists")
    for folder in (best, new):
        words = ["--lists", str(tmp_path / "lists"), "--output", str(tmp_path / f"{folder.name}.trec")]
        assert main(["rerank", "--model", str(folder), *words]) == 0
    assert (tmp_path / "best.trec").read_bytes() == (tmp_path / "new.trec").read_bytes()
    said = read_contract(new)[CALIBRATION]
    assert (said["a"], said["b"], said["n"]) == (found.a, found.b, lists.size)
    scores = load_model(best).predict(lists).astype(float)
    assert load_model(new).probabilities(lists) == pytest.approx(sigmoid(found.a * scores + found.b), abs=1e-12)
    if kind == "mixed":  # it was fitted to the mix, not to the model in it
        with pytest.raises(UserError, match="not calibrated"):
            load_model(new, mix=False).probabilities(lists)


def test_another_model_made_of_it_is_not_calibrated(hf: tuple[Path, Lists], tmp_path: Path) -> None:
    (best, lists), new = hf, tmp_path / "new"
    rerank.calibrate(str(best), lists, output=str(new))
    write_ranker(new, {"bm25": 0.5}, 0.5, tmp_path / "mixed")
    average_models([best, new], None, tmp_path / "average")
    for folder in ("mixed", "average"):
        assert CALIBRATION not in read_contract(tmp_path / folder)
        card = tmp_path / folder / "README.md"
        assert not card.is_file() or "## Calibration" not in card.read_text()


def test_what_holds_the_old_weights_once_more_does_not_come_along(hf: tuple[Path, Lists]) -> None:
    best, lists = hf
    (best / "pytorch_model.bin").write_bytes(b"old")
    (best / "onnx").mkdir()
    (best / "onnx" / "model.onnx").write_bytes(b"old")
    with pytest.raises(UserError, match=r"has onnx/model\.onnx, which would keep the old scores"):
        rerank.calibrate(str(best), lists)
    (best / "onnx" / "model.onnx").unlink()
    assert rerank.calibrate(str(best), lists).folded
    assert not (best / "pytorch_model.bin").exists()


def test_feature_files_are_read_as_the_model_was_trained(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, features in (("train", 3), ("validation", 2)):
        values = rng.normal(size=(30, 6, features)) + np.arange(6)[:, None] % 2
        rows = [
            f"{j % 2} qid:{name}{i} " + " ".join(f"{k}:{x:.3f}" for k, x in enumerate(row, 1))
            for i, of in enumerate(values)
            for j, row in enumerate(of)
        ]
        (tmp_path / f"{name}.txt").write_text("\n".join(rows) + "\n")
    words = [
        "--data=LetorData",
        f"--data.train={tmp_path / 'train.txt'}",
        "--data.validation_share=0.2",
        "--test=false",
    ]
    words += ["--model=MLP", "--loss=ListNet", "--epochs=2", f"--output={tmp_path / 'run'}"]
    assert main(["train", *words]) == 0
    rerank.calibrate(str(tmp_path / "run" / "best"), str(tmp_path / "validation.txt"), output=str(tmp_path / "new"))


def test_a_second_calibration_takes_the_place_of_the_first(hf: tuple[Path, Lists], tmp_path: Path) -> None:
    best, lists = hf
    (best / ".git").mkdir()
    for name in ("LICENSE", ".git/HEAD"):
        (best / name).write_text("mine")
    first = rerank.calibrate(str(best), lists)
    assert (best / "LICENSE").read_text() == (best / ".git" / "HEAD").read_text() == "mine"
    second = rerank.calibrate(str(best), lists)  # of the first one's logits
    assert (second.a, second.b) == pytest.approx((1.0, 0.0), abs=1e-4)
    assert second.validation.before.log_loss == pytest.approx(second.validation.after.log_loss, abs=0.1)
    assert first.validation.after.log_loss == pytest.approx(second.validation.after.log_loss, abs=1e-4)
    card = (best / "README.md").read_text()
    assert card.count("## Calibration") == 1 and card.startswith("# A model") and "As ever." in card
    assert f"{second.validation.after.log_loss:.4f}" in card
    load_model(best)


def test_candidates_that_nobody_judged_count_where_judgments_name_relevant_ones_alone(
    hf: tuple[Path, Lists], tmp_path: Path
) -> None:
    best, lists = hf
    plain = judged_by(load_model(best), lists, irrelevant=False)
    alone = rerank.calibrate(str(best), plain, output=str(tmp_path / "a"))
    assert alone.unjudged and alone.validation.n == plain.size and "name relevant documents alone" in str(alone)
    frame = lists.to_dataframe()
    frame["grade"] = frame["grade"].where(np.arange(len(frame)) % 3 > 0)  # a third is unjudged
    both = rerank.calibrate(str(best), Lists.from_dataframe(frame), output=str(tmp_path / "b"))
    assert not both.unjudged and both.validation.n == int(frame["grade"].notna().sum())


def test_the_grade_says_what_is_relevant(hf: tuple[Path, Lists], tmp_path: Path) -> None:
    best, frame = hf[0], hf[1].to_dataframe()
    twice = frame.assign(grade=frame["grade"] * 2 + (np.arange(len(frame)) % 2) * (frame["grade"] == 0))
    one = rerank.calibrate(str(best), hf[1], output=str(tmp_path / "one"))
    two = rerank.calibrate(str(best), Lists.from_dataframe(twice), grade=2, output=str(tmp_path / "two"))
    assert (one.a, one.b) == (two.a, two.b) and two.grade == 2
    assert one.validation.relevant == two.validation.relevant


def test_other_lists_are_measured_with_what_was_fitted(hf: tuple[Path, Lists], tmp_path: Path) -> None:
    best, lists = hf
    test = judged_by(load_model(best), make_lists(tmp_path / "test", seed=5), seed=7)
    with pytest.raises(UserError, match=r"test: .* has 2 queries that the calibration is fitted to"):
        rerank.calibrate(str(best), lists, output=str(tmp_path / "new"), test=lists.select([0, 2]))
    found = rerank.calibrate(str(best), lists, output=str(tmp_path / "new"), test=test)
    p, relevant = load_model(tmp_path / "new").probabilities(test), test.grades > 0
    assert found.test.after.brier == pytest.approx(((p - relevant) ** 2).mean(), abs=1e-5)
    for (_, least), above in zip(found.thresholds.items(), found.test.found, strict=True):
        assert least is None or above.count == pytest.approx((p >= least).sum(), abs=1)
    assert "test: " in str(found) and len(found.to_dataframe()) == len(found.validation.curve) + len(found.test.curve)
    assert max(map(len, str(found).splitlines())) <= 100


def test_test_lists_without_anything_relevant_are_refused(hf: tuple[Path, Lists], tmp_path: Path) -> None:
    best, lists = hf
    none = Lists.from_dataframe(lists.to_dataframe().assign(grade=0))
    with pytest.raises(UserError, match=r"test: .* has no relevant candidate \(of grade 1 or more\)"):
        rerank.calibrate(str(best), lists, output=str(tmp_path / "new"), test=none)
    assert not (tmp_path / "new").exists()


def test_the_command_calibrates_and_prints(
    hf: tuple[Path, Lists], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best, lists = hf
    lists.save(tmp_path / "lists")
    words = ["calibrate", "--model", str(best), "--lists", str(tmp_path / "lists"), "--depth", "9"]
    assert main([*words, "--output", str(tmp_path / "new")]) == 0
    shown = capsys.readouterr().out
    assert "log loss" in shown and "0.9" in shown
    said = read_contract(tmp_path / "new")[CALIBRATION]
    assert said["n"] == lists.top(9).size
    assert main([*words, "--output", str(tmp_path / "new")]) == 2
    assert "exists already" in capsys.readouterr().err


def test_what_cannot_be_calibrated_is_refused(hf: tuple[Path, Lists], plain: Lists) -> None:
    best, lists = hf
    before = {path.name: path.read_bytes() for path in best.iterdir()}
    with pytest.raises(UserError, match="rerank calibrate --model FOLDER"):
        load_model(best).probabilities(plain)
    unjudged = Lists.from_dataframe(plain.to_dataframe().drop(columns="grade"))
    upside_down = lists.to_dataframe()
    upside_down["grade"] = 1 - upside_down["grade"]
    for given, message in (
        (lists.select([0, 2]), "2 judged queries are too few"),
        (unjudged, "has no judgments"),
        (Lists.from_dataframe(upside_down), "does not mean more relevant"),
    ):
        with pytest.raises(UserError, match=message):
            calibrate(str(best), given)
    for name in ("someone/model", f"{best}t"):
        with pytest.raises(UserError, match=f"model: no folder {name}; if it is a published model, .* --output"):
            calibrate(name, lists)
    assert {path.name: path.read_bytes() for path in best.iterdir()} == before
    add_to_contract(best, remember(lists.select([0, 2])))
    with pytest.raises(UserError, match=f"was trained on 2 of its {len(lists)} queries"):
        calibrate(str(best), lists)


@pytest.mark.parametrize(
    ("key", "value"), [("a", 0), ("a", -1.0), ("a", "x"), ("b", None), ("n", 1.5), ("grade", True)]
)
def test_a_damaged_calibration_is_refused(key: str, value: object, tmp_path: Path, tiny_model: Path) -> None:
    best = made("hf", tmp_path, tiny_model)
    said: dict[str, Any] = {"a": 1.0, "b": 0.0, "grade": 1, "n": 9}
    write_sealed(best / "rerank.json", read_contract(best) | {CALIBRATION: said | {key: value}})
    with pytest.raises(UserError, match=f"rerank.json: calibration: {key}: (expected a|must be) "):
        load_model(best)
