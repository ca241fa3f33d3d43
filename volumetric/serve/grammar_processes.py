"""Trials: grammars of clients are compiled in a separate process before they are compiled here.

llguidance has no time limit, a stack overflow in it ends the process, and clients write the grammars. So each is tried
in a process (`volumetric.generate.grammar_trial`) with limited time, memory and stack. A grammar that passes is
compiled again here, by a thread with a larger stack: llguidance cannot pass compiled grammars between processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate.grammar import Grammar, Grammars, GrammarTokens
from volumetric.generate.grammar_source import Form, form_text
from volumetric.generate.grammar_trial import LENGTH, STACK, WALL_SECONDS, packed_message

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from volumetric.generate.model import Model

LARGE: Final = 2**15
"""Characters above which grammars are tried and compiled one at a time, so that small ones need not wait."""
AT_ONCE: Final = 3
"""Number of smaller grammars that are tried and compiled at a time."""
STARTING: Final = 60.0
"""Most seconds for the process to start, and to read the tokens."""
_RUN: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from volumetric.generate.grammar_trial import main; main()"
)


class _TriedGrammar(NamedTuple):
    """A grammar that has passed its trial: its source for llguidance, and its bytes of memory."""

    source: str
    size: int


class _GrammarProcess:
    """The process that tries the grammars of a model, started on demand. For one event loop.

    Parameters
    ----------
    tokens : the model's tokens
    """

    def __init__(self, tokens: GrammarTokens) -> None:
        self._tokens = tokens
        self._process: Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._waiting: dict[int, asyncio.Future[Mapping[str, Any]]] = {}
        self._count = 0

    async def try_grammar(self, form: Form, text: str) -> _TriedGrammar:
        """Try a grammar. Raises `SpecError` if it is refused, and `GenerationError` if the process has ended.

        Cancelling the caller ends the trial.
        """
        process = await self._started()
        self._count = id = self._count + 1
        self._waiting[id] = future = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(WALL_SECONDS + STARTING):
                await self._send(process, packed_message({"id": id, "form": form, "text": text}))
                reply = await future
        except (TimeoutError, OSError):
            self._end(process)
            reply: Mapping[str, Any] = {"problem": "the grammar is refused: compiling it took too long"}
        except asyncio.CancelledError:
            if process.returncode is None:
                with contextlib.suppress(OSError, RuntimeError):
                    process.stdin.write(packed_message({"id": id}))  # pyright: ignore[reportOptionalMemberAccess]
            raise
        finally:
            del self._waiting[id]
        if "problem" in reply:
            raise SpecError(reply["problem"], hint=reply.get("hint"))
        if not reply:
            raise GenerationError("the process that compiles grammars has ended", hint="try again")
        return _TriedGrammar(reply["source"], reply["bytes"])

    async def close(self) -> None:
        """End the process."""
        process, reader = self._process, self._reader
        self._process = self._reader = None
        if process is not None:
            self._end(process)
            await process.wait()
        if reader is not None:
            await asyncio.gather(reader, return_exceptions=True)

    def _end(self, process: Process) -> None:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if process.stdin is not None:
            process.stdin.close()

    async def _started(self) -> Process:
        async with self._starting:
            if self._process is not None and self._process.returncode is None and not _has_ended(self._reader):
                return self._process
            if self._process is not None:
                await self.close()
            self._process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _RUN,
                json.dumps(sys.path),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                # Otherwise glibc reserves 64 MiB of address space per thread, which counts towards the memory limit.
                env={**os.environ, "MALLOC_ARENA_MAX": "1"},
            )
            self._reader = asyncio.ensure_future(self._read(process))
            tokens = self._tokens
            first = {"tokenizer": tokens.tokenizer, "width": tokens.width, "ends": tokens.ends}
            with contextlib.suppress(OSError):
                await self._send(process, await asyncio.to_thread(packed_message, first))
            return process

    @staticmethod
    async def _send(process: Process, data: bytes) -> None:
        if process.stdin is None:
            raise BrokenPipeError
        process.stdin.write(data)
        await process.stdin.drain()

    async def _read(self, process: Process) -> None:
        """Dispatch replies, and fail all waiting trials when the process ends."""
        try:
            while process.stdout is not None:
                (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
                reply = json.loads(await process.stdout.readexactly(length))
                future = self._waiting.get(reply["id"])
                if future is not None and not future.done():
                    future.set_result(reply)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            for future in self._waiting.values():
                if not future.done():
                    future.set_result({})


def _has_ended(task: asyncio.Task[None] | None) -> bool:
    return task is None or task.done()


class _GrammarJob:
    """A grammar that is being compiled, and the number of waiting requests."""

    def __init__(self, task: asyncio.Task[Grammar]) -> None:
        self.task = task
        self.waiting = 0


class GrammarTrials:
    """Compiler of untrusted grammars for a model. For one event loop.

    Parameters
    ----------
    grammars : compiler in this process
    tokens : the model's tokens
    """

    def __init__(self, grammars: Grammars, tokens: GrammarTokens) -> None:
        self._grammars = grammars
        self._trying = _GrammarProcess(tokens)
        self._jobs: dict[tuple[Form, str], _GrammarJob] = {}
        self._large, self._small = asyncio.Semaphore(1), asyncio.Semaphore(AT_ONCE)

    async def grammar(self, kind: str, what: Any) -> Grammar:
        """Return the grammar of a constraint, see `form_text`; concurrent requests for the same one share a trial.

        Raises
        ------
        SpecError : it cannot be enforced, or exceeds the limits
        GenerationError : the trial failed
        """
        key = await self._aside(form_text, kind, what)
        grammar = self._grammars.cached_grammar(*key)
        if grammar is not None:
            return grammar
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = _GrammarJob(asyncio.ensure_future(self._build_grammar(*key)))
            job.task.add_done_callback(lambda _: self._jobs.pop(key))
        job.waiting += 1
        try:
            return await asyncio.shield(job.task)
        finally:
            job.waiting -= 1
            if not job.waiting:
                job.task.cancel()
            del job  # else its error and this frame form a cycle that keeps the grammar alive

    async def close(self) -> None:
        """End the trial process."""
        for job in list(self._jobs.values()):
            job.task.cancel()
        await self._trying.close()
        if "_threads" in self.__dict__:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _build_grammar(self, form: Form, text: str) -> Grammar:
        async with self._large if len(text) > LARGE else self._small:
            tried = await self._trying.try_grammar(form, text)
            grammar = await self._aside(self._grammars.compile_source, tried.source)
        self._grammars.cache_grammar(form, text, grammar, tried.size)
        return grammar

    async def _aside(self, what: Any, *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, what, *args)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        """Threads with four times a trial's stack, so that a grammar that has passed fits here."""
        count = AT_ONCE + 1
        pool, met = ThreadPoolExecutor(count, thread_name_prefix="grammars"), threading.Barrier(count + 1)
        before = threading.stack_size(4 * STACK)
        try:
            for _ in range(count):  # each waits for the others, so that all start with this stack size
                pool.submit(met.wait)
        finally:
            threading.stack_size(before)
        met.wait()
        return pool


class SharedTrials:
    """Trials by tokens: models with the same tokens, such as adapters of one model, share one."""

    def __init__(self) -> None:
        self._trials: dict[GrammarTokens, GrammarTrials] = {}

    def of(self, model: Model) -> GrammarTrials:
        """Return the trials of a model's grammars; call it in a thread. Raises `GenerationError` if impossible."""
        tokens = GrammarTokens.of(model)
        trials = self._trials.get(tokens)
        if trials is None:
            trials = self._trials.setdefault(tokens, GrammarTrials(Grammars(tokens), tokens))
        return trials

    async def close(self, used: Collection[object] = ()) -> None:
        """Close all trials but those in `used`."""
        for tokens, one in list(self._trials.items()):
            if one not in used:
                del self._trials[tokens]
                await one.close()
