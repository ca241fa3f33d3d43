"""The server's side of HTTP in processes: it accepts connections, passes them on, and answers what the workers relay.

The application runs here as it does without workers, so that keys, limits and metrics have one place. What the workers
take over is HTTP and the sockets of clients: a system call for each event of each stream.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import sys
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from starlette.types import ASGIApp, Message

from volumetric.base.errors import DeviceError
from volumetric.serve.http_link import HttpLink, LinkMessage, comes_by_itself, packed, unpacked
from volumetric.serve.prepared_requests import PreparedRequest

if TYPE_CHECKING:
    from starlette.types import Scope

logger: logging.Logger = logging.getLogger(__name__)

_RUN: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from volumetric.serve.http_worker import main; main()"
)
_ACCEPTED: Final = 64
"""Most connections accepted in one turn of the event loop."""
_PAUSE: Final = 1.0
"""Seconds until the next try, if no connection can be accepted, or a worker has ended by itself."""
_LOOK: Final = 0.05
_LAST: Final = 6.0
"""Most seconds of a shutdown in which workers send responses that have begun; uvicorn waits 5."""


class HttpFront:
    """Runs an ASGI application behind worker processes.

    Parameters
    ----------
    app : the application
    workers : number of processes
    connections : most open connections, of all processes together

    Attributes
    ----------
    should_exit : set to shut down after current responses
    force_exit : set to shut down at once
    """

    def __init__(self, app: ASGIApp, workers: int, connections: int) -> None:
        if not hasattr(socket, "send_fds"):
            raise DeviceError("processes for HTTP need Unix sockets", hint="leave --http-workers out")
        self.should_exit = self.force_exit = False
        self._app = app
        parts = (max(1, (connections + number) // workers) for number in reversed(range(workers)))
        self._workers = [_Worker(app, part) for part in parts]

    def share(self, content: bytes) -> None:
        """Let workers prepare requests with the content of `volumetric.serve.prepared_requests.packed_models`."""
        for worker in self._workers:
            worker.share(content)

    async def serve(self, sockets: list[socket.socket]) -> None:
        """Serve on listening sockets until `should_exit`."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(worker.start() for worker in self._workers))
        try:
            for sock in sockets:
                sock.setblocking(False)
                loop.add_reader(sock, self._accept, sock)
            while not self.should_exit:
                await asyncio.sleep(_LOOK)
        finally:
            for sock in sockets:
                loop.remove_reader(sock)
                sock.close()
            for worker in self._workers:
                worker.stop()
            until = loop.time() + _LAST
            while any(worker.alive for worker in self._workers) and loop.time() < until and not self.force_exit:
                await asyncio.sleep(_LOOK)
            await asyncio.gather(*(worker.close() for worker in self._workers))

    def _accept(self, listening: socket.socket) -> None:
        """Accept connections, and pass each to the next worker."""
        for _ in range(_ACCEPTED):
            try:
                sock, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no more descriptors, or memory
                logger.error("no connection can be accepted: %s", error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(listening)
                loop.call_later(_PAUSE, self._resume, listening)
                return
            with sock:
                for _ in self._workers:
                    worker = self._workers.pop(0)
                    self._workers.append(worker)
                    if worker.take(sock):
                        break

    def _resume(self, listening: socket.socket) -> None:
        if not self.should_exit:
            asyncio.get_running_loop().add_reader(listening, self._accept, listening)


class _Worker:
    """A worker process, which is started again if it ends by itself."""

    def __init__(self, app: ASGIApp, connections: int) -> None:
        self._app = app
        self._most = connections
        self._process: Process | None = None
        self._link: HttpLink | None = None
        self._connections: socket.socket | None = None
        self._requests: dict[int, _RelayedRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False
        self._shared = b""

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.returncode is None

    async def start(self) -> None:
        """Start the process."""
        loop = asyncio.get_running_loop()
        connections, theirs = socket.socketpair()
        link, other = socket.socketpair()
        with theirs, other:
            connections.setblocking(False)
            link.setblocking(False)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _RUN,
                json.dumps(sys.path),
                *(str(one) for one in (theirs.fileno(), other.fileno(), self._most)),
                pass_fds=(theirs.fileno(), other.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                env={**os.environ, "MALLOC_ARENA_MAX": "1"},
            )
        _, self._link = await loop.create_unix_connection(
            lambda: HttpLink(self._receive, self._lost, self._resumed), sock=link
        )
        if self._shared:
            self._link.send(LinkMessage.MODELS, 0, self._shared)
        self._connections = connections

    def take(self, sock: socket.socket) -> bool:
        """Pass a connection on; return whether the process takes it."""
        if self._connections is None:
            return False
        try:
            socket.send_fds(self._connections, [b"c"], [sock.fileno()])
        except OSError:
            return False
        return True

    def share(self, content: bytes) -> None:
        """Pass on what requests are prepared with, also to later processes."""
        self._shared = content
        if self._link is not None:
            self._link.send(LinkMessage.MODELS, 0, content)

    def stop(self) -> None:
        """Let the process end after current responses."""
        self._ending = True
        if self._link is not None:
            self._link.send(LinkMessage.STOP)

    async def close(self) -> None:
        """End the process, and its requests."""
        self._ending = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                if self.alive:
                    self._process.kill()
            await self._process.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._drop()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
        if self._connections is not None:
            self._connections.close()
        self._link = self._connections = None

    def _receive(self, kind: int, number: int, content: bytes) -> None:
        if kind != LinkMessage.REQUEST:
            request = self._requests.get(number)
            if request is not None:
                request.take(kind, content)
            return
        assert self._link is not None
        self._requests[number] = request = _RelayedRequest(self._link, number, unpacked(content))
        self._start(self._run(request))

    def _start(self, what: Any) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, request: _RelayedRequest) -> None:
        try:
            await request.run(self._app)
        finally:
            self._requests.pop(request.number, None)

    def _resumed(self) -> None:
        for request in list(self._requests.values()):
            request.writer.resume()

    def _lost(self) -> None:
        """The process has ended: so have its clients' connections."""
        for request in list(self._requests.values()):
            request.take(LinkMessage.GONE, b"")
        self._drop()
        if not self._ending:
            logger.error("a process for HTTP has ended; another one is started")
            self._start(self._start_again())

    async def _start_again(self) -> None:
        await asyncio.sleep(_PAUSE)
        if self._process is not None:
            await self._process.wait()
        if not self._ending:
            await self.start()


class _LinkWriter:
    """Writes parts of a response through the link; see `volumetric.serve.event_stream.BodyWriter`."""

    def __init__(self, link: HttpLink, number: int) -> None:
        self.on_resume: Callable[[], None] | None = None
        self.stopped = False  # the client does not read
        self._link = link
        self._number = number

    @property
    def paused(self) -> bool:
        """Whether nothing should be written, for the client or the worker does not read."""
        return self.stopped or self._link.paused

    def write(self, data: bytes) -> None:
        """Write a part."""
        self._link.send(LinkMessage.BODY, self._number, data)

    def text_writer(self, head: bytes, tail: bytes) -> _LinkTexts:
        """Return a writer of parts that differ in a text alone, between constant bytes."""
        return _LinkTexts(self, self._link, self._link.send_frame(self._number, head, tail))

    def resume(self) -> None:
        """Go on, unless there is another reason not to."""
        if self.on_resume is not None and not self.paused:
            self.on_resume()


class _LinkTexts:
    """Writes parts that differ in a text alone; see `volumetric.serve.engine.TextWriter`."""

    def __init__(self, writer: _LinkWriter, link: HttpLink, frame: int) -> None:
        self._writer = writer
        self._link = link
        self._frame = frame

    @property
    def paused(self) -> bool:
        """Whether nothing should be written, for the client or the worker does not read."""
        return self._writer.stopped or self._link.paused

    def write_text(self, text: bytes) -> None:
        """Write a text: the worker has what encloses it."""
        self._link.send_text(self._frame, text)


class _RelayedRequest:
    """A request as ASGI knows it, whose client a worker serves."""

    def __init__(self, link: HttpLink, number: int, scope: dict[str, Any]) -> None:
        self.number = number
        self.writer = _LinkWriter(link, number)
        self._link = link
        scope["headers"] = [tuple(header) for header in scope["headers"]]
        scope["client"] = scope["client"] and tuple(scope["client"])
        scope["server"] = scope["server"] and tuple(scope["server"])
        scope["state"] = {"writer": self.writer}
        self._scope: Scope = scope
        self._came: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._pulled = comes_by_itself(scope)
        self._gone = False
        self._complete = False
        self._writable = asyncio.Event()
        self._writable.set()

    def take(self, kind: int, content: bytes) -> None:
        """Take a message of the worker."""
        if kind == LinkMessage.PAUSE:
            self.writer.stopped = True
            self._writable.clear()
            return
        if kind == LinkMessage.GONE:
            self._gone = True
        elif kind == LinkMessage.PREPARED:
            self._pulled = False
            self._scope["state"]["prepared"] = msgspec.msgpack.decode(content, type=PreparedRequest)
            self._came.append({"type": "http.request", "body": b"", "more_body": False})
        elif kind != LinkMessage.RESUME:
            self._pulled = False
            more = kind == LinkMessage.PART
            self._came.append({"type": "http.request", "body": content, "more_body": more})
        if kind not in {LinkMessage.PART, LinkMessage.LAST, LinkMessage.PREPARED}:
            self.writer.stopped = False
            self._writable.set()
            self.writer.resume()
        self._wake.set()

    async def run(self, app: ASGIApp) -> None:
        """Answer the request."""
        try:
            await app(self._scope, self._receive, self._send)
        except Exception as error:
            logger.error("%s", error, exc_info=error)
        finally:
            if not self._complete:
                self._link.send(LinkMessage.ABORT, self.number)

    async def _receive(self) -> Message:
        while not self._came:
            if self._gone or self._complete:
                return {"type": "http.disconnect"}
            if not self._pulled:
                self._pulled = True
                self._link.send(LinkMessage.PULL, self.number)
            self._wake.clear()
            await self._wake.wait()
        return self._came.popleft()

    async def _send(self, message: Message) -> None:
        await self._writable.wait()
        if self._gone:
            return
        if message["type"] == "http.response.start":
            content = packed((message["status"], list(message.get("headers", ()))))
            self._link.send(LinkMessage.START, self.number, content)
            return
        self._complete = not message.get("more_body", False)
        kind = LinkMessage.END if self._complete else LinkMessage.BODY
        self._link.send(kind, self.number, message.get("body", b""))
        if self._complete:
            self._wake.set()
