"""Stop texts: end before one appears, and never return a part of one."""

from __future__ import annotations

from collections.abc import Sequence


def undecided(text: str, marks: Sequence[str]) -> int:
    """Return the length of the longest suffix of a text that is a proper prefix of one of `marks`."""
    longest = max(map(len, marks), default=1) - 1
    for length in range(min(longest, len(text)), 0, -1):
        tail = text[-length:]
        if any(mark.startswith(tail) for mark in marks):
            return length
    return 0


class StopMatcher:
    """Passes text on, but holds back a suffix that may become a stop text.

    Parameters
    ----------
    stops : stop texts; without any, all text is passed on at once
    shown : the matched stop text is passed on, too
    """

    def __init__(self, stops: Sequence[str], *, shown: bool = False) -> None:
        self._stops = tuple(stops)
        self._shown = shown
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Add more text; return the text that may be shown, and whether a stop text has appeared.

        At a stop text, the text before its first occurrence is returned, and the rest is dropped; if several begin
        there, the shortest counts.
        """
        if not self._stops:
            return text, False
        self._held += text
        matches = [(at, len(stop)) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if matches:
            at, length = min(matches)
            shown, self._held = self._held[: at + length * self._shown], ""
            return shown, True
        cut = len(self._held) - undecided(self._held, self._stops)
        shown, self._held = self._held[:cut], self._held[cut:]
        return shown, False

    def flush(self) -> str:
        """Return the held-back text at the end."""
        rest, self._held = self._held, ""
        return rest
