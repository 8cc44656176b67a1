"""``rerank rerank --stdin``: every line is answered by one line of JSON, whatever it holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rerank
from rerank.commands.cli import main
from rerank.models.base import Model
from rerank.models.load import load_model
from rerank.models.mixed import write_ranker
from tests.builders import answers, make_rankers


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("answers")
    found = make_rankers(place)
    write_ranker(found["text"], {"bm25": 0.3, "dense": 0.2}, 0.5, place / "mixed")
    return found | {"mixed": place / "mixed"}


@pytest.fixture(scope="module")
def models(folders: dict[str, Path]) -> dict[str, Model]:
    return {name: load_model(folder) for name, folder in folders.items()}


TEXT = '{"query": "a wing", "documents": ["jet", "wing"]}'
COLUMN = '{"query": "a wing", "documents": ["jet", "wing"], "columns": {"bm25": [2, 1]}}'
VECTOR = '{"features": [[1, 0], [0, 1]]}'
MIXED = TEXT[:-1] + ', "columns": {"bm25": [2, 1], "dense": [null, 1]}}'
GOOD = {"text": TEXT, "start": COLUMN, "mlp": VECTOR, "trees": VECTOR, "mixed": MIXED}
LARGE = "9" * 400
LINES: list[tuple[str, str | bytes, str]] = [
    # what is no line of ours
    ("text", b"\xff\xfe{}", "not JSON"),
    ("text", TEXT.replace("jet", "caf\xe9").encode("latin-1"), "not JSON"),
    ("text", TEXT + TEXT, "not JSON"),
    ("text", "[" * 100_000, "not JSON"),
    ("text", '{"top_k": ' + "9" * 5000 + "}", "not JSON"),
    ("text", "null", "not a JSON object"),
    ("text", "NaN", "not a JSON object"),
    # keys
    ("text", '{"querry": "a", "documents": []}', "did you mean 'query'"),
    ("text", COLUMN, "columns: this model reads no such key"),
    ("mlp", TEXT, "query: this model reads no such key"),
    ("mlp", "{}", "features: expected a list"),
    ("text", "{}", "query: expected a text"),
    ("text", '{"\\ud800": 1}', "no such key"),
    # queries and documents
    ("text", '{"query": null, "documents": []}', "query: expected a text"),
    ("text", '{"query": "\\ud800", "documents": ["a"]}', "query: has half of a character at 0"),
    ("text", '{"query": "a", "documents": "b"}', "documents: expected a list"),
    ("text", '{"query": "a", "documents": ["b", 5]}', "documents: number 1: expected a text"),
    ("text", '{"query": "a", "documents": [{"id": 1}]}', "documents: number 0: expected a text"),
    ("text", '{"query": "a", "documents": ["x\\udc00"]}', "documents: number 0: has half of a character at 1"),
    ("text", '{"query": "a", "documents": ["b"], "documents": 5}', "documents: expected a list"),
    # top_k and what is returned
    *(
        ("text", TEXT[:-1] + f', "top_k": {value}}}', "top_k: expected a whole number from 1")
        for value in ("true", "0", "-1", "1.0", '"1"', "NaN")
    ),
    ("text", TEXT[:-1] + ', "request": NaN}', "cannot be returned"),
    ("text", TEXT[:-1] + ', "request": 1e999}', "cannot be returned"),
    ("text", TEXT[:-1] + ', "request": "\\ud800"}', "cannot be returned"),
    ("text", '{"query": "a", "documents": [{"id": NaN, "text": "b"}]}', "cannot be returned"),
    # columns
    ("start", TEXT, "give its scores"),
    *(
        ("start", TEXT[:-1] + f', "columns": {value}}}', message)
        for value, message in (
            ("[1]", "columns: expected an object"),
            ("{}", "give its scores"),
            ('{"BM25": [1, 2]}', "give its scores"),
            ('{"bm25": 5}', "columns: bm25: expected a list"),
            ('{"bm25": [1]}', "has 1 numbers"),
            ('{"bm25": [1, true]}', "value 1 is True"),
            ('{"bm25": [1, Infinity]}', "value 1 is inf"),
            ('{"bm25": [1, 2], "other": [1, "x"]}', "columns: other: value 1"),
        )
    ),
    ("mixed", TEXT, "column bm25; give its scores of the documents; or rank by the model alone: --no-mix"),
    ("mixed", COLUMN, "the ranker mixes in column dense; give its scores"),
    ("mixed", MIXED.replace("null, ", ""), "dense has 1 numbers, there are 2 documents"),
    # features
    *(
        (name, f'{{"features": {value}}}', message)
        for name in ("mlp", "trees")
        for value, message in (
            ("null", "features: expected a list"),
            ("[1, 2]", "features: number 0: expected a list"),
            ("[[1, 2], [1]]", "as many numbers"),
            ("[[1]]", "reads 2 features"),
            (f"[[1, -{LARGE}]]", "features: number 0: value 1"),
        )
    ),
]


@pytest.mark.parametrize(("name", "line", "message"), LINES, ids=[f"{i}-{case[2]}" for i, case in enumerate(LINES)])
def test_a_bad_line_is_answered_and_so_is_the_next(
    models: dict[str, Model], name: str, line: str | bytes, message: str
) -> None:
    bad, good = answers(models[name], line, GOOD[name])
    assert list(bad) == ["error"] and bad["error"].startswith("line 1: ") and message in bad["error"]
    assert len(bad["error"]) < 500 and [row["index"] for row in good["ranking"]] in ([0, 1], [1, 0])


def test_what_may_be_there_is_taken(models: dict[str, Model]) -> None:
    more = {"query": "é", "documents": [{"text": "ö", "id": 0, "url": "x"}, "b"], "top_k": int(LARGE), "request": "ü"}
    answer, nothing, marked = answers(
        models["text"], json.dumps(more), '{"query": "", "documents": []}', b"\xef\xbb\xbf" + TEXT.encode()
    )
    assert answer["request"] == "ü" and {row.get("id") for row in answer["ranking"]} == {0, None}
    assert nothing == {"ranking": []} and len(marked["ranking"]) == 2
    assert answers(models["mlp"], '{"features": []}') == [{"ranking": []}]
    empty = '{"query": "a", "documents": [], "columns": {"bm25": [], "dense": []}}'
    assert answers(models["mixed"], empty) == [{"ranking": []}]
    lacking = '{"query": "a", "documents": ["b", "c"], "columns": {"bm25": [null, 1], "others": [1, 2]}}'
    assert len(answers(models["start"], lacking)[0]["ranking"]) == 2
    assert "has no value for 1" in answers(models["mlp"], '{"features": [[1, 2], [null, 1]]}')[0]["error"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("query", "documents", "columns", "features", "top_k", "request", "text")


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(sorted(GOOD)), st.dictionaries(st.sampled_from(KEYS), VALUES), st.booleans())
def test_no_line_ends_the_process(models: dict[str, Model], name: str, values: dict[str, Any], whole: bool) -> None:
    line = json.dumps({**json.loads(GOOD[name]), **values} if whole else values)
    answer, good = answers(models[name], line, GOOD[name])
    assert "ranking" in good and set(answer) <= {"request", "ranking", "error"}


def test_a_fault_of_ours_is_an_answer_too(models: dict[str, Model], caplog: pytest.LogCaptureFixture) -> None:
    class Broken(rerank.MLP):
        def predict(self, *_: Any, **__: Any) -> Any:
            raise MemoryError("too much")

    bad, again = answers(Broken(hidden=[4]), VECTOR, VECTOR)
    assert bad == {"error": "line 1: MemoryError (too much)"} and "line 2" in again["error"]
    assert "Traceback" in caplog.text


@pytest.mark.parametrize("option", ["--precision=bf16", "--token-budget=64"])
def test_options_of_networks_are_refused(
    option: str, folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rerank", "--stdin", "--model", str(folders["trees"]), option]) == 2
    assert "LightGBM scores all documents at once" in capsys.readouterr().err


def test_precision_is_honoured(models: dict[str, Model]) -> None:
    def scores(precision: Any) -> list[float]:
        return [row["score"] for row in answers(models["text"], TEXT, precision=precision)[0]["ranking"]]

    assert scores("fp32") != scores("bf16") == pytest.approx(scores("fp32"), abs=0.1)


def test_the_command_reads_and_writes_utf8_in_any_locale(folders: dict[str, Path]) -> None:
    lines = b'{"query": "\xc3\xa9", "documents": ["a"], "request": "\xc3\xa9"}\n\xff\n' + TEXT.encode() + b"\n"
    words = [sys.executable, "-m", "rerank.commands.cli", "rerank", "--stdin", "--model", str(folders["text"])]
    environment = {"PATH": "/usr/bin", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HOME": "/tmp"}
    done = subprocess.run(words, input=lines, capture_output=True, env=environment, check=False)
    first, second, third = map(json.loads, done.stdout.decode().splitlines())
    assert first["request"] == "é" and "line 2: not JSON" in second["error"] and "ranking" in third
    assert done.returncode == 2
