"""Write files atomically: neither a reader nor a crash ever leaves half a file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from volumetric.base.errors import CheckpointError
from volumetric.base.hints import write_hint


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file beside `path`; on success sync it to disk and rename it to `path`, on failure remove it.

    Raises
    ------
    CheckpointError
        The directory is missing or cannot be written, or the disk is full.
    """
    target = Path(path).absolute()
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    try:
        # "x", not tempfile: the result must have the permissions of the user's umask, not 0600.
        with temporary.open("xb") as handle:
            yield handle
            handle.flush()
            os.fsync(handle.fileno())
        temporary.replace(target)
        sync_directory(target.parent)
    except OSError as error:
        raise CheckpointError(f"cannot write {target}: {error.strerror or error}", hint=write_hint(target)) from error
    finally:
        temporary.unlink(missing_ok=True)


def write_atomic(path: str | os.PathLike[str], data: bytes) -> None:
    """Replace the file at `path` by `data` in one step."""
    with atomic_file(path) as handle:
        handle.write(data)


def sync_directory(path: Path) -> None:
    """Make renames inside `path` durable. Does nothing if directories cannot be opened (Windows)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
