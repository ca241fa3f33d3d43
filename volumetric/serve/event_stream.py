"""Server-sent events: a response that streams events, and stops their producer when the client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

KEEP_ALIVE: Final = 10.0
"""Seconds without an event after which a comment is sent, so that no proxy closes the connection as idle."""
STUCK: Final = 30.0
"""Most seconds that a client may leave data unread."""
_COMMENT: Final = b": keep-alive\n\n"


def sse_event(data: bytes, name: str = "") -> bytes:
    """Encode an event: a line of data, and a name if clients expect one."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + data + b"\n\n"


class EventStream(Response):
    """Sends each item of `pieces` when it is ready.

    Parameters
    ----------
    pieces : events encoded by `sse_event`; it ends by itself, and raises nothing
    leave : called once when the response has ended, by success, error or disconnection
    """

    media_type = "text/event-stream"

    def __init__(self, pieces: AsyncGenerator[bytes, None], leave: Callable[[], None]) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._pieces = pieces
        self._leave = leave
        self._pushing = False
        self._since = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events, or those until the client disconnects."""
        parts = [
            asyncio.ensure_future(one) for one in (self._send(send), self._watch(send), wait_for_disconnect(receive))
        ]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._leave()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        """Send the events. They go straight to the socket without a queue, because there are many of them."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for piece in self._pieces:
                await self._push(send, piece)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await self._pieces.aclose()

    async def _push(self, send: Send, data: bytes) -> None:
        self._pushing, self._since = True, time.monotonic()
        await send({"type": "http.response.body", "body": data, "more_body": True})
        self._pushing, self._since = False, time.monotonic()

    async def _watch(self, send: Send) -> None:
        """Send a comment after a long pause; end the stream if the client does not read."""
        while True:
            left = self._since + (STUCK if self._pushing else KEEP_ALIVE) - time.monotonic()
            if left > 0:
                await asyncio.sleep(left)
            elif self._pushing:
                return
            else:
                async with asyncio.timeout(STUCK):
                    await self._push(send, _COMMENT)


@contextlib.asynccontextmanager
async def cancel_on_disconnect(receive: Receive) -> AsyncGenerator[None, None]:
    """Cancel the body of the ``with`` block when the client disconnects. Its request must have been read to its end.

    Raises
    ------
    ClientDisconnect : the client has disconnected
    """
    task, left = asyncio.current_task(), False

    async def watch() -> None:
        nonlocal left
        await wait_for_disconnect(receive)
        left = True
        if task is not None:
            task.cancel()

    watching = asyncio.ensure_future(watch())
    try:
        yield
    except asyncio.CancelledError:
        if not left or task is None:
            raise
        task.uncancel()
        raise ClientDisconnect from None
    finally:
        watching.cancel()


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass
