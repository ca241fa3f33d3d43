"""The thread pool that runs plans: one per process, the calling thread being thread 0.

Workers stay inside one native loop and spin between tokens. Without work for a few milliseconds they park on a Python
event, so an idle model uses no CPU. They end at interpreter exit; a forked child starts with new workers.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.cpu.kernels.run_table import (
    CALL,
    CREW_WORDS,
    QUIT,
    THREADS_LIMIT,
    publish_call,
    run_as_leader,
    run_as_worker,
)

_IDLE_PAUSES = 80_000
"""2 ms of spinning (25 ns a pause on Zen 4): longer than the gap between two tokens, too short to count as load."""


@dataclass(slots=True, eq=False)
class _PoolThread:
    """One thread in addition to the caller."""

    thread: threading.Thread | None = None
    parked: bool = False
    wake: threading.Event = field(default_factory=threading.Event)


class ThreadPool:
    """Runs step tables; any number of Python threads may call `run`, which serialises them."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._memory: NDArray[np.int64] = np.zeros(CREW_WORDS + 8, np.int64)
        skew = -self._memory.ctypes.data % 64 // 8
        self._crew = self._memory[skew : skew + CREW_WORDS]
        self._address = self._crew.ctypes.data
        self._workers: list[_PoolThread] = []

    def run(self, table: int, steps: int, control: int, threads: int, *, times: int = 1) -> None:
        """Run `steps` steps at address `table` with the control block at `control`, `times` times."""
        threads = min(threads, THREADS_LIMIT)
        with self._turn:
            while len(self._workers) < threads - 1:
                self._add_threads()
            publish_call(self._address, table, steps, control, threads, times)
            # A worker marks itself parked before it reads the call number for the last time, and the call number was
            # published before these marks are read: one of the two sees the other.
            for worker in self._workers[: threads - 1]:
                if worker.parked:
                    worker.parked = False
                    worker.wake.set()
            run_as_leader(self._address, threads)

    def cpu_seconds(self, threads: int) -> list[float]:
        """Processor seconds of the calling thread so far, and of each of so many others.

        A thread of a call never sleeps: processor time missing from the call's duration went to other threads. If a
        system does not report the time of other threads, only the caller's is returned.
        """
        own = time.thread_time()
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        if clock_of is None:
            return [own]
        with self._turn:
            while len(self._workers) < threads - 1:
                self._add_threads()
            some = [worker.thread.ident for worker in self._workers[: threads - 1] if worker.thread is not None]
            return [own, *(time.clock_gettime(clock_of(ident)) for ident in some)]

    def close(self) -> None:
        """End all workers and wait for them; the next `run` starts new ones."""
        with self._turn:
            self._crew[QUIT] = 1
            workers, self._workers = self._workers, []
            for worker in workers:
                worker.wake.set()
            for worker in workers:
                if worker.thread is not None:
                    worker.thread.join()
            self._crew[QUIT] = 0

    def reset_after_fork(self) -> None:
        """Reset in a forked child, where no worker exists."""
        self.__init__()

    def _add_threads(self) -> None:
        worker = _PoolThread()
        number = len(self._workers) + 1
        # Compiles here: an error in the worker's thread would make the caller wait for ever.
        run_as_worker(self._address, number, int(self._crew[CALL]), 0)
        worker.thread = threading.Thread(
            target=self._run_worker,
            args=(worker, number, int(self._crew[CALL])),
            name=f"volumetric-cpu-{number}",
            daemon=True,
        )
        self._workers.append(worker)
        worker.thread.start()

    def _run_worker(self, worker: _PoolThread, number: int, done: int) -> None:
        while not self._crew[QUIT]:
            done = run_as_worker(self._address, number, done, _IDLE_PAUSES)
            worker.parked = True
            if self._crew[CALL] == done and not self._crew[QUIT]:
                worker.wake.wait()
            worker.parked = False
            worker.wake.clear()


THREAD_POOL = ThreadPool()

atexit.register(THREAD_POOL.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREAD_POOL.reset_after_fork)
