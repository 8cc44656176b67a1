"""uvicorn as this service runs it: quiet, without WebSockets, and with an end to connections that get nowhere."""

from __future__ import annotations

import json
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from rerank.serving.limits import Limits


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
