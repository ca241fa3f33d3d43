"""Channels: the answers of gpt-oss, a sequence of messages whose headers name channel and recipient.

The format is OpenAI's harmony (https://github.com/openai/harmony, docs/format.md): ``analysis`` is reasoning,
``final`` the answer, ``commentary`` text before calls, and a message to ``functions.NAME`` is a call.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from volumetric.generate.stop_texts import undecided
from volumetric.serve.tools.call_form import TEXT, CallForm, json_rule
from volumetric.serve.tools.call_reader import AnswerParts, CallDelta
from volumetric.serve.tools.request_tools import RequestTools

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
class HarmonyFormat:
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

    def grammar(self, tools: RequestTools, schema: Mapping[str, Any] | None = None) -> str:
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


def harmony_of(template: str, special_id: Callable[[str], int | None]) -> HarmonyFormat | None:
    """Return the channels that a chat template uses, or None if it uses none."""
    if not all(mark in template for mark in (_START, _CHANNEL, _MESSAGE)):
        return None
    ids = {mark: special_id(mark) for mark in (_START, _CHANNEL, _MESSAGE, _END, _CONSTRAIN, _CALL, _RETURN)}
    if any(ids[mark] is None for mark in (_START, _CHANNEL, _MESSAGE, _END, _CONSTRAIN)):
        return None
    return HarmonyFormat({mark: id for mark, id in ids.items() if id is not None})


class HarmonyReader:
    """Parses an answer by its channels. Text without a header is content.

    Parameters
    ----------
    inside : the answer begins in the final channel, because the prompt ends with its header
    """

    def __init__(self, *, inside: bool = False) -> None:
        self._held = ""
        self._read = self._read_final if inside else self._read_header
        self._calls = 0
        self._thought: list[str] = []
        self._aloud: list[str] = []
        self._pieces: list[CallDelta] = []

    @property
    def calls(self) -> int:
        """Number of calls that have begun."""
        return self._calls

    @property
    def reasoning(self) -> bool:
        """Whether the next text is reasoning, as far as that is known."""
        return self._read in (self._read_reasoning, self._read_header)

    def push(self, text: str) -> AnswerParts:
        """Parse more text, and return the parts that are certain."""
        self._held += text
        while self._read():
            pass
        return self._take_parts()

    def end(self) -> AnswerParts:
        """Return the parts that were held back: an incomplete header is dropped, other text keeps its kind."""
        if self._read != self._read_header:
            self._give(self._held)
        elif not self._held.startswith("<|"):
            self._aloud.append(self._held)
        self._held = ""
        return self._take_parts()

    def _take_parts(self) -> AnswerParts:
        parts = AnswerParts("".join(self._thought), "".join(self._aloud), self._pieces)
        self._thought, self._aloud, self._pieces = [], [], []
        return parts

    def _read_header(self) -> bool:
        head, mark, after = self._held.partition(_MESSAGE)
        if not mark:
            begins = (_START, _CHANNEL, " to=")
            if any(self._held.startswith(one) or one.startswith(self._held) for one in begins):
                return False
            self._read = self._read_final
            return True
        self._held = after
        on, recipient = _ON.search(head), _RECIPIENT.search(head)
        if recipient is not None:
            name = recipient[1].removeprefix("functions.")
            self._pieces.append(CallDelta(self._calls, id=_FORM.new_id(), name=name))
            self._calls += 1
            self._read = self._read_call
        else:
            self._read = self._read_reasoning if on is not None and on[1] == "analysis" else self._read_final
        return True

    def _read_reasoning(self) -> bool:
        return self._read_content()

    def _read_final(self) -> bool:
        return self._read_content()

    def _read_call(self) -> bool:
        return self._read_content()

    def _read_content(self) -> bool:
        """Parse a message's content up to its end mark; hold back a suffix that may be the start of that mark."""
        ends = [(at, mark) for mark in _ENDS if (at := self._held.find(mark)) >= 0]
        if ends:
            at, mark = min(ends)
            self._give(self._held[:at])
            self._held, self._read = self._held[at + len(mark) :], self._read_header
            return True
        sure = len(self._held) - undecided(self._held, _ENDS)
        self._give(self._held[:sure])
        self._held = self._held[sure:]
        return False

    def _give(self, text: str) -> None:
        if not text:
            return
        if self._read == self._read_reasoning:
            self._thought.append(text)
        elif self._read == self._read_call:
            self._pieces.append(CallDelta(self._calls - 1, text))
        else:
            self._aloud.append(text)
