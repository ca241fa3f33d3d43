"""Protocol: HTTP as uvicorn speaks it; but what is no HTTP gets our errors, and heads that never end are given up.

It stands on h11, wherever httptools is installed, too. With that one uvicorn loses the bodies of requests that offer to
go on with HTTP/2, as those of Java's own client do, sends chunks to clients of HTTP/1.0, takes heads of any length and
of two names; it would save 4 to 7 µs of processor time an event.
"""

from __future__ import annotations

import asyncio
import http
import sys
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from volumetric.serve.problem import RequestError, bad

HEAD_SECONDS: Final = 30.0
"""So long may the head of a request take from its first byte, or from the connection's begin."""


class Config(uvicorn.Config):
    """What uvicorn is told, and how many connections may be open at a time."""

    connections: int = sys.maxsize


class Protocol(H11Protocol):
    """One connection."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Wait for the first request, or refuse all: there are as many connections as there may be."""
        super().connection_made(transport)
        if isinstance(self.config, Config) and len(self.connections) > self.config.connections:
            # Not uvicorn's `limit_concurrency`: that waits for a request, which need not come.
            message = f"this server has {self.config.connections} connections, and takes no more"
            self._answer(
                RequestError(503, message, kind="unavailable_error", code="too_many_connections", retry_after=1)
            )
            transport.close()
            return
        self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take a part of a request."""
        super().data_received(data)
        if self._between_requests and not self.transport.is_closing():
            self._arm()
        else:
            self._disarm()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP in the shape of all other errors."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self._answer(bad("this is not a valid HTTP request", code="invalid_http"))
        self.transport.close()

    def _answer(self, problem: RequestError) -> None:
        """Answer without the application."""
        body, status = problem.encoded, http.HTTPStatus(problem.status)
        headers = {"content-type": "application/json", "content-length": len(body), "connection": "close"}
        lines = (f"{name}: {value}\r\n" for name, value in {**problem.headers, **headers}.items())
        self.transport.write(f"HTTP/1.1 {status} {status.phrase}\r\n{''.join(lines)}\r\n".encode() + body)

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing of offers to speak another protocol: the answer is in this one, and clients go on with it."""

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
