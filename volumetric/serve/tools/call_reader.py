"""Incremental parser of calls, for streams and whole answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from volumetric.generate.stop_texts import undecided
from volumetric.serve.tools.call_form import CallForm
from volumetric.serve.tools.element_arguments import ElementReader
from volumetric.serve.tools.numbered_texts import beginning_pattern, number_pattern
from volumetric.serve.tools.request_tools import Tool


class MarkStripper:
    """Removes marks around content incrementally.

    Parameters
    ----------
    marks : texts to remove
    """

    def __init__(self, marks: tuple[str, ...]) -> None:
        self._marks = marks
        self._held = ""

    def push(self, text: str) -> str:
        """Parse more text, and return the part that is certain."""
        text = self._held + text
        for mark in self._marks:
            text = text.replace(mark, "")
        sure = len(text) - undecided(text, self._marks)
        self._held = text[sure:]
        return text[:sure]

    def end(self) -> str:
        """Return the text that was held back."""
        rest, self._held = self._held, ""
        return rest


@dataclass(frozen=True, slots=True)
class CallDelta:
    """A part of a call: its start, with id and name, or more of its arguments."""

    index: int
    arguments: str = ""
    id: str | None = None
    name: str | None = None


class AnswerParts(NamedTuple):
    """Parts of a text: reasoning, content, and pieces of calls."""

    reasoning: str
    content: str
    call_deltas: list[CallDelta]


def merge_deltas(pieces: Sequence[CallDelta]) -> list[CallDelta]:
    """Merge consecutive pieces of the same call.

    A token may end the head of a call and begin its arguments. Some clients that accumulate pieces by index do not
    merge within the first list of a call (``openai.lib.streaming`` before version 3), so an index occurs once per list.
    """
    merged: list[CallDelta] = []
    for piece in pieces:
        if merged and merged[-1].index == piece.index:
            merged[-1] = replace(merged[-1], arguments=merged[-1].arguments + piece.arguments)
        else:
            merged.append(piece)
    return merged


class CallReader:
    """Splits text into content and calls.

    Parameters
    ----------
    form : the format of the calls
    tools : the tools; needed only if `form` has elements, or a name before text
    apart : an answer is either calls or text: one that does not begin with a call has none
    """

    def __init__(self, form: CallForm, tools: Sequence[Tool] = (), *, apart: bool = False) -> None:
        self._form = form
        self._apart = apart
        self._tools = {tool.name: tool for tool in tools}
        self._opening = form.first + form.opening
        self._begun = "" if form.inside else form.trigger
        self._held = ""
        self._read = self._read_name if form.inside else self._choose_state if apart else self._read_text
        self._arguments: JsonEnd | ElementReader = JsonEnd()
        self._calls = 0
        self._unwrapped = MarkStripper(form.spoken)
        self._content: list[str] = []
        self._pieces: list[CallDelta] = []

    @property
    def calls(self) -> int:
        """Number of calls that have begun."""
        return self._calls

    def push(self, text: str) -> tuple[str, list[CallDelta]]:
        """Parse more text, and return the certain content and pieces of calls."""
        self._held += text
        while self._read():
            pass
        return self._take_parts()

    def end(self) -> tuple[str, list[CallDelta]]:
        """Return the parts that were held back: an incomplete start of a call is text."""
        if self._read in (self._read_text, self._read_name, self._choose_state):
            begun = self._begun if self._read == self._read_name else ""
            self._content.append(begun + self._held)
        self._held = ""
        content, pieces = self._take_parts()
        return content + self._unwrapped.end(), pieces

    def _take_parts(self) -> tuple[str, list[CallDelta]]:
        content, pieces = self._unwrapped.push("".join(self._content)), self._pieces
        self._content, self._pieces = [], []
        return content, pieces

    def _choose_state(self) -> bool:
        """Decide by its beginning whether a text is calls."""
        trigger = self._form.trigger
        if len(self._held) < len(trigger) and trigger.startswith(self._held):
            return False
        self._read = self._read_text if self._held.startswith(trigger) else self._read_spoken
        return True

    def _read_spoken(self) -> bool:
        """Pass all text through: no call can follow."""
        self._content.append(self._held)
        self._held = ""
        return False

    def _read_text(self) -> bool:
        trigger = self._form.trigger
        before, mark, after = self._held.partition(trigger)
        if mark:
            self._say(before)
            self._held, self._read, self._begun = after, self._read_name, trigger
            self._opening = self._form.first + self._form.opening
            return True
        sure = len(self._held) - undecided(self._held, (trigger,))
        self._say(self._held[:sure])
        self._held = self._held[sure:]
        return False

    def _say(self, text: str) -> None:
        # White space between calls is part of their format.
        if text and not (self._calls and text.isspace()):
            self._content.append(text)

    def _read_name(self) -> bool:
        between, opened = number_pattern(self._form.between), number_pattern(self._opening).match(self._held)
        if opened is None and beginning_pattern(self._opening).fullmatch(self._held):
            return False
        match = between.search(self._held, opened.end()) if opened else None
        if opened and match is None:
            return False
        head = self._held[opened.end() : match.start()] if opened and match else ""
        if not opened or not match or (self._form.aloud and head not in self._tools):
            if match and head == self._form.aloud:
                self._held = self._held[match.end() :]
            else:  # not constrained by the grammar, as after a stop text: it is text
                self._content.append(self._begun)
            self._read = self._read_spoken if self._apart and not self._calls else self._read_text
            return True
        self._held = self._held[match.end() :]
        number = match[1] if between.groups else ""
        self._pieces.append(CallDelta(self._calls, id=self._form.new_id(head, number), name=head))
        self._calls += 1
        tool, marks = self._tools.get(head), self._form.elements
        self._arguments = JsonEnd() if marks is None else ElementReader(tool.parameters if tool else {}, marks)
        self._read = self._read_arguments
        return True

    def _read_arguments(self) -> bool:
        count, json_text, ended = self._arguments.take(self._held)
        if json_text:
            self._pieces.append(CallDelta(self._calls - 1, json_text))
        self._held = self._held[count:]
        if ended:
            self._read = self._read_closing
        return ended

    def _read_closing(self) -> bool:
        closing = self._form.closing
        if not self._held.startswith(closing):
            return False
        self._held = self._held[len(closing) :]
        self._read = self._read_joint if self._form.joint else self._read_text
        return True

    def _read_joint(self) -> bool:
        """Continue with the next call after a joint, or with text after the last call."""
        joint, last = self._form.joint, self._form.last
        if self._held.startswith(joint):
            self._held, self._opening, self._read = self._held[len(joint) :], self._form.opening, self._read_name
            return True
        if not self._held.startswith(last) and (joint.startswith(self._held) or last.startswith(self._held)):
            return False
        self._held, self._read = self._held.removeprefix(last), self._read_text
        return True


class JsonEnd:
    """Finds the end of a JSON object."""

    def __init__(self) -> None:
        self._depth = 0
        self._quoted = self._escaped = False

    def take(self, text: str) -> tuple[int, str, bool]:
        """Return how many characters of `text` belong to the object, that part, and whether the object ends there."""
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
