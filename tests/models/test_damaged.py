"""Model folders that are damaged or of another task: no wrong scores, and no code of theirs runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rerank.errors import UserError
from rerank.models.load import load_model
from rerank.models.text.cross_encoder import CrossEncoder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> dict[str, Path]:
    """Saved models by their heads, and one that nobody saved with ours."""
    found = {}
    for head in ("hf", "cls"):
        found[head] = tmp_path_factory.mktemp(head)
        CrossEncoder(str(tiny_model), head=head, query_length=8, document_length=24).save(found[head])  # type: ignore[arg-type]
    found["bare"] = tmp_path_factory.mktemp("bare") / "model"
    shutil.copytree(found["hf"], found["bare"])
    (found["bare"] / "rerank.json").unlink()
    return found


@pytest.fixture
def copied(folders: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: shutil.copytree(folders[name], tmp_path / name)


def change(folder: Path, file: str, **values: Any) -> None:
    """Write other values into a JSON file."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_bytes()) | values))


def refused(folder: Path, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["hf", "cls", "bare"])
def test_load_refuses_a_configuration_of_another_depth(kind: str, copied: Callable[[str], Path]) -> None:
    folder = copied(kind)
    change(folder, "config.json", num_hidden_layers=1)
    refused(folder, "config.json is of a smaller model.*encoder.layer.1")
    change(folder, "config.json", num_hidden_layers=3)
    refused(folder, r"lacks 16 of the encoder's weights, such as .*encoder\.layer\.2")


def test_load_ignores_constants_of_older_versions(copied: Callable[[str], Path]) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = copied("bare")
    path = folder / "model.safetensors"
    weights = load_file(str(path)) | {"bert.embeddings.position_ids": torch.arange(8)[None]}
    save_file(weights, str(path), metadata={"format": "pt"})
    load_model(folder)
    save_file(weights | {"bert.encoder.layer.0.gate": torch.ones(1)}, str(path), metadata={"format": "pt"})
    refused(folder, "without a place for 1 of the weights, such as bert.encoder.layer.0.gate")


CODE = """
from pathlib import Path

from transformers import BertConfig, BertModel

Path(r"PLACE").write_text("it was run")


class Config(BertConfig):
    pass


class Model(BertModel):
    pass
"""


def test_load_does_not_run_code_beside_the_weights(copied: Callable[[str], Path], tmp_path: Path) -> None:
    folder, ran = copied("bare"), tmp_path / "ran"
    (folder / "mine.py").write_text(CODE.replace("PLACE", str(ran)))
    for name, maps in (
        ("config.json", {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["mine.Config", "mine.Config"]}),
    ):
        change(folder, name, auto_map=maps)
    CrossEncoder(str(folder), query_length=8, document_length=16)
    assert not ran.exists()
