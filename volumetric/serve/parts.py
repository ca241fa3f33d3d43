"""Parts of what a model writes."""

from __future__ import annotations

from typing import NamedTuple

from volumetric.serve.tools.reader import CallPiece


class Parts(NamedTuple):
    """What some text holds: reasoning, what is said, and pieces of calls."""

    thought: str
    said: str
    pieces: list[CallPiece]
