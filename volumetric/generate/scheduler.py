"""The scheduler: continuous batching of many generations on one device.

Any thread submits jobs with `Scheduler.submit`; one thread calls `Scheduler.step` repeatedly, and gets events. A step
is one call of the device: the last token of every decoding sequence, and a bounded chunk of the prompts that are not
computed yet, so that a long prompt slows the others down a little instead of stopping them. A sequence that ends frees
its slot at once, and the next job takes it.

**Batch invariance.** On the CPU a row has the same bits in any batch and in any chunk of its prompt. The tokens of a
job thus do not depend on other jobs, on cached prefixes, or on preemption and recomputation, both greedy and with a
seed. Other devices agree within the last bits of their sums.

**Drafts.** Draft tokens of all sequences (`scheduling/guesses.py`) are checked in one call.

**Order.** Slots are assigned by priority, then by turns: between keys by their weights, between the requests of a key,
and by arrival among the texts of a request (`scheduling/waiting.py`). A request that is far ahead of a waiting one
yields its slots to it, text by text, and continues later from the same state, as does a paused job. Among running
prompts the one with the fewest remaining rows is computed first, after those that were passed over four times. Memory
for states is bounded (`Limits.state_bytes`): a job gets a slot when its prompt and a part of its answer fit; cached
prefixes are evicted, and if sequences outgrow the memory the youngest returns to the queue.

**Reuse.** The common prefix of a prompt is copied from a running sequence, or from one that has ended
(`scheduling/prefixes.py`); of two new prompts with a common prefix, the second one waits for the first.

It has neither HTTP nor an event loop; the clock is a parameter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from volumetric.base.errors import ExpiredError, GenerationError, ShuttingDownError, VolumetricError
from volumetric.generate.drafters import Draft
from volumetric.generate.scheduling.batch_slots import BatchSlots
from volumetric.generate.scheduling.device_calls import DeviceCalls
from volumetric.generate.scheduling.generation_sequence import GenerationSequence, StateBudget, due, expiry, texts_of
from volumetric.generate.scheduling.jobs import Job, JobEvent, Ticket
from volumetric.generate.scheduling.limits import Limits
from volumetric.generate.scheduling.prefill_budget import DraftCosts
from volumetric.generate.scheduling.scheduler_stats import SchedulerStats, StepTokens
from volumetric.generate.scheduling.speculation import Speculation, guessed_by
from volumetric.generate.scheduling.token_batch import StepEvents, StepOutcomes
from volumetric.generate.scheduling.waiting_queue import WaitingQueue
from volumetric.generate.token_events import TokenEvent

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel


class Scheduler:
    """Computes jobs in batches.

    `submit`, `cancel`, `drain`, `wait` and `stats` are thread-safe; `step` and `close` are for one thread, the only one
    that may use the model's executable.

    Parameters
    ----------
    model : the model; it must stay open as long as the scheduler is used
    limits : bounds on batch size, memory and queue
    clock : monotonic clock in seconds, also for deadlines
    draft : source of draft tokens, a smaller model with the same tokenizer or ``"lookup"``; it does not change the
        output. It is used when that is likely to save time, see `scheduling/guesses.py`

    Raises
    ------
    GenerationError : `model` does not generate, or `draft` has other tokens
    SpecError : `draft` is not a source of drafts
    """

    def __init__(
        self,
        model: CompiledModel,
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        draft: Draft | None = None,
    ) -> None:
        self.limits: Limits = limits or Limits()
        self._model = model
        self._clock = clock
        self._room = StateBudget(model.executable.memory, self.limits.state_bytes)
        self._rounds = DeviceCalls(model.executable)
        self._slots = BatchSlots(model.executable, self.limits, self._room, self._rounds.stop, self._rounds.sync)
        self._lock = threading.Condition()
        model.require_generator()
        self._drafts, self._prices = draft is not None, DraftCosts()
        self._guesses = Speculation(model, draft, self._prices)
        self._waiting = WaitingQueue(self.limits)
        self._running = 0  # number of generations with a slot, for other threads
        self._to_settle = False  # a job was cancelled, or a drain has begun
        self._due = float("inf")  # no job can exceed a limit of time before
        self._ends_at: float | None = None
        self._number = 0
        self._stats = SchedulerStats(state_limit=self.limits.state_bytes)

    def submit(self, job: Job) -> Ticket:
        """Queue a job.

        Raises
        ------
        OverloadedError : too many requests wait; `OverloadedError.retry_after` estimates when to try again
        DoesNotFitError : the prompt does not fit into the context, or into the memory for states
        ShuttingDownError : `drain` was called
        GenerationError : the prompt is empty, or has an id outside of the vocabulary
        SpecError : `n` is below 1 or above the number of slots; `weight` is not above 0; the number of targets differs
            from that of the prompt's tokens; the adapter does not exist
        """
        try:
            leader = texts_of(job, self._model, self.limits, self._room, self._clock())
            with self._lock:
                if self._ends_at is not None:
                    raise ShuttingDownError("the server is shutting down and accepts no more requests")
                free = self.limits.slots - self._running
                self._waiting.check(leader, free, self._stats.retry_after(len(self._waiting), self.limits.slots))
                self._number += 1
                leader.ticket.number = self._number
                self._waiting.push(leader)
                self._due = min(self._due, due(leader.ticket, self.limits.queue_seconds))
                self._stats.count_job(job.adapter)
                self._lock.notify_all()
        except VolumetricError as error:
            with self._lock:
                name = type(error).__name__
                self._stats.rejected[name] = self._stats.rejected.get(name, 0) + 1
            raise
        return leader.ticket

    def cancel(self, ticket: Ticket) -> None:
        """Cancel a job before the next device call. Has no effect on a job that has ended."""
        with self._lock:
            if not ticket.ended and not ticket.cancelled:
                ticket.cancelled = self._to_settle = True
                self._lock.notify_all()

    def pause(self, ticket: Ticket) -> None:
        """Suspend a job until `resume`; its texts free their slots before the next device call.

        Its deadline does not change. Its states are kept as long as there is memory for them.
        """
        if ticket.job.session_state is None:
            self._pause(ticket, True)

    def resume(self, ticket: Ticket) -> None:
        """Resume a paused job."""
        self._pause(ticket, False)

    def _pause(self, ticket: Ticket, paused: bool) -> None:
        with self._lock:
            if not ticket.ended and ticket.paused != paused:
                ticket.paused = paused
                self._to_settle = self._to_settle or paused
                for sequence in self._waiting.take(lambda sequence: sequence.ticket is ticket):
                    self._waiting.push(sequence)
                self._lock.notify_all()

    def drain(self, deadline: float) -> None:
        """Refuse new jobs; those that have not ended by `deadline` fail with `ShuttingDownError`.

        The deadline is in the scheduler's clock. `step` continues to return the events; `idle` is true when all jobs
        have ended.
        """
        with self._lock:
            self._ends_at = deadline
            self._lock.notify_all()

    @property
    def idle(self) -> bool:
        """Whether there is no work."""
        with self._lock:
            return not self._waiting and not self._running

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until there is work, at most `timeout` seconds; return whether there is."""
        with self._lock:
            # Paused jobs may have reached their deadlines.
            return self._lock.wait_for(self._has_work, timeout) or bool(self._waiting.paused)

    @property
    def stats(self) -> SchedulerStats:
        """A copy of the statistics so far."""
        with self._lock:
            now = self._stats.copy()
            now.running, now.waiting = self._running, len(self._waiting)
            now.queue_tokens = self._waiting.tokens
            return now

    def step(self) -> list[JobEvent]:
        """Run one device call, and return the events since the last step; none if the scheduler is idle.

        If the device fails, the jobs of that call end with its error; others continue.
        """
        return self.step_together().job_events()

    def step_together(self) -> StepEvents:
        """Run one device call as `step` does; most tokens are returned as one batch, without an object for each."""
        events = list(self._settle())
        self._fill_slots()
        taking = self._slots.share(self._rounds.looping)
        evicted = list(self._slots.fit(taking)) if taking else []
        for sequence in evicted:
            self._put_back(sequence)
        if evicted:
            taking = [(sequence, rows) for sequence, rows in taking if sequence.state is not None]
        if not taking:  # of evictions: the remaining generations would have waited for the next call
            self._tell()
            return StepEvents(events)
        prompts = 0 if self._rounds.looping else sum(rows for sequence, rows in taking if not sequence.decoding)
        rows = sum([rows for _, rows in taking])
        began = time.perf_counter()
        sequences, drafted, accepted = [sequence for sequence, _ in taking], 0, 0
        drafts = not prompts and (self._drafts or any(one.ticket.job.drafter is not None for one in sequences))
        try:
            if drafts:
                self._rounds.sync()
                self._guesses.guess(sequences, self._slots.holds_guesses)
                drafted, accepted = guessed_by(sequences)
            outcomes = self._rounds.run(taking, self._slots.follow)
        except Exception as error:  # for any error: the jobs of the call end, the others continue
            events += self._fail_tickets({id(one.ticket): one.ticket for one in sequences}.values(), error)
            self._tell()
            return StepEvents(events)
        seconds = time.perf_counter() - began
        if drafts:
            now = guessed_by(sequences)
            drafted, accepted = now[0] - drafted, now[1] - accepted
        if not drafted:
            self._slots.count(prompts, rows - prompts, seconds)
        if not prompts:
            self._prices.count(rows, drafted, seconds)
        else:
            self._slots.keep_marked(taking)
        events += self._outcome_events(outcomes)
        with self._lock:
            (self._stats.prompt_steps if prompts else self._stats.decode_steps).add(seconds)
            self._stats.rows.add(rows + drafted)
            self._stats.drafted_tokens += drafted
            self._stats.accepted_tokens += accepted
        self._tell()
        return StepEvents(events, outcomes.batch, sequences)

    def close(self) -> None:
        """Cancel all jobs now, and free all states."""
        with self._lock:
            tickets = {id(sequence.ticket): sequence.ticket for sequence in (*self._waiting, *self._slots.all)}
        for ticket in tickets.values():
            ticket.cancelled = True
            for _ in self._end_ticket(ticket):
                pass
        self._rounds.stop()
        self._slots.clear()
        self._tell()

    def _has_work(self) -> bool:
        return bool(self._running or self._to_settle or len(self._waiting) > len(self._waiting.paused))

    def _settle(self) -> Iterator[JobEvent]:
        """End jobs that were cancelled or have exceeded their deadline, and all after the deadline of a drain."""
        now = self._clock()
        with self._lock:
            over = self._ends_at is not None and now >= self._ends_at
            if not (self._to_settle or now >= self._due or over):
                return
            self._to_settle = False
            tickets = {id(sequence.ticket): sequence.ticket for sequence in (*self._waiting, *self._slots.all)}
            patience = self.limits.queue_seconds
            self._due = min((due(ticket, patience) for ticket in tickets.values()), default=float("inf"))
            for sequence in [sequence for sequence in self._slots.all if sequence.ticket.paused]:
                self._rest(sequence)
        for ticket in tickets.values():
            if ticket.cancelled:
                yield from self._end_ticket(ticket)
            elif over:
                shut = ShuttingDownError("the server shut down before the request had finished")
                yield from self._fail_tickets([ticket], shut)
            elif (error := expiry(ticket, patience, now)) is not None:
                yield from self._fail_tickets([ticket], error)

    def _fill_slots(self) -> None:
        """Assign slots to waiting generations while memory allows: free ones, and those of requests far ahead."""
        with self._lock:
            self._waiting.charge()
        while True:
            with self._lock:
                sequence = self._waiting.first
                if sequence is None or not self._make_way(sequence):
                    return
                self._waiting.pop()
                self._running += sequence.texts
                if not sequence.ticket.started:
                    self._stats.queued.add(self._clock() - sequence.ticket.submitted)
                    self._stats.prompt_tokens += len(sequence.ids)
            sequence.ticket.started = True
            self._slots.take(sequence)

    def _make_way(self, sequence: GenerationSequence) -> bool:
        """Free slots for a waiting generation, if necessary from others that yield; return whether it worked."""
        if self._slots.has_room(sequence):
            return True
        giving = self._slots.preempted_for(sequence, self._waiting.ahead(self._slots.all, sequence))
        for one in giving:
            self._rest(one)
        return bool(giving)

    def _rest(self, sequence: GenerationSequence) -> None:
        """Return a generation to the queue with its state, from which it continues later."""
        self._slots.rest(sequence)
        self._waiting.release_slots(sequence)
        self._waiting.push(sequence)
        self._running -= sequence.texts
        self._stats.yielded += 1

    def _put_back(self, sequence: GenerationSequence) -> None:
        """Return a generation to the queue without its state."""
        with self._lock:
            self._waiting.release_slots(sequence)
            self._waiting.push(sequence)
            self._stats.preempted += 1

    def _leave(self, sequence: GenerationSequence, *, keep: bool = True) -> None:
        """Free the slots of a generation and its followers for good."""
        with self._lock:
            self._waiting.release_slots(sequence)
        self._slots.leave(sequence, keep=keep)

    def _outcome_events(self, outcomes: StepOutcomes) -> Iterator[JobEvent]:
        """Count a call's tokens, and yield the events of failures, and of tokens that are not in its batch."""
        counts = StepTokens(self._clock())
        if outcomes.batch is not None:
            counts.add_batch(outcomes.batch)
        for sequence, one in outcomes.single:
            if sequence.ticket.ended:
                continue  # another text of the job has failed
            if isinstance(one, GenerationError):
                yield from self._fail_tickets([sequence.ticket], one)
                continue
            counts.add(sequence, one)
            if one.finish_reason is None:
                yield JobEvent(ticket=sequence.ticket, choice=sequence.choice, token=one)
            else:
                yield self._last_event(sequence, one)
        with self._lock:
            counts.add_to(self._stats)

    def _last_event(self, sequence: GenerationSequence, token: TokenEvent) -> JobEvent:
        """Free the slot of a text, and return its last event."""
        ticket = sequence.ticket
        self._rounds.stop()
        self._leave(sequence)
        ticket.reported += 1
        if ticket.reported == len(ticket.transcripts):
            self._close(ticket, "finished")
        return JobEvent(ticket=ticket, choice=sequence.choice, token=token, generation=sequence.transcript.generation)

    def _fail_tickets(self, tickets: Iterable[Ticket], error: Exception) -> Iterator[JobEvent]:
        """End jobs with an error."""
        if not isinstance(error, VolumetricError):
            cause, error = error, GenerationError(f"{type(error).__name__}: {error}")
            error.__cause__ = cause
        for ticket in tickets:
            ticket.error = error
            for sequence in self._withdraw(ticket, keep=isinstance(error, (ExpiredError, ShuttingDownError))):
                sequence.transcript.end()
            self._close(ticket, "failed")
            if isinstance(error, ExpiredError):
                self._stats.expired += 1
            yield JobEvent(ticket=ticket, error=error)

    def _end_ticket(self, ticket: Ticket) -> Iterator[JobEvent]:
        """End a cancelled job; each unfinished text gets an event with its generation so far."""
        for sequence in self._withdraw(ticket, keep=True):
            sequence.transcript.end()
            yield JobEvent(ticket=ticket, choice=sequence.choice, generation=sequence.transcript.generation)
        self._close(ticket, "cancelled")

    def _withdraw(self, ticket: Ticket, *, keep: bool) -> list[GenerationSequence]:
        """Remove all texts of a job from the queue and the slots."""
        self._rounds.stop()
        with self._lock:
            waited = self._waiting.take(lambda sequence: sequence.ticket is ticket)
        texts = [one for sequence in waited for one in (sequence, *sequence.followers)]
        for sequence in waited:
            self._slots.give_back(sequence, keep=keep)
        for sequence in [sequence for sequence in self._slots.all if sequence.ticket is ticket]:
            texts += (sequence, *sequence.followers)
            self._leave(sequence, keep=keep)
        return texts

    def _close(self, ticket: Ticket, how: str) -> None:
        with self._lock:
            ticket.ended = True
            setattr(self._stats, how, getattr(self._stats, how) + 1)
            self._stats.requests.add(self._clock() - ticket.submitted)

    def _tell(self) -> None:
        """Update the counts of running generations and memory for other threads."""
        with self._lock:
            self._running = len(self._slots)
            self._slots.measure(self._stats)
