"""The link between the server and a process that speaks HTTP for it: messages of requests, over a Unix socket.

A request is a stream of messages with a number, which the worker chooses. They are those of ASGI. Messages of one turn
of the event loop, as all events of a device call, are written at once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Any, Final

import msgspec

_HEAD: Final = struct.Struct("<BII")
"""Kind, number of the request, bytes of content."""
_FRAME: Final = struct.Struct("<II")
"""Number of the frame, bytes that precede the text."""


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
    PREPARED = 16
    """The whole body, in place of LAST; the content is a `volumetric.serve.prepared_requests.PreparedRequest`."""
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
    FRAME = 13
    """What encloses a text of the response for each further token; see `HttpLink.send_frame`."""
    MODELS = 15
    """What requests are prepared with; the content is of `volumetric.serve.prepared_requests.packed_models`."""
    TEXTS = 14
    """The next text of several frames, of any requests; see `HttpLink.send_text`."""


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
        self._frames: list[int] = []  # of the unsent `_texts`
        self._texts: list[bytes] = []
        self._last_frame = 0

    def send(self, kind: int, number: int = 0, content: bytes = b"") -> None:
        """Send a message, with all others of this turn of the event loop."""
        if self._texts:
            self._pack_texts()
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent += (_HEAD.pack(kind, number, len(content)), content)

    def send_frame(self, number: int, head: bytes, tail: bytes) -> int:
        """Send what encloses a text of a request, and return the number of the frame, for `send_text`."""
        self._last_frame = frame = (self._last_frame + 1) % 2**32
        self.send(LinkMessage.FRAME, number, _FRAME.pack(frame, len(head)) + head + tail)
        return frame

    def send_text(self, frame: int, text: bytes) -> None:
        """Send the text of a token, in one message with those of all others."""
        if not self._unsent and not self._texts:
            self._loop.call_soon(self._flush)
        self._frames.append(frame)
        self._texts.append(text)

    def close(self) -> None:
        """Send what is unsent, and close this end."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _pack_texts(self) -> None:
        """Make a message of all unsent texts."""
        frames, texts, count = self._frames, self._texts, len(self._texts)
        head = struct.pack(f"<I{2 * count}I", count, *frames, *map(len, texts))
        content = head + b"".join(texts)
        self._unsent += (_HEAD.pack(LinkMessage.TEXTS, 0, len(content)), content)
        frames.clear()
        texts.clear()

    def _flush(self) -> None:
        if self._texts:
            self._pack_texts()
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


def unpacked_frame(content: bytes) -> tuple[int, bytes, bytes]:
    """Decode the content of a FRAME: its number, and what precedes and follows a text."""
    frame, length = _FRAME.unpack_from(content)
    start = _FRAME.size
    return frame, content[start : start + length], content[start + length :]


def unpacked_texts(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Decode the content of TEXTS: the number of each frame, and its text."""
    (count,) = struct.unpack_from("<I", content)
    numbers = struct.unpack_from(f"<{2 * count}I", content, 4)
    at = 4 + 8 * count
    for frame, length in zip(numbers[:count], numbers[count:], strict=True):
        yield frame, content[at : at + length]
        at += length


def comes_by_itself(scope: Mapping[str, Any]) -> bool:
    """Whether the first part of a request's body follows without a PULL: not if the client waits to be asked for it."""
    return all(name != b"expect" for name, _ in scope["headers"])


def packed(value: Any) -> bytes:
    """Encode the content of a REQUEST or a START."""
    return msgspec.msgpack.encode(value)


def unpacked(content: bytes) -> Any:
    """Decode the content of a REQUEST or a START; pairs are tuples."""
    return msgspec.msgpack.decode(content)
