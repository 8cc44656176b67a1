from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.storage import hashes
from rerank.storage.hashes import (
    LARGE,
    UNSEALED,
    ZEROS,
    check_files,
    check_seal,
    hash_files,
    read_sealed,
    seal,
    sha256_of,
    sha256_of_files,
    write_sealed,
)

ANY_FILE = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(autouse=True)
def _forgotten(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is remembered from other tests."""
    monkeypatch.setattr(hashes, "_memory", {})


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count as old as soon as they are written."""
    monkeypatch.setattr(hashes, "SETTLED", -10.0)


def reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How often the content of a file has been hashed since."""
    seen: list[Path] = []
    plain = hashes._content_hash
    monkeypatch.setattr(hashes, "_content_hash", lambda path: seen.append(path) or plain(path))
    return lambda: seen.count(path)


def rewrite(path: Path, data: bytes) -> None:
    """Other content of the same size, in the same file, its modification time put back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def make_arrow(path: Path, rows: int = 3, columns: int = 3) -> Path:
    """A file that is ready to be sealed, and has the seal's key elsewhere, too."""
    fields = [pa.field(name, pa.int64(), metadata={"sha256": "0"}) for name in ["sha256", *map(str, range(columns))]]
    schema = pa.schema(fields, metadata={"before": "sha256", **UNSEALED, "after": "0"})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(range(rows))] * len(fields), schema=schema))
    return path


