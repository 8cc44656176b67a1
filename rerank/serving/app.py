"""The HTTP service: paths, queue, limits, key and metrics."""

from __future__ import annotations

import asyncio
import hmac
import json
import reprlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rerank.errors import UserError, nearest
from rerank.serving.ranker import Body, Ranker
from rerank.storage.arrow import Array

PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
"""Paths that clients have built in; all do the same."""

GONE = 499
"""Status that is counted if the client disconnects."""

ANSWERED, INSIDE = 'rerank_requests_total{{status="{}"}}', "rerank_requests_inside"
"""Metrics: requests by status, and requests that are read, wait or are scored."""


@dataclass
class Service:
    """Endpoints, and the thread that scores; :func:`rerank.serving.server.serve` explains the limits."""

    rankers: Mapping[str, Ranker]
    key: str | None
    documents: int
    body: int
    queue: int
    timeout: float
    metrics: defaultdict[str, float] = field(default_factory=lambda: defaultdict(int))
    thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "scoring"))

    def application(self) -> Starlette:
        """Build the ASGI application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            self.thread.shutdown(cancel_futures=True)

        routes = [Route(path, self.rerank, methods=["POST"]) for path in PATHS]
        routes += [
            Route("/health", lambda _: _json({"status": "ok"})),
            Route("/metrics", self.counts),
        ]
        handlers: Mapping[Any, Any] = dict.fromkeys(
            (HTTPException, UserError, ClientDisconnect, Exception), self.refused
        )
        app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
        app.router.redirect_slashes = False
        return app

    async def counts(self, request: Request) -> Response:
        """Return the metrics in Prometheus's format."""
        self.check_key(request)
        counts = self.metrics.copy()  # the scoring thread may add one
        lines = (f"{name} {value}\n" for name, value in sorted(counts.items()))
        return PlainTextResponse("".join(lines), media_type="text/plain; version=0.0.4")

    async def rerank(self, request: Request) -> Response:
        """Read a request, wait for its scores and write the answer."""
        self.check_key(request)
        if self.metrics[INSIDE] >= self.queue:
            raise HTTPException(429, f"{self.queue} requests are waiting; try again in a second")
        self.metrics[INSIDE] += 1
        arrived = False
        try:
            async with asyncio.timeout(self.timeout):
                body = Body(await self.read(request))
                arrived = True
                ranker = self.ranker(body)
                scores = await self.scores(ranker, body)
        except TimeoutError as error:
            if arrived:
                raise HTTPException(503, f"no scores within {self.timeout:g} seconds; try again later") from error
            raise HTTPException(408, f"the request did not arrive within {self.timeout:g} seconds") from error
        finally:
            self.metrics[INSIDE] -= 1
        response = _json(body.answer(ranker, scores))
        self.metrics[ANSWERED.format(200)] += 1
        return response

    async def refused(self, request: Request, error: Exception) -> Response:
        """Answer an error with a status and one line; errors of ours are logged by uvicorn."""
        path, status, message = request.url.path, 500, "an error of the server; its log says more"
        if isinstance(error, UserError):
            status, message = 400, str(error)
        elif isinstance(error, ClientDisconnect):
            status, message = GONE, "the client disconnected"
        elif isinstance(error, HTTPException):
            status, message = error.status_code, error.detail
        if status == 404 and path not in PATHS:
            message = f"{path}: no such path; POST {', '.join(PATHS)}, or GET /metrics"
        if path in PATHS and request.method == "POST":
            self.metrics[ANSWERED.format(status)] += 1
        headers = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
        return _json({"message": message}, status, headers.get(status))

    async def read(self, request: Request) -> bytes:
        """Read the body up to the limit; the rest is dropped, so that the client reads the refusal."""
        body, size = bytearray(), 0
        async for chunk in request.stream():
            size += len(chunk)
            if size <= self.body:
                body += chunk
        if size > self.body:
            raise HTTPException(413, f"more than {self.body} bytes; send fewer documents at a time")
        return bytes(body)

    def ranker(self, body: Body) -> Ranker:
        """Find the ranker of a request, and check its number of documents."""
        if len(body.texts) > self.documents:
            raise HTTPException(413, f"{len(body.texts)} documents; send at most {self.documents} at a time")
        name = next(iter(self.rankers)) if body.model is None else body.model
        if name not in self.rankers:
            known = f"{nearest(name[:100], self.rankers)}; known: {', '.join(self.rankers)}"
            raise HTTPException(404, f"model: unknown model {reprlib.repr(name)}{known}")
        return self.rankers[name]

    async def scores(self, ranker: Ranker, body: Body) -> Array:
        """Score in the one thread, in the order of arrival; a request that times out leaves the queue."""

        def score() -> Array:
            started = time.perf_counter()
            found = ranker.scores(body)
            self.metrics[f'rerank_documents_total{{model="{ranker.name}"}}'] += len(found)
            self.metrics[f'rerank_scoring_seconds_total{{model="{ranker.name}"}}'] += time.perf_counter() - started
            return found

        return await asyncio.get_running_loop().run_in_executor(self.thread, score)

    def check_key(self, request: Request) -> None:
        """Require the key, if there is one."""
        if self.key is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), self.key.encode()):
            raise HTTPException(401, "this service needs a key; send Authorization: Bearer KEY")


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(content, allow_nan=False) + "\n", status, headers, "application/json")


def server_of(service: Service) -> uvicorn.Server:
    """Make a server, not started yet, that finishes accepted requests when it is stopped."""
    config = uvicorn.Config(
        service.application(),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(service.timeout) + 1,
        timeout_graceful_shutdown=int(service.timeout) + 1,
    )
    return uvicorn.Server(config)
