"""Import paths in configurations and options call classes of the right kind only."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import yaml

import rerank
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.features.normalise import find_normaliser
from rerank.settings.arguments import find_class
from rerank.training.configuration import check, configured, data_of
from tests.builders import make_lists

HOSTILE = '''
import functools
from typing import Any

from rerank.losses import ListNet
from rerank.losses.base import Loss

calls = []

def record(*args, **kwargs):
    calls.append((args, kwargs))

class Other:
    """A class of another kind that takes everything."""

    def __init__(self, *args, **kwargs):
        record()

class Made(type):
    def __call__(cls, *args, **kwargs):
        record()

class OfMeta(metaclass=Made):
    pass

partial = functools.partial(record)

def a_loss(*args: Any) -> Loss:
    """Say that a loss is returned."""
    record()

class Untyped(ListNet):
    """A loss with arguments that may be anything."""

    def __init__(self, thing=None, things: Any = None, more: list | None = None, table: dict | None = None):
        super().__init__()
'''

NAMES = [
    *(f"hostile.{name}" for name in ("record", "Other", "OfMeta", "partial", "a_loss", "calls", "nothing")),
    *("os.mkdir", "subprocess.Popen", "builtins.eval", "pathlib.Path", "json", "no_such_module.Thing"),
]
CALLS = [
    {"class_path": "os.mkdir", "init_args": {"path": "made"}},
    {"class_path": "functools.partial", "init_args": {"func": "hostile.record"}},
    {"class_path": "hostile.Other", "init_args": {"any": "thing"}},
]
LOSS = {"class_path": "ListNet"}
Door = Callable[[Any], Any]


def settings(**changes: Any) -> dict[str, Any]:
    data = {"class_path": "ListsData", "init_args": {"train": "lists"}}
    return {"data": data, "model": {"class_path": "MLP"}, "loss": LOSS} | changes


def loss(name: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": name, "init_args": arguments}


def command(*words: str) -> None:
    """Run a command, and raise its error."""
    with redirect_stderr(io.StringIO()) as said:
        code = main(list(words))
    if code == 2:
        raise UserError(said.getvalue().strip())


def experiment_of(**changes: Any) -> None:
    content = {"output": "x", "base": settings(), "methods": {"a": {}}} | changes
    Path("experiment.yaml").write_text(yaml.safe_dump(content))
    command("experiment", "--config", "experiment.yaml", "--dry-run")


DOORS: dict[str, tuple[Door, list[Any]]] = {
    "measure": (lambda name: rerank.DirectMetric(f"{name}(path='made')", rerank.SmoothI()), NAMES),
    "saved normaliser": (lambda name: find_normaliser(name), NAMES),
    "data": (lambda value: data_of({"data": value}), [*NAMES, *CALLS]),
    "model": (lambda value: configured(settings(model=value)), [*NAMES, *CALLS]),
    "loss": (lambda value: configured(settings(loss=value)), [*NAMES, *CALLS]),
    "loss, checked": (lambda value: check(settings(loss=value)), [*NAMES, *CALLS]),
    "relaxation": (
        lambda value: configured(settings(loss=loss("DirectMetric", measure="nDCG", relaxation=value))),
        [*NAMES, *CALLS],
    ),
    "term": (lambda value: configured(settings(loss=loss("Terms", terms=[value]))), [*NAMES, *CALLS]),
    "search": (lambda value: experiment_of(methods={"a": {"search": {"loss": [value]}}}), CALLS),
}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import the hostile module; afterwards nothing was called."""
    (tmp_path / "hostile.py").write_text(HOSTILE)
    make_lists(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("hostile", None)
    import hostile

    there = sorted(tmp_path.iterdir())
    yield hostile
    assert hostile.calls == []
    assert set(tmp_path.iterdir()) - set(there) <= {tmp_path / "experiment.yaml", tmp_path / "__pycache__"}
    sys.modules.pop("hostile", None)


@pytest.mark.parametrize("name", DOORS)
def test_names_of_other_kinds_are_not_called(name: str, hostile: Any) -> None:
    door, values = DOORS[name]
    for value in values:
        with pytest.raises(UserError) as caught:
            door(value)
        assert "\n" not in str(caught.value), caught.value


def test_objects_are_not_classes(hostile: Any) -> None:
    hostile.ready = rerank.ListNet()
    with pytest.raises(UserError, match="loss: names an object of ListNet; name the class"):
        configured(settings(loss="hostile.ready"))


def test_classes_of_users_are_found(hostile: Any) -> None:
    assert isinstance(configured(settings(loss="hostile.Untyped")).loss, hostile.Untyped)
    assert find_class("rerank.losses.ListNet", rerank.losses.Loss, "loss") is rerank.ListNet


def test_contract_imports_nothing(hostile: Any) -> None:
    for name in ("antigravity.Thing", "this.Thing"):
        with pytest.raises(UserError):
            find_normaliser(name)
        assert name.partition(".")[0] not in sys.modules
