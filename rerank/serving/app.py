"""The service: its paths, who may ask, how every request ends in an answer or a refusal, and its connections."""

from __future__ import annotations

import asyncio
import hmac
import json
import reprlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from importlib.resources import files
from typing import Any

import h11
import uvicorn
import yaml
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from rerank import __version__
from rerank.errors import UserError, nearest
from rerank.progress import log
from rerank.serving.desk import Desk, Metrics
from rerank.serving.limits import Limits, Refusal
from rerank.serving.ranker import Ranker, answer, read_body
from rerank.storage.arrow import Array

Answer = Callable[[Request], Awaitable[Response]]

PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
"""Where scores are asked for: the same everywhere, as clients have one of these built in."""

DROPPED = 64 << 20
"""Bytes of a body beyond the limit that are read, and dropped, so that its client reads the refusal."""

MOMENT = 2.0
"""Seconds that this may take where nothing of the body was wanted."""

GONE = 499
"""Counted of clients that went away; nobody receives it."""


def application(rankers: Mapping[str, Ranker], limits: Limits, key: str | None) -> Starlette:
    """The service as an ASGI application."""
    service = Service(rankers, limits, key)
    routes = [Route(path, service.endpoint(service.rerank, counted=True), methods=["POST"]) for path in PATHS]
    routes += [
        Route("/health", service.endpoint(service.health, key=None)),
        Route("/info", service.endpoint(service.info)),
        Route("/metrics", service.endpoint(service.counts)),
        Route("/openapi.json", service.endpoint(service.openapi)),
    ]
    app = Starlette(routes=routes, lifespan=service.lifespan, exception_handlers={HTTPException: _no_such_path})
    app.router.redirect_slashes = False
    return app


class Service:
    """What the paths do."""

    def __init__(self, rankers: Mapping[str, Ranker], limits: Limits, key: str | None) -> None:
        self.rankers, self.limits, self.key = rankers, limits, key
        self.metrics = Metrics()
        self.desk = Desk(limits.queue, self.metrics)

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncIterator[None]:
        work = asyncio.create_task(self.desk.work())
        yield
        work.cancel()

    def endpoint(self, answered: Answer, key: str | None = "", counted: bool = False) -> Answer:
        """A path whose every request ends in an answer, or in one line of JSON that says why not."""
        needed = None if key is None else self.key

        async def end(request: Request) -> Response:
            started = time.perf_counter()
            try:
                if needed is not None:
                    _check_key(request, needed)
                response = await answered(request)
            except Refusal as refusal:
                if refusal.status in (401, 429):
                    await _drop(request)
                response = refused(refusal.status, str(refusal))
            except UserError as error:
                response = refused(400, str(error))
            except ClientDisconnect:
                response = Response(status_code=GONE)
            except asyncio.CancelledError:
                response = refused(503, "the service stops")
            except Exception:
                log.exception("%s", request.url.path)
                response = refused(500, "an error of the service; its log says more")
            if counted:
                self.metrics.requests[response.status_code] += 1
                if response.status_code == 200:
                    self.metrics.took(time.perf_counter() - started)
            return response

        return end

    async def rerank(self, request: Request) -> Response:
        with self.desk.place():
            until = asyncio.get_running_loop().time() + self.limits.timeout
            try:
                async with asyncio.timeout_at(until):
                    body = await _read(request, self.limits.body)
            except TimeoutError as error:
                raise Refusal(408, f"the request did not arrive within {self.limits.timeout:g} seconds") from error
            if body is None:
                raise Refusal(413, f"more than {self.limits.body} bytes; send fewer documents at a time")
            asked = read_body(body)
            count, most = len(asked.documents), self.limits.documents
            if count > most:
                raise Refusal(413, f"{count} documents, of which one request may have {most}")
            name = next(iter(self.rankers)) if asked.model is None else asked.model
            if name not in self.rankers:
                like = nearest(name[:100], self.rankers)
                raise Refusal(404, f"model: there is no {reprlib.repr(name)}{like}; one of {', '.join(self.rankers)}")
            ranker = self.rankers[name]
            question = ranker.question(asked.query, asked.documents)
            if sum(map(len, question.texts)) + len(question.query) > self.limits.characters:
                raise Refusal(413, f"more than {self.limits.characters} characters; send shorter or fewer documents")
            try:
                async with asyncio.timeout_at(until):
                    scores = await _unless_gone(request, self.desk.scores(ranker, question))
            except TimeoutError as error:
                raise Refusal(503, f"no scores within {self.limits.timeout:g} seconds; try again later") from error
            shown = ranker.shown(scores, asked.raw)
            try:
                return _json(answer(asked, ranker.name, question.texts, scores, shown))
            except ValueError as error:
                raise UserError("documents: a number in them is too large to be returned") from error
            except RecursionError as error:
                raise UserError("documents: an object in them is too deep to be returned") from error

    async def health(self, _: Request) -> Response:
        return _json({"status": "ok"})

    async def info(self, _: Request) -> Response:
        about = [ranker.about() for ranker in self.rankers.values()]
        return _json({"version": __version__, "models": about, "limits": asdict(self.limits)})

    async def counts(self, _: Request) -> Response:
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def openapi(self, _: Request) -> Response:
        return _json(description(list(self.rankers), self.limits, self.key is not None))


