"""Engine: the thread that computes all requests for one model, and passes its events to them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, Protocol

import msgspec

from volumetric.base.errors import DeviceError, GenerationError, ShuttingDownError, VolumetricError
from volumetric.generate.scheduler import Scheduler
from volumetric.generate.scheduling.jobs import Job, JobEvent, Ticket

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.generate.scheduling.generation_sequence import GenerationSequence
    from volumetric.generate.scheduling.limits import Limits
    from volumetric.generate.scheduling.token_batch import StepEvents, TokenBatch

logger: logging.Logger = logging.getLogger(__name__)

PATIENCE = 30.0
"""Seconds that `close` waits for the current step, which may compile kernels, before it abandons the device. A device
that is known to hang is abandoned at once."""
UNREAD = 512
"""Unread events of a request after which its jobs are paused until it has read them."""
_ENCODER: Final = msgspec.json.Encoder()
_NAP = 0.5
"""Seconds after which an idle thread checks whether it should end."""


class TextWriter(Protocol):
    """Writes what encloses a text, and the text, for each token of one of a stream's texts.

    Attributes
    ----------
    paused : nothing should be written
    """

    @property
    def paused(self) -> bool:
        """See the attribute."""
        ...

    def write_text(self, text: bytes) -> None:
        """Write a text, which is JSON."""
        ...


class SubmittedJobs:
    """The submitted jobs of a request. For use in the event loop only.

    Attributes
    ----------
    on_events : called once for all events of a step, which `take` returns; without it, `events` returns them
    only_ends : events of tokens that are not the last of their text are dropped
    passed : when a text was last passed to `direct`, in monotonic seconds
    """

    def __init__(self, engine: Engine) -> None:
        self.tickets: list[Ticket] = []
        self.on_events: Callable[[], None] | None = None
        self.only_ends = False
        self.passed: float = 0.0
        self._direct: dict[tuple[Ticket, int], TextWriter] = {}
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

    def direct(self, ticket: Ticket, choice: int, writer: TextWriter) -> None:
        """Pass further tokens of a text to a writer, as JSON of their text, if they say no more than that.

        Tokens that come while the writer is paused, or while events are unread, remain events.
        """
        self._direct[ticket, choice] = writer
        self._engine.find_writers()

    def writer(self, ticket: Ticket, choice: int) -> TextWriter | None:
        """Return the writer of a text, if it has one."""
        return self._direct.get((ticket, choice))

    @property
    def unread(self) -> bool:
        """Whether there are events that `take` has not returned."""
        return bool(self._events)

    def leave(self) -> None:
        """Free the slots, and receive no more events; jobs that have ended are unaffected."""
        self._direct.clear()
        self._engine.find_writers()
        for ticket in self.tickets:
            self._engine.forget(ticket)

    def push(self, event: JobEvent) -> bool:
        """Queue an event for the request; return whether it is the only unread one, so that `wake` is due.

        A request that does not read its events is paused, and frees its slots.
        """
        if self.only_ends and event.generation is None and event.error is None:
            return False
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
        self._readers: list[tuple[SubmittedJobs, TextWriter | None] | None] = []  # of the sequences of the last batch
        self._read_by: Sequence[object] | None = None
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
                events = self.scheduler.step_together()
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

    def find_writers(self) -> None:
        """Look for the reader of each text anew: one has left, or has another writer."""
        self._read_by = None

    def _deliver(self, step: StepEvents) -> None:
        woken: list[SubmittedJobs] = []
        if step.batch is not None:
            self._deliver_batch(step.batch, woken)
        for event in step.events:
            running = self._running.get(event.ticket)
            if running is not None and running.push(event):
                woken.append(running)
        for running in woken:
            running.wake()

    def _deliver_batch(self, batch: TokenBatch, woken: list[SubmittedJobs]) -> None:
        """Write the tokens of a step: in most streams nothing but the text differs between two tokens."""
        if self._read_by is not batch.sequences:
            self._readers, self._read_by = list(map(self._reader_of, batch.sequences)), batch.sequences
        now = time.monotonic()
        # The texts are encoded in one call; JSON has no line ends.
        texts = _ENCODER.encode_lines(batch.texts).split(b"\n")
        for number, (reader, text) in enumerate(zip(self._readers, texts, strict=False)):
            if reader is None:
                continue
            running, writer = reader
            if writer is None or running.unread or writer.paused:
                sequence = batch.sequences[number]
                event = JobEvent(ticket=sequence.ticket, choice=sequence.choice, token=batch.event(number))
                if running.push(event):
                    woken.append(running)
                continue
            running.passed = now
            if text != b'""':
                writer.write_text(text)

    def _reader_of(self, sequence: GenerationSequence) -> tuple[SubmittedJobs, TextWriter | None] | None:
        """Return who reads the tokens of a sequence, and the writer of its text; None if nobody does."""
        running = self._running.get(sequence.ticket)
        if running is None or running.only_ends:
            return None
        return running, running.writer(sequence.ticket, sequence.choice)

    def _all_failed(self, error: VolumetricError) -> None:
        failed = dict(self._running)
        self._running.clear()
        for ticket, running in failed.items():
            self.scheduler.cancel(ticket)
            _ = running.push(JobEvent(ticket=ticket, error=error))
        for running in dict.fromkeys(failed.values()):
            running.wake()
