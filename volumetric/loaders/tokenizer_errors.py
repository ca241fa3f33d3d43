"""The only gateway to the ``tokenizers`` library: all its failures become errors of this package.

The library is written in Rust. Most errors in a file raise a plain `Exception`, but some cause a panic, which PyO3
raises as ``pyo3_runtime.PanicException``, derived from `BaseException` so that it is not caught by accident
(https://pyo3.rs/main/function/error-handling). The process stays usable after it. Rust also writes a line to the file
descriptor of stderr; a redirection would swallow the output of other threads.
"""

from __future__ import annotations

from pathlib import PurePath
from types import TracebackType
from typing import Final

from volumetric.base.errors import CheckpointError, GenerationError, VolumetricError

_PANIC: Final = "pyo3_runtime"
"""Module that identifies a panic: the class itself cannot be imported."""


class TokenizerErrors:
    """Context manager for calls of the library; reusable and thread-safe.

    Parameters
    ----------
    where : file, for messages; messages about texts contain only its name
    what : description of the failure, such as "the text cannot be encoded"
    error : class for ordinary exceptions of the library; a panic is always a `CheckpointError`, because only a damaged
        file causes one
    """

    __slots__ = ("_error", "_what", "_where")

    def __init__(self, where: str, what: str, error: type[CheckpointError] | type[GenerationError]) -> None:
        self._where, self._what, self._error = where, what, error

    def __enter__(self) -> None:
        """Do nothing."""

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
            # A client sees messages about texts: they must not contain the path of the file.
            where = PurePath(self._where).name if self._error is GenerationError else self._where
            raise self._error(f"{where}: {self._what}: {reason}") from error