async def _read(request: Request, most: int) -> bytes | None:
    """The body; None of one that is too large, which is dropped as it comes: who still sends reads no refusal."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > most + DROPPED:
        return None
    body, size = bytearray(), 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= most:
            body += chunk
        elif size > most + DROPPED:
            break
    return bytes(body) if size <= most else None


async def _drop(request: Request) -> None:
    """Let a client that is refused before its body was read send it, for a moment."""
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(MOMENT):
            await _read(request, 0)


async def _unless_gone(request: Request, scores: Awaitable[Array]) -> Array:
    """The scores; ClientDisconnect if the client goes away before, and its request leaves the queue."""
    waiting, gone = asyncio.ensure_future(scores), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((waiting, gone), return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            raise ClientDisconnect
        return waiting.result()
    finally:
        waiting.cancel()
        gone.cancel()


def _check_key(request: Request, key: str) -> None:
    kind, _, given = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), key.encode()):
        raise Refusal(401, "this service asks for a key: Authorization: Bearer KEY")


def _json(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in ASCII, so that halves of characters that a client sent in an object go back as they came."""
    return Response(json.dumps(content, allow_nan=False) + "\n", status, headers, "application/json")


def refused(status: int, message: str) -> Response:
    """A refusal, in one line; one that may be repeated says when."""
    again = {"Retry-After": "1"} if status in (429, 503) else {}
    return _json({"message": message}, status, again | ({"WWW-Authenticate": "Bearer"} if status == 401 else {}))


async def _no_such_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        answer = refused(405, f"{request.url.path} does not take {request.method}")
        answer.headers.update(error.headers or {})  # Allow
        return answer
    return refused(error.status_code, f"{request.url.path}: no such path; POST {', '.join(PATHS)}, or GET /info")


def description(names: Sequence[str], limits: Limits, key: bool) -> dict[str, Any]:
    """What the service says of itself: paths, bodies and answers, in OpenAPI 3.1."""
    found: dict[str, Any] = yaml.safe_load(files("rerank.serving").joinpath("openapi.yaml").read_text("utf-8"))
    found["info"]["version"] = __version__
    body = found["paths"][PATHS[0]]["post"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"][0]
    body["properties"]["model"]["enum"] = list(names)  # which all paths and both bodies share
    body["properties"]["documents"]["maxItems"] = limits.documents
    if key:
        scheme = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        found |= {"components": scheme, "security": [{"key": []}]}
    return found


def server_of(application: Any, limits: Limits) -> uvicorn.Server:
    """A server that is not started yet."""

    class Protocol(H11Protocol):
        """A connection that is cut where no request's head arrives in time, or nobody reads the answer."""

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.before: Any = self
            self.look()

        def look(self) -> None:
            """Cut the connection if, since the last look, nothing was under way and nothing has begun."""
            if self not in self.connections:
                return
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self.before is self.cycle:
                self.transport.abort()
                return
            self.before = self.cycle if idle else self
            self.loop.call_later(limits.timeout, self.look)

        def send_400_response(self, msg: str) -> None:
            """Refuse what is no HTTP as everything else is refused: by one line of JSON."""
            line = json.dumps({"message": f"{msg} POST JSON to /rerank"}).encode() + b"\n"
            length = str(len(line)).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", length), (b"connection", b"close")]
            parts = (h11.Response(status_code=400, headers=headers), h11.Data(data=line), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(part) or b"" for part in parts))
            self.transport.close()

    config = uvicorn.Config(
        application,
        http=Protocol,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=int(limits.timeout) + 1,
    )
    return uvicorn.Server(config)
