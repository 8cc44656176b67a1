"""Decoders, next to Hugging Face's own forward passes over rows that are padded on the left."""

from __future__ import annotations

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer, models
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from rerank.errors import UserError
from rerank.kernels.flat import reads_flat
from rerank.lists import Lists
from rerank.lists.tokens import Side, encode
from rerank.models.load import load_model
from rerank.models.text.decoder import Decoder, LoRA, Prompt
from rerank.models.text.modules import embeds
from tests.builders import PROMPT, make_decoder, with_positions
from tests.close import check_close, check_gradients, gradients_of
from tests.models.text.texts import PAIRS, draw_trained

KINDS = ["qwen3", "qwen2", "llama", "mistral", "gemma", "gemma2", "phi3", "olmo2"]
QWEN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct. "
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: {system}\n'
    "<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


@pytest.fixture(scope="module", params=KINDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_decoder(tmp_path_factory.mktemp(request.param) / "model", request.param, prompt=QWEN)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_decoder(tmp_path_factory.mktemp("decoder") / "model", prompt=QWEN)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_decoder(tmp_path_factory.mktemp("classifier") / "model", head="hf", prompt=QWEN)


def tokens(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def rows(prompt: Prompt, tokenizer: Any) -> dict[str, Tensor]:
    """The pairs as whole texts, padded on the left."""
    ids = [tokens(tokenizer, prompt.filled(*pair)) for pair in PAIRS]
    width = max(map(len, ids))
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])
    padded = torch.tensor([[0] * (width - len(row)) + row for row in ids])
    return {"input_ids": padded, "attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}


def ours(model: Decoder) -> Tensor:
    """Scores in float32, with their graph."""
    queries, documents = zip(*PAIRS, strict=True)
    at = np.arange(len(PAIRS))
    return model.score(model.pair_inputs(queries, documents).collate(at, at))


def theirs(network: Any, model: Decoder, yes: str, no: str | None) -> Tensor:
    logits = network(**rows(model.prompt, model.tokenizer)).logits[:, -1]
    one, other = (model.tokenizer(word, add_special_tokens=False)["input_ids"] if word else None for word in (yes, no))
    return logits[:, one[0]] - (logits[:, other[0]] if other else 0)


def test_yes_no_equals_transformers(folder: Path) -> None:
    model = Decoder(str(folder))
    network = AutoModelForCausalLM.from_pretrained(folder).eval()
    found, expected = ours(model), theirs(network, model, "yes", "no")
    check_close(found, expected, "scores")
    assert float(expected.detach().std()) > 0.01
    weight = torch.tensor([1.0, -0.5, 0.7, 2.0])
    (found @ weight).backward()
    (expected @ weight).backward()
    check_gradients(gradients_of(model.network), gradients_of(network))
    capped = model.network.config.model_type == "gemma2"  # Gemma 2 caps its attention weights
    assert reads_flat(model.network) != capped, "which only its own attention does"


@pytest.fixture(scope="module", params=[QWEN, PROMPT])
def prompted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return Decoder(str(make_decoder(tmp_path_factory.mktemp("prompted") / "model", prompt=request.param)))


@given(query=st.text(max_size=12), document=st.text(max_size=20))
def test_tokens_are_those_of_the_whole_text(prompted: Decoder, query: str, document: str) -> None:
    """White space at their beginnings and ends included."""
    model = prompted
    sides = [
        encode(model.tokenizer, Side(10**6, *around), [text])[0][0]
        for around, text in zip(model.around, (query, document), strict=True)
    ]
    found = model.template.join([sides[0]], [sides[1]])["input_ids"][0].tolist()
    assert model.prompt is not None
    assert found == tokens(model.tokenizer, model.prompt.filled(query, document))


def test_long_document_is_cut_without_the_prompt_behind_it(qwen: Path) -> None:
    model = Decoder(str(qwen), query_length=4, document_length=6)
    long = model.predict([("shock wave?", "heat " * 99), ("shock wave?", "heat " * 6), ("jet " * 99, "heat")])
    assert long[0] == pytest.approx(long[1], abs=1e-5)  # places in a chunk may round differently


@pytest.mark.parametrize("head", ["yes_no", "hf"])
def test_adapter_keeps_scores_when_saved(head: str, qwen: Path, classifier: Path, tmp_path: Path) -> None:
    folder = qwen if head == "yes_no" else classifier
    plain = Decoder(str(folder))
    model = Decoder(str(folder), lora=LoRA(rank=4, alpha=8))
    torch.testing.assert_close(ours(model), ours(plain), msg="a fresh adapter adds nothing")
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained and all("lora" in name or "score" in name for name in trained)
    draw_trained(model, 3)
    scores = ours(model)
    assert float((scores - ours(plain)).abs().max()) > 0.01
    model.save(tmp_path / "adapter")
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    loaded = load_model(tmp_path / "adapter")
    assert isinstance(loaded, Decoder)
    torch.testing.assert_close(ours(loaded), scores, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours(copy.deepcopy(loaded)), scores, rtol=1e-5, atol=1e-5)
    kind = AutoModelForCausalLM if head == "yes_no" else AutoModelForSequenceClassification
    network = kind.from_pretrained(tmp_path / "adapter").eval()
    found = (
        theirs(network, loaded, "yes", "no")
        if head == "yes_no"
        else network(**rows(loaded.prompt, loaded.tokenizer)).logits[:, 0]
    )
    torch.testing.assert_close(found, scores, rtol=1e-5, atol=1e-5)
    ignored = shutil.ignore_patterns("adapter*", "rerank.json")  # as the documentation merges
    shutil.copytree(tmp_path / "adapter", tmp_path / "merged", ignore=ignored)
    kind = peft.AutoPeftModelForCausalLM if head == "yes_no" else peft.AutoPeftModelForSequenceClassification
    kind.from_pretrained(tmp_path / "adapter").merge_and_unload().save_pretrained(tmp_path / "merged")
    torch.testing.assert_close(ours(Decoder(str(tmp_path / "merged"))), scores, rtol=1e-5, atol=1e-5)


def test_instructions_of_queries_need_a_place_before_the_document(tmp_path: Path) -> None:
    model = Decoder(str(make_decoder(tmp_path / "model", prompt="{document}<|im_end|>{query}<|im_end|>{system}:")))
    table = {"query": ["wing", "jet"], "document": ["heat", "flow"], "grade": [1, 0]}
    same, other = (Lists.from_dataframe(table | {"instruction": told}) for told in (["find"] * 2, ["find", "look"]))
    expected = model.predict(list(zip(table["query"], table["document"], strict=True)), instruction="find")
    np.testing.assert_allclose(model.predict(same), expected, atol=0.02)
    with pytest.raises(UserError, match=r"instruction: queries have different ones, .* before the document"):
        model.predict(other)


def test_seed_alone_draws_the_adapter(qwen: Path, lists: Lists) -> None:
    def drawn(seed: int) -> dict[str, Tensor]:
        model = Decoder(str(qwen), lora=LoRA(rank=2))
        model.prepare(lists, seed)
        return {name: p.detach() for name, p in model.named_parameters() if "lora_A" in name}

    one, again, other = drawn(1), drawn(1), drawn(2)
    assert all(torch.equal(one[name], again[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in one)


def test_decoder_refuses_bad_arguments(qwen: Path, tmp_path: Path, tiny_model: Path) -> None:
    def refused(match: str, name: Path | str = qwen, **keys: Any) -> None:
        with pytest.raises(UserError, match=match) as caught:
            Decoder(str(name), **keys)
        assert "\n" not in str(caught.value)

    for number, (prompt, match) in enumerate(
        {
            "{query}": "does not read a query and a document .*'document' content does not reach",
            "{query}{document}{query}": "its chat template has the query 2 times",
            None: "do not say how it reads a pair and which tokens make its score",
        }.items()
    ):
        refused(match, make_decoder(tmp_path / str(number), prompt=prompt))
    refused("the model's template has no place for one", make_decoder(tmp_path / "bare"), instruction="find")
    refused("instruction: .* has a place of the template", instruction="Find {query}")
    refused("bert is not a decoder; load it as a CrossEncoder", tiny_model)
    short = with_positions(Path(shutil.copytree(qwen, tmp_path / "short")), 64)
    refused("do not fit .* 63 positions", short)
    refused("query_length 2000 and model.document_length .* do not fit", query_length=2000)


def test_embedding_models_are_told_from_rerankers(qwen: Path, tmp_path: Path) -> None:
    reads = models.Transformer(str(qwen))
    pools = models.Pooling(reads.get_word_embedding_dimension(), "lasttoken")
    SentenceTransformer(modules=[reads, pools]).save(str(tmp_path / "embeds"))
    assert embeds(tmp_path / "embeds") and not embeds(qwen)


def test_adapter_without_its_base_is_refused(qwen: Path, tmp_path: Path) -> None:
    base, adapter = Path(shutil.copytree(qwen, tmp_path / "base")), tmp_path / "adapter"
    Decoder(str(base), lora=LoRA(rank=2)).save(adapter)
    network = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        network.model.norm.weight += 1
    network.save_pretrained(base)
    with pytest.raises(UserError, match="an adapter of another base than"):
        load_model(adapter)
    shutil.rmtree(base)
    with pytest.raises(UserError, match=r"the base of this adapter is missing \(.*no such model folder\)"):
        load_model(adapter)
    (adapter / "rerank.json").unlink()
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps(config | {"base_model_name_or_path": None}))
    with pytest.raises(UserError, match="an adapter that does not name its base"):
        Decoder(str(adapter))


def test_adapter_finds_its_base_from_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base is given by a relative path, and was itself made of a model that is gone since."""
    base = make_decoder(tmp_path / "base")
    Decoder(str(base), document_length=24).save(tmp_path / "full")
    shutil.rmtree(base)
    monkeypatch.chdir(tmp_path)
    model = Decoder("full", lora=LoRA(rank=2), document_length=24)
    model.save(tmp_path / "adapter")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    scores = load_model(tmp_path / "adapter").predict(PAIRS)
    np.testing.assert_allclose(scores, model.predict(PAIRS), atol=1e-5)
