"""From folders of rankers to a port that answers, until a signal comes."""

from __future__ import annotations

import os
import socket
from typing import Literal

from rerank.errors import UserError, needed
from rerank.progress import log
from rerank.settings.arguments import Count, Port, Positive, check_arguments
from rerank.stops import Stopped, name_of

KEY = "RERANK_API_KEY"
"""The environment variable that has the key."""


def serve(
    rankers: list[str],
    host: str = "127.0.0.1",
    port: Port = 8000,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: Count | None = None,
    instruction: str | None = None,
    documents: Count = 1000,
    body: Count = 2 << 20,
    queue: Count = 64,
    timeout: Positive = 60.0,
) -> None:
    """Answer requests over HTTP, in the shapes of Cohere, Jina and TEI.

    Ctrl-C and SIGTERM let accepted requests finish. If RERANK_API_KEY is set, requests need the key.

    Args:
        rankers: folders of text models or rankers, as NAME=FOLDER or FOLDER; the first is the default.
        host: address to listen on; 0.0.0.0 is every address of the machine.
        port: port to listen on; 0 takes a free one and prints it.
        precision: floating-point format of the encoders; auto takes bf16 if the hardware is fast at it.
        token_budget: padded tokens per forward pass; defaults to the ranker's own.
        instruction: instruction for requests without one; every ranker must have a place for it.
        documents: largest number of documents in a request; more are refused with status 413.
        body: largest size of a request in bytes (413).
        queue: largest number of requests being read, waiting or being scored at once (429).
        timeout: longest time in seconds from a request's head to its answer (408 while it is sent, 503 afterwards).
    """
    needed("rerank serve", "uvicorn", "serve")
    from rerank.serving.app import Service, server_of
    from rerank.serving.ranker import Ranker, named

    folders = named(rankers)
    limits = {"documents": documents, "body": body, "queue": queue, "timeout": timeout}
    check_arguments(serve, {"port": port, "token_budget": token_budget, **limits})
    key = os.environ.get(KEY) or None
    if key is not None and not (key := key.strip()):
        raise UserError(f"{KEY}: is blank; set a key, or unset it to serve without one")
    try:
        bound = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = f"nothing can listen at {host}:{port} ({error.strerror or error})"
        raise UserError(f"port: {reason}; choose another --port or --host") from error
    with bound:
        loaded = {name: Ranker(name, folder, precision, token_budget, instruction) for name, folder in folders.items()}
        server = server_of(Service(loaded, key, documents, body, queue, timeout))
        place = f"[{host}]" if ":" in host else host
        log.info("serving %s at http://%s:%d", ", ".join(loaded), place, bound.getsockname()[1])
        if key is None and host not in ("127.0.0.1", "::1", "localhost"):
            log.warning("anybody who reaches %s can send requests; set %s to require a key", host, KEY)
        try:
            server.run(sockets=[bound])
        except Stopped as stop:
            end = "left at once" if server.force_exit else "accepted requests are answered"
            raise Stopped(stop.number, f"stopped by {name_of(stop.number)}; {end}") from None
