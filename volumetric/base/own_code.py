"""Where an error was raised in code of the person who calls this package."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path
from typing import Final

_NOT_THEIRS: Final = (str(Path(__file__).parents[1]), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")))


def own_code(error: BaseException) -> str | None:
    """Return file and line of the last step of a traceback in code that is neither this package nor installed."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(("<", *_NOT_THEIRS)):
            return f"{Path(frame.filename).name}, line {frame.lineno}"
    return None
