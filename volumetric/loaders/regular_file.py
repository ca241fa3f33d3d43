"""Open untrusted files, but only regular ones."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from volumetric.base.errors import CheckpointError
from volumetric.base.hints import path_hint

_KINDS: Final = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading.

    Anything else is refused before it is opened: a named pipe would wait for a writer forever, ``/dev/zero`` never
    ends, and opening a device can have side effects.

    Raises
    ------
    CheckpointError
        It is not a regular file, or cannot be opened.
    """
    try:
        path = Path(path)
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            what = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
            raise CheckpointError(f"cannot open {path}: it is {what}", hint="give a regular file")
        return path.open("rb")
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CheckpointError(f"cannot open {path}: {reason}", hint=path_hint(path)) from error
