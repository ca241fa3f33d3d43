"""Reasoning: an incremental parser that separates a model's reasoning from its answer.

Chat templates put it between two marks: DeepSeek-R1, Qwen3, SmolLM3 and others use ``<think>`` and ``</think>``,
Magistral special tokens. Some templates write the first mark themselves, at the end of the prompt, and some write both,
for no reasoning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from volumetric.generate.stop_texts import undecided


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """How a model reasons.

    Attributes
    ----------
    opening, closing : marks around it
    inside : an answer begins in reasoning, because the prompt ends with the first mark
    marks : the marks that are special tokens, by id
    """

    opening: str
    closing: str
    inside: bool = False
    marks: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def grammar(self) -> str:
        """Grammar of optional reasoning in llguidance's Lark; empty unless both marks are special tokens."""
        if len(self.marks) < 2:
            return ""
        opening, closing = (f"<[{self.marks[mark]}]>" for mark in (self.opening, self.closing))
        return f"({'' if self.inside else opening} TEXT {closing})?"

    def behind(self, prompt: str) -> ReasoningFormat:
        """Return how the model reasons after a prompt; its end is enough."""
        return replace(self, inside=prompt.rstrip().endswith(self.opening))

    def tokens(self, ids: Sequence[int], text_of: Callable[[int], str]) -> int:
        """Return the number of reasoning tokens of an answer, marks included."""
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


def reasoning_format_of(
    template: str, prompt: str, special_id: Callable[[str], int | None] = lambda _: None
) -> ReasoningFormat | None:
    """Return how a model with this chat template reasons after this prompt, or None if it does not.

    Parameters
    ----------
    prompt : its end is enough
    special_id : returns the id of a special token
    """
    for opening, closing in _MARKS:
        if opening in template or closing in template:
            ids = {mark: special_id(mark) for mark in (opening, closing)}
            marks = {mark: id for mark, id in ids.items() if id is not None}
            return ReasoningFormat(opening, closing, marks=marks).behind(prompt)
    return None


class ReasoningReader:
    """Splits an answer into reasoning and content; white space around the marks belongs to them.

    An answer that does not begin with the first mark is content, and so is all text after the second one.
    """

    def __init__(self, thinking: ReasoningFormat) -> None:
        self._thinking = thinking
        self._held = ""
        self._read = self._read_reasoning if thinking.inside else self._read_opening
        self._fresh = True
        self._reasoning: list[str] = []
        self._said: list[str] = []

    @property
    def reasoning(self) -> bool:
        """Whether the next text is reasoning, as far as that is known."""
        return self._read == self._read_reasoning

    def push(self, text: str) -> tuple[str, str]:
        """Parse more text, and return the parts that are certainly reasoning, and certainly content."""
        self._held += text
        while self._held and self._read():
            pass
        return self._take_texts()

    def end(self) -> tuple[str, str]:
        """Return the text that was held back."""
        if self._read == self._read_opening:
            self._said.append(self._held)
        elif self._read == self._read_reasoning:
            self._reasoning.append(self._held.rstrip())
        self._held = ""
        return self._take_texts()

    def _take_texts(self) -> tuple[str, str]:
        reasoning, answer = "".join(self._reasoning), "".join(self._said)
        self._reasoning, self._said = [], []
        return reasoning, answer

    def _read_opening(self) -> bool:
        opening, text = self._thinking.opening, self._held.lstrip()
        if text.startswith(opening):
            self._held, self._read = text[len(opening) :], self._read_reasoning
            return True
        if opening.startswith(text):
            return False  # it may be the start of the mark
        self._fresh = False  # an answer without reasoning is returned unchanged
        self._read = self._read_answer
        return True

    def _read_reasoning(self) -> bool:
        text = self._held.lstrip() if self._fresh else self._held
        before, mark, after = text.partition(self._thinking.closing)
        if mark:
            self._reasoning.append(before.rstrip())
            self._held, self._read, self._fresh = after, self._read_answer, True
            return True
        # The text may end with white space before the mark, or with the start of the mark.
        sure = text[: len(text) - undecided(text, (self._thinking.closing,))].rstrip()
        self._reasoning.append(sure)
        self._fresh = self._fresh and not sure
        self._held = text[len(sure) :]
        return False

    def _read_answer(self) -> bool:
        text = self._held.lstrip() if self._fresh else self._held
        self._fresh = self._fresh and not text
        self._said.append(text)
        self._held = ""
        return False
