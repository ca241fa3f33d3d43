"""Compile operations before a table needs them, in several processes at once, with progress.

Numba compiles each operation once per machine, for a second or more each; later it is loaded from the user's cache
within milliseconds. Nine tenths of that second are Numba's own Python, under the GIL, so threads would not help:
missing operations are distributed to processes (`compile_process.py`), which store them in the cache. The calling
process waits and loads the results, because compiling takes memory that a process never frees.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from volumetric.base.notebook_cell import in_notebook, report_work
from volumetric.devices.cpu.compile_process import CompileProcess
from volumetric.devices.cpu.cpu_count import usable_cpus
from volumetric.devices.cpu.kernels.jit import cache_root

_log = logging.getLogger(__name__)

PROCESSES = "VOLUMETRIC_COMPILE_PROCESSES"
"""Environment variable: maximum number of compiling processes; with 1 the calling process compiles."""
WORTH_A_PROCESS = 3
"""Operations per started process: importing Numba costs a process about as much as compiling one."""
MOST_PROCESSES = 8
"""Maximum number of processes; each takes about 250 MB while it compiles."""
WORTH_A_WARNING = 3
"""Number of missing operations from which a warning explains the wait if logging is not configured."""

Key = tuple[str, tuple[str | int, ...]]
"""Name of an operation, and its specialisation constants."""


class OperationLibrary(Protocol):
    """The interface of a library of operations (`volumetric.devices.cpu.kernels.jit.Library`)."""

    @property
    def home(self) -> str:
        """``module:name`` of the library, for other processes."""
        ...

    def is_ready(self, name: str, *constants: str | int) -> bool:
        """Whether an operation was compiled before, by this process or by one that cached it."""
        ...

    def address(self, name: str, *constants: str | int) -> int:
        """Return the address of the compiled operation; compile it first if needed."""
        ...


def compile_operations(requested: Iterable[Key], library: OperationLibrary) -> None:
    """Compile the operations of `requested`, or load them from the cache.

    Progress goes to this module's logger: after each compiled operation with ``record.progress = (done, all)``, and at
    the end the duration, and whether it recurs, with ``record.progress = None``. If nobody listens to such records, one
    warning at the beginning explains the wait.

    Parameters
    ----------
    requested : in any order, with repetitions
    library : what compiles them
    """
    keys = tuple(dict.fromkeys(requested))
    missing = deque((name, constants) for name, constants in keys if not library.is_ready(name, *constants))
    if missing:
        _compile(missing, library)
    for name, constants in keys:
        library.address(name, *constants)


def _compile(missing: deque[Key], library: OperationLibrary) -> None:
    began, count = time.perf_counter(), len(missing)
    what = "1 kernel" if count == 1 else f"{count} kernels"
    cached = cache_root() is not None
    if count >= WORTH_A_WARNING and not _log.isEnabledFor(logging.INFO) and not in_notebook():
        _log.warning("compiling %s%s; this can take up to a minute", what, ", once on this machine" if cached else "")
    processes = [CompileProcess(library.home) for _ in range(_processes(count) if cached else 0)]
    queue = _CompileQueue(missing, len(processes))
    threads = [threading.Thread(target=_run_compile_process, args=(queue, each), daemon=True) for each in processes]
    try:
        for thread in threads:
            thread.start()
        while (key := queue.next_for_caller()) is not None:
            library.address(key[0], *key[1])
            queue.report(key)
    finally:
        for each in processes:
            each.close()
        for thread in threads:
            thread.join()
    again = "which are kept for the next start" if cached else "and again at the next start: no cache"
    report_work(_log, f"compiled {what} in {time.perf_counter() - began:.1f} s, {again}", None)


def _processes(count: int) -> int:
    """Number of processes to compile `count` operations; 0: the calling process compiles."""
    named = os.environ.get(PROCESSES, "")
    most = int(named) if named.isdigit() and int(named) else min(usable_cpus(), MOST_PROCESSES)
    return min(most, count // WORTH_A_PROCESS) if most > 1 else 0


class _CompileQueue:
    """Operations still to be compiled, operations being compiled, and the number done."""

    def __init__(self, keys: deque[Key], processes: int) -> None:
        self._waiting, self._all, self._done = keys, len(keys), 0
        self._given_back = deque[Key]()
        self._elsewhere, self._processes = 0, processes
        self._changed = threading.Condition()

    def next_for_process(self) -> Key | None:
        """Return the next operation for a process to compile."""
        with self._changed:
            if not self._waiting:
                return None
            self._elsewhere += 1
            return self._waiting.popleft()

    def next_for_caller(self) -> Key | None:
        """Return the next operation that no process is compiling, waiting if needed; None if all are done."""
        with self._changed:
            while True:
                if self._given_back:
                    return self._given_back.popleft()
                if self._waiting and not self._processes:
                    return self._waiting.popleft()
                if not self._waiting and not self._elsewhere:
                    return None
                self._changed.wait()

    def report(self, key: Key, *, elsewhere: bool = False, compiled: bool = True) -> None:
        """Record that `key` is compiled, or requeue it because a process failed, which then gets no more."""
        with self._changed:
            self._elsewhere -= elsewhere
            if compiled:
                self._done += 1
                done, count = self._done, self._all
                report_work(_log, f"compiling kernels, once on this machine: {done} of {count}", (done, count))
            else:
                self._given_back.append(key)
                self._processes -= 1
            self._changed.notify_all()


def _run_compile_process(queue: _CompileQueue, process: CompileProcess) -> None:
    """Send a process one operation after the other; return a failed one to the queue and stop."""
    while (key := queue.next_for_process()) is not None:
        compiled = process.compile(key)
        queue.report(key, elsewhere=True, compiled=compiled)
        if not compiled:
            return
