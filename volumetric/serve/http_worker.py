"""A process that speaks HTTP for the server: it accepts what the server passes on, and prepares requests.

It has no weights: it knows of models what prompts are made with, see `volumetric.serve.prepared_requests`.

`main` is its program. It gets two sockets: one passes connections that the server has accepted, the other is the link.
It ends when the server asks it to, or when the link is lost. Signals go to the server alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import socket
import sys
from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from volumetric.serve.descriptors import allowed_connections
from volumetric.serve.http_link import (
    HttpLink,
    LinkMessage,
    comes_by_itself,
    packed,
    unpacked,
    unpacked_frame,
    unpacked_texts,
)
from volumetric.serve.middleware import plain_path
from volumetric.serve.protocol import ChunkWriter, HttpProtocol, http_config

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

    from volumetric.serve.engine import TextWriter
    from volumetric.serve.prepared_requests import Preparer

_SCOPE: Final = (
    "type",
    "asgi",
    "http_version",
    "server",
    "client",
    "scheme",
    "method",
    "root_path",
    "path",
    "raw_path",
    "query_string",
    "headers",
)
"""Parts of a request's scope that are passed on."""
SMALL: Final = 2**14
"""Bytes of a body that is prepared in the event loop; longer ones are prepared in a thread."""
_ACCEPTED: Final = 64
"""Most connections taken in one turn of the event loop."""


class _Relay:
    """The ASGI application of a worker: it passes requests on, and their responses back."""

    def __init__(self) -> None:
        self.link: HttpLink | None = None
        self.server: _WorkerServer | None = None
        self._numbers = itertools.count(1)
        self._requests: dict[int, _RelayedResponse] = {}
        self._frames: dict[int, _Frame] = {}
        self._learning: set[asyncio.Task[None]] = set()
        self.preparer: Preparer | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Relay a request."""
        assert self.link is not None
        number = next(self._numbers) % 2**32
        preparer = self.preparer
        self._requests[number] = response = _RelayedResponse(
            self.link, number, scope["state"]["writer"], receive, preparer, plain_path(scope["path"])
        )
        self.link.send(LinkMessage.REQUEST, number, packed({name: scope[name] for name in _SCOPE}))
        try:
            await response.relay(send, pull=comes_by_itself(scope))
        finally:
            del self._requests[number]
            for frame in response.frames:
                del self._frames[frame]

    def receive(self, kind: int, number: int, content: bytes) -> None:
        """Take a message of the server."""
        if kind == LinkMessage.TEXTS:
            self._write_texts(content)
            return
        if kind == LinkMessage.MODELS:
            task = asyncio.ensure_future(self._learn(content))
            self._learning.add(task)
            task.add_done_callback(self._learning.discard)
            return
        response = self._requests.get(number)
        if response is not None and kind == LinkMessage.FRAME:
            frame, head, tail = unpacked_frame(content)
            self._frames[frame] = _Frame(response, head, tail)
            response.frames.append(frame)
        elif response is not None:
            response.take(kind, content)
        elif kind == LinkMessage.STOP and self.server is not None:
            self.server.should_exit = True

    async def _learn(self, content: bytes) -> None:
        """Prepare requests from now on."""
        from volumetric.serve.prepared_requests import Preparer

        self.preparer = await asyncio.to_thread(Preparer, content)

    def _write_texts(self, content: bytes) -> None:
        """Write the next text of several responses; those of clients that have left are dropped."""
        frames = self._frames
        for number, text in unpacked_texts(content):
            frame = frames.get(number)
            if frame is not None:
                frame.response.take_text(frame, text)

    def lost(self) -> None:
        """End: the server has closed the link, or it has ended."""
        if self.server is not None:
            self.server.should_exit = self.server.force_exit = True


class _Frame:
    """What encloses a text of a response, for each further token."""

    def __init__(self, response: _RelayedResponse, head: bytes, tail: bytes) -> None:
        self.response = response
        self.head, self.tail = head, tail
        self.texts: TextWriter | None = None  # once the response has started


class _RelayedResponse:
    """A request whose response comes through the link.

    Attributes
    ----------
    frames : numbers of its frames
    """

    def __init__(
        self,
        link: HttpLink,
        number: int,
        writer: ChunkWriter,
        receive: Receive,
        preparer: Preparer | None,
        path: str,
    ) -> None:
        self._link = link
        self._number = number
        self._writer = writer
        self._receive = receive
        self._preparer = preparer
        self._path = path
        self._came: deque[tuple[int, bytes]] = deque()
        self._wake = asyncio.Event()
        self.frames: list[int] = []
        self._direct = False  # the response has started, and no message waits
        self._told = False  # PAUSE was sent
        self._pulling: asyncio.Task[None] | None = None

    def take(self, kind: int, content: bytes) -> None:
        """Take a message: parts of a response that has started are written at once."""
        if kind == LinkMessage.PULL:
            self._pulling = asyncio.ensure_future(self._pull())
        elif kind == LinkMessage.BODY and self._direct:
            self._writer.write(content)
            self._tell()
        else:
            self._direct = False
            self._came.append((kind, content))
            self._wake.set()

    def take_text(self, frame: _Frame, text: bytes) -> None:
        """Take the text of a token."""
        if not self._direct:
            self.take(LinkMessage.BODY, frame.head + text + frame.tail)
            return
        if frame.texts is None:
            frame.texts = self._writer.text_writer(frame.head, frame.tail)
        frame.texts.write_text(text)
        if self._writer.paused != self._told:
            self._tell()

    async def relay(self, send: Send, *, pull: bool) -> None:
        """Send the response, until it has ended or is aborted; with `pull`, pass on the first part of the body."""
        self._writer.on_resume = self._tell
        if pull:
            self._pulling = asyncio.ensure_future(self._pull())
        try:
            while True:
                while self._came:
                    kind, content = self._came.popleft()
                    if kind == LinkMessage.ABORT:
                        return
                    await send(_asgi_message(kind, content))
                    self._tell()
                    if kind == LinkMessage.END:
                        return
                self._direct = True
                self._wake.clear()
                await self._wake.wait()
        finally:
            self._writer.on_resume = None
            if self._pulling is not None:
                self._pulling.cancel()

    async def _pull(self) -> None:
        """Pass on the next part of the request."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._link.send(LinkMessage.GONE, self._number)
            return
        body, more = message.get("body", b""), message.get("more_body", False)
        preparer, self._preparer = self._preparer, None  # only of a body that comes whole
        if preparer is not None and not more and preparer.takes(self._path, body):
            if len(body) <= SMALL:
                content = preparer.prepare(self._path, body)
            else:
                content = await asyncio.to_thread(preparer.prepare, self._path, body)
            if content is not None:
                self._link.send(LinkMessage.PREPARED, self._number, content)
                return
        self._link.send(LinkMessage.PART if more else LinkMessage.LAST, self._number, body)

    def _tell(self) -> None:
        """Tell the server whether the client reads, if that has changed."""
        if self._writer.paused != self._told:
            self._told = self._writer.paused
            self._link.send(LinkMessage.PAUSE if self._told else LinkMessage.RESUME, self._number)


