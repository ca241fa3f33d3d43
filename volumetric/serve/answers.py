"""Answers: the parser that splits generated text into reasoning, content and tool calls, incrementally."""

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
    tools : the functions that the model may call
    calls : format of tool calls; None: no calls are parsed
    apart : an answer is either calls or text, never both
    thinking : marks of the model's reasoning; None: it does not reason
    channels : harmony channels of the model; `calls` and `thinking` are None then
    inside : the answer begins in the final channel
    show_reasoning : reasoning is returned to clients; with `merged` as part of the content
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
        """Special tokens that the parser needs to see in an answer."""
        parts = (self.calls, self.thinking, self.channels)
        return frozenset(id for part in parts if part is not None for id in part.marks.values())

    def reader(self) -> AnswerReader:
        """Return a parser of one answer."""
        return AnswerReader(self)

    def whole(self, text: str) -> Parts:
        """Parse a whole answer."""
        reader = self.reader()
        first, last = reader.push(text), reader.end()
        return Parts(first.thought + last.thought, first.said + last.said, first.pieces + last.pieces)

    def reasoning_tokens(self, generation: Generation, text_of: Callable[[int], str]) -> int:
        """Return how many tokens of a generation are reasoning, marks included."""
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
    """Incremental parser of an answer: by channels, or by the marks of reasoning and then those of calls.

    Parameters
    ----------
    form : the format of the answer
    """

    def __init__(self, form: AnswerForm) -> None:
        self._form = form
        self._channels = None if form.channels is None else ChannelReader(inside=form.inside)
        self._thinker = None if form.thinking is None else ReasoningReader(form.thinking)
        self._caller = None if form.calls is None else CallReader(form.calls, form.tools, apart=form.apart)

    @property
    def calls(self) -> int:
        """Number of calls that have begun."""
        for reader in (self._channels, self._caller):
            if reader is not None:
                return reader.calls
        return 0

    @property
    def reasoning(self) -> bool:
        """Whether the next text is reasoning, as far as that is known."""
        return any(reader is not None and reader.reasoning for reader in (self._channels, self._thinker))

    def push(self, text: str) -> Parts:
        """Parse more text, and return the parts that are certain."""
        if self._channels is not None:
            return self._told(self._channels.push(text))
        thought = ""
        if self._thinker is not None:
            thought, text = self._thinker.push(text)
        return self._told(self._called(thought, text))

    def end(self) -> Parts:
        """Return the parts that were held back."""
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
