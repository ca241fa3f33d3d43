"""Run parts of step tables on one or several threads; use fewer while other programs use the CPU cores.

A barrier waits for the slowest thread. If another process takes a CPU core, one preempted thread stops all others for a
scheduler time slice: on two cores with one busy neighbour, 346 tokens a second became 112, while a single thread
reached 207. Results do not depend on the number of threads, so it may change from call to call.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from itertools import pairwise

from volumetric.devices.cpu.kernels.run_table import run_single_threaded
from volumetric.devices.cpu.kernels.step_words import STEP_WORDS
from volumetric.devices.cpu.thread_pool import THREAD_POOL

_WATCHED_STEPS = 4  # steps between measurements during a call: each may wait for a scheduler's time slice
_STEP_BYTES = 8 * STEP_WORDS
_MEETING = 800.0
"""Approximate cost of a barrier for all threads together, in nanoseconds."""
_CALL = 4_000.0
"""Nanoseconds to pass a table to spinning workers."""
_WAKING = 150_000.0
"""Work from which waking workers pays."""
_AWAKE = 1e-3
"""Seconds that workers certainly keep spinning after a run."""
_SLOW = 1.7  # multiple of the usual duration that counts as disturbed; noise of an idle machine stays below
_TRIAL = 4  # calls of a trial
_PROOF_CALLS, _PROOF_SECONDS = 8, 0.2  # when the number of threads of a kind is tested once, whichever is first
_SHORTEST_GLANCE = 0.003  # seconds; a wake-up or a page from disk may cost as much on an idle machine
_LOST = 0.25  # part of a call that a thread was preempted; wake-ups on an idle machine stay below 0.05
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 4.0  # seconds until more threads are tried: most disturbances are short
_FIRST_VAIN = 0.25  # seconds after an unsuccessful trial of fewer threads
_PAUSE_FACTOR = 20  # unsuccessful trials may take a twentieth of the time
_STEADY_CALLS = 8  # calls of the usual duration that end a disturbance
_STRANGERS = 64  # consecutive calls of other kinds after which one of them takes over the trial


class ThreadController:
    """Chooses the number of threads of the next call from the duration of the last ones.

    When most calls take much longer than usual, half the threads get a trial of a few calls, and the better number
    stays for a while. Then all threads are tried again, for a single call if that is slow: soon at first, because most
    disturbances are short (the threads of another library spin for some milliseconds after its work), then at ever
    longer intervals. A process that starts next to busy programs has no usual duration to compare with, so half the
    threads always get one early trial.

    During a call of an unknown kind, or one that tries more threads again, `check_running_call` measures how long a
    thread was preempted. On an idle machine that is almost nothing. Next to other programs it soon is a large part of
    the duration of the whole call, and the rest of the call runs on half the threads. It is not compared with the time
    elapsed so far: a server writes to its clients when a call begins, which costs one core 2 ms of a call of 15 ms, and
    in its first 3 ms every call would seem disturbed.

    Attributes
    ----------
    threads : threads for the next call; during a trial, for calls of the tested kind
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.threads: int = limit
        self._clock = clock
        self._usual: dict[tuple[str, int], float] = {}
        self._mean: dict[tuple[str, int], float] = {}
        self._unproven: dict[str, tuple[int, float]] = {}  # calls of a kind, and the time of the first
        self._proven: set[str] = set()
        self._warned: set[str] = set()
        self._asked: dict[str, int] = {}
        self._disturbed = 0.0
        self._steady = _STEADY_CALLS  # calls of the usual duration since all threads were in use again
        self._vain = _FIRST_VAIN
        self._trial = 0  # calls left in the trial of a new number
        self._trial_of = ""  # kind of calls compared in the trial
        self._strangers = 0  # calls of other kinds since its last
        self._since = 0.0  # start of the trial
        self._before = limit  # number of threads before the trial
        self._pause = _FIRST_PAUSE
        self._next = -math.inf  # no trial before this time

    def threads_for(self, kind: str) -> int:
        """Threads for a call of `kind`: a trial concerns only the kind that it compares.

        The next call of a trial may come much later: generation ends, and the next prompt comes first.
        """
        return self._before if self._trial and kind != self._trial_of else self.threads

    def is_uncertain(self, kind: str) -> bool:
        """Whether the next call of a kind, one of its first, runs in parts, with `check_running_call` after each."""
        if self.threads_for(kind) == 1:
            return False
        self._asked[kind] = self._asked.get(kind, 0) + 1
        return self._retries(kind) or (kind not in self._warned and self._asked[kind] <= _PROOF_CALLS)

    def _retries(self, kind: str) -> bool:
        """Whether calls of a kind try more threads again."""
        return self._trial > 0 and self.threads > self._before and kind == self._trial_of

    def check_running_call(self, seconds: float, lost: float, kind: str = "", *, done: float = 1.0) -> bool:
        """Measure a call in progress; return whether its number of threads was reduced.

        Calls of a kind are reduced in this way only once.

        Parameters
        ----------
        seconds : duration of the call so far, since its threads last changed
        lost : how much of it one of its threads was preempted
        done : fraction of the call completed in that time
        """
        threads = self.threads_for(kind)
        whole = lost + max(seconds - lost, 0.0) / done  # total for the call, if no more is lost
        if threads == 1 or seconds < _SHORTEST_GLANCE or lost < _LOST * whole:
            return False
        retries = self._retries(kind)
        self._warned.add(kind)
        self._reduce(self._before if retries else threads // 2, failed=retries)
        return True

    def record_call(self, seconds: float, kind: str = "", *, prove: bool = True) -> None:
        """Record a call with `threads_for(kind)` threads and choose the number for the next one.

        Parameters
        ----------
        seconds : duration for each unit of work
        kind : calls of one kind have comparable durations
        prove : test the number of threads early; not worth it for calls that are few and long
        """
        if self.limit == 1:
            return
        key = (kind, self.threads_for(kind))
        usual = min(self._usual.get(key, seconds) * 1.002, seconds)
        slow = seconds > _SLOW * usual
        self._usual[key] = usual
        self._mean[key] = 0.7 * self._mean.get(key, seconds) + 0.3 * seconds
        self._disturbed = 0.8 * self._disturbed + 0.2 * slow
        self._steady += not slow
        if self._trial:
            self._observe_trial(kind, seconds)
        elif self._clock() >= self._next:
            self._start_trial(kind, proof=prove and self._is_trial_due(kind))

    def drop_kinds(self, kind: str) -> None:
        """Drop the records of calls that will not come again, and end their trial."""
        if self._trial and kind == self._trial_of:
            self.threads, self._trial = self._before, 0
        for known in (self._usual, self._mean):
            for key in [key for key in known if key[0] == kind]:
                del known[key]
        for calls in (self._unproven, self._asked):
            calls.pop(kind, None)
        self._proven.discard(kind)
        self._warned.discard(kind)

    def _is_trial_due(self, kind: str) -> bool:
        """Whether this call is the one after which a kind is tested."""
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
        if proof:  # the first calls of a program are slow for other reasons: the best duration counts
            self._mean[kind, self.threads] = self._usual[kind, self.threads]
        self._before, self.threads = self.threads, threads
        self._since = self._clock()
        self._compare(kind)

    def _compare(self, kind: str) -> None:
        """Use calls of a kind for the trial."""
        self._mean.pop((kind, self.threads), None)
        self._trial, self._trial_of, self._strangers, self._disturbed = _TRIAL, kind, 0, 0.0

    def _observe_trial(self, kind: str, seconds: float) -> None:
        if kind == self._trial_of:
            self._strangers = 0
            self._continue_trial(seconds)
            return
        self._strangers += 1
        if self._strangers >= _STRANGERS and self.threads > self._before:
            self._compare(kind)  # calls of the other kind may never come again, and all continue with fewer threads

    def _continue_trial(self, seconds: float) -> None:
        self._trial -= 1
        before = self._mean[self._trial_of, self._before]
        more = self.threads > self._before
        # Fewer threads must be faster. More need not be: if they gain nothing, that says nothing about other programs.
        worse = self._mean[self._trial_of, self.threads] > (1.05 if more else 0.9) * before
        # More threads that are slow are dropped at once: such a call may last fifty times longer.
        if worse and more and (self._trial == 0 or seconds > _SLOW * before):
            self._reduce(self._before, failed=True)
        elif self._trial > 0:
            return
        elif more:
            self._steady = 0
            self._delay_trials(_FIRST_PAUSE)
        elif worse:
            self.threads = self._before
            self._vain = min(_LONGEST_PAUSE, 2 * self._vain)
            self._delay_trials(self._vain)
        else:
            self._reduce(self.threads)

    def _reduce(self, threads: int, *, failed: bool = False) -> None:
        """Use fewer threads until the next trial, later the more often this happened and the more trials cost."""
        if failed:
            self._pause = max(2 * self._pause, _PAUSE_FACTOR * (self._clock() - self._since))
        else:
            self._pause = _FIRST_PAUSE if self._steady >= _STEADY_CALLS else 2 * self._pause
        self._pause = min(_LONGEST_PAUSE, self._pause)
        self.threads = threads
        self._trial = 0
        self._steady = 0
        self._vain = _FIRST_VAIN
        self._delay_trials(self._pause)

    def _delay_trials(self, pause: float) -> None:
        self._next = self._clock() + pause
        self._disturbed = 0.0


class StepTableExecutor:
    """Executes the steps of everything that shares some CPU cores: a network and its subgraphs, or training programs.

    Parameters
    ----------
    threads : maximum threads of a run
    always : use them all, even for work that one thread does faster; for tests

    Attributes
    ----------
    governor : chooses their number by measured disturbances
    """

    def __init__(self, threads: int, *, always: bool = False) -> None:
        self.threads = threads
        self.governor: ThreadController = ThreadController(threads)
        self._always = always
        self._last = 0.0

    def is_worth_threads(self, work: float, meetings: int) -> bool:
        """Whether several threads are faster: barriers cost time, and waking workers costs more.

        Parameters
        ----------
        work : estimated duration on one core, in nanoseconds
        meetings : number of barriers
        """
        if self.threads == 1:
            return False
        if self._always or work == math.inf:
            return True
        if work * (1 - 1 / self.threads) < 2 * (_CALL + _MEETING * meetings):
            return False
        if work >= _WAKING:
            return True
        now = time.perf_counter()
        awake, self._last = now - self._last < _AWAKE, now
        return awake

    def prepare(self, control: int) -> None:
        """Compile the step executors for one and several threads, or load them from the cache."""
        for threads in sorted({1, self.threads}):
            self._run(0, 0, control, threads, 1)

    def run(
        self,
        address: int,
        steps: int,
        control: int,
        *,
        kind: str,
        rows: int = 1,
        calls: int = 1,
        times: int = 1,
        together: int = 1,
    ) -> None:
        """Execute steps on the number of threads chosen by the controller, and report the duration to it.

        address, steps, control : arguments of the compiled executor
        ----------
        address, steps, control : arguments of the compiled executor
        kind : durations of calls of one kind, for each row and step, are comparable
        rows : units of work of each step
        calls : native calls to split it into: for much work several, so that the controller reacts in time
        times : number of runs of the steps, see `volumetric.devices.cpu.kernels.run_table.publish_call`
        together : the last so many steps run on the same number of threads
        """
        if steps <= 0:
            return
        controller = self.governor
        if self._always:
            THREAD_POOL.run(address, steps, control, self.threads, times=times)
            return
        watched = times == 1 and controller.is_uncertain(kind)
        count = _WATCHED_STEPS if watched else -(-steps // calls)
        clocks, changed = THREAD_POOL.cpu_seconds(controller.threads_for(kind)) if watched else [], False
        whole = since = time.perf_counter()
        before = 0  # steps already done
        starts = [first for first in range(0, steps, count) if first == 0 or first <= steps - together]
        for first, end in pairwise([*starts, steps]):
            some, began = end - first, time.perf_counter()
            self._run(address + first * _STEP_BYTES, some, control, controller.threads_for(kind), times)
            now = time.perf_counter()
            lost, done = now - since - _least(clocks) if watched else 0.0, (end - before) / steps
            if watched and controller.check_running_call(now - since, lost, kind, done=done):
                clocks, changed = THREAD_POOL.cpu_seconds(controller.threads_for(kind)), True
                since, before = time.perf_counter(), end
            elif calls > 1:
                controller.record_call((now - began) / (rows * some), kind, prove=False)
        self._last = time.perf_counter()
        if calls == 1 and not changed:
            controller.record_call((self._last - whole) / (rows * steps * times), kind)

    @staticmethod
    def run_single_threaded(address: int, steps: int, control: int) -> None:
        """Run steps on the calling thread."""
        run_single_threaded(address, steps, control, 1)

    @staticmethod
    def _run(address: int, steps: int, control: int, threads: int, times: int) -> None:
        if threads > 1:
            THREAD_POOL.run(address, steps, control, threads, times=times)
        else:
            run_single_threaded(address, steps, control, times)


def _least(clocks: list[float]) -> float:
    """The smallest processor time of any thread since `clocks` were read."""
    return min(now - then for now, then in zip(THREAD_POOL.cpu_seconds(len(clocks)), clocks, strict=True))
