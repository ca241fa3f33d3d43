"""Answers: what a model writes, taken apart into reasoning, what is said and what is called, as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from volumetric.generate.events import Generation
from volumetric.serve.channels import ChannelReader, Harmony
from volumetric.serve.reasoning import ReasoningReader, Thinking
from volumetric.serve.tools.asked import Tool
from volumetric.serve.tools.form import CallForm
from volumetric.serve.tools.reader import CallReader, Parts


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """How a model answers a request.

    Attributes
    ----------
    tools : what may be called
    calls : form of calls, where there may be some
    apart : answers are calls or text, and never both
    thinking : how the model reasons, if it does
    channels : of the model, which has neither of the two then
    inside : answers begin in the final channel
    show_reasoning : clients are told of reasoning; `merged`: as of what is said
    """

    tools: Sequence[Tool] = ()
    calls: CallForm | None = None
    apart: bool = False
    thinking: Thinking | None = None
    channels: Harmony | None = None
    inside: bool = False
    show_reasoning: bool = True
    merged: bool = False

    @property
    def shown(self) -> frozenset[int]:
        """Special tokens that have a meaning in an answer."""
        parts = (self.calls, self.thinking, self.channels)
        return frozenset(id for part in parts if part is not None for id in part.marks.values())

    def reader(self) -> AnswerReader:
        """Return what reads one answer."""
        return AnswerReader(self)

    def whole(self, text: str) -> Parts:
        """Take a whole answer apart."""
        reader = self.reader()
        first, last = reader.push(text), reader.end()
        return Parts(first.thought + last.thought, first.said + last.said, first.pieces + last.pieces)

    def reasoning_tokens(self, generation: Generation, text_of: Callable[[int], str]) -> int:
        """Return how many tokens of a text are reasoning, marks included."""
        if self.channels is None:
            return 0 if self.thinking is None else self.thinking.tokens(generation.token_ids, text_of)
        reader, count, headed = ChannelReader(inside=self.inside), 0, 0
        for token in generation.token_ids:
            parts = reader.push(text_of(token))
            headed += reader.reasoning or bool(parts.thought)
            if parts.thought:
                count = headed
        return count


class AnswerReader:
    """Takes an answer apart as it comes: by its channels, or by marks of reasoning and then of calls.

    Parameters
    ----------
    form : of the answer
    """

    def __init__(self, form: AnswerForm) -> None:
        self._form = form
        self._channels = None if form.channels is None else ChannelReader(inside=form.inside)
        self._thinker = None if form.thinking is None else ReasoningReader(form.thinking)
        self._caller = None if form.calls is None else CallReader(form.calls, form.tools, apart=form.apart)

    @property
    def calls(self) -> int:
        """How many calls have begun."""
        for reader in (self._channels, self._caller):
            if reader is not None:
                return reader.calls
        return 0

    @property
    def reasoning(self) -> bool:
        """Whether what comes next is reasoning, as far as that is known."""
        return any(reader is not None and reader.reasoning for reader in (self._channels, self._thinker))

    def push(self, text: str) -> Parts:
        """Take more text, and return what is certain of it."""
        if self._channels is not None:
            return self._told(self._channels.push(text))
        thought = ""
        if self._thinker is not None:
            thought, text = self._thinker.push(text)
        return self._told(self._called(thought, text))

    def end(self) -> Parts:
        """Return what was held back."""
        if self._channels is not None:
            return self._told(self._channels.end())
        thought, text = ("", "") if self._thinker is None else self._thinker.end()
        thought, content, pieces = self._called(thought, text)
        if self._caller is not None:
            more, last = self._caller.end()
            content, pieces = content + more, pieces + last
        return self._told(Parts(thought, content, pieces))

    def _called(self, thought: str, text: str) -> Parts:
        return Parts(thought, text, []) if self._caller is None else Parts(thought, *self._caller.push(text))

    def _told(self, parts: Parts) -> Parts:
        if self._form.merged:
            return Parts("", parts.thought + parts.said, parts.pieces)
        return parts if self._form.show_reasoning else parts._replace(thought="")
