"""Running a server: models are loaded, requests taken, and, when asked to end, those under way are finished or told."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import uvicorn
from starlette.applications import Starlette

from volumetric.base.errors import DeviceError, GenerationError, SpecError
from volumetric.serve import heap, supervisor
from volumetric.serve.app import application
from volumetric.serve.descriptors import admitted
from volumetric.serve.engine import Engine
from volumetric.serve.opening import opened
from volumetric.serve.protocol import Config, Protocol
from volumetric.serve.serving import Served, Serving, Settings, generates, sequence_bytes

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.generate.scheduling.limits import Limits

logger = logging.getLogger(__name__)

UNSENT_BYTES = 2**16
"""Bytes that the system holds for a client before they can be sent: without a bound these are megabytes, and it takes
minutes until anybody sees that the client does not read."""
_UNSENT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", {"linux": 25, "darwin": 0x201}.get(sys.platform))
_GRACE = 1.0
"""Seconds after the drain in which answers that have ended may still go out."""
_LOOK = 1.0
"""Seconds between two looks at whether devices answer."""
_TIDY = 10.0
"""Seconds after which free memory is given back to the system."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 takes a free one.

    Raises
    ------
    DeviceError : the address is in use, or is none of this machine; there is no such port
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if _UNSENT is not None:  # connections take it from the socket that listens
            sock.setsockopt(socket.IPPROTO_TCP, _UNSENT, UNSENT_BYTES)
        sock.bind((host, port))
        sock.listen(2048)
    except (OSError, OverflowError, UnicodeError) as error:
        sock.close()
        reason = error.strerror if isinstance(error, OSError) else error
        raise DeviceError(
            f"cannot listen on {host} port {port}: {reason}",
            hint="choose another with --port, or 0 for a free one",
        ) from error
    return sock


class _Uvicorn(uvicorn.Server):
    """uvicorn without signal handlers of its own: what a signal means is decided here."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals alone."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End; an application that is ended at once hears of it, too."""
        await super().shutdown(sockets)
        if self.force_exit:
            await self.lifespan.shutdown()


