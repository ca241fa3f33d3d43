"""Running a server: loads models, serves requests, and shuts down after running requests have finished or failed."""

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
from collections.abc import Callable, Coroutine, Generator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import uvicorn

from volumetric.base.errors import DeviceError, GenerationError, SpecError
from volumetric.serve import heap, supervisor
from volumetric.serve.app import application
from volumetric.serve.descriptors import allowed_connections
from volumetric.serve.engine import Engine
from volumetric.serve.http_front import HttpFront
from volumetric.serve.model_opening import open_in_thread
from volumetric.serve.prepared_requests import packed_models
from volumetric.serve.protocol import http_config
from volumetric.serve.serving import ServedModel, ServerSettings, Serving, generates, sequence_bytes

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.generate.scheduling.limits import Limits

logger: logging.Logger = logging.getLogger(__name__)

UNSENT_BYTES = 2**16
"""Size of a connection's send buffer. By default it is megabytes, and it takes minutes to notice that a client does not
read."""
_UNSENT: int | None = getattr(socket, "TCP_NOTSENT_LOWAT", {"linux": 25, "darwin": 0x201}.get(sys.platform))
_GRACE = 1.0
"""Seconds after the drain in which complete responses may still be sent."""
_LOOK = 1.0
"""Seconds between two checks for hung devices."""
_TIDY = 10.0
"""Seconds between two releases of free memory to the system."""


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; port 0 chooses a free port.

    Raises
    ------
    DeviceError : the address is in use or does not belong to this machine, or the port does not exist
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if _UNSENT is not None:  # connections inherit it from the listening socket
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
    """uvicorn without its signal handlers: `Server` handles signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Install no signal handlers."""
        yield


def _foreseen(record: logging.LogRecord) -> bool:
    """Filter for uvicorn's log: drops records of requests that the shutdown cancelled."""
    return record.exc_info is None or not isinstance(record.exc_info[1], asyncio.CancelledError)


