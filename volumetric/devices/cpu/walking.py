"""Running parts of step tables: alone or by the team, by as many threads as the governor finds sensible."""

from __future__ import annotations

import math
import time
from itertools import pairwise

from volumetric.devices.cpu.governor import Governor
from volumetric.devices.cpu.kernels.steps import STEP_WORDS
from volumetric.devices.cpu.kernels.walk import run_alone
from volumetric.devices.cpu.team import TEAM

_WATCHED_STEPS = 4  # steps of a part while the governor looks around: each may wait for a scheduler's time slice
_STEP_BYTES = 8 * STEP_WORDS
_MEETING = 800.0
"""Nanoseconds that a barrier costs all threads together, more or less."""
_CALL = 4_000.0
"""Nanoseconds to hand a table to workers that are awake."""
_WAKING = 150_000.0
"""Work from which waking workers pays."""
_AWAKE = 1e-3
"""Seconds that workers surely stay awake after a run."""


class Walker:
    """Runs steps of all that shares some cores: a network with what stands between its rows, or programs of training.

    Parameters
    ----------
    threads : that a run may use
    always : use them all, even for work that one thread does sooner; for tests

    Attributes
    ----------
    governor : chooses their number by what disturbs them
    """

    def __init__(self, threads: int, *, always: bool = False) -> None:
        self.threads = threads
        self.governor = Governor(threads)
        self._always = always
        self._last = 0.0

    def is_worth_threads(self, work: float, meetings: int) -> bool:
        """Whether several threads are sooner done: meetings cost time, and waking workers costs more.

        Parameters
        ----------
        work : estimated duration on one core, in nanoseconds
        meetings : how often threads meet
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
        """Compile what runs steps alone and by the team, or load it from the cache: the governor may choose either."""
        for threads in sorted({1, self.threads}):
            self._run(0, 0, control, threads, 1)

    def walk(
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
        """Run steps by the number of threads that the governor advises, and tell it how long that took.

        Parameters
        ----------
        address, steps, control : as the compiled walker reads them
        kind : durations of calls of one kind, for each row and step, are comparable
        rows : units of work of each step
        calls : native calls to make of it: for much work some, so that the governor learns in time
        times : how often to run the steps, see `volumetric.devices.cpu.kernels.walk.publish`
        together : the last so many steps are run by the same number of threads
        """
        if steps <= 0:
            return
        governor = self.governor
        if self._always:
            TEAM.run(address, steps, control, self.threads, times=times)
            return
        watched = times == 1 and governor.uncertain(kind)
        count = _WATCHED_STEPS if watched else -(-steps // calls)
        clocks, changed = TEAM.clocks(governor.threads_for(kind)) if watched else [], False
        whole = since = time.perf_counter()
        before = 0  # steps that were done then
        starts = [first for first in range(0, steps, count) if first == 0 or first <= steps - together]
        for first, end in pairwise([*starts, steps]):
            some, began = end - first, time.perf_counter()
            self._run(address + first * _STEP_BYTES, some, control, governor.threads_for(kind), times)
            now = time.perf_counter()
            lost, done = now - since - _least(clocks) if watched else 0.0, (end - before) / steps
            if watched and governor.glance(now - since, lost, kind, done=done):
                clocks, changed = TEAM.clocks(governor.threads_for(kind)), True
                since, before = time.perf_counter(), end
            elif calls > 1:
                governor.observe((now - began) / (rows * some), kind, prove=False)
        self._last = time.perf_counter()
        if calls == 1 and not changed:
            governor.observe((self._last - whole) / (rows * steps * times), kind)

    @staticmethod
    def alone(address: int, steps: int, control: int) -> None:
        """Run steps on the calling thread."""
        run_alone(address, steps, control, 1)

    @staticmethod
    def _run(address: int, steps: int, control: int, threads: int, times: int) -> None:
        if threads > 1:
            TEAM.run(address, steps, control, threads, times=times)
        else:
            run_alone(address, steps, control, times)


def _least(clocks: list[float]) -> float:
    """Processor time that the thread which had the least of it has had since `clocks` were read."""
    return min(now - then for now, then in zip(TEAM.clocks(len(clocks)), clocks, strict=True))
