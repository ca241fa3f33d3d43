"""Reasoning: what a model writes for itself before it answers, told apart from the answer, piece by piece as it comes.

Models are taught by their chat template to put it between two marks: DeepSeek-R1, Qwen3, SmolLM3 and others between
``<think>`` and ``</think>``, Magistral between special tokens. Some templates write the first mark themselves, at the
end of the prompt, and some write both, for no reasoning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from volumetric.generate.stops import undecided


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a model reasons.

    Attributes
    ----------
    opening, closing : marks around it
    inside : an answer begins in it, for the prompt ends with the first mark
    marks : those of the marks that are special tokens, by their ids
    """

    opening: str
    closing: str
    inside: bool = False
    marks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def grammar(self) -> str:
        """What an answer may begin with, in llguidance's Lark, where its marks are no text."""
        if len(self.marks) < 2:
            return ""
        opening, closing = (f"<[{self.marks[mark]}]>" for mark in (self.opening, self.closing))
        return f"({'' if self.inside else opening} TEXT {closing})?"

    def behind(self, prompt: str) -> Thinking:
        """Return how the model reasons behind a prompt, of which the end is enough."""
        return replace(self, inside=prompt.rstrip().endswith(self.opening))

    def tokens(self, ids: Sequence[int], text_of: Callable[[int], str]) -> int:
        """Return how many tokens of an answer belong to its reasoning, marks included."""
        text = ""
        for count, token in enumerate(ids, 1):
            text += text_of(token)
            head = text.lstrip()
            if not self.inside and not self.opening.startswith(head[: len(self.opening)]):
                return 0
            if self.closing in text:
                return count
        return len(ids) if self.inside or self.opening in text else 0


_MARKS: Final = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)


def thinking_of(
    template: str, prompt: str, special_id: Callable[[str], int | None] = lambda _: None
) -> Thinking | None:
    """Return how a model of this chat template reasons, behind this prompt; None where it does not.

    Parameters
    ----------
    prompt : its end is enough
    special_id : gives the ids of special tokens
    """
    for opening, closing in _MARKS:
        if opening in template or closing in template:
            ids = {mark: special_id(mark) for mark in (opening, closing)}
            marks = {mark: id for mark, id in ids.items() if id is not None}
            return Thinking(opening, closing, marks=marks).behind(prompt)
    return None


class ReasoningReader:
    """Takes an answer apart into its reasoning and what is said; white space around the marks belongs to them.

    What begins with anything else than the first mark is said, and so is all behind the second one.
    """

    def __init__(self, thinking: Thinking) -> None:
        self._thinking = thinking
        self._held = ""
        self._read = self._reasoned if thinking.inside else self._opened
        self._fresh = True
        self._reasoning: list[str] = []
        self._said: list[str] = []

    @property
    def reasoning(self) -> bool:
        """Whether what comes next is reasoning, as far as that is known."""
        return self._read == self._reasoned

    def push(self, text: str) -> tuple[str, str]:
        """Take more text, and return what of it is certain to be reasoning, and to be said."""
        self._held += text
        while self._held and self._read():
            pass
        return self._told()

    def end(self) -> tuple[str, str]:
        """Return what was held back."""
        if self._read == self._opened:
            self._said.append(self._held)
        elif self._read == self._reasoned:
            self._reasoning.append(self._held.rstrip())
        self._held = ""
        return self._told()

    def _told(self) -> tuple[str, str]:
        reasoning, answer = "".join(self._reasoning), "".join(self._said)
        self._reasoning, self._said = [], []
        return reasoning, answer

    def _opened(self) -> bool:
        opening, text = self._thinking.opening, self._held.lstrip()
        if text.startswith(opening):
            self._held, self._read = text[len(opening) :], self._reasoned
            return True
        if opening.startswith(text):
            return False  # it may still become the mark
        self._fresh = False  # an answer without reasoning is told as it is
        self._read = self._answered
        return True

    def _reasoned(self) -> bool:
        text = self._held.lstrip() if self._fresh else self._held
        before, mark, after = text.partition(self._thinking.closing)
        if mark:
            self._reasoning.append(before.rstrip())
            self._held, self._read, self._fresh = after, self._answered, True
            return True
        # White space may be followed by the mark, and the end of the text may begin it.
        sure = text[: len(text) - undecided(text, (self._thinking.closing,))].rstrip()
        self._reasoning.append(sure)
        self._fresh = self._fresh and not sure
        self._held = text[len(sure) :]
        return False

    def _answered(self) -> bool:
        text = self._held.lstrip() if self._fresh else self._held
        self._fresh = self._fresh and not text
        self._said.append(text)
        self._held = ""
        return False