def test_the_hash_is_that_of_the_content(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")  # FIPS 180-2, appendix B.1
    assert sha256_of(path) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    path.unlink()
    with pytest.raises(UserError, match="file: no such file"):
        sha256_of(path)
    with pytest.raises(UserError, match=r"cannot be read \(Is a directory\)"):
        sha256_of(tmp_path)


def test_a_file_is_read_once_while_it_stays_the_same(
    tmp_path: Path, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    (tmp_path / "link").symlink_to(path)
    count = reads(path, monkeypatch)
    assert sha256_of(path) == sha256_of(path) == hashlib.sha256(b"one").hexdigest()
    assert count() == 1
    os.utime(path, ns=(0, 10**18))
    sha256_of(path)
    assert count() == 2
    path.write_bytes(b"other")
    assert sha256_of(path) == hashlib.sha256(b"other").hexdigest()
    replaced = tmp_path / "replaced"
    replaced.write_bytes(b"third")
    os.utime(replaced, ns=(0, path.stat().st_mtime_ns))
    replaced.replace(path)
    assert sha256_of(path) == hashlib.sha256(b"third").hexdigest()


def test_nothing_is_remembered_of_a_file_that_has_just_been_written(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "file"
    for content in (b"one", b"two", b"six"):  # within one tick of the clock, perhaps
        path.write_bytes(content)
        assert sha256_of(path) == hashlib.sha256(content).hexdigest()
    path.write_bytes(bytes(LARGE))
    sha256_of(path)
    assert not (home / "hashes").exists()


def test_large_files_are_remembered_by_other_processes(
    tmp_path: Path, home: Path, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(bytes(LARGE - 1))
    large.write_bytes(bytes(LARGE))
    expected = hash_files(tmp_path, ["small", "large"])
    assert len(list((home / "hashes").iterdir())) == 1
    hashes._memory.clear()
    count = reads(large, monkeypatch)
    assert sha256_of(large) == expected["large"]
    assert count() == 0
    hashes._memory.clear()
    rewrite(large, b"x")
    assert sha256_of(large) == hashlib.sha256(b"x" + bytes(LARGE - 1)).hexdigest()


def test_a_file_that_changes_while_it_is_read_is_not_remembered(
    tmp_path: Path, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one")
    plain = hashes._content_hash

    def changed_behind(path: Path) -> str:
        value = plain(path)
        path.write_bytes(b"other")
        return value

    with monkeypatch.context() as patched:
        patched.setattr(hashes, "_content_hash", changed_behind)
        sha256_of(path)
    assert hashes._memory == {}


@pytest.mark.parametrize("note", ["", "{", "[]", '{"state": 1}', "\xff"])
def test_a_damaged_memory_is_no_memory(tmp_path: Path, home: Path, settled: None, note: str) -> None:
    path = tmp_path / "large"
    path.write_bytes(bytes(LARGE))
    expected = sha256_of(path)
    hashes._memory.clear()
    next((home / "hashes").iterdir()).write_text(note, encoding="latin-1")
    assert sha256_of(path) == expected


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path, home: Path, settled: None) -> None:
    home.write_text("a file where the folder should be")
    path = tmp_path / "large"
    path.write_bytes(bytes(LARGE))
    assert sha256_of(path) == hashlib.sha256(bytes(LARGE)).hexdigest()


def test_one_hash_for_many_files_tells_names_and_contents(tmp_path: Path, settled: None) -> None:
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    a, b, moved = folder / "a", folder / "sub" / "b", folder / "b"
    a.write_bytes(b"one")
    b.write_bytes(b"two")
    found = [sha256_of_files(folder, files) for files in ([a, b], [b, a], [a], [])]
    assert len(set(found)) == 4
    assert sha256_of_files(folder, [a, b]) == found[0]
    rewrite(b, b"TWO")
    found.append(sha256_of_files(folder, [a, b]))
    rewrite(b, b"two")
    assert sha256_of_files(folder, [a, b]) == found[0]
    b.rename(moved)
    found.append(sha256_of_files(folder, [a, moved]))
    assert len(set(found)) == 6


def test_many_small_files_are_read_once(
    tmp_path: Path, home: Path, settled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"file{i}" for i in range(4)]
    for file in files:
        file.write_bytes(bytes(LARGE // 4))
    expected = sha256_of_files(tmp_path, files)
    hashes._memory.clear()
    count = reads(files[2], monkeypatch)
    assert sha256_of_files(tmp_path, files) == expected
    assert count() == 0


def test_files_that_are_missing_or_changed_are_named(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    files = hash_files(tmp_path, ["a", "b"])
    check_files(tmp_path, files)
    (tmp_path / "b").write_text("c")
    found = hashlib.sha256(b"c").hexdigest()
    with pytest.raises(UserError, match=rf"/b: damaged \(sha256 {found}, expected {files['b']}\); copy"):
        check_files(tmp_path, files)
    (tmp_path / "a").unlink()
    with pytest.raises(UserError, match="/a: no such file"):
        check_files(tmp_path, files)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just(ZEROS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.just("sha256"), inner, max_size=3),
    max_leaves=8,
)


@ANY_FILE
@given(st.dictionaries(st.text().filter(lambda key: key != "sha256"), JSON, max_size=4), st.data())
def test_every_flipped_bit_of_a_sealed_object_shows(tmp_path: Path, content: dict, data: st.DataObject) -> None:
    path = tmp_path / "sealed.json"
    value = write_sealed(path, content)
    assert read_sealed(path) == content
    whole = path.read_bytes()
    assert list(json.loads(whole))[-1] == "sha256"
    assert json.loads(whole)["sha256"] == value
    assert hashlib.sha256(ZEROS.join(whole.decode().rsplit(value, 1)).encode()).hexdigest() == value
    flip(path, data.draw(st.integers(0, 8 * len(whole) - 1)))
    with pytest.raises(UserError, match=r"sealed\.json: "):
        read_sealed(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no sha256 of its own"),
        ('{"sha256": 1}\n', "no sha256 of its own"),
        (f'{{\n  "sha256": "{ZEROS}"\n}}\n', "damaged"),
        (f'{{\n  "sha256": "{ZEROS}"\n}}\n ', "no sha256 of its own"),
    ],
)
def test_what_is_no_sealed_object_is_refused(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "sealed.json"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"sealed\.json: .*{why}"):
        read_sealed(path)
    path.unlink()
    with pytest.raises(UserError, match=r"sealed\.json: no such file"):
        read_sealed(path)


@pytest.mark.parametrize("columns", [1, 5000])
def test_arrow_files_hold_their_hash_in_the_schema_s_metadata(tmp_path: Path, columns: int) -> None:
    path = make_arrow(tmp_path / "file.arrow", columns=columns)
    before = path.read_bytes()
    value = seal(path)
    assert value == hashlib.sha256(before).hexdigest() == check_seal(path)
    table = pa.ipc.open_stream(path).read_all()
    assert table.schema.metadata[b"sha256"].decode() == value
    assert path.read_bytes() == before.replace(ZEROS.encode(), value.encode()), "only the seal was written"
    assert table.column("sha256").to_pylist() == [0, 1, 2]


@ANY_FILE
@given(st.randoms(use_true_random=False))
def test_every_flipped_bit_of_an_arrow_file_shows(tmp_path: Path, rng: random.Random) -> None:
    path = make_arrow(tmp_path / "file.arrow", rows=rng.randrange(5), columns=rng.randrange(4))
    seal(path)
    check_seal(path)
    size = path.stat().st_size
    # The first bytes say where everything is, so they are tried more often.
    flip(path, rng.randrange(8 * rng.choice([16, 200, size])))
    with pytest.raises(UserError, match=r"file\.arrow: damaged"):
        check_seal(path)


@ANY_FILE
@given(st.data())
def test_cut_or_lengthened_arrow_files_and_others_are_refused(tmp_path: Path, data: st.DataObject) -> None:
    path = make_arrow(tmp_path / "file.arrow")
    seal(path)
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.binary(max_size=200))
    found = st.sampled_from([whole[:cut], whole + b"\0", whole[cut:], other, b"\xff\xff\xff\xff\xc0\0\0\0" + other])
    path.write_bytes(data.draw(found.filter(whole.__ne__)))
    with pytest.raises(UserError, match=r"file\.arrow: damaged"):
        check_seal(path)


@pytest.mark.parametrize(
    "metadata", [[], [("a", "b")], [("sha256", "0" * 63)], [("sha256", "A" * 64)], [("sha256", ZEROS), ("b", ZEROS)]]
)
def test_arrow_files_without_a_seal_are_refused(tmp_path: Path, metadata: list[tuple[str, str]]) -> None:
    path = tmp_path / "file.arrow"
    schema = pa.schema([("a", pa.int8())]).with_metadata(pa.KeyValueMetadata(metadata))
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema):
        pass
    for function in (seal, check_seal):
        with pytest.raises(UserError, match=r"file\.arrow: damaged"):
            function(path)


def test_a_fitting_seal_is_remembered_and_an_unfitting_one_is_not(tmp_path: Path, settled: None) -> None:
    path = make_arrow(tmp_path / "file.arrow")
    value = seal(path)
    assert check_seal(path) == value
    whole = path.read_bytes()
    flip(path, 8 * len(whole) - 200)
    for _ in range(2):
        with pytest.raises(UserError, match="damaged"):
            check_seal(path)
    path.write_bytes(whole)
    assert check_seal(path) == value
