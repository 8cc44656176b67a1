"""What is exported scores as the model does, in the real runtimes, and what would not is refused."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoConfig, AutoModel, AutoTokenizer

import rerank
from rerank.commands.cli import main
from rerank.commands.verify import verify
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.models.text import graphs
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import Decoder
from tests.builders import make_decoder, make_model


def needs(*packages: str) -> pytest.MarkDecorator:
    missing = [package for package in packages if find_spec(package) is None]
    return pytest.mark.skipif(bool(missing), reason=f"without {', '.join(missing)}")


needs_onnx = needs("onnx", "onnxscript", "onnxruntime")
needs_openvino = needs("onnx", "onnxscript", "openvino", "nncf")


@pytest.fixture
def best(tmp_path: Path) -> Path:
    """A cross-encoder of random weights with a head."""
    model = CrossEncoder(str(make_model(tmp_path / "model")), query_length=8, document_length=24)
    model.save(tmp_path / "best")
    (tmp_path / "best" / "README.md").write_text("# A model\n")
    return tmp_path / "best"


def pairs_of(lists: Lists) -> list[tuple[str, str]]:
    frame = lists.to_dataframe()
    return list(zip(frame["query"], frame["text"], strict=True))


def by_onnxruntime(folder: Path, file: str, pairs: list[tuple[str, str]]) -> np.ndarray:
    """As somebody else serves it: with nothing of ours."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(folder / file), providers=["CPUExecutionProvider"])
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = tokenizer(pairs, padding=True, truncation=True, return_tensors="np")
    return session.run(["logits"], {entry.name: tokens[entry.name] for entry in session.get_inputs()})[0][:, 0]


@needs_onnx
def test_onnx_runtime_scores_what_is_exported_as_the_model_does(best: Path, lists: Lists, tmp_path: Path) -> None:
    words = ["--model", str(best), "--lists", str(lists.store.folder), "--output", str(tmp_path / "out")]
    assert main(["export", *words, "--formats", "onnx", "onnx-int8", "--force"]) == 0
    out, model = tmp_path / "out", CrossEncoder(str(best))
    short = [(query, " ".join(text.split()[:12])) for query, text in pairs_of(lists)]
    ours = model.text_scores(short, precision="fp32")
    assert np.ptp(ours) > 0.1
    np.testing.assert_allclose(by_onnxruntime(out, "onnx/model.onnx", short), ours, atol=1e-5)
    small = by_onnxruntime(out, "onnx/model_qint8_avx512_vnni.onnx", short)
    off = np.abs(small - ours)
    assert off.max() > 0
    if "vnni" in Path("/proc/cpuinfo").read_text():  # without, sums of products of int8 saturate at 16 bits
        assert off.max() < 0.1 * np.ptp(ours), "int8 rounds, and no more than that"
    again = CrossEncoder.load(out)
    np.testing.assert_array_equal(again.text_scores(short, precision="fp32"), ours)


@needs_onnx
def test_the_card_says_how_each_file_is_loaded_and_how_it_scored(best: Path, lists: Lists, tmp_path: Path) -> None:
    found = rerank.export_model(best, lists, tmp_path / "out", ["onnx-int8"], force=True)
    assert [one.file for one in found] == ["onnx/model.onnx", "onnx/model_qint8_avx512_vnni.onnx"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert card.startswith("# A model\n")
    beside = found[1].beside
    assert beside is not None and f"{beside.ours:.4f} | {beside.difference:+.4f}" in card
    for one in found:
        backend, name = one.file.split("/")
        assert f'CrossEncoder(path, backend="{backend}", model_kwargs={{"file_name": "{name}"}})' in card
        assert one.size == (tmp_path / "out" / one.file).stat().st_size
    (tmp_path / "out" / "README.md").write_text(f"{card}\n## Mix\n\nHalf BM25.\n")
    again = rerank.export_model(tmp_path / "out", lists, tmp_path / "again")
    card = (tmp_path / "again" / "README.md").read_text()
    assert card.count("## Exported files") == len(again) == 1 and "\n## Mix\n\nHalf BM25.\n" in card


@needs_onnx
def test_ndcg_of_int8_is_that_of_its_scores(best: Path, lists: Lists, tmp_path: Path) -> None:
    found = rerank.export_model(best, lists, tmp_path / "out", ["onnx-int8"], depth=7, force=True)[1].beside
    some, model = lists.top(7), CrossEncoder(str(best))
    inputs = model.inputs(some)
    run = graphs.opened(tmp_path / "out" / "onnx/model_qint8_avx512_vnni.onnx")
    scores = graphs.scores_of(run, inputs, some.row_numbers)
    runs = {"small": scores, "whole": model.text_scores(pairs_of(some), precision="fp32")}
    table = rerank.evaluate(some, runs, "nDCG@10").to_dataframe().set_index("run")["mean"]
    assert (found.ours, found.first) == (pytest.approx(table["small"]), pytest.approx(table["whole"]))
    assert found.difference == pytest.approx(table["small"] - table["whole"])


SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
SIZES |= {"pad_token_id": 0, "max_position_embeddings": 128}
KINDS = {
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48},
    "modernbert": {**SIZES, "local_attention": 8, "initializer_cutoff_factor": 20.0},
    "roberta": {**SIZES, "type_vocab_size": 1},
}


