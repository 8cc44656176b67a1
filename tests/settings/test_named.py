"""No name that is called before it is known: every door that takes an import path, against what it must not call."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
import yaml

import rerank
from rerank.collections import open_collection, read_qrels, read_queries
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.features.normalise import find_normaliser
from rerank.settings.described import find_class
from rerank.training.configuration import check, configured, data_of
from tests.builders import make_lists

HOSTILE = '''
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rerank.features.normalise import Normaliser
from rerank.lists.data import Data
from rerank.lists.sampling import Sampler
from rerank.losses import ListNet
from rerank.losses.base import Loss
from rerank.losses.terms import Schedule
from rerank.losses.terms import Scaling
from rerank.measures import Measure
from rerank.models.base import Model
from rerank.relaxations.base import Relaxation

calls = []

def record(*args, **kwargs):
    calls.append((args, kwargs))

class Other:
    """Of another kind, and it takes everything."""

    def __init__(self, *args, **kwargs):
        record()

class Partly:
    """Some of a collection."""

    def __init__(self, *args, **kwargs):
        record()

    def documents(self):
        record()

class Instance:
    def __call__(self, *args, **kwargs):
        record()

class Made(type):
    def __call__(cls, *args, **kwargs):
        record()

class OfMeta(metaclass=Made):
    pass

instance, partial, anonymous = Instance(), functools.partial(record), lambda *args, **kwargs: record()
method, bound = Other.__init__, Instance().__call__

def factory(kind):
    """A function that says it makes what is wanted."""

    def make(*args: Any):
        record()

    make.__annotations__["return"] = kind
    return make

a_loss, a_model, a_sampler, some_data, a_normaliser = map(factory, (Loss, Model, Sampler, Data, Normaliser))
a_relaxation, a_schedule, a_scaling, a_measure = map(factory, (Relaxation, Schedule, Scaling, Measure))

class Untyped(ListNet):
    """A loss with an argument that may be anything."""

    def __init__(self, thing=None, things: Any = None, more: list | None = None, table: dict | None = None):
        super().__init__()
'''

OWN = [
    *("record", "Other", "Partly", "instance", "OfMeta", "partial", "anonymous", "method", "bound"),
    *("a_loss", "a_model", "a_sampler", "some_data", "a_normaliser", "a_relaxation", "a_schedule", "a_scaling"),
    *("a_measure", "calls", "nothing"),
]
REAL = [
    *("os.mkdir", "os.system", "subprocess.Popen", "subprocess.run", "builtins.eval", "builtins.exec"),
    *("builtins.print", "shutil.rmtree", "pathlib.Path.unlink", "pathlib.Path", "importlib.import_module"),
    *("pickle.loads", "functools.partial", "json", "no_such_module.Thing", "rerank.losses.ListNett"),
]

MODEL = {"class_path": "MLP"}
DATA = {"class_path": "ListsData", "init_args": {"train": "lists"}}
LOSS = {"class_path": "ListNet"}


def settings(**changes: Any) -> dict[str, Any]:
    return {"data": DATA, "model": MODEL, "loss": LOSS} | changes


def loss(name: str, **arguments: Any) -> dict[str, Any]:
    return {"class_path": name, "init_args": arguments}


def term(**changes: Any) -> dict[str, Any]:
    return settings(loss=loss("Terms", terms=[{"loss": LOSS} | changes]))


def command(*words: str) -> None:
    """The command line, which says what it refuses on standard error, as an exception."""
    with redirect_stderr(io.StringIO()) as said:
        code = main(list(words))
    if code == 2:
        raise UserError(said.getvalue().strip())


def experiment_of(**changes: Any) -> None:
    Path("experiment.yaml").write_text(
        yaml.safe_dump({"output": "x", "base": settings(), "methods": {"a": {}}} | changes)
    )
    command("experiment", "--config", "experiment.yaml", "--dry-run")


Door = Callable[[Any], Any]
"""Takes a name, or a class with arguments as YAML has them."""

TEXT: dict[str, Callable[[str], Any]] = {
    "collection with an argument": lambda name: open_collection(f"{name}:made"),
    "retrieve on the command line": lambda name: command("retrieve", "--collection", f"{name}:made", "--output", "x"),
    "queries": lambda name: list(read_queries(f"{name}:made")),
    "qrels": lambda name: read_qrels(f"{name}:made"),
    "evaluate": lambda name: rerank.evaluate(f"{name}:made", {"a": {"q": {"d": 1.0}}}),
    "measure": lambda name: rerank.DirectMetric(f"{name}(path='made')", rerank.SmoothI()),
    "monitor": lambda name: check(settings(monitor=f"{name}@10")),
    "measures": lambda name: rerank.evaluate({"q": {"d": 1}}, {"a": {"q": {"d": 1.0}}}, measures=f"{name}@1"),
    "a saved normaliser": lambda name: find_normaliser(name),
    "rerank show losses": lambda name: command("show", "losses", name),
    "tracker": lambda name: command(
        *("train", "--data=ListsData", "--data.train=lists", "--model=MLP", "--loss=ListNet", "--output=x"),
        f"--tracker=[{name}]",
    ),
}
CLASS: dict[str, Door] = {
    "data": lambda value: configured(settings(data=value)),
    "data alone": lambda value: data_of({"data": value}),
    "model": lambda value: configured(settings(model=value)),
    "loss": lambda value: configured(settings(loss=value)),
    "loss, checked": lambda value: check(settings(loss=value)),
    "sampler": lambda value: configured(settings(sampler=value)),
    "optimization": lambda value: configured(settings(optimization=value)),
    "relaxation": lambda value: configured(settings(loss=loss("DirectMetric", measure="nDCG", relaxation=value))),
    "term": lambda value: configured(settings(loss=loss("Terms", terms=[value]))),
    "a term's loss": lambda value: configured(term(loss=value)),
    "schedule": lambda value: configured(term(weight=value)),
    "scaling": lambda value: configured(term(target="bm25", scaling=value)),
    "normaliser": lambda value: configured(settings(model=MODEL | {"init_args": {"normalise": [value]}})),
}
EXPERIMENT: dict[str, Door] = {
    "base": lambda value: experiment_of(base=settings(loss=value)),
    "method": lambda value: experiment_of(methods={"a": {"set": {"loss": value}}}),
    "search": lambda value: experiment_of(methods={"a": {"search": {"loss": [value]}}}),
    "refit": lambda value: experiment_of(refit={"loss": value}),
}
UNTYPED: dict[str, Door] = {
    "untyped": lambda value: configured(settings(loss=loss("hostile.Untyped", thing=value))),
    "any": lambda value: configured(settings(loss=loss("hostile.Untyped", things=value))),
    "a list": lambda value: configured(settings(loss=loss("hostile.Untyped", more=[value]))),
    "a dictionary": lambda value: configured(settings(loss=loss("hostile.Untyped", table={"a": value}))),
}


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of hostile names, in the working directory; afterwards nothing was called."""
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


