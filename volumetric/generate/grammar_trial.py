"""Trials of grammars: a process that compiles untrusted grammars with limits of time, memory and stack.

The process runs `main`. It reads the tokens of a model, then grammars one after the other, and answers each with its
source or an error. It forks for each, so that a grammar that crashes its fork, or exceeds its time, does not affect the
next one: forking a small process takes some milliseconds, while building another token table would take 0.3 s or more.
It has one thread, imports only the compiler of grammars, and ends with its input. On systems without fork it tries
grammars in the process itself, and the caller ends it after a timeout.

Messages are JSON, preceded by their length in four bytes, big-endian.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import struct
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from volumetric.base.errors import SpecError
from volumetric.generate.grammar_source import check_matcher, matcher_of, source_of, token_table

if TYPE_CHECKING:
    import llguidance

PROCESSOR_SECONDS: Final = 1.0
"""Most CPU seconds of a grammar; compiling it again after it has passed takes as long. It is not wall time, so that the
result does not depend on the load of the machine."""
WALL_SECONDS: Final = 10.0
"""Most wall time of a trial."""
MEMORY: Final = 2**28
"""Most bytes of memory of a trial."""
STACK: Final = 2**23
"""Bytes of stack of a trial. The thread that compiles a grammar again has more."""
LENGTH: Final = struct.Struct(">I")


def packed_message(fields: Any) -> bytes:
    """Encode a message."""
    data = json.dumps(fields).encode()
    return LENGTH.pack(len(data)) + data


def main() -> None:
    """Try grammars until the standard input ends."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # signals of a terminal or service manager are for the server
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    first = _read_message(0)
    if first is None:
        return
    try:
        table = token_table(first["tokenizer"], first["width"], first["ends"])
    except ValueError:  # the server's own token table has raised the same error
        return
    if hasattr(os, "fork"):
        _ForkedTrials(table).run()
        return
    while (request := _read_message(0)) is not None:
        if "form" in request:
            _write(1, packed_message({"id": request["id"], **_try_in_thread(table, request)}))


def _read_message(file: int) -> Any:
    """Return the next message; None at the end."""
    head = _read(file, LENGTH.size)
    data = None if head is None else _read(file, LENGTH.unpack(head)[0])
    return None if data is None else json.loads(data)


def _read(file: int, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = os.read(file, count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]


@dataclass(slots=True)
class _ForkedTrial:
    """A running fork: the id of its grammar, its process, its output so far, and its deadline."""

    id: int
    process: int
    written: bytearray
    until: float


class _ForkedTrials:
    """Tries each grammar in a fork of this process."""

    def __init__(self, table: llguidance.LLTokenizer) -> None:
        self._table = table
        self._ready = selectors.DefaultSelector()
        self._copies: dict[int, _ForkedTrial] = {}

    def run(self) -> None:
        """Receive and answer messages."""
        self._ready.register(0, selectors.EVENT_READ)
        while True:
            left = min((one.until for one in self._copies.values()), default=float("inf")) - time.monotonic()
            for key, _ in self._ready.select(None if left == float("inf") else max(left, 0.0)):
                if key.fd == 0:
                    request = _read_message(0)
                    if request is None:
                        for one in self._copies.values():
                            os.kill(one.process, signal.SIGKILL)
                        return
                    self._begin(request) if "form" in request else self._forget(request["id"])
                elif key.fd in self._copies:  # it may just have been cancelled
                    self._take(key.fd)
            now = time.monotonic()
            for file, one in list(self._copies.items()):
                if one.until <= now:
                    os.kill(one.process, signal.SIGKILL)
                    self._end(file, f"it took more than {WALL_SECONDS:g} s")

    def _begin(self, request: dict[str, Any]) -> None:
        ours, theirs = os.pipe()
        process = os.fork()
        if not process:
            _limit()
            _write(theirs, packed_message({"id": request["id"], **_try_in_thread(self._table, request)}))
            os._exit(0)
        os.close(theirs)
        self._ready.register(ours, selectors.EVENT_READ)
        self._copies[ours] = _ForkedTrial(request["id"], process, bytearray(), time.monotonic() + WALL_SECONDS)

    def _take(self, file: int) -> None:
        part = os.read(file, 2**16)
        if part:
            self._copies[file].written += part
        else:
            self._end(file)

    def _forget(self, id: int) -> None:
        """End a cancelled trial."""
        for file, one in list(self._copies.items()):
            if one.id == id:
                os.kill(one.process, signal.SIGKILL)
                self._end(file, "it was cancelled")

    def _end(self, file: int, why: str | None = None) -> None:
        """Answer for a fork that has ended."""
        one = self._copies.pop(file)
        self._ready.unregister(file)
        os.close(file)
        code = os.waitstatus_to_exitcode(os.waitpid(one.process, 0)[1])
        if why is None and code == 0:
            _write(1, bytes(one.written))
        else:
            _write(1, packed_message({"id": one.id, "problem": f"the grammar is refused: {why or _death(code)}"}))


def _death(code: int) -> str:
    """Return why a fork ended."""
    if -code in (signal.SIGPROF, signal.SIGXCPU):
        return f"compiling it takes more than {PROCESSOR_SECONDS:g} s of CPU time"
    if -code in (signal.SIGSEGV, signal.SIGBUS):
        return "its parts are nested, or refer to each other, too deeply"
    return f"compiling it takes more than {MEMORY // 2**20} MiB, or overflows the stack"


def _limit() -> None:
    """Close this process's input, and set its limits of CPU time and memory."""
    import resource

    os.close(0)
    signal.setitimer(signal.ITIMER_PROF, PROCESSOR_SECONDS)
    with contextlib.suppress(ValueError, OSError):
        used = _pages(0)
        if used:
            most = used + MEMORY + 2 * STACK
            resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _pages(which: int) -> int:
    """Return bytes of this process, 0: address space, 1: resident memory; 0 if the system does not report them."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  (pathlib would be one more import)
            return int(file.read().split()[which]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _try_in_thread(table: llguidance.LLTokenizer, request: dict[str, Any]) -> dict[str, Any]:
    """Try a grammar in a thread with a fixed stack size."""
    outcome: dict[str, Any] = {}
    before = threading.stack_size(STACK)
    try:
        thread = threading.Thread(target=lambda: outcome.update(_try_grammar(table, request["form"], request["text"])))
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    return outcome or {"problem": "the grammar is refused: compiling it failed"}


def _try_grammar(table: llguidance.LLTokenizer, form: Any, text: str) -> dict[str, Any]:
    """Return the source of a grammar and its memory in bytes, or its error."""
    try:
        source = source_of(form, text)
        before = _pages(1)
        matcher = matcher_of(table, source)
        bytes_ = _pages(1) - before
        begun = matcher.deep_copy()
        begun.compute_bitmask()
        check_matcher(begun)
    except SpecError as error:
        return {"problem": str(error), "hint": error.hint}
    except (MemoryError, RecursionError, ValueError) as error:
        reason = (
            "it is nested too deeply" if isinstance(error, RecursionError) else str(error) or "it takes too much memory"
        )
        return {"problem": f"the grammar is refused: {reason[:300]}"}
    return {"source": source, "bytes": bytes_}