@needs_onnx
@pytest.mark.parametrize("kind", KINDS)
def test_other_architectures(kind: str, lists: Lists, tmp_path: Path) -> None:
    """Without token types, with positions that begin behind the padding's, with local attention."""
    folder = make_model(tmp_path / "model")
    vocabulary = len(AutoTokenizer.from_pretrained(folder))
    config = AutoConfig.for_model(kind, vocab_size=vocabulary, initializer_range=0.2, **KINDS[kind])
    AutoModel.from_config(config).save_pretrained(folder)
    CrossEncoder(str(folder), query_length=8, document_length=64).save(tmp_path / "best")
    (found,) = rerank.export_model(tmp_path / "best", lists, tmp_path / "out")
    pairs = pairs_of(lists)
    ours = CrossEncoder(str(tmp_path / "best")).text_scores(pairs, precision="fp32")
    np.testing.assert_allclose(by_onnxruntime(tmp_path / "out", found.file, pairs), ours, atol=1e-5)


@needs_openvino
def test_openvino_scores_what_is_exported_as_the_model_does(best: Path, lists: Lists, tmp_path: Path) -> None:
    import openvino

    found = rerank.export_model(best, lists, tmp_path / "out", ["openvino", "openvino-int8"], force=True)
    assert [one.file.split("/")[0] for one in found] == ["onnx", "openvino", "openvino"]
    compiled = openvino.compile_model(str(tmp_path / "out" / found[1].file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    short = [(query, " ".join(text.split()[:12])) for query, text in pairs_of(lists)]
    tokens = AutoTokenizer.from_pretrained(tmp_path / "out")(short, padding=True, return_tensors="np")
    ours = CrossEncoder(str(best)).text_scores(short, precision="fp32")
    np.testing.assert_allclose(compiled(dict(tokens))["logits"][:, 0], ours, atol=1e-5)
    assert found[2].size < 0.5 * found[1].size


@needs_onnx
def test_what_was_exported_is_verified_with_the_model(best: Path, lists: Lists, tmp_path: Path) -> None:
    rerank.export_model(best, lists, tmp_path / "out")
    assert verify(tmp_path / "out") == [f"{tmp_path / 'out'}: model"]
    graph = tmp_path / "out" / "onnx/model.onnx"
    graph.write_bytes(graph.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"model\.onnx: damaged"):
        verify(tmp_path / "out")


@needs_onnx
def test_a_file_that_scores_otherwise_is_refused_and_nothing_is_left(
    best: Path, lists: Lists, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits are tightened until the real files fail them."""
    limits = import_module("rerank.tasks.export_model")
    monkeypatch.setattr(limits, "OFF", 0.0)
    with pytest.raises(UserError, match=r"onnx/model\.onnx: a score is .* off the model's own, more than 0"):
        rerank.export_model(best, lists, tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(limits, "LOSS", -1.0)
    with pytest.raises(UserError, match=r"vnni\.onnx: loses .* nDCG@10, more than -1; leave onnx-int8 out of"):
        rerank.export_model(best, lists, tmp_path / "out", ["onnx-int8"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "model"]


def test_bad_input(best: Path, lists: Lists, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "model"
    settings = {"query_length": 8, "document_length": 24}
    CrossEncoder(str(folder), head="cls", **settings).save(tmp_path / "cls")  # type: ignore[arg-type]
    CrossEncoder(str(folder), long="max", **settings).save(tmp_path / "long")  # type: ignore[arg-type]
    CrossEncoder(str(folder), start="bm25", **settings).save(tmp_path / "start")  # type: ignore[arg-type]
    decoder = make_decoder(tmp_path / "qwen")
    Decoder(str(decoder), template="plain").save(tmp_path / "decoder")
    where = str(lists.store.folder)

    def refused(match: str, *words: str, model: str = "best") -> None:
        capsys.readouterr()
        named = ["--model", str(tmp_path / model)] if model else []
        assert main(["export", *named, "--lists", where, "--output", str(tmp_path / "out"), *words]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert match in line, line
        assert not (tmp_path / "out").exists()

    refused("a decoder is not exported", model="decoder")
    refused("has a cls head, which only rerank computes", model="cls")
    refused("has long max, which only rerank computes", model="long")
    refused("starts from bm25, which an exported file does not read", model="start")
    refused("has no trained head", model="model")
    refused("no such model folder", model="nowhere/at/all")
    refused("tflite", "--formats", "tflite")
    refused("--column: has no effect with --model", "--column", "bm25")
    refused("--formats: is for exporting a model; add --model FOLDER", "--formats", "onnx", model="")
    with pytest.raises(UserError, match=r"formats\[0\]: expected 'onnx', .*, not 'tflite'"):
        rerank.export_model(best, lists, tmp_path / "out", ["tflite"])  # type: ignore[list-item]
    frame = lists.to_dataframe().drop(columns="grade")
    with pytest.raises(UserError, match=r"onnx-int8 is judged by nDCG@10, and .* has no judgments; give --force"):
        rerank.export_model(best, Lists.from_dataframe(frame), tmp_path / "out", ["onnx-int8"])
