"""The HTTP service: paths, queue, limits, key and metrics."""

from __future__ import annotations

import asyncio
import hmac
import json
import reprlib
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import psutil
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rerank import __version__
from rerank.errors import UserError, nearest
from rerank.kernels.memory import give_back
from rerank.progress import log
from rerank.serving.limits import Limits
from rerank.serving.ranker import Body, Question, Ranker
from rerank.storage.arrow import Array

PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
"""Paths that clients have built in; all do the same."""

LARGE = 1_000_000
"""Characters after which freed memory is returned to the system: tokens take about 400 bytes a character."""

GONE = 499
"""Status that is counted if the client disconnects."""


class Service:
    """Endpoints, and the thread that scores."""

    def __init__(self, rankers: Mapping[str, Ranker], limits: Limits, key: str | None) -> None:
        self.rankers, self.limits, self.key = rankers, limits, key
        self.metrics = Metrics()
        self.thread = ThreadPoolExecutor(1, "scoring")

    def application(self) -> Starlette:
        """Build the ASGI application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            yield
            self.thread.shutdown(cancel_futures=True)

        routes = [Route(path, self.scored, methods=["POST"]) for path in PATHS]
        routes += [
            Route("/health", lambda _: _json({"status": "ok"})),
            Route("/info", self.info),
            Route("/metrics", self.counts),
        ]
        handlers: Mapping[Any, Any] = {HTTPException: _refused, UserError: _wrong}
        app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)
        app.router.redirect_slashes = False
        return app

    async def info(self, request: Request) -> Response:
        """Describe rankers and limits."""
        self.check_key(request)
        about = [ranker.about() for ranker in self.rankers.values()]
        return _json({"version": __version__, "models": about, "limits": asdict(self.limits)})

    async def counts(self, request: Request) -> Response:
        """Return the metrics in Prometheus's format."""
        self.check_key(request)
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def scored(self, request: Request) -> Response:
        """Answer a request for scores, and count it."""
        started = time.perf_counter()
        try:
            response = await self.rerank(request)
        except HTTPException as error:
            response = await _refused(request, error)
        except UserError as error:
            response = await _wrong(request, error)
        except ClientDisconnect:
            response = Response(status_code=GONE)
        except asyncio.CancelledError:
            response = _message(503, "the service stops")
        except Exception:
            log.exception("%s", request.url.path)
            response = _message(500, "an error of the service; its log says more")
        self.metrics.requests[response.status_code] += 1
        if response.status_code == 200:
            self.metrics.seconds += time.perf_counter() - started
        return response

    async def rerank(self, request: Request) -> Response:
        """Read a request, wait for its scores and write the answer."""
        self.check_key(request)
        limits = self.limits
        if self.metrics.inside >= limits.queue:
            raise HTTPException(429, f"{limits.queue} requests are waiting; try again in a second")
        self.metrics.inside += 1
        arrived = False
        try:
            async with asyncio.timeout(limits.timeout):
                body = Body.read(await self.read(request))
                arrived = True
                ranker, question = self.question(body)
                scores = await self.scores(request, ranker, question)
        except TimeoutError as error:
            if arrived:
                raise HTTPException(503, f"no scores within {limits.timeout:g} seconds; try again later") from error
            raise HTTPException(408, f"the request did not arrive within {limits.timeout:g} seconds") from error
        finally:
            self.metrics.inside -= 1
        try:
            return _json(body.answer(ranker, question.texts, scores))
        except (ValueError, RecursionError) as error:
            raise UserError("documents: cannot be returned as JSON; leave return_documents out") from error

    async def read(self, request: Request) -> bytes:
        """Read the body up to the limit; the rest is dropped, so that the client reads the refusal."""
        body, size = bytearray(), 0
        async for chunk in request.stream():
            size += len(chunk)
            if size <= self.limits.body:
                body += chunk
        if size > self.limits.body:
            raise HTTPException(413, f"more than {self.limits.body} bytes; send fewer documents at a time")
        return bytes(body)

    def question(self, body: Body) -> tuple[Ranker, Question]:
        """Find the ranker, and check the request against the limits."""
        count, limits = len(body.documents), self.limits
        if count > limits.documents:
            raise HTTPException(413, f"{count} documents; send at most {limits.documents} at a time")
        name = next(iter(self.rankers)) if body.model is None else body.model
        if name not in self.rankers:
            known = f"{nearest(name[:100], self.rankers)}; known: {', '.join(self.rankers)}"
            raise HTTPException(404, f"model: unknown model {reprlib.repr(name)}{known}")
        ranker = self.rankers[name]
        question = ranker.question(body.query, body.documents, body.instruction)
        if sum(map(len, question.texts)) + len(question.query) > limits.characters:
            raise HTTPException(413, f"more than {limits.characters} characters; send shorter or fewer documents")
        return ranker, question

    async def scores(self, request: Request, ranker: Ranker, question: Question) -> Array:
        """Score in the one thread, in the order of arrival; a request whose client disconnects leaves the queue."""

        def score() -> Array:
            started = time.perf_counter()
            found = ranker.scores(question)
            self.metrics.documents[ranker.name] += len(question.texts)
            self.metrics.scoring[ranker.name] += time.perf_counter() - started
            if sum(map(len, question.texts)) >= LARGE:
                give_back()
            return found

        waiting = asyncio.get_running_loop().run_in_executor(self.thread, score)
        gone = asyncio.ensure_future(request.receive())
        try:
            await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise ClientDisconnect
            return waiting.result()
        finally:
            waiting.cancel()
            gone.cancel()

    def check_key(self, request: Request) -> None:
        """Require the key, if there is one."""
        if self.key is None:
            return
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), self.key.encode()):
            raise HTTPException(401, "this service needs a key; send Authorization: Bearer KEY")