def refuses(door: Door, value: Any) -> None:
    """Assert that a door refuses a name in one line."""
    with pytest.raises(UserError) as caught:
        door(value)
    assert "\n" not in str(caught.value), caught.value


NAMES = [*(f"hostile.{name}" for name in OWN), *REAL]

CALLS = [
    loss("os.mkdir", path="made"),
    loss("os.system", command="touch made"),
    loss("subprocess.Popen", args=["touch", "made"]),
    loss("subprocess.run", popenargs=["touch made"], shell=True),
    loss("builtins.exec", source="open('made', 'w')"),
    loss("functools.partial", func="hostile.record"),
    loss("hostile.Other", any="thing"),
    loss("hostile.a_loss"),
]


FEW = [{"class_path": f"hostile.{name}"} for name in ("record", "instance", "a_loss", "OfMeta")]
DOORS: dict[str, tuple[Door, list[Any]]] = {
    **{name: (door, NAMES) for name, door in TEXT.items()},
    **{name: (door, [*NAMES, *CALLS]) for name, door in CLASS.items()},
    **{name: (door, [*CALLS, *FEW]) for name, door in EXPERIMENT.items()},
}


FEW_DOORS = ("loss", "relaxation", "model", "tracker", "base", "untyped")


def doors(names: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrise over doors, most of them in the slow tier."""
    slow = pytest.mark.slow
    return pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in FEW_DOORS else slow) for n in names])


@doors(DOORS)
def test_what_is_named_is_not_called(name: str, hostile: Any) -> None:
    door, values = DOORS[name]
    for value in values:
        refuses(door, value)


@doors(UNTYPED)
def test_values_without_a_type_are_not_called(name: str, hostile: Any) -> None:
    for value in [*({"class_path": name} for name in NAMES), *CALLS]:
        try:
            UNTYPED[name](value)
        except UserError as error:
            assert "\n" not in str(error)


def test_an_object_is_no_class(hostile: Any) -> None:
    hostile.ready = rerank.ListNet()
    with pytest.raises(UserError, match="loss: names an object of ListNet; name the class"):
        configured(settings(loss="hostile.ready"))


def test_what_is_wanted_is_found(hostile: Any) -> None:
    assert isinstance(configured(settings(loss="hostile.Untyped")).loss, hostile.Untyped)
    assert find_class("rerank.losses.ListNet", rerank.losses.Loss, "loss") is rerank.ListNet
    experiment_of(base=settings(model={"class_path": "rerank.models.vectors.mlp.MLP"}, **{"model.hidden": [3]}))


def test_a_contract_imports_nothing(hostile: Any) -> None:
    for name in ("antigravity.Thing", "this.Thing"):
        refuses(lambda path: find_normaliser(path), name)
        assert name.partition(".")[0] not in sys.modules
