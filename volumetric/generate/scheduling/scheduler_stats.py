"""Statistics of a scheduler: counts, and histograms of times."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from volumetric.generate.scheduling.generation_sequence import GenerationSequence
    from volumetric.generate.scheduling.token_batch import TokenBatch
    from volumetric.generate.token_events import TokenEvent

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0)
_LONG = (0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0)
_ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0)

_RETRY = (1.0, 30.0)


class Histogram:
    """Counts of values in ranges, as in Prometheus.

    Attributes
    ----------
    bounds : upper bound of each range but the last, which is unbounded
    counts : number of values in each range
    total : sum of all values
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: tuple[float, ...] = tuple(bounds)
        self.counts: list[int] = [0] * (len(self.bounds) + 1)
        self.total: float = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count a value, once or several times; an upper bound belongs to its range."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(self.counts)


def _times() -> Histogram:
    return Histogram(_SHORT)


def _waits() -> Histogram:
    return Histogram(_LONG)


@dataclass(slots=True)
class SchedulerStats:
    """Statistics of a scheduler; times in seconds.

    Attributes
    ----------
    running, waiting, queue_tokens : generations with and without a slot, and prompt tokens of the latter
    submitted, finished, failed : jobs accepted, ended with all texts, and ended with an error
    rejected : jobs rejected, by the name of the error
    cancelled : jobs cancelled
    expired : failed jobs that exceeded a time limit
    preempted : generations that lost their slot for lack of memory
    yielded : generations that yielded their slot to another request, or were paused
    prompt_tokens, cached_tokens, generated_tokens : tokens of prompts, cached ones of them, and drawn tokens
    drafted_tokens, accepted_tokens : tokens that drafts proposed, and accepted ones of them
    state_bytes, state_limit, prefix_bytes : memory of all states, its limit, and the part of cached prefixes
    prefix_entries, prefix_evictions : cached prefixes, and those dropped for lack of memory
    prompt_steps, decode_steps : durations of calls with and without prompt rows
    adapter_jobs, adapter_tokens : jobs accepted and tokens drawn for each adapter, by its name
    rows : rows of the calls
    first_token, between_tokens : time from submission to the first token, and between tokens
    queued, requests : time from submission to a slot, and to the end
    """

    running: int = 0
    waiting: int = 0
    queue_tokens: int = 0
    submitted: int = 0
    finished: int = 0
    failed: int = 0
    rejected: dict[str, int] = field(default_factory=dict)
    cancelled: int = 0
    expired: int = 0
    preempted: int = 0
    yielded: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    adapter_jobs: dict[str, int] = field(default_factory=dict)
    adapter_tokens: dict[str, int] = field(default_factory=dict)
    state_bytes: int = 0
    state_limit: int | None = None
    prefix_bytes: int = 0
    prefix_entries: int = 0
    prefix_evictions: int = 0
    prompt_steps: Histogram = field(default_factory=_times)
    decode_steps: Histogram = field(default_factory=_times)
    rows: Histogram = field(default_factory=lambda: Histogram(_ROWS))
    first_token: Histogram = field(default_factory=_times)
    between_tokens: Histogram = field(default_factory=_times)
    queued: Histogram = field(default_factory=_waits)
    requests: Histogram = field(default_factory=_waits)

    def copy(self) -> SchedulerStats:
        """Return a copy; the histograms are shared and keep counting."""
        return replace(
            self,
            rejected=dict(self.rejected),
            adapter_jobs=dict(self.adapter_jobs),
            adapter_tokens=dict(self.adapter_tokens),
        )

    def count_job(self, adapter: str) -> None:
        """Count an accepted job."""
        self.submitted += 1
        if adapter:
            self.adapter_jobs[adapter] = self.adapter_jobs.get(adapter, 0) + 1

    def count_tokens(self, adapter: str, count: int) -> None:
        """Count drawn tokens."""
        self.generated_tokens += count
        if adapter:
            self.adapter_tokens[adapter] = self.adapter_tokens.get(adapter, 0) + count

    def retry_after(self, waiting: int, slots: int) -> float:
        """Estimate the seconds until a slot is free, from the duration of jobs and the number of waiting ones."""
        done = self.requests
        each = done.total / done.count if done.count else 1.0
        least, most = _RETRY
        return min(most, max(least, each * (waiting + 1) / slots))


class StepTokens:
    """The tokens of a call, counted together.

    Parameters
    ----------
    now : when the call ended, in the scheduler's clock
    """

    def __init__(self, now: float) -> None:
        self._now = now
        self._tokens: dict[str, int] = {}  # by adapter
        self._first: list[float] = []
        self._cached = 0
        # Sequences of a call nearly always had their last tokens together, too.
        self._between: dict[float, int] = {}

    def add(self, sequence: GenerationSequence, token: TokenEvent) -> None:
        """Count a token of a sequence."""
        adapter = sequence.ticket.job.adapter
        self._tokens[adapter] = self._tokens.get(adapter, 0) + 1
        if token.index:
            since = self._now - sequence.last
            self._between[since] = self._between.get(since, 0) + 1
        else:
            self._first.append(self._now - sequence.ticket.submitted)
            self._cached += sequence.transcript.cached if not sequence.choice else 0
        sequence.last = self._now

    def add_batch(self, batch: TokenBatch) -> None:
        """Count the tokens of a batch, none of which is a first one."""
        for adapter, count in batch.adapters.items():
            self._tokens[adapter] = self._tokens.get(adapter, 0) + count
        for since, count in batch.source.times_since(batch.sequences, self._now).items():
            self._between[since] = self._between.get(since, 0) + count

    def add_to(self, stats: SchedulerStats) -> None:
        """Add the counts to the statistics."""
        stats.cached_tokens += self._cached
        for adapter, count in self._tokens.items():
            stats.count_tokens(adapter, count)
        for seconds in self._first:
            stats.first_token.add(seconds)
        for seconds, count in self._between.items():
            stats.between_tokens.add(seconds, count)
