"""Engine: the thread that computes all requests for one model, and passes its events to them."""

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
from volumetric.generate.scheduling.jobs import Job, JobEvent, Ticket

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.generate.scheduling.limits import Limits

logger: logging.Logger = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds that `close` waits for the current step, which may compile kernels, before it abandons the device. A device
that is known to hang is abandoned at once."""
UNREAD = 512
"""Unread events of a request after which its jobs are paused until it has read them."""
_NAP = 0.5
"""Seconds after which an idle thread checks whether it should end."""


class SubmittedJobs:
    """The submitted jobs of a request. For use in the event loop only.

    Attributes
    ----------
    on_events : called once for all events of a step, which `take` returns; without it, `events` returns them
    """

    def __init__(self, engine: Engine) -> None:
        self.tickets: list[Ticket] = []
        self.on_events: Callable[[], None] | None = None
        self._engine = engine
        self._events: list[JobEvent] = []
        self._came = asyncio.Event()
        self._paused = False

    async def events(self) -> Sequence[JobEvent]:
        """Wait for the next event, and return all unread ones: a slow reader gets more at a time."""
        await self._came.wait()
        self._came.clear()
        return self.take()

    def take(self) -> Sequence[JobEvent]:
        """Return all unread events."""
        events, self._events = self._events, []
        if self._paused:
            self._paused = False
            for ticket in self.tickets:
                self._engine.scheduler.resume(ticket)
        return events

    def leave(self) -> None:
        """Free the slots, and receive no more events; jobs that have ended are unaffected."""
        for ticket in self.tickets:
            self._engine.forget(ticket)

    def push(self, event: JobEvent) -> bool:
        """Queue an event for the request; return whether it is the only unread one, so that `wake` is due.

        A request that does not read its events is paused, and frees its slots.
        """
        self._events.append(event)
        count = len(self._events)
        if count >= UNREAD and not self._paused:
            self._paused = True
            for ticket in self.tickets:
                self._engine.scheduler.pause(ticket)
        return count == 1

    def wake(self) -> None:
        """Let the request read its events."""
        if self.on_events is not None:
            self.on_events()
        else:
            self._came.set()


class Engine:
    """A scheduler with its thread, which runs until `close`. Call all methods from the event loop that created it.

    It serves a model and the models with adapters that share device calls with it, see `Model.together`. `users` counts
    them, and each calls `close`.

    Parameters
    ----------
    model : the model that generates
    limits : bounds on requests, memory and batch size
    draft : the proposer of speculative tokens, see `Scheduler`
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
        self.users: int = 1
        self.scheduler: Scheduler = Scheduler(model, limits, draft=draft)
        self._running: dict[Ticket, SubmittedJobs] = {}
        self._loop = asyncio.get_running_loop()
        self._ending = False
        self._most = step_seconds or float("inf")
        self._began: float | None = None  # start time of the current step
        self._thread = threading.Thread(target=self._work, name=f"engine of {model.name}", daemon=True)
        self._thread.start()

    def close(self) -> bool:
        """End all jobs, and the thread after its current device call; return False if that call does not end.

        Only the last user's call ends anything; earlier ones decrement `users`.
        """
        self.users -= 1
        if self.users > 0:
            return True
        self._ending = True
        self._thread.join(0.0 if self.stuck else PATIENCE)
        if self.alive:
            logger.error("the device of %s does not respond, and is abandoned", self.model.name)
        return not self.alive

    def submit(self, jobs: Sequence[Job], *, owner: str = "", weight: float = 1.0) -> SubmittedJobs:
        """Queue the jobs of a request, all or none.

        Requests are scheduled in turns, and so are owners, by their weights. Owners do not share cached prefixes.
        Raises the errors of `Scheduler.submit`, and an error after `close`.
        """
        if self._ending:
            raise ShuttingDownError("the model was closed before the request reached it")
        running = SubmittedJobs(self)
        try:
            for job in jobs:
                own = replace(job, owner=owner, weight=weight, request=id(running), salt=f"{owner}\0{job.salt}")
                ticket = self.scheduler.submit(own)
                # Events arrive through this loop, so that none can have arrived before these lines.
                running.tickets.append(ticket)
                self._running[ticket] = running
        except BaseException:
            running.leave()
            raise
        return running

    def forget(self, ticket: Ticket) -> None:
        """Cancel a job, and receive no more of its events."""
        if self._running.pop(ticket, None) is not None:
            self.scheduler.cancel(ticket)

    @property
    def waiting(self) -> bool:
        """Whether any request waits for events."""
        return bool(self._running)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def stuck(self) -> float:
        """Seconds since the current step began if it counts as hung, else 0."""
        began = self._began
        seconds = 0.0 if began is None else time.monotonic() - began
        return seconds if seconds > self._most else 0.0

    @property
    def busy(self) -> bool:
        """Whether there is work, and a working device."""
        return not self.scheduler.idle and not self.stuck

    def watch(self) -> None:
        """Fail all requests, queued ones included, while a step hangs: it may never end."""
        seconds = self.stuck
        if seconds and self._running:
            error = DeviceError(
                f"the device has not answered for {seconds:.0f} s", hint="it seems to hang; restart the server"
            )
            logger.error("%s (%s); %d requests fail", error, self.model.name, len(self._running))
            self._all_failed(error)

    def _work(self) -> None:
        while not self._ending:
            if not self.scheduler.wait(_NAP):
                continue
            self._began = time.monotonic()
            try:
                events = self.scheduler.step()
            except Exception:
                logger.exception("the scheduler failed; all running requests have ended")
                self.scheduler.close()
                failed = GenerationError("the server failed while it processed this request", hint="try again")
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
        except RuntimeError:  # the loop has ended: there is no reader
            self._ending = True

    def _deliver(self, events: Sequence[JobEvent]) -> None:
        woken: list[SubmittedJobs] = []
        for event in events:
            running = self._running.get(event.ticket)
            if running is not None and running.push(event):
                woken.append(running)
        for running in woken:
            running.wake()

    def _all_failed(self, error: VolumetricError) -> None:
        failed = dict(self._running)
        self._running.clear()
        for ticket, running in failed.items():
            self.scheduler.cancel(ticket)
            _ = running.push(JobEvent(ticket=ticket, error=error))
        for running in dict.fromkeys(failed.values()):
            running.wake()
