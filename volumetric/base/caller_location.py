"""Find the line of the caller's own code at which an error was raised."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

from volumetric.base.errors import VolumetricError

_NOT_THEIRS: Final = (str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))


def caller_location(error: BaseException) -> str | None:
    """Return file and line of the last traceback frame outside this package and outside installed packages."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(("<", *_NOT_THEIRS)):
            return f"{Path(frame.filename).name}, line {frame.lineno}"
    return None


def with_caller_location(error: VolumetricError) -> VolumetricError:
    """Return an error whose message ends with `caller_location`; the error itself if there is no such line."""
    place = caller_location(error)
    if place is None or str(error).endswith(f"({place})"):
        return error
    return type(error)(f"{error} ({place})", hint=error.hint)