class Server:
    """A server for models.

    Parameters
    ----------
    models : names for clients → functions that open the model, called again at a reload; the first model is the default
    settings : limits and options of requests
    limits : limits of the engines; the memory of states is shared by all engines
    drain : seconds that running requests have at a shutdown
    drafts : names of models → functions that open their draft model, or ``"lookup"``

    Raises
    ------
    SpecError : `drain` is below 0
    """

    def __init__(
        self,
        models: Mapping[str, Callable[[], Model]],
        settings: ServerSettings,
        limits: Limits,
        *,
        drain: float = 30.0,
        drafts: Mapping[str, Callable[[], Model] | Literal["lookup"]] = MappingProxyType({}),
    ) -> None:
        if not drain >= 0:
            raise SpecError(f"drain must be 0 seconds or more, got {drain:g}")
        self.serving: Serving = Serving(models={}, settings=settings, created=int(time.time()))
        self._openers = models
        self._limits = limits
        self._whole = 0  # sum of the bytes of a full-length sequence of each model that generates
        self._drain = drain
        self._drafts = drafts
        self._failure: BaseException | None = None
        self._server: _Uvicorn | HttpFront | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False
        self._opening = asyncio.Lock()
        self._reloads = 0
        self._before: set[ServedModel] = set()  # models that were replaced in a reload, and still have requests
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, sock: socket.socket, *, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`, or in the main thread until SIGTERM or SIGINT; SIGHUP there reloads all models.

        While models load, the server responds that it is not ready. Raises the error of a model that fails to load.
        """
        heap.limit_arenas()
        with heap.cycle_search():
            asyncio.run(self._serve(sock, on_ready))
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Shut down after the running requests; a second call shuts down at once. Thread-safe."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._end)

    async def _serve(self, sock: socket.socket, on_ready: Callable[[], None]) -> None:
        """Serve on a socket until a signal or `stop`, then close tasks, models and thread pools."""
        app, settings = application(self.serving), self.serving.settings
        connections = allowed_connections(settings.connections)
        self._server = server = (
            HttpFront(app, settings.http_workers, connections)
            if settings.http_workers
            else _Uvicorn(http_config(app, connections))
        )
        self._loop = loop = asyncio.get_running_loop()
        handlers = self._handlers() if threading.current_thread() is threading.main_thread() else {}
        before: dict[int, Any] = {}
        logging.getLogger("uvicorn.error").addFilter(_foreseen)
        try:
            # Not `loop.add_signal_handler`: a busy loop may lose a signal there.
            for number, handler in handlers.items():
                before[number] = signal.signal(number, lambda *_, end=handler: loop.call_soon_threadsafe(end))
            for task in (self._open(on_ready), self._tidy(), self._watch()):
                self._start(task)
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
        """Open all models, and accept requests."""
        try:
            async with self._opening:
                for name, opener in self._openers.items():
                    model, draft = await self._open_model(name, opener)
                    self.serving.models = {**self.serving.models, name: await self._make_served(name, model, draft)}
                served = [*self.serving.models.values()]
                first = [one for i, one in enumerate(served) if not any(o.shares_calls(one.model) for o in served[:i])]
                self._whole = sum(sequence_bytes(one.model) for one in first if generates(one.model))
                for one in served:
                    one.engine = self._engine(one.model, one.draft)
            await asyncio.to_thread(heap.tune_collector)
        except Exception as error:  # `run` raises it after the server has ended
            self._failure = error
            if self._server is not None:
                self._server.should_exit = True
            return
        await self._share()
        self.serving.ready = True
        supervisor.tell(supervisor.READY)
        on_ready()

    async def _share(self) -> None:
        """Let processes for HTTP prepare requests with the models of now."""
        self.serving.version += 1
        if isinstance(self._server, HttpFront):
            self._server.share(
                await asyncio.to_thread(packed_models, self.serving.version, self.serving.models, self.serving.settings)
            )

    async def _tidy(self) -> None:
        """Return free memory to the system periodically."""
        answered = 0
        while True:
            await asyncio.sleep(_TIDY)
            count, busy = sum(self.serving.answered.values()), any(one.busy for one in self.serving.models.values())
            if count != answered and not busy:
                # Ended requests may have left reference cycles since the last collection.
                answered = count
                await self.serving.run_in_thread(gc.collect)
            await self.serving.run_in_thread(heap.trim)

    async def _watch(self) -> None:
        """Check for hung devices; send the supervisor's watchdog a message while none hangs."""
        while True:
            await asyncio.sleep(_LOOK)
            engines = self._engines()
            for engine in engines:
                engine.watch()
            if not any(engine.stuck for engine in engines):
                supervisor.tell(supervisor.ALIVE)

    def _engines(self) -> list[Engine]:
        """Return all engines, also those of replaced models that still have requests."""
        before = [served.engine for served in self._before if served.engine is not None]
        return [*self.serving.engines, *before]

    async def _open_model(
        self, name: str, opener: Callable[[], Model]
    ) -> tuple[Model, Model | Literal["lookup"] | None]:
        """Open a model, and its draft model."""
        model = await open_in_thread(opener)
        for one in self.serving.models.values():
            if one.shares_calls(model):
                return model, one.draft
        draft = self._drafts.get(name) if generates(model) else None
        return model, await open_in_thread(draft) if callable(draft) else draft

    async def _make_served(self, name: str, model: Model, draft: Model | Literal["lookup"] | None) -> ServedModel:
        """Return a model under its name, with grammars compiled but without an engine."""
        served = ServedModel(name, model, None, draft)
        if generates(model):
            try:
                # Not at the first request: building the token table blocks all Python threads.
                served.forms = await self.serving.run_in_thread(self.serving.compilers.of, model)
            except GenerationError as error:
                served.forms = error
        return served

    def _engine(self, model: Model, draft: Model | Literal["lookup"] | None) -> Engine | None:
        """Return the engine of a model, with its share of the memory for states; None for an encoder.

        Models that share device calls share an engine.
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
        """Reload all models, one after the other; running requests finish on the model that they began with.

        A reload waits for one in progress; further calls during the wait have no effect.
        """
        if self._reloads:
            return
        self._reloads += 1
        async with self._opening:
            self._reloads -= 1
            await self._open_anew()

    async def _open_anew(self) -> None:
        for name, opener in self._openers.items():
            if self._ending or name not in self.serving.models:  # opening failed, and the server shuts down
                return
            try:
                model, draft = await self._open_model(name, opener)
                served = await self._make_served(name, model, draft)
                served.engine = self._engine(model, draft)
            except Exception as error:  # the old model stays in use
                logger.error("%s was not reloaded: %s", name, error)
                continue
            before = self.serving.models[name]
            self.serving.models = {**self.serving.models, name: served}
            await self._share()
            logger.info("%s was reloaded", name)
            self._before.add(before)
            while before.busy:
                await asyncio.sleep(0.05)
            self._before.discard(before)
            await asyncio.to_thread(before.close)
            await self.serving.compilers.close([one.forms for one in (*self.serving.models.values(), *self._before)])
        await asyncio.to_thread(heap.tune_collector)

    def _end(self) -> None:
        """Refuse new requests, and stop when the running ones have ended, or after `drain` seconds."""
        if self._server is None or self._ending:
            if self._server is not None:
                self._server.force_exit = self._server.should_exit = True
            return
        self._ending = True
        self.serving.ready = False
        supervisor.tell(supervisor.STOPPING)
        logger.info("shutting down: running requests have %g s to finish", self._drain)
        self._start(self._finish(self._server))

    async def _finish(self, server: _Uvicorn | HttpFront) -> None:
        until = time.monotonic() + self._drain
        engines = self._engines()
        for engine in engines:
            engine.scheduler.drain(until)
        while any(engine.busy for engine in engines) and time.monotonic() < until + _GRACE:
            await asyncio.sleep(0.02)
        server.should_exit = True  # uvicorn finishes sending responses that have begun
