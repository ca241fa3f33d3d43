"""Compiled kernels on disk: one file per kernel and signature, safe for concurrent writers.

Numba keeps an index of numbered files, and updates that index without a lock. Two processes that compile two
specialisations of one function at once then choose the same number, and one process's index names the machine code of
the other. Here a file's name depends only on its key, so nothing is read before it is written.
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
"""Exceptions from reading a file that another program wrote or truncated."""


class KernelFiles:
    """The compiled code of one function, by key, in a folder; implements Numba's ``IndexDataCacheFile``.

    Parameters
    ----------
    folder : created when something is saved
    stem : prefix of the file names: function, line and Python version
    """

    def __init__(self, folder: str, stem: str) -> None:
        self._folder, self._stem = Path(folder), stem

    def path(self, key: object) -> Path:
        """Path of the code for `key` (signature, processor, hashes of code and closure)."""
        return self._folder / f"{self._stem}.{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.nbc"

    def save(self, key: object, data: object) -> None:
        """Write the file atomically; if the disk is full, only the next start is slower."""
        path = self.path(key)
        unfinished = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            unfinished.write_bytes(dumps(data))
            unfinished.replace(path)
        except OSError as error:
            _log.warning("cannot save a compiled kernel in %s: %s", self._folder, error.strerror or error)
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink(missing_ok=True)

    def load(self, key: object) -> Any:
        """Return the data saved for `key`; None if there is none, or if it is unreadable."""
        try:
            return pickle.loads(self.path(key).read_bytes())
        except _BROKEN:
            return None

    def has(self, key: object) -> bool:
        """Whether there is a file for `key`."""
        return self.path(key).exists()

    def flush(self) -> None:
        """Delete all files of the function."""
        for path in self._folder.glob(f"{self._stem}.*.nbc"):
            path.unlink(missing_ok=True)
