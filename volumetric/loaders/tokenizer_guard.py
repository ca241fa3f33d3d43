"""The one way into the ``tokenizers`` library: whatever goes wrong inside becomes an error of this package.

The library is written in Rust. Most faults of a file come as bare `Exception`, but some make it panic, and PyO3 hands a
panic on as ``pyo3_runtime.PanicException``, which derives from `BaseException` so that nobody catches it by accident
(https://pyo3.rs/main/function/error-handling). The process is sound after it. Rust has written its own line about it to
the file descriptor of stderr by then; redirecting that would swallow what other threads write meanwhile.
"""

from __future__ import annotations

from pathlib import PurePath
from types import TracebackType
from typing import Final

from volumetric.base.errors import CheckpointError, GenerationError, VolumetricError

_PANIC: Final = "pyo3_runtime"
"""Module by which a panic is known: the class itself cannot be imported."""


class Guard:
    """Context in which the library may be called; reusable, and safe in several threads.

    Parameters
    ----------
    where : file, for messages; those of texts have its name alone
    what : what failed if something did, "the text cannot be encoded"
    error : what an ordinary exception of the library becomes; a panic is always a `CheckpointError`, because only a
        damaged file leads to one
    """

    __slots__ = ("_error", "_what", "_where")

    def __init__(self, where: str, what: str, error: type[CheckpointError] | type[GenerationError]) -> None:
        self._where, self._what, self._error = where, what, error

    def __enter__(self) -> None:
        """Nothing to do before."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Translate an error; KeyboardInterrupt, SystemExit and errors of this package pass unchanged."""
        if error is None or isinstance(error, (VolumetricError, MemoryError)):
            return
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        if type(error).__module__ == _PANIC:
            raise CheckpointError(f"{self._where}: damaged tokenizer: {self._what}: {reason}") from error
        if isinstance(error, Exception):
            # What a text was no good for, whoever sent it is told: not where the file is.
            where = PurePath(self._where).name if self._error is GenerationError else self._where
            raise self._error(f"{where}: {self._what}: {reason}") from error