def _asgi_message(kind: int, content: bytes) -> Message:
    if kind == LinkMessage.START:
        status, headers = unpacked(content)
        return {"type": "http.response.start", "status": status, "headers": [tuple(one) for one in headers]}
    return {"type": "http.response.body", "body": content, "more_body": kind == LinkMessage.BODY}


class _WorkerServer(uvicorn.Server):
    """uvicorn without signals and listening sockets: connections come through a socket of the server."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers."""
        yield

    async def take_connections(self, source: socket.socket) -> None:
        """Serve connections from now on."""
        loop, config = asyncio.get_running_loop(), self.config
        tasks: set[asyncio.Task[Any]] = set()

        def protocol() -> asyncio.Protocol:
            return HttpProtocol(config=config, server_state=self.server_state, app_state={})

        def take() -> None:
            for _ in range(_ACCEPTED):
                try:
                    _, files, _, _ = socket.recv_fds(source, 1, 1)
                except OSError:
                    return
                if not files:
                    loop.remove_reader(source)
                    return
                task = asyncio.ensure_future(loop.connect_accepted_socket(protocol, socket.socket(fileno=files[0])))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        loop.add_reader(source, take)


async def _work(connections: socket.socket, link: socket.socket, most: int) -> None:
    relay = _Relay()
    config = http_config(relay, allowed_connections(most))
    config.load()
    relay.server = server = _WorkerServer(config)
    loop = asyncio.get_running_loop()
    _, relay.link = await loop.create_unix_connection(lambda: HttpLink(relay.receive, relay.lost), sock=link)
    await server.take_connections(connections)
    await server.serve([])
    loop.remove_reader(connections)
    relay.link.close()


def main() -> None:
    """Run a worker: arguments are the descriptors of its two sockets, and its most open connections."""
    from volumetric.serve.log import json_lines

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    files, most = [int(one) for one in sys.argv[2:4]], int(sys.argv[4])
    connections, link = (socket.socket(fileno=file) for file in files)
    connections.setblocking(False)
    link.setblocking(False)
    with json_lines():
        asyncio.run(_work(connections, link, most))
