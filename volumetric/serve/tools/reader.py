"""Reading of calls, piece by piece as text comes: the same for streams and for whole answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from volumetric.generate.stops import undecided
from volumetric.serve.tools.asked import Tool
from volumetric.serve.tools.form import CallForm
from volumetric.serve.tools.numbered import beginning, pattern
from volumetric.serve.tools.parameters import ElementReader


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
        rest, self._held = self._held, ""
        return rest


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A part of a call: its start, with id and name, or more of its arguments."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


class Parts(NamedTuple):
    """What some text holds: reasoning, what is said, and pieces of calls."""

    thought: str
    said: str
    pieces: list[CallPiece]


def joined(pieces: Sequence[CallPiece]) -> list[CallPiece]:
    """Return pieces with those of one call that follow each other as one.

    A token may end the head of a call and begin its arguments. Clients that add pieces up by their index may take the
    first list of a call as it is (``openai.lib.streaming`` before version 3), so an index comes once in a list.
    """
    merged: list[CallPiece] = []
    for piece in pieces:
        if merged and merged[-1].index == piece.index:
            merged[-1] = replace(merged[-1], arguments=merged[-1].arguments + piece.arguments)
        else:
            merged.append(piece)
    return merged


class CallReader:
    """Takes text apart into what is said and what is called.

    Parameters
    ----------
    form : of the calls
    tools : what may be called; a form without elements, and without a name before text, does without them
    apart : a text is calls or none at all: what does not begin as one has none
    """

    def __init__(self, form: CallForm, tools: Sequence[Tool] = (), *, apart: bool = False) -> None:
        self._form = form
        self._apart = apart
        self._tools = {tool.name: tool for tool in tools}
        self._opening = form.first + form.opening
        self._begun = "" if form.inside else form.trigger
        self._held = ""
        self._read = self._named if form.inside else self._first if apart else self._said
        self._arguments: JsonEnd | ElementReader = JsonEnd()
        self._calls = 0
        self._unwrapped = Unwrapped(form.spoken)
        self._content: list[str] = []
        self._pieces: list[CallPiece] = []

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        return self._calls

    def push(self, text: str) -> tuple[str, list[CallPiece]]:
        """Take more text, and return what of it is certain to be said, and pieces of calls."""
        self._held += text
        while self._read():
            pass
        return self._told()

    def end(self) -> tuple[str, list[CallPiece]]:
        """Return what was held back: a call that has not begun is text."""
        if self._read in (self._said, self._named, self._first):
            begun = self._begun if self._read == self._named else ""
            self._content.append(begun + self._held)
        self._held = ""
        content, pieces = self._told()
        return content + self._unwrapped.end(), pieces

    def _told(self) -> tuple[str, list[CallPiece]]:
        content, pieces = self._unwrapped.push("".join(self._content)), self._pieces
        self._content, self._pieces = [], []
        return content, pieces

    def _first(self) -> bool:
        """Find out whether a text is calls, by how it begins."""
        trigger = self._form.trigger
        if len(self._held) < len(trigger) and trigger.startswith(self._held):
            return False
        self._read = self._said if self._held.startswith(trigger) else self._spoken
        return True

    def _spoken(self) -> bool:
        """Take all that comes as it is: no call can follow."""
        self._content.append(self._held)
        self._held = ""
        return False

    def _said(self) -> bool:
        trigger = self._form.trigger
        before, mark, after = self._held.partition(trigger)
        if mark:
            self._say(before)
            self._held, self._read, self._begun = after, self._named, trigger
            self._opening = self._form.first + self._form.opening
            return True
        sure = len(self._held) - undecided(self._held, (trigger,))
        self._say(self._held[:sure])
        self._held = self._held[sure:]
        return False

    def _say(self, text: str) -> None:
        # White space between calls belongs to their form.
        if text and not (self._calls and text.isspace()):
            self._content.append(text)

    def _named(self) -> bool:
        between, opened = pattern(self._form.between), pattern(self._opening).match(self._held)
        if opened is None and beginning(self._opening).fullmatch(self._held):
            return False
        match = between.search(self._held, opened.end()) if opened else None
        if opened and match is None:
            return False
        head = self._held[opened.end() : match.start()] if opened and match else ""
        if not opened or not match or (self._form.aloud and head not in self._tools):
            if match and head == self._form.aloud:
                self._held = self._held[match.end() :]
            else:  # not held to the form, as after a stop text: it is text
                self._content.append(self._begun)
            self._read = self._spoken if self._apart and not self._calls else self._said
            return True
        self._held = self._held[match.end() :]
        number = match[1] if between.groups else ""
        self._pieces.append(CallPiece(self._calls, id=self._form.new_id(head, number), name=head))
        self._calls += 1
        tool, marks = self._tools.get(head), self._form.elements
        self._arguments = JsonEnd() if marks is None else ElementReader(tool.parameters if tool else {}, marks)
        self._read = self._argued
        return True

    def _argued(self) -> bool:
        count, json_text, ended = self._arguments.take(self._held)
        if json_text:
            self._pieces.append(CallPiece(self._calls - 1, json_text))
        self._held = self._held[count:]
        if ended:
            self._read = self._closed
        return ended

    def _closed(self) -> bool:
        closing = self._form.closing
        if not self._held.startswith(closing):
            return False
        self._held = self._held[len(closing) :]
        self._read = self._joined if self._form.joint else self._said
        return True

    def _joined(self) -> bool:
        """Go on with the next call behind a joint, or with text behind the last one."""
        joint, last = self._form.joint, self._form.last
        if self._held.startswith(joint):
            self._held, self._opening, self._read = self._held[len(joint) :], self._form.opening, self._named
            return True
        if not self._held.startswith(last) and (joint.startswith(self._held) or last.startswith(self._held)):
            return False
        self._held, self._read = self._held.removeprefix(last), self._said
        return True


class JsonEnd:
    """Finds where a JSON object ends."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False

    def take(self, text: str) -> tuple[int, str, bool]:
        """Return how much of `text` belongs to the object, that part, and whether the object ends there."""
        for at, char in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._quoted:
                self._escaped, self._quoted = char == "\\", char != '"'
            elif char == '"':
                self._quoted = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if self._depth == 0:
                    return at + 1, text[: at + 1], True
        return len(text), text, False
