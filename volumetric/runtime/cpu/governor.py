"""Fewer threads while other programs use the cores.

A barrier waits for the slowest thread. Once another process takes a core, a thread that was put aside stops all others
for a scheduler's time slice: on two cores with one busy neighbour 346 tokens a second became 112, while a single thread
kept 207. Results do not depend on the number of threads, so it may change from call to call.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

_SLOW = 1.7  # times the usual duration that count as disturbed; noise of a quiet machine stays below
_TRIAL = 4  # calls of a trial
_PROOF_CALLS, _PROOF_SECONDS = 8, 0.2  # when a kind's number of threads is put to the proof once, whichever is first
_SHORTEST_GLANCE = 0.003  # seconds; a wake-up or a page from disk may cost as much on a quiet machine
_LOST = 0.6  # part of the time; uneven shares and wake-ups of a quiet machine stay below 0.3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 4.0  # seconds between trials


class Governor:
    """Chooses the number of threads of the next call from how long the last ones took.

    When most calls take much longer than usual, half the threads get a trial of a few calls; the better number stays
    for a while. Then all threads are tried again, for a single call if that is slow, at ever longer intervals. Who
    starts beside busy programs knows no usual duration: so half the threads get one early trial in any case.

    Within a call of which nothing is known yet, or which tries more threads again, `glance` looks at the time that the
    calling thread lost: at barriers, and off its core. Alone on a machine that is a small part. Beside as many busy
    threads as there are cores it is nearly all of it, and the rest of the call goes on with half the threads.

    Attributes
    ----------
    threads : threads to use for the next call; during a trial, of the kind that is tried
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.threads = limit
        self._clock = clock
        self._usual: dict[tuple[str, int], float] = {}
        self._mean: dict[tuple[str, int], float] = {}
        self._unproven: dict[str, tuple[int, float]] = {}  # calls of a kind, and the time of the first
        self._proven: set[str] = set()
        self._warned: set[str] = set()
        self._asked: dict[str, int] = {}
        self._disturbed = 0.0
        self._trial = 0  # calls left in the trial of a new number
        self._trial_of = ""  # kind of calls that the trial compares
        self._before = limit  # the number before the trial
        self._pause = _FIRST_PAUSE
        self._next = -math.inf  # no trial before this time

    def threads_for(self, kind: str) -> int:
        """Threads to use for a call of `kind`: a trial concerns only the kind that it compares.

        A trial may wait for its next call for long: generation ends, and the next prompt comes first.
        """
        return self._before if self._trial and kind != self._trial_of else self.threads

    def uncertain(self, kind: str) -> bool:
        """Whether the next call of a kind, one of its first, should be run in parts, with a `glance` after each."""
        if self.threads == 1 or self.limit == 1:
            return False
        self._asked[kind] = self._asked.get(kind, 0) + 1
        return self._retrying or (kind not in self._warned and self._asked[kind] <= _PROOF_CALLS)

    @property
    def _retrying(self) -> bool:
        return self._trial > 0 and self.threads > self._before

    def glance(self, seconds: float, lost: float, each: float, kind: str = "") -> bool:
        """Look at a call that is on its way; returns whether its threads have become fewer.

        The calls of a kind are warned off once. What they lose may be theirs, a small network on many cores: so when
        more threads are tried again, durations decide.

        Parameters
        ----------
        seconds : duration of the call so far, since its threads last changed
        lost : how much of it the calling thread waited for others, or was not running
        each : duration for each unit of work, as for `observe`
        """
        if self.threads == 1 or seconds < _SHORTEST_GLANCE or lost < _LOST * seconds:
            return False
        retrying = self._retrying
        if retrying and each < self._mean.get((kind, self._before), 0.0):
            return False
        self.threads = self._before if retrying else max(1, self.threads // 2)
        self._warned.add(kind)
        self._trial = 0
        self._wait(longer=retrying)
        return True

    def observe(self, seconds: float, kind: str = "", *, prove: bool = True) -> None:
        """Take note of a call with `threads_for(kind)` threads and choose their number for the next one.

        Parameters
        ----------
        seconds : duration for each unit of work
        kind : calls of one kind have comparable durations
        prove : put the number of threads to the proof early; not worth it for calls that are few and long
        """
        if self.limit == 1:
            return
        key = (kind, self.threads_for(kind))
        usual = min(self._usual.get(key, seconds) * 1.002, seconds)
        self._usual[key] = usual
        self._mean[key] = 0.7 * self._mean.get(key, seconds) + 0.3 * seconds
        self._disturbed = 0.8 * self._disturbed + 0.2 * (seconds > _SLOW * usual)
        if self._trial:
            if kind == self._trial_of:
                self._continue_trial(seconds)
        elif self._clock() >= self._next:
            self._start_trial(kind, proof=prove and self._due(kind))

    def forget(self, kind: str) -> None:
        """Drop what is known of calls that will not come again; a trial of theirs is over."""
        if self._trial and kind == self._trial_of:
            self.threads, self._trial = self._before, 0
        for known in (self._usual, self._mean):
            for key in [key for key in known if key[0] == kind]:
                del known[key]
        for calls in (self._unproven, self._asked):
            calls.pop(kind, None)
        self._proven.discard(kind)
        self._warned.discard(kind)

    def _due(self, kind: str) -> bool:
        """Whether this call is the one after which a kind is put to the proof."""
        if kind in self._proven:
            return False
        calls, since = self._unproven.get(kind, (0, self._clock()))
        self._unproven[kind] = calls + 1, since
        if calls + 1 < _PROOF_CALLS and self._clock() - since < _PROOF_SECONDS:
            return False
        self._proven.add(kind)
        return True

    def _start_trial(self, kind: str, *, proof: bool) -> None:
        if self.threads < self.limit:
            threads = self.limit
        elif self._disturbed > 0.5 or proof:
            threads = max(1, self.threads // 2)
        else:
            return
        if proof:  # the first calls of a program are slow for other reasons: the best one speaks for all
            self._mean[kind, self.threads] = self._usual[kind, self.threads]
        self._before, self.threads = self.threads, threads
        self._mean.pop((kind, threads), None)
        self._trial, self._trial_of, self._disturbed = _TRIAL, kind, 0.0

    def _continue_trial(self, seconds: float) -> None:
        self._trial -= 1
        before = self._mean[self._trial_of, self._before]
        worse = self._mean[self._trial_of, self.threads] > 0.9 * before
        more = self.threads > self._before
        # More threads that are slow at once are dropped at once: such a call may last fifty times longer.
        if worse and (self._trial == 0 or (more and seconds > _SLOW * before)):
            self.threads, self._trial = self._before, 0
            self._wait(longer=True)
        elif self._trial == 0:
            self._wait(longer=not more)

    def _wait(self, *, longer: bool) -> None:
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause) if longer else _FIRST_PAUSE
        self._next = self._clock() + self._pause
        self._disturbed = 0.0
