"""Protocol: uvicorn's HTTP protocol, with errors in our format for invalid HTTP, and a timeout for request heads.

It uses h11, even if httptools is installed. With httptools uvicorn loses the bodies of requests that offer an upgrade
to HTTP/2, as Java's own client does, sends chunks to clients of HTTP/1.0, and accepts heads of any length and with two
``Host`` headers. httptools would save 4 to 7 µs of CPU time an event.
"""

from __future__ import annotations

import asyncio
import http
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from volumetric.serve.problem import RequestError, bad_request

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

HEAD_SECONDS: Final = 30.0
"""Most seconds for the head of a request, from its first byte or from the start of the connection."""


class HttpConfig(uvicorn.Config):
    """uvicorn's configuration, and the most open connections."""

    connections: int = sys.maxsize


def http_config(app: ASGIApp, connections: int) -> HttpConfig:
    """Return the configuration for an application, with the most open connections."""
    config = HttpConfig(
        app,
        http=HttpProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_keep_alive=65,
        timeout_graceful_shutdown=5,
    )
    config.connections = connections
    return config


class ChunkWriter:
    """Writes parts of the body of a connection's current response; see `volumetric.serve.event_stream.BodyWriter`.

    It bypasses h11, which checks each part as a message of its own: for a body without a length it changes no state.
    """

    def __init__(self, protocol: HttpProtocol) -> None:
        self.paused = False
        self.on_resume: Callable[[], None] | None = None
        self._protocol = protocol

    def write(self, data: bytes) -> None:
        """Write a part, as a chunk unless the client speaks HTTP/1.0."""
        cycle = self._protocol.cycle
        if not cycle.disconnected:
            chunked = cycle.scope["http_version"] != "1.0"
            cycle.transport.write(b"%x\r\n%b\r\n" % (len(data), data) if chunked else data)

    def text_writer(self, head: bytes, tail: bytes) -> ChunkTexts:
        """Return a writer of parts that differ in a text alone, between constant bytes."""
        return ChunkTexts(self, self._protocol.cycle, head, tail)


class ChunkTexts:
    """Writes parts that differ in a text alone; see `volumetric.serve.engine.TextWriter`."""

    def __init__(self, writer: ChunkWriter, cycle: RequestResponseCycle, head: bytes, tail: bytes) -> None:
        self._writer = writer
        self._cycle = cycle
        self._write = cycle.transport.write
        self._size = len(head) + len(tail)
        chunked = cycle.scope["http_version"] != "1.0"
        self._head, self._tail = (b"\r\n" + head, tail + b"\r\n") if chunked else (head, tail)
        self._chunked = chunked

    @property
    def paused(self) -> bool:
        """Whether the client does not read."""
        return self._writer.paused

    def write_text(self, text: bytes) -> None:
        """Write a text between the constant bytes."""
        if not self._cycle.disconnected:
            size = b"%x" % (self._size + len(text)) if self._chunked else b""
            self._write(size + self._head + text + self._tail)


class HttpProtocol(H11Protocol):
    """One connection."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request, or refuse the connection if there are too many."""
        super().connection_made(transport)
        self.writer = ChunkWriter(self)
        self.app_state = {**self.app_state, "writer": self.writer}
        if isinstance(self.config, HttpConfig) and len(self.connections) > self.config.connections:
            # Not uvicorn's `limit_concurrency`: that refuses only on a request, which may never arrive.
            message = f"this server has reached its limit of {self.config.connections} connections"
            self._answer(
                RequestError(503, message, kind="unavailable_error", code="too_many_connections", retry_after=1)
            )
            transport.close()
            return
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timeout."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        super().data_received(data)
        if self._between_requests and not self.transport.is_closing():
            self._arm()
        else:
            self._disarm()

    def pause_writing(self) -> None:
        """Stop writing: the client does not read."""
        super().pause_writing()
        self.writer.paused = True

    def resume_writing(self) -> None:
        """Go on writing."""
        super().resume_writing()
        self.writer.paused = False
        if self.writer.on_resume is not None:
            self.writer.on_resume()

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP in the format of all other errors."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self._answer(bad_request("this is not a valid HTTP request", code="invalid_http"))
        self.transport.close()

    def _answer(self, problem: RequestError) -> None:
        """Answer without the application."""
        body, status = problem.encoded, http.HTTPStatus(problem.status)
        headers = {"content-type": "application/json", "content-length": len(body), "connection": "close"}
        lines = (f"{name}: {value}\r\n" for name, value in {**problem.headers, **headers}.items())
        self.transport.write(f"HTTP/1.1 {status} {status.phrase}\r\n{''.join(lines)}\r\n".encode() + body)

    def _unsupported_upgrade_warning(self) -> None:
        """Do not warn about offers to upgrade the protocol: clients continue with HTTP/1.1."""

    @property
    def _between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _arm(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _disarm(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_up(self) -> None:
        self._late = None
        if self._between_requests:
            self.transport.close()
