"""The scheduler: many generations on one device, whoever asks for them and whenever.

Jobs come in by `Scheduler.submit`, from any thread; one thread calls `Scheduler.step` again and again, and gets events.
A step is one call of the device: the last token of every sequence that decodes and, beside them, a bounded piece of the
prompts that are not computed yet, so that a long prompt slows the others down a little instead of stopping them. A
sequence that ends leaves at once, and the next job takes its seat.

**The same bits.** On the CPU a row has the same bits in any company and in any piece of its prompt, so the tokens of a
job are those that it has alone, whatever else runs, with prefixes reused or not, greedy or with a seed, and also when
its sequence had to give up its seat and is computed again. Other devices agree within the last bits of their sums.

**Drafts.** Where something proposes tokens (`scheduling/guesses.py`), those of all sequences are checked in one call.

**Order.** Slots go by priority, then in turns: of keys by their weights, of the requests of a key, and by arrival among
the texts of a request (`scheduling/waiting.py`). A request that has got far ahead of one that waits makes room for it,
text by text, and goes on later from where it was, as does a job that is paused. Among the prompts under way the one
with the fewest rows left goes first; one that was passed over four times goes before. Memory for states is bounded
(`Limits.state_bytes`): a job gets a slot when its prompt and a part of its answer fit, kept prefixes make room, and
where sequences outgrow it the youngest goes back to the queue.

**Reuse.** What a prompt begins with is copied from a sequence that runs, or from one that has ended
(`scheduling/prefixes.py`); of two new prompts that begin alike, the second one waits for the first.

There is no HTTP here and no event loop; the clock is given.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from volumetric.base.errors import ExpiredError, GenerationError, ShuttingDownError, VolumetricError
from volumetric.generate.drafting import Draft
from volumetric.generate.events import TokenEvent
from volumetric.generate.scheduling.guesses import Guesses, guessed_by
from volumetric.generate.scheduling.job import Event, Job, Ticket
from volumetric.generate.scheduling.limits import Limits
from volumetric.generate.scheduling.live import Live, Room, texts_of
from volumetric.generate.scheduling.pace import Prices
from volumetric.generate.scheduling.rounds import Rounds
from volumetric.generate.scheduling.seats import Seats
from volumetric.generate.scheduling.stats import Stats
from volumetric.generate.scheduling.waiting import Waiting

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel


class Scheduler:
    """Computes jobs together.

    `submit`, `cancel`, `drain`, `wait` and `stats` are for any thread; `step` and `close` for one alone, the same that
    uses the model's executable otherwise, if anybody does.

    Parameters
    ----------
    model : what generates; it stays open as long as the scheduler is used
    limits : how much is taken on
    clock : seconds that go up; deadlines are by it
    draft : what proposes tokens that the model checks together, a smaller model of the same tokens or ``"lookup"``;
        tokens are the same. It is asked where that is likely to save time, see `scheduling/guesses.py`

    Raises
    ------
    GenerationError : `model` does not generate, or `draft` has other tokens
    SpecError : `draft` is nothing that proposes tokens
    """

    def __init__(
        self,
        model: CompiledModel,
        limits: Limits | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        draft: Draft | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self._model = model
        self._clock = clock
        self._room = Room(model.executable.memory, self.limits.state_bytes)
        self._rounds = Rounds(model.executable)
        self._seats = Seats(model.executable, self.limits, self._room, self._rounds.stop)
        self._lock = threading.Condition()
        model.require_generator()
        self._drafts, self._prices = draft is not None, Prices()
        self._guesses = Guesses(model, draft, self._prices)
        self._waiting = Waiting(self.limits)
        self._running = 0  # generations with a seat, for those that ask from other threads
        self._to_settle = False  # somebody was cancelled, or a drain has begun
        self._deadlines = False
        self._ends_at: float | None = None
        self._number = 0
        self._stats = Stats(state_limit=self.limits.state_bytes)

    def submit(self, job: Job) -> Ticket:
        """Let a job wait for a seat.

        Raises
        ------
        OverloadedError : too many requests wait; `OverloadedError.retry_after` says when there may be room
        DoesNotFitError : the prompt is longer than the context, or than the memory for states
        ShuttingDownError : `drain` was called
        GenerationError : the prompt is empty, or has an id outside of the vocabulary
        SpecError : `n` is below 1 or more than there are seats; `weight` is not above 0; there are not as many targets
            as tokens of the prompt; there is no such adapter
        """
        try:
            leader = texts_of(job, self._model, self.limits, self._room, self._clock())
            with self._lock:
                if self._ends_at is not None:
                    raise ShuttingDownError("the server shuts down and takes no more requests")
                free = self.limits.seats - self._running
                self._waiting.check(leader, free, self._stats.retry_after(len(self._waiting), self.limits.seats))
                self._number += 1
                leader.ticket.number = self._number
                self._waiting.push(leader)
                self._deadlines = self._deadlines or job.deadline is not None or self.limits.queue_seconds is not None
                self._stats.count_job(job.adapter)
                self._lock.notify_all()
        except VolumetricError as error:
            with self._lock:
                name = type(error).__name__
                self._stats.rejected[name] = self._stats.rejected.get(name, 0) + 1
            raise
        return leader.ticket

    def cancel(self, ticket: Ticket) -> None:
        """End a job before the next call of the device. One that has ended is left as it is."""
        with self._lock:
            if not ticket.ended and not ticket.cancelled:
                ticket.cancelled = self._to_settle = True
                self._lock.notify_all()

    def pause(self, ticket: Ticket) -> None:
        """Compute no more of a job until `resume`; its texts give up their slots before the next call of the device.

        Its deadline stays what it was. What it has computed is kept as long as there is memory for it.
        """
        if ticket.job.held is None:
            self._pause(ticket, True)

    def resume(self, ticket: Ticket) -> None:
        """Let a paused job go on."""
        self._pause(ticket, False)

    def _pause(self, ticket: Ticket, paused: bool) -> None:
        with self._lock:
            if not ticket.ended and ticket.paused != paused:
                ticket.paused = paused
                self._to_settle = self._to_settle or paused
                for live in self._waiting.take(lambda live: live.ticket is ticket):
                    self._waiting.push(live)
                self._lock.notify_all()

    def drain(self, deadline: float) -> None:
        """Take no more jobs; those that have not ended by `deadline` end with `ShuttingDownError`.

        The deadline is by the scheduler's clock. `step` goes on as before, and brings the events; `idle` tells when
        all have ended.
        """
        with self._lock:
            self._ends_at = deadline
            self._lock.notify_all()

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        with self._lock:
            return not self._waiting and not self._running

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until there is something to do, or for so many seconds; returns whether there is."""
        with self._lock:
            # Those that are paused may have come to their deadlines.
            return self._lock.wait_for(self._awake, timeout) or bool(self._waiting.paused)

    @property
    def stats(self) -> Stats:
        """A copy of the figures so far."""
        with self._lock:
            now = self._stats.copy()
            now.running, now.waiting = self._running, len(self._waiting)
            now.queue_tokens = self._waiting.tokens
            return now

    def step(self) -> list[Event]:
        """Do one call of the device, and return what has happened since the last step; nothing where all is idle.

        A device that fails ends the jobs of that call with its error; others go on.
        """
        events = list(self._settle())
        self._seat()
        taking = self._seats.share()
        if not taking:
            self._tell()
            return events
        for live in self._seats.fit(taking):
            self._put_back(live)
        taking = [(live, rows) for live, rows in taking if live.state is not None]
        if not taking:  # who is left was to wait, and goes next
            self._tell()
            return events
        prompts = sum(rows for live, rows in taking if not live.decoding)
        rows = sum(rows for _, rows in taking)
        began = time.perf_counter()
        lives, drafted, accepted = [live for live, _ in taking], 0, 0
        drafts = not prompts and (self._drafts or any(live.ticket.job.drafter is not None for live in lives))
        try:
            if drafts:
                self._guesses.guess(lives, self._seats.holds_guesses)
                drafted, accepted = guessed_by(lives)
            outcomes = self._rounds.run(taking, self._seats.follow)
        except Exception as error:  # whatever it was: those jobs have ended, and the others go on
            events += self._failed({id(live.ticket): live.ticket for live, _ in taking}.values(), error)
            self._tell()
            return events
        seconds = time.perf_counter() - began
        if drafts:
            now = guessed_by(lives)
            drafted, accepted = now[0] - drafted, now[1] - accepted
        if not drafted:
            self._seats.count(prompts, rows - prompts, seconds)
        if not prompts:
            self._prices.count(rows, drafted, seconds)
        else:
            self._seats.keep_marked(taking)
        for live, one in outcomes:
            if live.ticket.ended:
                continue  # another text of the job has failed
            if isinstance(one, GenerationError):
                events += self._failed([live.ticket], one)
            else:
                events.append(self._told(live, one))
        with self._lock:
            (self._stats.prompt_steps if prompts else self._stats.decode_steps).add(seconds)
            self._stats.rows.add(rows + drafted)
            self._stats.drafted_tokens += drafted
            self._stats.accepted_tokens += accepted
        self._tell()
        return events

    def close(self) -> None:
        """End all jobs now, as cancelled, and give all states back."""
        with self._lock:
            tickets = {id(live.ticket): live.ticket for live in (*self._waiting, *self._seats.all)}
        for ticket in tickets.values():
            ticket.cancelled = True
            for _ in self._ended(ticket):
                pass
        self._rounds.stop()
        self._seats.clear()
        self._tell()

    def _awake(self) -> bool:
        return bool(self._running or self._to_settle or len(self._waiting) > len(self._waiting.paused))

    def _settle(self) -> Iterator[Event]:
        """End what was cancelled, what is too late, and all when the time to drain is over."""
        now = self._clock()
        with self._lock:
            over = self._ends_at is not None and now >= self._ends_at
            if not (self._to_settle or self._deadlines or over):
                return
            self._to_settle = False
            tickets = {id(live.ticket): live.ticket for live in (*self._waiting, *self._seats.all)}
            self._deadlines = bool(tickets)
            for live in [live for live in self._seats.all if live.ticket.paused]:
                self._rest(live)
        for ticket in tickets.values():
            deadline, patience = ticket.job.deadline, self.limits.queue_seconds
            if ticket.cancelled:
                yield from self._ended(ticket)
            elif over:
                yield from self._failed(
                    [ticket], ShuttingDownError("the server shut down before the request had ended")
                )
            elif deadline is not None and now >= deadline:
                error = ExpiredError("the request had not ended at its deadline", queued=not ticket.seated)
                yield from self._failed([ticket], error)
            elif patience is not None and not ticket.seated and now >= ticket.submitted + patience:
                error = ExpiredError(f"the request found no seat within {patience:g} s", queued=True)
                yield from self._failed([ticket], error)

    def _seat(self) -> None:
        """Give slots to those that wait, as far as memory goes: free ones, and those of who is far ahead of them."""
        with self._lock:
            self._waiting.charge()
        while True:
            with self._lock:
                live = self._waiting.first
                if live is None or not self._make_way(live):
                    return
                self._waiting.pop()
                self._running += live.texts
                if not live.ticket.seated:
                    self._stats.queued.add(self._clock() - live.ticket.submitted)
                    self._stats.prompt_tokens += len(live.ids)
            live.ticket.seated = True
            self._seats.take(live)

    def _make_way(self, live: Live) -> bool:
        """Whether there are slots for a generation that waits, by those that others give up, if need be."""
        if self._seats.has_room(live):
            return True
        giving = self._seats.made_free_for(live, self._waiting.ahead(self._seats.all, live))
        for one in giving:
            self._rest(one)
        return bool(giving)

    def _rest(self, live: Live) -> None:
        """Let a generation wait again, which goes on later from where it is."""
        self._seats.rest(live)
        self._waiting.left(live)
        self._waiting.push(live)
        self._running -= live.texts
        self._stats.yielded += 1

    def _put_back(self, live: Live) -> None:
        """Let a generation wait again whose state is gone."""
        with self._lock:
            self._waiting.left(live)
            self._waiting.push(live)
            self._stats.preempted += 1

    def _leave(self, live: Live, *, keep: bool = True) -> None:
        """Let a generation, and those that follow it, give up their slots for good."""
        with self._lock:
            self._waiting.left(live)
        self._seats.leave(live, keep=keep)

    def _told(self, live: Live, token: TokenEvent) -> Event:
        """Return the event of a token; the last one gives the seat back."""
        ticket, now = live.ticket, self._clock()
        with self._lock:
            self._stats.count_token(ticket.job.adapter)
            if token.index:
                self._stats.between_tokens.add(now - live.last)
            else:
                self._stats.first_token.add(now - ticket.submitted)
                self._stats.cached_tokens += live.transcript.cached if not live.choice else 0
        live.last = now
        if token.finish_reason is None:
            return Event(ticket=ticket, choice=live.choice, token=token)
        self._rounds.stop()
        self._leave(live)
        ticket.reported += 1
        if ticket.reported == len(ticket.transcripts):
            self._close(ticket, "finished")
        return Event(ticket=ticket, choice=live.choice, token=token, generation=live.transcript.generation)

    def _failed(self, tickets: Iterable[Ticket], error: Exception) -> Iterator[Event]:
        """End jobs by an error."""
        if not isinstance(error, VolumetricError):
            cause, error = error, GenerationError(f"{type(error).__name__}: {error}")
            error.__cause__ = cause
        for ticket in tickets:
            ticket.error = error
            for live in self._withdrawn(ticket, keep=isinstance(error, (ExpiredError, ShuttingDownError))):
                live.transcript.end()
            self._close(ticket, "failed")
            if isinstance(error, ExpiredError):
                self._stats.expired += 1
            yield Event(ticket=ticket, error=error)

    def _ended(self, ticket: Ticket) -> Iterator[Event]:
        """End a job that was cancelled; each of its texts that had not ended tells what was made."""
        for live in self._withdrawn(ticket, keep=True):
            live.transcript.end()
            yield Event(ticket=ticket, choice=live.choice, generation=live.transcript.generation)
        self._close(ticket, "cancelled")

    def _withdrawn(self, ticket: Ticket, *, keep: bool) -> list[Live]:
        """Take all texts of a job out of queue and seats."""
        self._rounds.stop()
        with self._lock:
            waited = self._waiting.take(lambda live: live.ticket is ticket)
        texts = [one for live in waited for one in (live, *live.followers)]
        for live in waited:
            self._seats.give_back(live, keep=keep)
        for live in [live for live in self._seats.all if live.ticket is ticket]:
            texts += (live, *live.followers)
            self._leave(live, keep=keep)
        return texts

    def _close(self, ticket: Ticket, how: str) -> None:
        with self._lock:
            ticket.ended = True
            setattr(self._stats, how, getattr(self._stats, how) + 1)
            self._stats.requests.add(self._clock() - ticket.submitted)

    def _tell(self) -> None:
        """Let other threads know how many run, and what memory they take."""
        with self._lock:
            self._running = len(self._seats)
            self._seats.measure(self._stats)
