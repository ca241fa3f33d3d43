"""Compiled kernels on disk: one file for each kernel and signature, which any number of processes may write at once.

Numba keeps an index beside numbered files and reads, changes and replaces that index without a lock. Two processes that
compile two specialisations of one function at once then choose the same number, and the index of the one names the
machine code of the other. Here a file's name follows from its key alone, so nothing is read before it is written.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import pickle
import secrets
from pathlib import Path
from typing import Any

from numba.core.serialize import dumps

_log = logging.getLogger(__name__)

_BROKEN = (EOFError, pickle.UnpicklingError, OSError, ValueError, ImportError, AttributeError)
"""What reading a file raises that something else than this class has written or cut short."""


class KernelFiles:
    """The compiled code of one function, by key, in a folder; has the methods of Numba's ``IndexDataCacheFile``.

    Parameters
    ----------
    folder : made when something is saved
    stem : beginning of the files' names: function, line and Python version
    """

    def __init__(self, folder: str, stem: str) -> None:
        self._folder, self._stem = Path(folder), stem

    def path(self, key: object) -> Path:
        """Where the code of `key` (signature, processor, hashes of code and closure) is kept."""
        return self._folder / f"{self._stem}.{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.nbc"

    def save(self, key: object, data: object) -> None:
        """Write the file whole, or not at all; a disk that is full costs the next start its time, and no more."""
        path = self.path(key)
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(dumps(data))
            unfinished.replace(path)
        except OSError as error:
            _log.warning("a compiled kernel could not be kept in %s: %s", self._folder, error.strerror or error)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def load(self, key: object) -> Any:
        """Return what was saved for `key`; None if nothing was, or if it cannot be read any more."""
        try:
            return pickle.loads(self.path(key).read_bytes())
        except _BROKEN:
            return None

    def holds(self, key: object) -> bool:
        """Whether there is a file for `key`."""
        return self.path(key).exists()

    def flush(self) -> None:
        """Forget everything that is kept of the function."""
        for path in self._folder.glob(f"{self._stem}.*.nbc"):
            path.unlink(missing_ok=True)
