"""Server-sent events: a response that streams events, and stops their producer when the client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, Final, Protocol

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from volumetric.serve.problem import RequestError, problem_of
from volumetric.serve.serving import json_bytes

if TYPE_CHECKING:
    from volumetric.generate.scheduling.jobs import JobEvent, Ticket
    from volumetric.generate.token_events import TokenEvent
    from volumetric.serve.answer_fields import Answer
    from volumetric.serve.engine import SubmittedJobs, TextWriter
    from volumetric.serve.respond import AnswerTexts

KEEP_ALIVE: Final = 10.0
"""Seconds without an event after which a comment is sent, so that no proxy closes the connection as idle."""
STUCK: Final = 30.0
"""Most seconds that a client may leave data unread."""
_COMMENT: Final = b": keep-alive\n\n"


def sse_event(data: bytes, name: str = "") -> bytes:
    """Encode an event: a line of data, and a name if clients expect one."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + data + b"\n\n"


class BodyWriter(Protocol):
    """Writes the body of a streamed response without a task or a message for each part: ``scope["state"]["writer"]``.

    Attributes
    ----------
    paused : the client does not read, and nothing should be written
    on_resume : called when that is over
    """

    paused: bool
    on_resume: Callable[[], None] | None

    def write(self, data: bytes) -> None:
        """Write a part of the body, after the response has started."""
        ...

    def text_writer(self, head: bytes, tail: bytes) -> TextWriter:
        """Return a writer of parts that differ in a text alone, between constant bytes."""
        ...


class StreamedTexts:
    """The stream of a request, as bytes.

    Parameters
    ----------
    texts : collects the texts of the request
    shape : format of the answer

    Attributes
    ----------
    ended : the last bytes were returned
    """

    def __init__(self, texts: AnswerTexts, shape: Answer) -> None:
        self.ended = False
        self._texts = texts
        self._shape = shape
        self._begun: set[int] = set()
        self._frames: dict[int, tuple[bytes, bytes]] = {}
        self._new_frames: list[tuple[Ticket, int, tuple[bytes, bytes]]] = []
        self._context = copy_context()  # of the request, whose id the log names

    def begin(self) -> bytes:
        """Return what precedes the first token."""
        return b"".join(self._shape.begun())

    def push(self, events: Sequence[JobEvent]) -> bytes:
        """Return what events add to the stream. An error is the last event of it: no finish reason follows."""
        if len(events) == 1 and events[0].generation is None and (token := events[0].token) is not None:
            # Nearly always. Between such tokens nothing but the text differs, in most answers.
            frame = self._frames.get(self._texts.index_of(events[0]))
            if frame is not None:
                return json_bytes(token.text).join(frame) if token.text else b""
        try:
            return self._join(events)
        except Exception as error:  # the status has been sent, so that only the stream can carry the error
            self.ended, problem = True, self._context.run(problem_of, error)
            try:
                return self._shape.failed(problem)
            except Exception:
                return b""

    def take_frames(self) -> list[tuple[Ticket, int, tuple[bytes, bytes]]]:
        """Return, once, each job's text whose further tokens need no more than their JSON between two constant parts.

        These are those parts.
        """
        frames, self._new_frames = self._new_frames, []
        return frames

    def _join(self, events: Sequence[JobEvent]) -> bytes:
        """Return the chunks of several events: the tokens of a text share one."""
        shape, came, reasons = self._shape, dict[int, list["TokenEvent"]](), dict[int, str]()
        problem: RequestError | None = None
        places: dict[int, tuple[Ticket, int]] = {}
        for event in events:
            try:
                index = self._context.run(self._texts.take, event)
            except RequestError as refusal:
                problem = refusal
                break
            places[index] = event.ticket, event.choice
            if event.token is not None:
                came.setdefault(index, []).append(event.token)
            if event.generation is not None:
                reasons[index] = event.generation.finish_reason
        pieces: list[bytes] = []
        for index in sorted(came.keys() | reasons.keys()):
            if index not in self._begun:
                self._begun.add(index)
                pieces += map(shape.framed, shape.opening(index))
            if index in came:
                pieces.append(shape.chunks(index, came[index]))
                if (frame := shape.frame(index)) is not None:
                    if index not in self._frames:
                        self._new_frames.append((*places[index], frame))
                    self._frames[index] = frame
            if index in reasons:
                pieces += map(shape.framed, shape.closing(index, reasons[index]))
        if problem is not None:
            pieces.append(shape.failed(problem))
        elif self._texts.ended:
            pieces += shape.ended(self._texts.by_prompt)
        self.ended = problem is not None or self._texts.ended
        return b"".join(pieces)


class EventStream(Response):
    """Writes what the events of a request's jobs add to its answer, as soon as they come.

    Events that come while the client does not read are written together later.

    Parameters
    ----------
    running : the jobs; they are left when the response has ended, by success, error or disconnection
    texts : makes bytes of their events
    """

    media_type = "text/event-stream"

    def __init__(self, running: SubmittedJobs, texts: StreamedTexts) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._running = running
        self._texts = texts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events, or those until the client disconnects."""
        parts = [asyncio.ensure_future(one) for one in (self._send(scope, send), wait_for_disconnect(receive))]
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._running.leave()
            for part in parts:
                part.cancel()
            await asyncio.gather(*parts, return_exceptions=True)

    async def _send(self, scope: Scope, send: Send) -> None:
        """Send the events; return early if the client does not read."""
        writer: BodyWriter = scope["state"]["writer"]
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        since, ended = time.monotonic(), asyncio.Event()

        def write() -> None:
            nonlocal since
            if writer.paused or ended.is_set():
                return
            if events := self._running.take():
                since = time.monotonic()
                if data := self._texts.push(events):
                    writer.write(data)
                for ticket, choice, frame in self._texts.take_frames():
                    self._running.direct(ticket, choice, writer.text_writer(*frame))
                if self._texts.ended:
                    ended.set()

        if head := self._texts.begin():
            writer.write(head)
        writer.on_resume = self._running.on_events = write
        try:
            write()
            while not ended.is_set():
                since = max(since, self._running.passed)
                left = since + (STUCK if writer.paused else KEEP_ALIVE) - time.monotonic()
                if left > 0:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(left):
                            await ended.wait()
                elif writer.paused:
                    return
                else:
                    since = time.monotonic()
                    writer.write(_COMMENT)
            async with asyncio.timeout(STUCK):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            writer.on_resume = self._running.on_events = None


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
