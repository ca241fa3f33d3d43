"""Marks around what is said, which clients do not see."""

from __future__ import annotations


class Unwrapped:
    """Takes marks around what is said away, as it comes.

    Parameters
    ----------
    marks : what is taken away
    """

    def __init__(self, marks: tuple[str, ...]) -> None:
        self._marks = marks
        self._held = ""

    def push(self, text: str) -> str:
        """Take more text, and return what is certain of it."""
        text = self._held + text
        for mark in self._marks:
            text = text.replace(mark, "")
        longest = max(map(len, self._marks), default=1) - 1
        kept = next(
            (n for n in range(min(longest, len(text)), 0, -1) if any(one.startswith(text[-n:]) for one in self._marks)),
            0,
        )
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]

    def end(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return held
