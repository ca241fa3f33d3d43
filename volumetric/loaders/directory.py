"""Replace a whole directory of model files in one step, and never one that holds anything else."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from volumetric.base.atomic import sync_directory
from volumetric.base.errors import CheckpointError


@contextmanager
def new_directory(path: str | os.PathLike[str], marker: str) -> Iterator[Path]:
    """Yield an empty directory to fill; on success it takes the place of `path`, on failure it disappears.

    Parameters
    ----------
    marker : file that an existing directory must have to be replaced, unless it is empty

    Raises
    ------
    CheckpointError
        `path` is something else than such a directory, or cannot be written.
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
        raise CheckpointError(
            f"cannot write {target}: {error.strerror or error}", hint="check space and rights"
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _check_replaceable(target: Path, marker: str) -> None:
    if not target.is_dir():
        raise CheckpointError(f"{target} is a file", hint="choose a directory")
    if any(target.iterdir()) and not (target / marker).is_file():
        raise CheckpointError(
            f"{target} holds other files and no {marker}, and is not overwritten",
            hint="choose an empty or new directory",
        )


def _swap(fresh: Path, target: Path, old: Path) -> None:
    """Move `fresh` to `target`; what was there is deleted last, so that one of the two is always there."""
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
    """Exchange two paths in one step of the file system; return False, with nothing done, where it has none.

    Linux has renameat2 for this and macOS renamex_np. Elsewhere, or on a file system that does not know them, two
    renames must do, and `recover` mends what a crash between them leaves.
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
    """Bring back what a crash in the middle of a replacement has left beside `path`, if nothing is there."""
    if path.name and not path.exists():
        for old in path.parent.glob(f".{path.name}.*.old"):
            old.rename(path)
            return
