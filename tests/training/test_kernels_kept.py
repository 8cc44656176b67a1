"""A run keeps the ways that it started with, whatever a measurement says later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerank.training import trainer
from tests.builders import make_lists, make_model, train
from tests.forked import together
from tests.training.test_training import assert_same, metrics, weights


class Killed(BaseException):
    """As if the power went out."""


def choose(home: Path, **ways: str) -> None:
    """Let the cache say that these ways are faster."""
    for file in (home / "kernels").glob("*.json"):
        content = json.loads(file.read_text())
        file.write_text(json.dumps(content | {"ways": content["ways"] | ways}))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where measurements are cached; nothing yet."""
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A small training with dropout."""
    make_lists(tmp_path)
    return [
        *("--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--data.validation_share=0.2", "--precision=fp32"),
        *("--model=CrossEncoder", f"--model.name={make_model(tmp_path / 'model', dropout=0.2)}", "--loss=SmoothINDCG"),
        *("--model.query_length=8", "--model.document_length=24", "--sampler.depth=8", "--batch_size=3"),
        *("--epochs=2", "--checkpoint_every=1", "--optimization.encoder_lr=1e-3", "--monitor=nDCG", "--test=false"),
    ]


def test_killed_and_resumed_with_another_choice_in_the_cache(
    words: list[str], home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train([*words, f"--output={tmp_path / 'first'}"])  # measures
    choose(home, scoring="torch", training="own", dropped="own", dropout="own")
    train([*words, f"--output={tmp_path / 'whole'}"])
    assert json.loads((tmp_path / "whole" / "kernels.json").read_text())["dropped"] == "own"

    save = trainer.save_checkpoint

    def killed(folder: Path, state: trainer.State, *rest: object) -> None:
        save(folder, state, *rest)  # type: ignore[arg-type]
        if state.step == 3:
            raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(trainer, "save_checkpoint", killed)
        train([*words, f"--output={tmp_path / 'halves'}"])
    choose(home, scoring="own", training="torch", dropped="torch", dropout="torch")
    train([*words, f"--output={tmp_path / 'halves'}"])
    assert_same(weights(tmp_path / "halves"), weights(tmp_path / "whole"))
    assert metrics(tmp_path / "halves") == metrics(tmp_path / "whole")
    assert "as the run started" in (tmp_path / "halves" / "log.txt").read_text()

    train([*words, f"--output={tmp_path / 'other'}"])
    with pytest.raises(AssertionError):
        assert_same(weights(tmp_path / "other"), weights(tmp_path / "whole"))
    train([*words, "--kernels=own", f"--output={tmp_path / 'told'}"])
    assert_same(weights(tmp_path / "told"), weights(tmp_path / "whole"))


def test_what_is_configured_is_measured_by_no_process(words: list[str], home: Path, tmp_path: Path) -> None:
    """Neither the second one nor the best model, which is loaded in the end, looks for what is faster."""
    words = [*words, "--epochs=1"]
    for number in (1, 2):
        together(number, ["train", *words, "--kernels=own", f"--output={tmp_path / str(number)}"])
        assert not (home / "kernels").exists()
    train([*words, f"--output={tmp_path / 'auto'}"])
    assert any((home / "kernels").iterdir())
