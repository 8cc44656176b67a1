"""The reader that does without Transformers, beside the cross-encoder that it stands in for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.reader import Reader
from tests.builders import make_model

LENGTHS = {"query_length": 8, "document_length": 24}
WORDS = [
    "a",
    "wing",
    "lift;",
    "heat",
    "is",
    "energy",
    "(see",
    "§",
    "2):",
    "naïve",
    "東京",
    "[SEP]",
    "don't",
    "re-enter",
]


@pytest.fixture(scope="module")
def best(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder as training saves it."""
    folder = tmp_path_factory.mktemp("best") / "best"
    CrossEncoder(str(tiny_model), **LENGTHS).save(folder)  # type: ignore[arg-type]
    return folder


@pytest.fixture(scope="module")
def both(best: Path) -> tuple[Reader, CrossEncoder]:
    reader = Reader.open(best)
    assert reader is not None
    return reader, CrossEncoder(str(best))


texts = st.one_of(st.lists(st.sampled_from(WORDS), max_size=40).map(" ".join), st.text(max_size=30))


@settings(max_examples=40)
@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=12))
def test_scores_are_those_of_the_cross_encoder_to_the_last_bit(
    both: tuple[Reader, CrossEncoder], pairs: list[tuple[str, str]]
) -> None:
    reader, whole = both
    assert np.array_equal(reader.predict(pairs), whole.predict(pairs))


def test_scores_differ_between_documents(both: tuple[Reader, CrossEncoder]) -> None:
    scores = both[0].predict([("a wing", word) for word in WORDS])
    assert len(set(scores.tolist())) == len(WORDS)


def test_it_needs_neither_transformers_nor_pytorchs_compiler(best: Path) -> None:
    code = f"""
import sys
from rerank.models.text.reader import Reader
Reader.open({str(best)!r}).predict([("a wing", "gives lift"), ("a wing", "is heavy, and so are its two engines")])
print({{"transformers", "torch._dynamo", "accelerate"}} & sys.modules.keys())
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    "other",
    [{"head": "cls"}, {"long": "max", "document_length": 200}, {"start": "bm25"}],
    ids=["head", "long", "start"],
)
def test_other_models_are_left_to_the_cross_encoder(tiny_model: Path, tmp_path: Path, other: dict[str, object]) -> None:
    CrossEncoder(str(tiny_model), **LENGTHS | other).save(tmp_path / "best")  # type: ignore[arg-type]
    assert Reader.open(tmp_path / "best") is None
    assert Reader.open(tiny_model) is None, "not trained here"


def test_a_damaged_model_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    CrossEncoder(str(make_model(tmp_path / "model")), **LENGTHS).save(tmp_path / "best")  # type: ignore[arg-type]
    weights = tmp_path / "best" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(UserError, match=r"model\.safetensors"):
        Reader.open(tmp_path / "best")
