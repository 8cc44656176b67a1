"""How a command ends: its exit code, and an error in one line."""

from __future__ import annotations

import errno
import io
import logging
import sys
from collections.abc import Callable

from rerank.errors import UserError
from rerank.progress import is_main
from rerank.stops import Stopped, listening, name_of

log = logging.getLogger("rerank")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space on the disk, none in the quota, a file larger than allowed; Rust libraries say ``(os error N)``."""


def exit_code(work: Callable[[], None]) -> int:
    """Do a command's work: 0 done, 2 errors of users, in a line, 130 and 143 stopped; an error of ours is raised."""
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of another encoding shows what it can
    log.setLevel(logging.INFO if is_main() else logging.WARNING)
    try:
        with listening(command=True):
            work()
    except UserError as error:
        print(f"rerank: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
    except Stopped as stop:
        if is_main():
            said = stop.said or f"stopped by {name_of(stop.number)}; the same command does the rest"
            print(f"rerank: {said}", file=sys.stderr)
        return 128 + stop.number
    except KeyboardInterrupt:
        print("rerank: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if getattr(error, "errno", None) in FULL or any(f"os error {number})" in str(error) for number in FULL):
            print(f"rerank: error: no space left on the disk ({error}); free some and run again", file=sys.stderr)
        elif isinstance(error, OSError) and error.filename is not None and error.strerror:
            print(f"rerank: error: {error.filename}: {error.strerror}", file=sys.stderr)
        else:
            raise
        return 2
    return 0
