"""Replace a whole directory of model files atomically, but never a directory with other files."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from volumetric.base.atomic import sync_directory
from volumetric.base.errors import CheckpointError
from volumetric.base.hints import write_hint


@contextmanager
def new_directory(path: str | os.PathLike[str], marker: str) -> Iterator[Path]:
    """Yield an empty directory to fill; on success it replaces `path`, on failure it is deleted.

    Parameters
    ----------
    marker : file that an existing directory must contain to be replaced, unless it is empty

    Raises
    ------
    CheckpointError
        `path` is not a directory that may be replaced, or cannot be written.
    """
    target = Path(path).absolute()
    recover(target)
    if target.exists():
        _check_replaceable(target, marker)
    suffix = secrets.token_hex(6)
    fresh = target.with_name(f".{target.name}.{suffix}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh.mkdir()
        yield fresh
        _swap(fresh, target, target.with_name(f".{target.name}.{suffix}.old"))
    except OSError as error:
        raise CheckpointError(f"cannot write {target}: {error.strerror or error}", hint=write_hint(target)) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _check_replaceable(target: Path, marker: str) -> None:
    if not target.is_dir():
        raise CheckpointError(f"{target} is a file", hint="choose a directory")
    if any(target.iterdir()) and not (target / marker).is_file():
        raise CheckpointError(
            f"{target} contains other files and no {marker}, so it is not overwritten",
            hint="choose an empty or new directory",
        )


def _swap(fresh: Path, target: Path, old: Path) -> None:
    """Move `fresh` to `target`; the old directory is deleted last, so one of the two always exists."""
    if not target.exists():
        fresh.rename(target)
    elif not exchange(fresh, target):
        target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            old.rename(target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    sync_directory(target.parent)


def exchange(a: Path, b: Path) -> bool:
    """Exchange two paths atomically; return False, with nothing done, if the file system does not support it.

    Linux has renameat2 for this and macOS renamex_np. Elsewhere, or on other file systems, two renames are used, and
    `recover` repairs the state after a crash between them.
    """
    import ctypes

    swap, here = 2, -100  # RENAME_EXCHANGE on Linux and RENAME_SWAP on macOS; AT_FDCWD
    try:
        library = ctypes.CDLL(None)
        if hasattr(library, "renameat2"):
            return library.renameat2(here, os.fsencode(a), here, os.fsencode(b), swap) == 0
        return library.renamex_np(os.fsencode(a), os.fsencode(b), swap) == 0
    except (OSError, TypeError, AttributeError):
        return False


def recover(path: Path) -> None:
    """If `path` does not exist, restore the directory that a crash during a replacement left next to it."""
    if path.name and not path.exists():
        for old in path.parent.glob(f".{path.name}.*.old"):
            old.rename(path)
            return
