"""Operations compiled before a table needs them, by several processes at once, with word of how far that is.

Numba compiles each operation once on a machine, a second or more at a time; afterwards they come from the user's cache
within milliseconds. Nine tenths of that second are Numba's own Python, under one lock, so threads would not help: what
is missing is shared out among processes (`compile_process.py`), which leave it in the cache. This one waits for them
and loads what they made: compiling takes memory that a process keeps to its end.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Protocol

from volumetric.devices.cpu.compile_process import CompileProcess
from volumetric.devices.cpu.cores import usable_cpus
from volumetric.devices.cpu.kernels.jit import cache_root

_log = logging.getLogger(__name__)

PROCESSES = "VOLUMETRIC_COMPILE_PROCESSES"
"""Environment variable: at most so many processes compile at once; with 1 this one does it itself."""
WORTH_A_PROCESS = 3
"""Operations for which a process is started: importing Numba costs it about as much as compiling one."""
MOST_PROCESSES = 8
"""Each takes about 250 MB while it compiles."""
WORTH_A_WARNING = 3
"""Missing operations from which somebody who has not configured logging is told why nothing happens for seconds."""

Key = tuple[str, tuple[str | int, ...]]
"""Name of an operation, and the constants that it is specialised to."""


class Operations(Protocol):
    """What is asked of a library of operations (`volumetric.devices.cpu.kernels.jit.Library`)."""

    @property
    def home(self) -> str:
        """``module:name`` of the library, by which another process finds it."""
        ...

    def is_ready(self, name: str, *constants: str | int) -> bool:
        """Whether an operation was compiled before, in this process or in one that cached it."""
        ...

    def address(self, name: str, *constants: str | int) -> int:
        """Return the address of the compiled operation, compiling it first where that is needed."""
        ...


def make_ready(requested: Iterable[Key], library: Operations) -> None:
    """Compile the operations of `requested`, or load them from the cache.

    Progress goes to this module's logger: after each one that was compiled with ``record.progress = (done, all)``, and
    at the end how long it took, and whether it will be so again, with ``record.progress = None``. Where nobody listens
    to such records, one warning says at the beginning what takes so long.

    Parameters
    ----------
    requested : in any order, any number of times
    library : what compiles them
    """
    keys = tuple(dict.fromkeys(requested))
    missing = deque((name, constants) for name, constants in keys if not library.is_ready(name, *constants))
    if missing:
        _compile(missing, library)
    for name, constants in keys:
        library.address(name, *constants)


def _compile(missing: deque[Key], library: Operations) -> None:
    began, count = time.perf_counter(), len(missing)
    what = "1 kernel" if count == 1 else f"{count} kernels"
    cached = cache_root() is not None
    if count >= WORTH_A_WARNING and not _log.isEnabledFor(logging.INFO):
        _log.warning("compiling %s%s; this can take up to a minute", what, ", once on this machine" if cached else "")
    processes = [CompileProcess(library.home) for _ in range(_processes(count) if cached else 0)]
    queue = _Queue(missing, len(processes))
    threads = [threading.Thread(target=_serve, args=(queue, each), daemon=True) for each in processes]
    try:
        for thread in threads:
            thread.start()
        while (key := queue.take_here()) is not None:
            library.address(key[0], *key[1])
            queue.done(key)
    finally:
        for each in processes:
            each.close()
        for thread in threads:
            thread.join()
    again = "which are kept for the next start" if cached else "and again at the next start: no cache"
    _log.info("compiled %s in %.1f s, %s", what, time.perf_counter() - began, again, extra={"progress": None})


def _processes(count: int) -> int:
    """How many processes compile `count` operations; 0: this one does."""
    named = os.environ.get(PROCESSES, "")
    most = int(named) if named.isdigit() and int(named) else min(usable_cpus(), MOST_PROCESSES)
    return min(most, count // WORTH_A_PROCESS) if most > 1 else 0


class _Queue:
    """What is still to be compiled, by whom it is being compiled, and how much is done."""

    def __init__(self, keys: deque[Key], processes: int) -> None:
        self._waiting, self._all, self._done = keys, len(keys), 0
        self._given_back = deque[Key]()
        self._elsewhere, self._processes = 0, processes
        self._changed = threading.Condition()

    def take(self) -> Key | None:
        """Return the next one for a process to compile."""
        with self._changed:
            if not self._waiting:
                return None
            self._elsewhere += 1
            return self._waiting.popleft()

    def take_here(self) -> Key | None:
        """Return the next one that no process compiles, once it is known, or None when all are done."""
        with self._changed:
            while True:
                if self._given_back:
                    return self._given_back.popleft()
                if self._waiting and not self._processes:
                    return self._waiting.popleft()
                if not self._waiting and not self._elsewhere:
                    return None
                self._changed.wait()

    def done(self, key: Key, *, elsewhere: bool = False, compiled: bool = True) -> None:
        """Note that `key` is compiled, or give it back because a process could not, which takes no more."""
        with self._changed:
            self._elsewhere -= elsewhere
            if compiled:
                self._done += 1
                done, count = self._done, self._all
                text = "compiling kernels, once on this machine: %d of %d"
                _log.info(text, done, count, extra={"progress": (done, count)})
            else:
                self._given_back.append(key)
                self._processes -= 1
            self._changed.notify_all()


def _serve(queue: _Queue, process: CompileProcess) -> None:
    """Give a process one operation after the other; what it cannot compile goes back, and it gets no more."""
    while (key := queue.take()) is not None:
        compiled = process.compile(key)
        queue.done(key, elsewhere=True, compiled=compiled)
        if not compiled:
            return
