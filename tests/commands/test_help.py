"""What people see before anything runs: help, lists of what there is, and refusals."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from rerank.collections.names import PREFIXES
from rerank.commands.cli import COMMANDS, main, usage
from rerank.commands.options import EMPTY, PAGES, option
from rerank.commands.show import explain, show
from rerank.commands.train_help import page
from rerank.features.normalise import NORMALISERS
from rerank.losses import load_all, load_parts
from rerank.measures.names import MEASURES
from rerank.models.load import MODELS
from rerank.relaxations import load_all as load_relaxations
from rerank.training.config import Optimization, TrainConfig
from rerank.training.configuration import DATA
from tests.forked import python


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if re.match(r"  \S", line)]


def test_train_help_fits_a_screen_and_names_every_option_once() -> None:
    lines = page().splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    needed = ["data", "model", "loss"]
    whole = [field.name for field in fields(TrainConfig) if field.name not in (*needed, "optimization")]
    whole += [f"optimization.{field.name}" for field in fields(Optimization)]
    for key in (*needed, "output"):
        assert f"  --{key} " in page(), key
    options = re.findall(
        r"--([\w.]+)(?= |\n)", page().partition("options, with their defaults")[2].partition("\n\n")[0]
    )
    assert sorted(options) == sorted(whole)
    assert all(f" {name}" in page() for name in (*DATA, *MODELS))


def test_help_does_not_import_torch() -> None:
    shown = {
        "--help": "usage: rerank",
        "retrieve --help": "usage: rerank",
        "auto --help": "usage: rerank",
        "experiment --help": "usage: rerank",
        "train --help": "--optimization.encoder_lr 2e-05",
        "train --help all": "learning rate of the encoder",
        "experiment --methods.help": "--methods.search",
        "show collections": "files:DIR",
    }
    code = f"""
import sys
from rerank.commands.cli import main
for words in {[*shown]!r}:
    print("command:", words)
    try: main(words.split())
    except SystemExit: pass
    assert "torch" not in sys.modules, words
