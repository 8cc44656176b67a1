"""Help, lists of names and refusals are readable."""

from __future__ import annotations

import re
import shlex
from dataclasses import MISSING, fields
from typing import Any

import pytest
import yaml

from rerank.collections.names import KINDS
from rerank.commands.cli import COMMANDS, main, usage
from rerank.commands.options import EMPTY, PAGES, option
from rerank.commands.show import show
from rerank.commands.train import TRAIN_HELP
from rerank.features.normalise import NORMALISERS
from rerank.losses import LOSSES, PARTS
from rerank.measures.names import MEASURES
from rerank.models.load import MODELS
from rerank.relaxations import RELAXATIONS
from rerank.training.config import Optimization, TrainConfig
from rerank.training.configuration import DATA, SAMPLERS
from tests.forked import python


def first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if re.match(r"  \S", line)]


def defaults(kind: type, prefix: str = "") -> dict[str, Any]:
    """Return the defaults of a data class as YAML writes them, by option."""
    made = {f.name: f.default if f.default_factory is MISSING else f.default_factory() for f in fields(kind)}
    return {prefix + name: value for name, value in made.items() if value is not MISSING}


def test_train_help_fits_a_screen_and_names_every_option_with_its_default() -> None:
    lines = TRAIN_HELP.splitlines()
    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    for key in ("data", "model", "loss", "output"):
        assert f"  --{key} " in TRAIN_HELP, key
    table = TRAIN_HELP.partition("options, with their defaults\n")[2].partition("\n\n")[0].splitlines()
    rows = (shlex.split(line.strip().removeprefix("--")) for line in table)
    shown = {key.replace("-", "_"): value for key, value, *_ in rows}
    expected = defaults(TrainConfig) | defaults(Optimization, "optimization.")
    assert shown.keys() == expected.keys() - {"loss", "optimization"} and shown["sampler"] == "Full"
    for key in shown.keys() - {"sampler"}:
        assert yaml.safe_load(shown[key]) == expected[key] or float(shown[key]) == expected[key], key
    assert all(f" {name}" in TRAIN_HELP for name in (*DATA, *MODELS))


def test_help_does_not_import_torch() -> None:
    shown = {
        "--help": "usage: rerank",
        "retrieve --help": "usage: rerank",
        "auto --help": "usage: rerank",
        "experiment --help": "usage: rerank",
        "train --help": "--optimization.encoder-lr 2e-05",
        "train --help all": "--batch-size N\n",
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
    """Examples and groups name existing options."""
    monkeypatch.setenv("COLUMNS", "80")
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: rerank {command}")
    assert max(map(len, text.splitlines())) <= 80
    for noise in ("``", ":class:", "type:", "Optional[", "null", "{true,false}"):
        assert noise not in text
    written = re.findall(r"^  --(\S+)", text, re.MULTILINE)
    assert len(written) == len(set(written))
    assert not any("_" in name for name in written)
    shown = PAGES.get(command, EMPTY)
    assert all(f"  {line}\n" in text for line in shown.examples.splitlines())
    for name in re.findall(r"--[a-z][a-z0-9_-]*", shown.examples):
        assert f"  {name} " in text or f"  {name}\n" in text, name
    assert {option(key) for keys in shown.groups.values() for key in keys} <= {f"--{name}" for name in written}


def test_usage_lists_all_commands() -> None:
    assert set(PAGES) <= {*COMMANDS}
    assert {*COMMANDS} <= {*first_words(usage())}
    assert max(map(len, usage().splitlines())) <= 80


@pytest.mark.parametrize("what", ["losses", "models", "data", "samplers", "measures", "collections"])
def test_show_explains_every_name_without_markup(what: Any) -> None:
    for name in first_words(show(what)):
        text = show(what, "an id" if name == "an" else name)
        assert text.startswith(f"{name}") and len(text.splitlines()) > 2
        assert not re.search(r":\w+:`|``|\.\. math", text)


def test_show_lists_every_name() -> None:
    assert first_words(show("losses")) == [*LOSSES, *RELAXATIONS, *PARTS]
    assert show("losses", "ListAP").startswith("ListAP(bins=25, rel=1.0)") and "ICCV" in show("losses", "ListAP")
    assert first_words(show("models")) == [*MODELS, *NORMALISERS]
    assert first_words(show("data")) + first_words(show("samplers")) == [*DATA, *SAMPLERS]
    assert first_words(show("measures")) == [*MEASURES]
    assert set(first_words(show("collections"))) == {"an", *KINDS}


DATA_ALONE = ["train", "--data=ListsData", "--data.train=lists", "--output=out"]
START = [*DATA_ALONE, "--model=CrossEncoder", "--model.name=m"]
LISTNET = [*START, "--loss=ListNet"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train"], "--data, --model, --output: needed, here or in a --config FILE"),
        (["train", "--loss=SmoothI"], "loss: unknown loss 'SmoothI' (did you mean 'SmoothINDCG'?)"),
        (["train", "--lr=1"], "did you mean '--optimization.encoder-lr'?"),
        ([*START, "--optimization.lr=1"], "did you mean '--optimization.encoder-lr'?"),
        (["retrieve"], "--output: needed"),
        (["experiment"], "--output, --base, --methods: needed"),
        (["lists"], "FOLDER: missing; see rerank lists --help"),
        (
            ["show", "loss"],
            "'samplers', 'measures' or 'collections', not 'loss'",
        ),
        (["show", "losses", "SmothINDCG"], "SmothINDCG: not one of the losses (did you mean 'SmoothINDCG'?)"),
        ([*LISTNET, "--loss.temprature=3"], "loss.temprature: ListNet has no temprature (did you mean 'temper"),
        ([*LISTNET, "--loss.temperature=abc"], "loss.temperature: expected a number, not 'abc'"),
        ([*LISTNET, "--loss.reduction=all"], "loss.reduction: expected 'mean', 'sum' or 'none', not 'all'"),
        (
            [*START, "--loss=DirectMetric", "--loss.relaxation=SmootI"],
            "unknown relaxation 'SmootI' (did you mean 'SmoothI'",
        ),
        (
            [*START, "--loss=DirectMetric", "--loss.measure=nDCG", "--loss.relaxation=SmoothI", "--loss.alpha=3"],
            "loss.alpha: DirectMetric has no alpha (did you mean '--loss.relaxation.alpha'?)",
        ),
        ([*LISTNET, "--model=CrosEncoder"], "model: unknown model 'CrosEncoder' (did you mean 'CrossEncoder'?)"),
        ([*LISTNET, "--model.query_length=q"], "model.query_length: expected a whole number or None, not 'q'"),
        ([*LISTNET, "--tracker=x"], "tracker: expected a list, not 'x'"),
        ([*START, "--num_train_epochs=1"], "--num_train_epochs: unknown option (did you mean '--epochs'?)"),
        ([*START, "--bf16"], "(did you mean '--precision'?)"),
        ([*START, "--optimisation.encoder_lr=1"], "did you mean '--optimization.encoder-lr'?"),
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