class Metrics:
    """Counters for Prometheus."""

    def __init__(self) -> None:
        self.requests: Counter[int] = Counter()
        self.documents: Counter[str] = Counter()
        self.scoring: defaultdict[str, float] = defaultdict(float)
        self.seconds = 0.0
        self.inside = 0

    def text(self) -> str:
        """Format all metrics."""
        process = psutil.Process()
        answered = self.requests[200]
        families: list[tuple[str, str, str, Mapping[str, float]]] = [
            ("rerank_requests_total", "counter", "Requests for scores.", _labelled("status", self.requests)),
            ("rerank_documents_total", "counter", "Scored documents.", _labelled("model", self.documents)),
            ("rerank_scoring_seconds_total", "counter", "Seconds of scoring.", _labelled("model", self.scoring)),
            (
                "rerank_request_seconds",
                "summary",
                "Seconds from a request to its scores.",
                {"_sum": self.seconds, "_count": answered},
            ),
            ("rerank_requests_inside", "gauge", "Requests that are read, wait or are scored.", {"": self.inside}),
            ("process_cpu_seconds_total", "counter", "CPU seconds.", {"": time.process_time()}),
            ("process_resident_memory_bytes", "gauge", "Resident memory.", {"": process.memory_info().rss}),
        ]
        lines: list[str] = []
        for name, kind, about, values in families:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            lines += [f"{name}{label} {value}" for label, value in values.items()]
        return "\n".join(lines) + "\n"


def _labelled(label: str, values: Mapping[Any, float]) -> dict[str, float]:
    return {f'{{{label}="{key}"}}': value for key, value in sorted(values.items())}


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(content, allow_nan=False) + "\n", status, headers, "application/json")


def _message(status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
    extra = {401: {"WWW-Authenticate": "Bearer"}, 429: {"Retry-After": "1"}, 503: {"Retry-After": "1"}}
    return _json({"message": message}, status, {**(headers or {}), **extra.get(status, {})})


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404 and request.url.path not in PATHS:
        return _message(404, f"{request.url.path}: no such path; POST {', '.join(PATHS)}, or GET /info")
    if error.status_code == 405:
        return _message(405, f"{request.url.path} does not take {request.method}", error.headers)
    return _message(error.status_code, error.detail)


async def _wrong(_: Request, error: Exception) -> Response:
    return _message(400, str(error))


def server_of(rankers: Mapping[str, Ranker], limits: Limits, key: str | None) -> uvicorn.Server:
    """Make a server, not started yet, that finishes accepted requests when it is stopped."""
    config = uvicorn.Config(
        Service(rankers, limits, key).application(),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=int(limits.timeout) + 1,
        timeout_graceful_shutdown=int(limits.timeout) + 1,
    )
    return uvicorn.Server(config)
