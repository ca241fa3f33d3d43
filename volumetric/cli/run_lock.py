"""A lock on the directory of a run, which the operating system releases when the process ends."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from volumetric.base.errors import CheckpointError, VolumetricError
from volumetric.cli import console

NAME = ".lock"
_BEFORE = (NAME, "config.toml", "origin.json")
"""Files that a run writes before it starts."""
_BUSY = (errno.EACCES, errno.EAGAIN, errno.EWOULDBLOCK, errno.EDEADLK)
_FAR = 1 << 30
"""Offset of the byte that Windows locks: after the process id, because a locked byte cannot be read."""


@contextmanager
def only_one(home: Path) -> Iterator[None]:
    """Lock the run in `home` against other processes; the directory is created if missing.

    Raises
    ------
    CheckpointError
        Another process holds the lock, or the directory cannot be written.
    """
    fresh = not home.exists()
    try:
        home.mkdir(parents=True, exist_ok=True)
        handle = (home / NAME).open("a+b", buffering=0)
    except OSError as error:
        is_file = home.is_file()
        raise CheckpointError(
            f"cannot write {home}: {'it is a file' if is_file else error.strerror or error}",
            hint="choose a directory: output in the file, or --out DIRECTORY"
            if is_file
            else "check free space and permissions",
        ) from None
    try:
        with handle:
            yield from _locked(home, handle)
    except VolumetricError:
        if fresh:
            _remove_unstarted(home)
        raise


def _remove_unstarted(home: Path) -> None:
    """Remove the directory of a run that failed before its first update or generation: nothing in it is a result."""
    with suppress(OSError):
        parts = [*home.iterdir()]
        if all(path.name in _BEFORE or _is_empty(path) for path in parts):
            for path in parts:
                path.rmdir() if path.is_dir() else path.unlink()
            home.rmdir()


def _is_empty(path: Path) -> bool:
    return not any(path.iterdir()) if path.is_dir() else not path.stat().st_size


def _locked(home: Path, handle: IO[bytes]) -> Iterator[None]:
    """Hold the lock of an open file."""
    try:
        _lock(handle.fileno())
    except OSError as error:
        if error.errno not in _BUSY:  # the file system has no locks
            console.note(f"{home} cannot be locked against a second process: {error.strerror or error}")
            yield
            return
        handle.seek(0)
        owner = handle.read(20).decode(errors="replace").strip() or "another process"
        raise CheckpointError(
            f"the run in {home} is still running, in process {owner}",
            hint="wait until it ends, or end it; another run needs its own directory (--out)",
        ) from None
    handle.truncate(0)
    handle.write(f"{os.getpid()}\n".encode())
    yield


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
