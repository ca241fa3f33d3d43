"""Engine: the thread that computes what all requests for one model ask for, and the way of its events to them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from volumetric.base.errors import DeviceError, GenerationError, ShuttingDownError, VolumetricError
from volumetric.generate.scheduler import Scheduler
from volumetric.generate.scheduling.job import Event, Job, Ticket

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.generate.scheduling.limits import Limits

logger = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds that a step may take to end once its thread is to, as kernels are compiled in one; then the device is left
to itself, and at once where it was known to hang."""
UNREAD = 512
"""Events that a request may have before it that it has not read: then its jobs are paused until it has."""
_NAP = 0.5
"""Seconds after which a thread without work looks whether it is to end."""


class Running:
    """Submitted jobs, as their request sees them; for the event loop alone."""

    def __init__(self, engine: Engine) -> None:
        self.tickets: list[Ticket] = []
        self._engine = engine
        self._events: list[Event] = []
        self._came = asyncio.Event()
        self._paused = False

    async def events(self) -> Sequence[Event]:
        """Wait for what comes next, and return all of it: whoever reads slowly gets more at a time."""
        await self._came.wait()
        self._came.clear()
        events, self._events = self._events, []
        if self._paused:
            self._paused = False
            for ticket in self.tickets:
                self._engine.scheduler.resume(ticket)
        return events

    def leave(self) -> None:
        """Give seats back, and hear no more; what has ended is left as it is."""
        for ticket in self.tickets:
            self._engine.forget(ticket)

    def push(self, event: Event) -> None:
        """Let the request see an event. One that reads none of them takes no slots from those who do."""
        self._events.append(event)
        self._came.set()
        if len(self._events) >= UNREAD and not self._paused:
            self._paused = True
            for ticket in self.tickets:
                self._engine.scheduler.pause(ticket)


class Engine:
    """A scheduler with its thread, which runs until `close`; all methods are for the event loop that made it.

    It computes for a model and for those with adapters that share calls with it, see `Model.together`; `users` counts
    them, and each closes it.

    Parameters
    ----------
    model : what generates
    limits : how much is taken on
    draft : what proposes tokens, see `Scheduler`
    step_seconds : after which a step counts as hung; 0: never
    """

    def __init__(
        self,
        model: Model,
        limits: Limits,
        draft: Model | Literal["lookup"] | None = None,
        step_seconds: float = 0.0,
    ) -> None:
        self.model = model
        self.users = 1
        self.scheduler = Scheduler(model, limits, draft=draft)
        self._running: dict[Ticket, Running] = {}
        self._loop = asyncio.get_running_loop()
        self._ending = False
        self._most = step_seconds or float("inf")
        self._began: float | None = None  # when the step under way began
        self._thread = threading.Thread(target=self._work, name=f"engine of {model.name}", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """End all jobs, and the thread, after the call of the device that it is in; False if that does not end.

        Whoever is not the last user only leaves.
        """
        self.users -= 1
        if self.users > 0:
            return True
        self._ending = True
        self._thread.join(0.0 if self.stuck else PATIENCE)
        if self.alive:
            logger.error("the device of %s does not answer, and is left to itself", self.model.name)
        return not self.alive

    def submit(self, jobs: Sequence[Job], *, owner: str = "", weight: float = 1.0) -> Running:
        """Let the jobs of a request wait for slots, all or none.

        Requests take turns, and so do owners, each by its weight; of what one has computed another one sees nothing.
        Raises what `Scheduler.submit` raises, and once it is closed.
        """
        if self._ending:
            raise ShuttingDownError("the model was closed before the request came to it")
        running = Running(self)
        try:
            for job in jobs:
                own = replace(job, owner=owner, weight=weight, request=id(running), salt=f"{owner}\0{job.salt}")
                ticket = self.scheduler.submit(own)
                # Events come by way of this loop, so none can have come before these lines.
                running.tickets.append(ticket)
                self._running[ticket] = running
        except BaseException:
            running.leave()
            raise
        return running

    def forget(self, ticket: Ticket) -> None:
        """End a job, and hear no more of it."""
        if self._running.pop(ticket, None) is not None:
            self.scheduler.cancel(ticket)

    @property
    def waiting(self) -> bool:
        """Whether anybody waits for events."""
        return bool(self._running)

    @property
    def alive(self) -> bool:
        """Whether the thread computes."""
        return self._thread.is_alive()

    @property
    def stuck(self) -> float:
        """Seconds for which a step has been under way that counts as hung, else 0."""
        began = self._began
        seconds = 0.0 if began is None else time.monotonic() - began
        return seconds if seconds > self._most else 0.0

    @property
    def busy(self) -> bool:
        """Whether there is something to do, and a device that does it."""
        return not self.scheduler.idle and not self.stuck

    def watch(self) -> None:
        """Tell all who wait for a step that hangs, and those who came since: nobody knows when it will end."""
        seconds = self.stuck
        if seconds and self._running:
            error = DeviceError(
                f"the device has not answered for {seconds:.0f} s", hint="it seems to hang; ask for a restart"
            )
            logger.error("%s of %s; %d requests are told so", error, self.model.name, len(self._running))
            self._all_failed(error)

    def _work(self) -> None:
        while not self._ending:
            if not self.scheduler.wait(_NAP):
                continue
            self._began = time.monotonic()
            try:
                events = self.scheduler.step()
            except Exception:
                logger.exception("the scheduler failed; all requests under way have ended")
                self.scheduler.close()
                failed = GenerationError("the server failed in the middle of this request", hint="try again")
                self._tell(self._all_failed, failed)
                continue
            finally:
                self._began = None
            if events:
                self._tell(self._deliver, events)
        self.scheduler.close()

    def _tell(self, what: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(what, *args)
        except RuntimeError:  # the loop has ended: nobody is left to hear of it
            self._ending = True

    def _deliver(self, events: Sequence[Event]) -> None:
        for event in events:
            running = self._running.get(event.ticket)
            if running is not None:
                running.push(event)

    def _all_failed(self, error: VolumetricError) -> None:
        for ticket, running in list(self._running.items()):
            running.push(Event(ticket=ticket, error=error))
            self.scheduler.cancel(ticket)
        self._running.clear()
