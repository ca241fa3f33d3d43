"""Marks around what is said, which clients do not see."""

from __future__ import annotations

from volumetric.generate.stops import undecided


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
        sure = len(text) - undecided(text, self._marks)
        self._held = text[sure:]
        return text[:sure]

    def end(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return held
