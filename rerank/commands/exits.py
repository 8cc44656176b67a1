"""How a command ends: its exit code, and an error in one line."""

from __future__ import annotations

import errno
import io
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rerank.errors import UserError
from rerank.progress import is_main
from rerank.stops import Stopped, listening, name_of

log = logging.getLogger("rerank")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space on the disk, none in the quota, a file larger than allowed; Rust libraries say ``(os error N)``."""


class Exit:
    """The exit code: 0 done, 2 for user errors, 1 for internal errors, 130 and 143 stopped by Ctrl-C or SIGTERM."""

    code = 0


@contextmanager
def exiting() -> Iterator[Exit]:
    """Let a command end with an exit code, and errors of users with one line on stderr."""
    end = Exit()
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of another encoding shows what it can
    log.setLevel(logging.INFO if is_main() else logging.WARNING)
    try:
        with listening(command=True):
            yield end
    except UserError as error:
        print(f"rerank: error: {error}", file=sys.stderr)
        end.code = 2
    except BrokenPipeError:
        sys.stderr.close()
    except Stopped as stop:
        if is_main():
            said = stop.said or f"stopped by {name_of(stop.number)}; the same command does the rest"
            print(f"rerank: {said}", file=sys.stderr)
        end.code = 128 + stop.number
    except KeyboardInterrupt:
        print("rerank: interrupted", file=sys.stderr)
        end.code = 130
    except Exception as error:
        end.code = 2
        if getattr(error, "errno", None) in FULL or any(f"os error {number})" in str(error) for number in FULL):
            print(f"rerank: error: no space left on the disk ({error}); free some and run again", file=sys.stderr)
        elif isinstance(error, OSError) and error.filename is not None and error.strerror:
            print(f"rerank: error: {error.filename}: {error.strerror}", file=sys.stderr)
        else:
            raise
