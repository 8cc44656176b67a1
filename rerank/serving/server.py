"""From folders of rankers to a port that answers, until a signal comes."""

from __future__ import annotations

import os
import socket
from typing import Literal

from rerank.errors import UserError
from rerank.progress import log
from rerank.serving.limits import Limits
from rerank.settings.ranges import Count, Port, check_arguments
from rerank.stops import Stopped, name_of

KEY = "RERANK_API_KEY"
"""The environment variable that has the key."""


def serve(
    rankers: list[str],
    limits: Limits,
    host: str = "127.0.0.1",
    port: Port = 8000,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: Count | None = None,
    instruction: str | None = None,
) -> None:
    """Answer requests over HTTP, in the shapes of Cohere, Jina and TEI.

    Ctrl-C and SIGTERM let the requests that were accepted finish. Where RERANK_API_KEY is set, requests need the key.

    Args:
        rankers: folders of trained models or rankers, as NAME=FOLDER or FOLDER; the first answers who names none.
        limits: what the service takes on.
        host: where it listens; 0.0.0.0 is everywhere.
        port: on which port; 0 takes a free one and says which.
        precision: arithmetic of the encoders; auto takes bf16 where the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; null takes the ranker's own.
        instruction: instruction for requests without one; every ranker must have a place for it.
    """
    try:
        from rerank.serving.app import server_of
    except ModuleNotFoundError as error:
        raise UserError(f"serve: {error.name} is not installed; pip install 'rerank-direct[serve]'") from error
    from rerank.scoring.shared import check_scoring
    from rerank.serving.ranker import Ranker, named

    folders = named(rankers)
    check_arguments(serve, {"port": port, "token_budget": token_budget})
    bound = _bound(host, port)
    loaded = {name: Ranker(name, folder, precision, token_budget, instruction) for name, folder in folders.items()}
    if len(loaded) == 1:  # of several, they are for the networks
        check_scoring(loaded[next(iter(loaded))].model, precision, token_budget)
    key = os.environ.get(KEY) or None
    if key is not None and not (key := key.strip()):
        raise UserError(f"{KEY}: is blank; set a key, or unset it to serve without one")
    server = server_of(loaded, limits, key)
    place = f"[{host}]" if ":" in host else host
    log.info("serving %s at http://%s:%d", ", ".join(loaded), place, bound.getsockname()[1])
    if key is None and host not in ("127.0.0.1", "::1", "localhost"):
        log.warning("whoever reaches %s may ask; %s in the environment asks for a key", host, KEY)
    try:
        server.run(sockets=[bound])
    except Stopped as stop:
        end = "left at once" if server.force_exit else "what was accepted is answered"
        raise Stopped(stop.number, f"stopped by {name_of(stop.number)}; {end}") from None
    finally:
        bound.close()


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has the port, and does not listen yet: nobody is to wait for rankers that load."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"port: nothing can listen at {host}:{port} ({reason}); choose another --port or --host"
        ) from error
    return found