"""
    outputs = python(code).stdout.split("command: ")[1:]
    for output, (words, expected) in zip(outputs, shown.items(), strict=True):
        assert output.startswith(words) and expected in output


@pytest.mark.parametrize("command", [name for name in COMMANDS if name != "train"])
def test_command_help_fits_80_columns_without_markup_and_types(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its examples and groups name options that there are."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: rerank {command}")
    assert max(map(len, text.splitlines())) <= 80
    for noise in ("``", ":class:", "type:", "Optional[", "null", "{true,false}"):
        assert noise not in text
    written = re.findall(r"^  --(\S+)", text, re.MULTILINE)
    assert len(written) == len(set(written))
    assert command == "experiment" or not any("_" in name for name in written)
    shown = PAGES.get(command, EMPTY)
    assert all(f"  {line}\n" in text for line in shown.examples.splitlines())
    for name in re.findall(r"--[a-z][a-z0-9_-]*", shown.examples):
        assert f"  {name} " in text or f"  {name}\n" in text, name
    assert {option(key) for keys in shown.groups.values() for key in keys} <= {
        f"--{n}".replace("_", "-") for n in written
    }


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--model.help", "MLP"], ["usage: rerank train --model MLP", "--model.preset", "--model.columns"]),
        (["--model.help=CrossEncoder"], ["needed", "--model.name", "--model.document_length"]),
        (["--sampler.help", "Pairs"], ["--sampler.n N", "--sampler.same_query"]),
        (["--data.help", "FoldsData"], ["--data.lists", "--data.fold"]),
        (["--loss.help", "LambdaLoss"], ["LambdaLoss(weighting='ndcg2++'", "Source: Wang et al."]),
    ],
)
def test_train_help_explains_classes(words: list[str], shown: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *words]) == 0
    text = capsys.readouterr().out
    assert all(word in text for word in shown), text
    assert ":class:" not in text and "``" not in text


def test_train_help_all_names_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--help", "all"]) == 0
    text = capsys.readouterr().out
    assert "--batch_size N\n" in text and "--micro_batch_size N\n" in text


def test_usage_lists_all_commands() -> None:
    assert set(PAGES) <= {*COMMANDS}
    assert {*COMMANDS} <= {*first_words(usage())}
    assert max(map(len, usage().splitlines())) <= 80


@pytest.mark.parametrize("name", [*load_all(), *load_relaxations()])
def test_explain_prints_a_docstring_without_markup(name: str) -> None:
    text = explain(name)
    assert text.startswith(f"{name}(")
    assert not re.search(r":\w+:`|``|\.\. math", text)


def test_show_lists_every_name() -> None:
    assert first_words(show("losses")) == [*load_all(), *load_relaxations(), *load_parts()]
    assert first_words(show("models")) == [*MODELS, *NORMALISERS]
    assert first_words(show("measures")) == [*MEASURES]
    assert set(first_words(show("collections"))) == {"an", "demo", *PREFIXES}


DATA_ALONE = ["train", "--data=ListsData", "--data.train=lists", "--output=out"]
START = [*DATA_ALONE, "--model=CrossEncoder", "--model.name=m"]
LISTNET = [*START, "--loss=ListNet"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "--data, --model, --output: needed, here or in a --config FILE"),
        (["train", "--loss=SmoothI"], "loss: unknown loss 'SmoothI' (did you mean 'SmoothINDCG'?)"),
        (["train", "--lr=1"], "did you mean '--optimization.encoder_lr'?"),
        (["retrieve"], "--output: needed"),
        (["experiment"], "--output, --base, --methods: needed"),
        (["lists"], "FOLDER: missing; see rerank lists --help"),
        (["show", "loss"], "what: expected losses, models, measures or collections, not loss"),
        (["show", "losses", "SmothINDCG"], "unknown loss (did you mean 'SmoothINDCG'?)"),
        (["show", "models", "MLP"], "MLP: only losses are explained"),
        ([*LISTNET, "--loss.temprature=3"], "loss.temprature: ListNet has no temprature (did you mean 'temper"),
        ([*LISTNET, "--loss.temperature=abc"], "loss.temperature: expected a number, not abc"),
        ([*LISTNET, "--loss.reduction=all"], "loss.reduction: expected mean, sum or none, not all"),
        (
            [*START, "--loss=DirectMetric", "--loss.relaxation=SmootI"],
            "unknown relaxation 'SmootI' (did you mean 'SmoothI'",
        ),
        (
            [*START, "--loss=DirectMetric", "--loss.measure=nDCG", "--loss.relaxation=SmoothI", "--loss.alpha=3"],
            "loss.alpha: DirectMetric has no alpha (did you mean '--loss.relaxation.alpha'?)",
        ),
        ([*LISTNET, "--model=CrosEncoder"], "model: unknown model 'CrosEncoder' (did you mean 'CrossEncoder'?)"),
        ([*LISTNET, "--model.query_length=q"], "model.query_length: expected a whole number, not q"),
        ([*LISTNET, "--tracker=x"], "tracker: expected a list, not x"),
        ([*START, "--num_train_epochs=1"], "--num_train_epochs: unknown option (did you mean '--epochs'?)"),
        ([*START, "--bf16"], "(did you mean '--precision'?)"),
        ([*START, "--optimisation.encoder_lr=1"], "did you mean '--optimization.encoder_lr'?"),
        ([*DATA_ALONE, "--model.name=m"], "model: "),
        ([*DATA_ALONE, "--model=CrossEncoder"], "model: CrossEncoder needs name; give --model.name"),
    ],
)
def test_parser_errors_are_readable(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    for riddle in ("Union", "Subtypes", "class_path", "Parser key", "NestedArg"):
        assert riddle not in line
