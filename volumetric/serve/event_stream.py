"""Server-sent events: a response that sends pieces as they come, and ends what makes them when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

KEEP_ALIVE: Final = 10.0
"""Seconds without a piece after which a comment is sent, so that nobody between takes the connection for dead."""
STUCK: Final = 30.0
"""Seconds that a client may leave data unread."""
_COMMENT: Final = b": keep-alive\n\n"


class EventStream(Response):
    """Sends each item of `pieces` as one event.

    Parameters
    ----------
    pieces : JSON texts; it ends by itself, and raises nothing
    leave : called once, when the response has ended in whatever way
    """

    media_type = "text/event-stream"

    def __init__(self, pieces: AsyncGenerator[bytes, None], leave: Callable[[], None]) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._pieces = pieces
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all, or as much as the client stays for."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave()
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        following = asyncio.ensure_future(anext(self._pieces, None))
        try:
            while True:
                done, _ = await asyncio.wait((following,), timeout=KEEP_ALIVE)
                if not done:
                    await self._push(send, _COMMENT)
                    continue
                piece = following.result()
                if piece is None:
                    break
                await self._push(send, b"data: " + piece + b"\n\n")
                following = asyncio.ensure_future(anext(self._pieces, None))
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            await self._pieces.aclose()

    async def _push(self, send: Send, data: bytes) -> None:
        async with asyncio.timeout(STUCK):
            await send({"type": "http.response.body", "body": data, "more_body": True})


async def gone(receive: Receive) -> None:
    """Return when the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
