"""Answers: what a model writes, taken apart into reasoning, what is said and what is called, as it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from volumetric.generate.events import Generation
from volumetric.serve.reasoning import ReasoningReader, Thinking
from volumetric.serve.tools.form import CallForm
from volumetric.serve.tools.reader import CallPiece, CallReader


class Parts(NamedTuple):
    """What some text holds: reasoning, what is said, and pieces of calls."""

    thought: str
    said: str
    pieces: list[CallPiece]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """How a model answers a request.

    Attributes
    ----------
    calls : form of calls, where there are tools
    thinking : how the model reasons, if it does
    """

    calls: CallForm | None = None
    thinking: Thinking | None = None

    @property
    def marks(self) -> Mapping[str, int]:
        """Special tokens that have a meaning in an answer, by their texts."""
        return {} if self.calls is None else self.calls.marks

    def reader(self) -> AnswerReader:
        """Return what reads one answer."""
        return AnswerReader(self)

    def whole(self, text: str) -> Parts:
        """Take a whole answer apart."""
        reader = self.reader()
        first, last = reader.push(text), reader.end()
        return Parts(first.thought + last.thought, first.said + last.said, first.pieces + last.pieces)

    def reasoning_tokens(self, generation: Generation, text_of: Callable[[int], str]) -> int:
        """Return how many tokens of a text are reasoning."""
        return 0 if self.thinking is None else self.thinking.tokens(generation.token_ids, text_of)


class AnswerReader:
    """Takes one answer apart: the same for streams and for whole answers.

    Parameters
    ----------
    form : of the answer
    """

    def __init__(self, form: AnswerForm) -> None:
        self._thinker = None if form.thinking is None else ReasoningReader(form.thinking)
        self._caller = None if form.calls is None else CallReader(form.calls)
        self._told = form.thinking is not None and form.thinking.told

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        return 0 if self._caller is None else self._caller.calls

    @property
    def reasoning(self) -> bool:
        """Whether what comes next is reasoning, as far as that is known."""
        return self._thinker is not None and self._thinker.reasoning

    def push(self, text: str) -> Parts:
        """Take more text, and return what is certain of it."""
        thought = ""
        if self._thinker is not None:
            thought, text = self._thinker.push(text)
        return self._parts(thought, text)

    def end(self) -> Parts:
        """Return what was held back."""
        thought, text = ("", "") if self._thinker is None else self._thinker.end()
        parts = self._parts(thought, text)
        if self._caller is None:
            return parts
        said, pieces = self._caller.end()
        return Parts(parts.thought, parts.said + said, parts.pieces + pieces)

    def _parts(self, thought: str, text: str) -> Parts:
        thought = thought if self._told else ""
        return Parts(thought, text, []) if self._caller is None else Parts(thought, *self._caller.push(text))
