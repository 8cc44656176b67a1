"""Model cards and the conventions of the Hugging Face hub; the code in the cards is run."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import HfApi, ModelCard, RepoUrl

from rerank import CrossEncoder, Decoder, LoRA
from rerank.models.card import make_card
from rerank.training.results import Results
from tests.builders import make_decoder, make_lists, make_model, train, write_folds
from tests.models.text.texts import train_text

PAIRS = [("what is a wing", "a wing gives lift"), ("what is a wing", "a jet engine")]


CARD = """---
language: de
license: apache-2.0
---
# Base
"""


def executed(card: ModelCard) -> tuple[list[np.ndarray], dict[str, Any]]:
    """Run a card's blocks of code; return the scores that each gives, and all names in the end."""
    scores, names = [], dict[str, Any]()
    for code in re.findall(r"```python\n(.*?)```", card.text, re.DOTALL):
        exec(compile(code, "README.md", "exec"), names)
        if "scores =" in code:
            scores.append(np.asarray(names["scores"]))
    return scores, names


def test_card_is_valid_and_its_code_gives_the_same_scores(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Path(shutil.copytree(tiny_model, tmp_path / "base"))
    (base / "README.md").write_text(CARD)
    lists = make_lists(tmp_path / "lists").store
    manifest = tmp_path / "lists" / "lists" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(lists.manifest["collection"]["name"], "beir/scifact/train"))
    options = "--monitor=nDCG", "--precision=fp32", "--data.validation_fraction=0.2"
    run = train_text(manifest.parent, base, tmp_path / "run", *options)
    card = ModelCard.load(run / "best" / "README.md")
    assert card.data.pipeline_tag == "text-ranking"
    assert card.data.to_dict()["library_name"] == "sentence-transformers"
    assert "loss:SmoothINDCG" in card.data.tags
    assert card.data.license == "apache-2.0" and card.data.language == "de"
    assert card.data.datasets == ["irds/beir_scifact_train"]
    assert card.data.base_model is None, "a folder of this machine means nothing elsewhere"
    assert card.data.to_dict()["model-index"][0]["results"][0]["task"] == {"type": "text-ranking"}
    measures = json.loads((run / "results.json").read_text())
    results = {r.metric_type: r.metric_value for r in card.data.eval_results}
    assert results == measures["validation"]["model"]["mean"]
    for ranking in filter(None, (measures["validation"][name] for name in ("model", "first_stage", "interpolated"))):
        assert " | ".join(f"{value:.4f}" for value in ranking["mean"].values()) in card.text
    assert str(tmp_path) not in card.content, "paths of this machine"

    monkeypatch.chdir(run / "best")
    scores, names = executed(card)
    assert len(scores) == 3, "rerank, sentence-transformers, transformers"
    assert names["pairs"] == PAIRS
    assert np.ptp(scores[2]) > 0.01
    np.testing.assert_allclose(scores[1], scores[2], atol=1e-4)
    np.testing.assert_allclose(scores[0], scores[2], atol=0.1)  # bf16 where the CPU is fast at it


def test_card_names_rerank_when_documents_are_chunked(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CrossEncoder(str(tiny_model), long="max").save_pretrained(tmp_path)
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.to_dict()["library_name"] == "rerank"
    assert card.data.eval_results is None
    assert "AutoModel" not in card.text
    monkeypatch.chdir(tmp_path)
    assert [one.shape for one in executed(card)[0]] == [(2,)]


def test_card_of_a_feature_model_has_no_code(tmp_path: Path, home: Path) -> None:
    pytest.importorskip("lightgbm")
    made = write_folds(tmp_path / "made")
    data = ["--data=LetorData", f"--data.path={made}", "--data.fold=1", "--monitor=nDCG@5", "--tracker=[]"]
    train([*data, "--model=LightGBM", "--model.trees=2", f"--output={tmp_path / 'trees'}"])
    train([*data, "--model=MLP", "--model.hidden=[4]", "--loss=ListNet", f"--output={tmp_path / 'mlp'}"])
    made_by = ("trees", "LightGBM", "own objective"), ("mlp", "MLP", "ListNet")
    for name, model, loss in made_by:
        card = ModelCard.load(tmp_path / name / "best" / "README.md")
        measures = json.loads((tmp_path / name / "results.json").read_text())
        assert {r.metric_type: r.metric_value for r in card.data.eval_results} == measures["test"]["model"]["mean"]
        assert card.data.pipeline_tag is None
        assert model in card.text and loss in card.text
        assert "sampler" in card.text if name == "mlp" else "sampler" not in card.text
        assert "```python" not in card.text


def test_card_escapes_markup() -> None:
    card = make_card({"class": "MLP"}, "<img src=x>", results=Results("nDCG", 1, {}, {}), lists={"train": "<b>x"}).text
    assert "no validation or test lists" in card
    assert "# &lt;img src=x>" in card and "<img" not in card and "<b>" not in card


def test_save_pretrained_round_trips_with_a_card(tmp_path: Path) -> None:
    model = CrossEncoder.from_pretrained(make_model(tmp_path / "base"), document_length=16)
    model.save_pretrained(tmp_path / "saved")
    again = CrossEncoder.from_pretrained(tmp_path / "saved")
    assert again.document_length == 16
    np.testing.assert_array_equal(again.predict(PAIRS), model.predict(PAIRS))
    card = ModelCard.load(tmp_path / "saved" / "README.md")
    assert card.data.pipeline_tag == "text-ranking" and card.data.to_dict()["library_name"] == "sentence-transformers"
    assert card.data.eval_results is None and "## Training" not in card.text
    assert len(re.findall(r"```python", card.text)) == 4
    (tmp_path / "base" / "README.md").write_text("---\nlicense: [\n---\n")  # damaged
    model.save_pretrained(tmp_path / "other")
    assert ModelCard.load(tmp_path / "other" / "README.md").data.license is None
    (tmp_path / "saved" / "README.md").write_text(CARD)
    again.save_pretrained(tmp_path / "further")
    assert ModelCard.load(tmp_path / "further" / "README.md").text.strip() == "# Base"


def test_push_to_hub_uploads_the_model_and_its_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uploaded = {}

    def upload(api: Any, *, repo_id: str, folder_path: str, **_: Any) -> str:
        uploaded[repo_id] = {path.name for path in Path(folder_path).iterdir()}
        return f"https://huggingface.co/{repo_id}/commit/1"

    monkeypatch.setattr(HfApi, "create_repo", lambda api, repo_id, **_: RepoUrl(f"https://huggingface.co/{repo_id}"))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    CrossEncoder.from_pretrained(make_model(tmp_path / "base")).push_to_hub("me/reranker")
    assert {"config.json", "model.safetensors", "rerank.json", "README.md"} <= uploaded["me/reranker"]
    decoder = make_decoder(tmp_path / "decoder")
    Decoder(str(decoder), lora=LoRA(rank=2)).push_to_hub("me/adapter")
    assert "adapter_config.json" in uploaded["me/adapter"] and "config.json" not in uploaded["me/adapter"]
