"""Channels: the answers of gpt-oss, a sequence of messages whose headers name channel and recipient.

The format is OpenAI's harmony (https://github.com/openai/harmony, docs/format.md): ``analysis`` is reasoning,
``final`` the answer, ``commentary`` text before calls, and a message to ``functions.NAME`` is a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from volumetric.generate.stops import undecided
from volumetric.serve.tools.asked import AskedTools
from volumetric.serve.tools.form import TEXT, CallForm, json_rule
from volumetric.serve.tools.reader import CallPiece, Parts

_START, _CHANNEL, _MESSAGE, _END = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"
_CONSTRAIN, _CALL, _RETURN = "<|constrain|>", "<|call|>", "<|return|>"
_ENDS: Final = (_END, _CALL, _RETURN)
"""Tokens that end a message."""
FINAL: Final = f"{_CHANNEL}final{_MESSAGE}"
"""Header of the final message, for answers that are constrained from their first token on."""
_FORM: Final = CallForm("", "", "", "")
_RECIPIENT: Final = re.compile(r"to=([^\s<]+)")
_ON: Final = re.compile(r"<\|channel\|>\s*(\w+)")


@dataclass(frozen=True, slots=True)
class Harmony:
    """The harmony channels of a model.

    Attributes
    ----------
    marks : special tokens, by id
    """

    marks: Mapping[str, int]

    is_json = False
    """Always False: headers distinguish calls from text."""

    @property
    def ends(self) -> list[int]:
        """Ids of the tokens that end an answer, regardless of the model's files."""
        return [self.marks[mark] for mark in (_CALL, _RETURN) if mark in self.marks]

    def grammar(self, tools: AskedTools, schema: Mapping[str, Any] | None = None) -> str:
        """Return the answer's grammar in llguidance's Lark: reasoning, then a call or (unless it is required) text.

        There is at most one call, because the model stops after it. With a `schema` the text is JSON, and no
        commentary precedes it.
        """
        lark = CallForm("", "", "", "", marks=self.marks).texts
        again = lark(_END, _START, "assistant")
        names = [f"call_{i}" for i in range(len(tools.tools))]
        rules = [
            json_rule(
                name,
                tool.arguments,
                behind=lark(f"{_CHANNEL}commentary to=functions.{tool.name} {_CONSTRAIN}json{_MESSAGE}"),
            )
            for name, tool in zip(names, tools.tools, strict=True)
        ]
        before = f"({lark(f'{_CHANNEL}analysis{_MESSAGE}')} TEXT {again})*"
        aloud = f"({lark(f'{_CHANNEL}commentary{_MESSAGE}')} TEXT {again})?"
        calls, last = f"{aloud} ({' | '.join(names)})", ""
        if not tools.required:
            last = " | final" if schema is not None else f" | {aloud} final"
        final = f"final: {lark(FINAL)} TEXT" if schema is None else json_rule("final", schema, behind=lark(FINAL))
        return "\n".join(["%llguidance {}", f"start: {before} ({calls}{last})", *rules, final, TEXT])


def harmony_of(template: str, special_id: Callable[[str], int | None]) -> Harmony | None:
    """Return the channels that a chat template uses, or None if it uses none."""
    if not all(mark in template for mark in (_START, _CHANNEL, _MESSAGE)):
        return None
    ids = {mark: special_id(mark) for mark in (_START, _CHANNEL, _MESSAGE, _END, _CONSTRAIN, _CALL, _RETURN)}
    if any(ids[mark] is None for mark in (_START, _CHANNEL, _MESSAGE, _END, _CONSTRAIN)):
        return None
    return Harmony({mark: id for mark, id in ids.items() if id is not None})


class ChannelReader:
    """Parses an answer by its channels. Text without a header is content.

    Parameters
    ----------
    inside : the answer begins in the final channel, because the prompt ends with its header
    """

    def __init__(self, *, inside: bool = False) -> None:
        self._held = ""
        self._read = self._said if inside else self._headed
        self._calls = 0
        self._thought: list[str] = []
        self._aloud: list[str] = []
        self._pieces: list[CallPiece] = []

    @property
    def calls(self) -> int:
        """Number of calls that have begun."""
        return self._calls

    @property
    def reasoning(self) -> bool:
        """Whether the next text is reasoning, as far as that is known."""
        return self._read in (self._thinking, self._headed)

    def push(self, text: str) -> Parts:
        """Parse more text, and return the parts that are certain."""
        self._held += text
        while self._read():
            pass
        return self._told()

    def end(self) -> Parts:
        """Return the parts that were held back: an incomplete header is dropped, other text keeps its kind."""
        if self._read != self._headed:
            self._give(self._held)
        elif not self._held.startswith("<|"):
            self._aloud.append(self._held)
        self._held = ""
        return self._told()

    def _told(self) -> Parts:
        parts = Parts("".join(self._thought), "".join(self._aloud), self._pieces)
        self._thought, self._aloud, self._pieces = [], [], []
        return parts

    def _headed(self) -> bool:
        head, mark, after = self._held.partition(_MESSAGE)
        if not mark:
            begins = (_START, _CHANNEL, " to=")
            if any(self._held.startswith(one) or one.startswith(self._held) for one in begins):
                return False
            self._read = self._said
            return True
        self._held = after
        on, recipient = _ON.search(head), _RECIPIENT.search(head)
        if recipient is not None:
            name = recipient[1].removeprefix("functions.")
            self._pieces.append(CallPiece(self._calls, id=_FORM.new_id(), name=name))
            self._calls += 1
            self._read = self._called
        else:
            self._read = self._thinking if on is not None and on[1] == "analysis" else self._said
        return True

    def _thinking(self) -> bool:
        return self._content()

    def _said(self) -> bool:
        return self._content()

    def _called(self) -> bool:
        return self._content()

    def _content(self) -> bool:
        """Parse a message's content up to its end mark; hold back a suffix that may be the start of that mark."""
        ends = [(at, mark) for mark in _ENDS if (at := self._held.find(mark)) >= 0]
        if ends:
            at, mark = min(ends)
            self._give(self._held[:at])
            self._held, self._read = self._held[at + len(mark) :], self._headed
            return True
        sure = len(self._held) - undecided(self._held, _ENDS)
        self._give(self._held[:sure])
        self._held = self._held[sure:]
        return False

    def _give(self, text: str) -> None:
        if not text:
            return
        if self._read == self._thinking:
            self._thought.append(text)
        elif self._read == self._called:
            self._pieces.append(CallPiece(self._calls - 1, text))
        else:
            self._aloud.append(text)