def _foreseen(record: logging.LogRecord) -> bool:
    """Leave out of uvicorn's log that a request was cancelled when the server ended."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


class Server:
    """A server for models.

    Parameters
    ----------
    models : the names that clients use → what opens the model, called again for a reload; the first is the default
    settings, limits : of requests, and of each engine; memory of states is that of all engines together
    drain : seconds that requests under way have when the server is to end
    drafts : names of models → what opens the one that proposes tokens for it, or ``"lookup"``

    Raises
    ------
    SpecError : `drain` is below 0
    """

    def __init__(
        self,
        models: Mapping[str, Callable[[], Model]],
        settings: Settings,
        limits: Limits,
        *,
        drain: float = 30.0,
        drafts: Mapping[str, Callable[[], Model] | Literal["lookup"]] = MappingProxyType({}),
    ) -> None:
        if not drain >= 0:
            raise SpecError(f"drain must be 0 seconds or more, got {drain:g}")
        self.serving = Serving(models={}, settings=settings, created=int(time.time()))
        self._openers = models
        self._limits = limits
        self._whole = 0  # bytes of a whole sequence of each model that generates, of all together
        self._drain = drain
        self._drafts = drafts
        self._failure: BaseException | None = None
        self._server: _Uvicorn | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False
        self._opening = asyncio.Lock()
        self._reloads = 0
        self._before: set[Served] = set()  # models that were opened anew, and still have requests
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, sock: socket.socket, *, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`, or in the main thread until SIGTERM or SIGINT; SIGHUP there opens all models anew.

        The server answers while models are opened; until then it says that it is not ready. Raises what opening raises.
        """
        heap.bound()
        with heap.searched():
            asyncio.run(self._serve(sock, on_ready))
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Let requests under way end, and the server with them; a second call ends it at once. For any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._end)

    async def _serve(self, sock: socket.socket, on_ready: Callable[[], None]) -> None:
        """Serve on a socket until a signal or `stop` ends it, then end tasks, models and thread pools."""

        @contextlib.asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
            self._start(self._open(on_ready))
            self._start(self._tidy())
            self._start(self._watch())
            yield

        config = Config(
            application(self.serving, lifespan),
            http=Protocol,
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="on",
            server_header=False,
            timeout_keep_alive=65,
            timeout_graceful_shutdown=5,
        )
        config.connections = admitted(self.serving.settings.connections)
        self._server = server = _Uvicorn(config)
        self._loop = loop = asyncio.get_running_loop()
        handlers = self._handlers() if threading.current_thread() is threading.main_thread() else {}
        before: dict[int, Any] = {}
        logging.getLogger("uvicorn.error").addFilter(_foreseen)
        try:
            # Not by the loop's own way: a loop that is far behind may lose a signal there.
            for number, handler in handlers.items():
                before[number] = signal.signal(number, lambda *_, end=handler: loop.call_soon_threadsafe(end))
            await server.serve([sock])
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.serving.ready = False
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for served in (*self.serving.models.values(), *self._before):
                served.close()
            await self.serving.compilers.close()
            for pool in (self.serving.pool, self.serving.encoders):
                pool.shutdown(wait=False, cancel_futures=True)

    def _handlers(self) -> Mapping[int, Callable[[], None]]:
        handlers: dict[int, Callable[[], None]] = {signal.SIGTERM: self._end, signal.SIGINT: self._end}
        if hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = lambda: self._start(self._reload())
        return handlers

    def _start(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(self, on_ready: Callable[[], None]) -> None:
        """Open all models, and take requests."""
        try:
            async with self._opening:
                for name, opener in self._openers.items():
                    model, draft = await self._opened(name, opener)
                    self.serving.models = {**self.serving.models, name: await self._served(name, model, draft)}
                served = [*self.serving.models.values()]
                first = [one for i, one in enumerate(served) if not any(o.shares_calls(one.model) for o in served[:i])]
                self._whole = sum(sequence_bytes(one.model) for one in first if generates(one.model))
                for one in served:
                    one.engine = self._engine(one.model, one.draft)
            await asyncio.to_thread(heap.settle)
        except Exception as error:  # `run` raises it, once the server has ended
            self._failure = error
            if self._server is not None:
                self._server.should_exit = True
            return
        self.serving.ready = True
        supervisor.tell(supervisor.READY)
        on_ready()

    async def _tidy(self) -> None:
        """Give free memory back, now and then."""
        answered = 0
        while True:
            await asyncio.sleep(_TIDY)
            count, busy = sum(self.serving.answered.values()), any(one.busy for one in self.serving.models.values())
            if count != answered and not busy:
                # What has ended may hang together in cycles for which nobody has looked since.
                answered = count
                await self.serving.aside(gc.collect)
            await self.serving.aside(heap.trim)

    async def _watch(self) -> None:
        """Look after devices that hang; who supervises the server hears that none does."""
        while True:
            await asyncio.sleep(_LOOK)
            engines = self._engines()
            for engine in engines:
                engine.watch()
            if not any(engine.stuck for engine in engines):
                supervisor.tell(supervisor.ALIVE)

    def _engines(self) -> list[Engine]:
        """Return all engines, also those of models that were opened anew and have requests still."""
        before = [served.engine for served in self._before if served.engine is not None]
        return [*self.serving.engines, *before]

    async def _opened(self, name: str, opener: Callable[[], Model]) -> tuple[Model, Model | Literal["lookup"] | None]:
        """Open a model, and what proposes tokens for it."""
        model = await opened(opener)
        for one in self.serving.models.values():
            if one.shares_calls(model):
                return model, one.draft
        draft = self._drafts.get(name) if generates(model) else None
        return model, await opened(draft) if callable(draft) else draft

    async def _served(self, name: str, model: Model, draft: Model | Literal["lookup"] | None) -> Served:
        """Return a model under its name that can hold texts to forms; it has no engine yet."""
        served = Served(name, model, None, draft)
        if generates(model):
            try:
                # Not when a request asks first: no other thread runs Python while the table of the tokens is made.
                served.forms = await self.serving.aside(self.serving.compilers.of, model)
            except GenerationError as error:
                served.forms = error
        return served

    def _engine(self, model: Model, draft: Model | Literal["lookup"] | None) -> Engine | None:
        """Return what generates, in its part of the memory for states; None for an encoder.

        Models that share calls have one.
        """
        if not generates(model):
            return None
        for one in self.serving.models.values():
            if one.engine is not None and one.shares_calls(model):
                one.engine.users += 1
                return one.engine
        part = sequence_bytes(model) / self._whole if self._whole else 1.0
        return Engine(model, self._limits.part(part), draft, self.serving.settings.step_seconds)

    async def _reload(self) -> None:
        """Open all models anew, one after the other; requests under way are finished by the model that they have.

        Who asks for it while models are opened waits for these, and of several who wait one is enough.
        """
        if self._reloads:
            return
        self._reloads += 1
        async with self._opening:
            self._reloads -= 1
            await self._open_anew()

    async def _open_anew(self) -> None:
        for name, opener in self._openers.items():
            if self._ending or name not in self.serving.models:  # opening failed, and the server ends
                return
            try:
                model, draft = await self._opened(name, opener)
                served = await self._served(name, model, draft)
                served.engine = self._engine(model, draft)
            except Exception as error:  # the model of before goes on
                logger.error("%s was not opened anew: %s", name, error)
                continue
            before = self.serving.models[name]
            self.serving.models = {**self.serving.models, name: served}
            logger.info("%s was opened anew", name)
            self._before.add(before)
            while before.busy:
                await asyncio.sleep(0.05)
            self._before.discard(before)
            await asyncio.to_thread(before.close)
            await self.serving.compilers.close([one.forms for one in (*self.serving.models.values(), *self._before)])
        await asyncio.to_thread(heap.settle)

    def _end(self) -> None:
        """Take nothing new, and stop when what runs has ended, or its time is over."""
        if self._server is None or self._ending:
            if self._server is not None:
                self._server.force_exit = self._server.should_exit = True
            return
        self._ending = True
        self.serving.ready = False
        supervisor.tell(supervisor.STOPPING)
        logger.info("shutting down: requests under way have %g s", self._drain)
        self._start(self._finish(self._server))

    async def _finish(self, server: _Uvicorn) -> None:
        until = time.monotonic() + self._drain
        engines = self._engines()
        for engine in engines:
            engine.scheduler.drain(until)
        while any(engine.busy for engine in engines) and time.monotonic() < until + _GRACE:
            await asyncio.sleep(0.02)
        server.should_exit = True  # uvicorn lets the answers that have begun go out
