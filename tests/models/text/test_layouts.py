"""Rerankers that sentence-transformers saved: loaded, scored, trained further, saved, loaded by it again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import rerank
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.models.load import load_model
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import WORDS, make_model
from tests.models.text.layouts import LAYOUTS, classic, modular, save_layout
from tests.models.text.texts import draw_trained

PAIRS = [
    *((" ".join(WORDS[i : i + 2]), " ".join(WORDS[i : 3 * i + 3])) for i in range(9)),
    ("what is a wing?", "A wing gives lift."),
    ("heat", ""),
    ("jet\nnoise", "first line.\nsecond line"),
]


def their_scores(folder: Path, activation: nn.Module | None = None) -> Any:
    """Scores by sentence-transformers; those of two labels as the difference of their logits."""
    from sentence_transformers import CrossEncoder as Theirs

    scores = Theirs(str(folder), device="cpu", local_files_only=True).predict(PAIRS, activation_fn=activation)
    return scores if scores.ndim == 1 else scores[:, 1] - scores[:, 0]


@pytest.mark.parametrize("name", LAYOUTS)
def test_layout_scores_trains_and_saves_as_in_sentence_transformers(name: str, tmp_path: Path, lists: Lists) -> None:
    folder = save_layout(name, tmp_path / "theirs")
    model: Any = load_model(folder)
    theirs = their_scores(folder, nn.Identity())
    assert np.std(theirs) > 0.01
    found = [float(np.abs(model.predict(PAIRS, precision="fp32") - theirs).max())]
    ranked = [entry["corpus_id"] for entry in model.rank("a wing", ["heat", "wing", "jet"])]
    assert sorted(ranked) == [0, 1, 2]
    run = rerank.train(
        *(model, lists, rerank.SoftmaxCE()),
        **{"validation": None, "output": tmp_path / "run", "epochs": 1, "precision": "fp32", "batch_size": 4},
    )
    best = run.folder / "best"
    trained: Any = load_model(best)
    ours = trained.predict(PAIRS, precision="fp32")
    assert np.abs(ours - theirs).max() > 1e-4, "it was trained"
    found.append(float(np.abs(their_scores(best) - ours).max()))  # without an activation, as it is saved
    assert (best / "modules.json").is_file() != name.startswith("bert")
    print(f"\n{name}: loaded {found[0]:.1e}, trained and saved {found[1]:.1e}")
    assert max(found) < (2e-6 if name.startswith("decoder") else 1e-6)  # a difference of two rounded logits


def test_layout_has_their_saved_activation_on_our_scores(tmp_path: Path) -> None:
    for activation, function in ((None, lambda x: 1 / (1 + np.exp(-x))), (nn.Tanh(), np.tanh), (nn.Identity(), float)):
        folder = tmp_path / str(activation)
        classic(make_model(tmp_path / "base"), 1, activation).save_pretrained(str(folder), create_model_card=False)
        ours = load_model(folder).predict(PAIRS, precision="fp32")
        np.testing.assert_allclose(np.vectorize(function)(ours), their_scores(folder), atol=1e-6)


def test_layout_of_three_labels_is_refused(tmp_path: Path) -> None:
    for name, make in (("a", lambda base: classic(base, 3, None)), ("b", lambda base: modular(base, "cls", 3))):
        make(make_model(tmp_path / f"{name}-base")).save_pretrained(str(tmp_path / name), create_model_card=False)
        with pytest.raises(UserError, match="3 labels, none of which is known to be relevance"):
            load_model(tmp_path / name)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("modules.json", lambda entries: entries[2].update(type="custom.Dense"), "custom.Dense.*: needs remote code"),
        ("2_Dense/config.json", lambda c: c.update(activation_function="custom.Act"), "custom.Act: needs remote code"),
        ("config.json", lambda c: c.update(model_type="own", auto_map={}), "own needs remote code, which is never run"),
    ],
)
def test_layout_with_remote_code_is_refused(tmp_path: Path, file: str, change: Any, message: str) -> None:
    folder = save_layout("modules, bert, cls", tmp_path / "m")
    content = json.loads((folder / file).read_text())
    change(content)
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        CrossEncoder(str(folder))


def test_head_of_a_layout_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"model\.head: .* has a trained head of its own"):
        CrossEncoder(str(save_layout("modules, bert, cls", tmp_path / "n")), head="cls")


def test_default_prompt_of_an_encoder_stands_before_the_query(tmp_path: Path) -> None:
    model = modular(make_model(tmp_path / "base"), "mean")
    model.prompts, model.default_prompt_name = {"search": "query: "}, "search"
    model.save_pretrained(str(tmp_path / "m"), create_model_card=False)
    ours: Any = load_model(tmp_path / "m")
    np.testing.assert_allclose(
        ours.predict(PAIRS, precision="fp32"), their_scores(tmp_path / "m", nn.Identity()), atol=1e-6
    )
    ours.save(tmp_path / "saved")
    np.testing.assert_allclose(their_scores(tmp_path / "saved"), ours.predict(PAIRS, precision="fp32"), atol=1e-6)


def test_adapter_of_a_decoder_is_read_by_sentence_transformers(tmp_path: Path) -> None:
    folder = save_layout("decoder", tmp_path / "theirs")
    model = rerank.Decoder(str(folder), lora=rerank.LoRA(rank=2))
    draw_trained(model, 1)
    model.save(tmp_path / "adapter")
    again: Any = load_model(tmp_path / "adapter")
    ours = again.predict(PAIRS, precision="fp32")
    assert np.abs(ours - load_model(folder).predict(PAIRS, precision="fp32")).max() > 1e-3
    np.testing.assert_allclose(their_scores(tmp_path / "adapter"), ours, atol=2e-6)


def test_decoder_places_instruction_as_sentence_transformers_does(tmp_path: Path) -> None:
    from sentence_transformers import CrossEncoder as Theirs

    folder = save_layout("decoder", tmp_path / "theirs")
    model: Any = load_model(folder)
    theirs = Theirs(str(folder), device="cpu", local_files_only=True)
    for told in ("find papers", "which answers the question about heat"):
        expected = theirs.predict(PAIRS, prompt=told, activation_fn=nn.Identity())
        found = model.predict(PAIRS, precision="fp32", instruction=told)
        np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.abs(found - model.predict(PAIRS, precision="fp32")).max() > 1e-3
    ranked = model.rank("wing", ["heat", "jet"], instruction="find papers")
    assert ranked != model.rank("wing", ["heat", "jet"])
    table = {"query": ["wing", "wing"] * 2, "document": ["heat", "jet"] * 2, "grade": [1, 0] * 2}
    lists = rerank.Lists.from_dataframe(table | {"instruction": ["find papers"] * 2 + [None] * 2})
    pairs = [("wing", "heat"), ("wing", "jet")]
    both = [model.predict(pairs, instruction="find papers"), model.predict(pairs)]
    np.testing.assert_allclose(model.predict(lists), np.concatenate(both), atol=0.02)
    default = rerank.Decoder(str(folder), instruction="find papers")
    default.save(tmp_path / "default")
    ours = load_model(tmp_path / "default").predict(PAIRS, precision="fp32")
    np.testing.assert_allclose(ours, model.predict(PAIRS, precision="fp32", instruction="find papers"), atol=2e-6)
    np.testing.assert_allclose(their_scores(tmp_path / "default"), ours, atol=2e-6)


@pytest.mark.parametrize("name", ["bert", "modules, bert, cls", "decoder, document first"])
def test_instruction_is_refused_without_a_place_for_it(name: str, tmp_path: Path) -> None:
    model: Any = load_model(save_layout(name, tmp_path / "m"))
    with pytest.raises(UserError, match=r"instruction: .* no place for one"):
        model.rank("wing", ["heat"], instruction="find papers")
    lists = rerank.Lists.from_dataframe(
        {"query": ["wing"], "document": ["heat"], "grade": [1], "instruction": ["find"]}
    )
    with pytest.raises(UserError, match=r"instruction: .* no place for one"):
        model.predict(lists)
