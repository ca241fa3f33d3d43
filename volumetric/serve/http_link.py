"""The link between the server and a process that speaks HTTP for it: messages of requests, over a Unix socket.

A request is a stream of messages with a number, which the worker chooses. They are those of ASGI. Messages of one turn
of the event loop, as all events of a device call, are written at once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec

_HEAD: Final = struct.Struct("<BII")
"""Kind, number of the request, bytes of content."""


class LinkMessage(IntEnum):
    """Kinds of messages."""

    # From the worker
    REQUEST = 1
    """A new request; the content is its ASGI scope. The first part of its body follows by itself."""
    PART = 2
    """A part of the body; more may follow after a PULL."""
    LAST = 3
    """The last part of the body."""
    GONE = 4
    """The client has disconnected."""
    PAUSE = 5
    """The client does not read."""
    RESUME = 6
    """The client reads again."""
    # To the worker
    PULL = 7
    """The next part of the body is wanted, or the news that the client has disconnected."""
    START = 8
    """The response's status and headers."""
    BODY = 9
    """A part of the response."""
    END = 10
    """The last part of the response."""
    ABORT = 11
    """The response ends here, although it is not complete."""
    STOP = 12
    """Accept no more connections, and end after the current responses."""


class HttpLink(asyncio.Protocol):
    """One end of a link.

    Parameters
    ----------
    receive : called with each message: its kind, the number of its request, and its content
    lost : called when the other end has closed, or its process has ended
    resumed : called when the other end reads again, after it did not
    """

    def __init__(
        self,
        receive: Callable[[int, int, bytes], None],
        lost: Callable[[], None],
        resumed: Callable[[], None] = lambda: None,
    ) -> None:
        self.paused = False
        self._receive = receive
        self._lost = lost
        self._resumed = resumed
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.WriteTransport | None = None
        self._read = bytearray()
        self._unsent: list[bytes] = []

    def send(self, kind: int, number: int = 0, content: bytes = b"") -> None:
        """Send a message, with all others of this turn of the event loop."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += (_HEAD.pack(kind, number, len(content)), content)

    def close(self) -> None:
        """Send what is unsent, and close this end."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        if self._unsent and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(self._unsent))
        self._unsent.clear()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end."""
        self._lost()

    def pause_writing(self) -> None:
        """The other end does not read."""
        self.paused = True

    def resume_writing(self) -> None:
        """The other end reads again."""
        self.paused = False
        self._resumed()

    def data_received(self, data: bytes) -> None:
        """Pass on whole messages."""
        self._read += data
        read, at, size = bytes(self._read), 0, len(self._read)
        while at + _HEAD.size <= size:
            kind, number, length = _HEAD.unpack_from(read, at)
            end = at + _HEAD.size + length
            if end > size:
                break
            self._receive(kind, number, read[at + _HEAD.size : end])
            at = end
        del self._read[:at]


def comes_by_itself(scope: Mapping[str, Any]) -> bool:
    """Whether the first part of a request's body follows without a PULL: not if the client waits to be asked for it."""
    return all(name != b"expect" for name, _ in scope["headers"])


def packed(value: Any) -> bytes:
    """Encode the content of a REQUEST or a START."""
    return msgspec.msgpack.encode(value)


def unpacked(content: bytes) -> Any:
    """Decode the content of a REQUEST or a START; pairs are tuples."""
    return msgspec.msgpack.decode(content)
