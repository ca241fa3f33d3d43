"""Answers: the parser that splits generated text into reasoning, content and tool calls, incrementally."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from volumetric.generate.token_events import Generation
from volumetric.serve.harmony import HarmonyFormat, HarmonyReader
from volumetric.serve.reasoning import ReasoningFormat, ReasoningReader
from volumetric.serve.tools.call_form import CallForm
from volumetric.serve.tools.call_reader import AnswerParts, CallReader
from volumetric.serve.tools.request_tools import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
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
    thinking: ReasoningFormat | None = None
    channels: HarmonyFormat | None = None
    inside: bool = False
    show_reasoning: bool = True
    merged: bool = False

    @property
    def special_tokens(self) -> frozenset[int]:
        """Special tokens that the parser needs to see in an answer."""
        parts = (self.calls, self.thinking, self.channels)
        return frozenset(id for part in parts if part is not None for id in part.marks.values())

    def reader(self) -> OutputParser:
        """Return a parser of one answer."""
        return OutputParser(self)

    def parse(self, text: str) -> AnswerParts:
        """Parse a whole answer."""
        reader = self.reader()
        first, last = reader.push(text), reader.end()
        return AnswerParts(
            first.reasoning + last.reasoning, first.content + last.content, first.call_deltas + last.call_deltas
        )

    def reasoning_tokens(self, generation: Generation, text_of: Callable[[int], str]) -> int:
        """Return how many tokens of a generation are reasoning, marks included."""
        if self.channels is None:
            return 0 if self.thinking is None else self.thinking.tokens(generation.token_ids, text_of)
        reader, count, headed = HarmonyReader(inside=self.inside), 0, 0
        for token in generation.token_ids:
            parts = reader.push(text_of(token))
            headed += reader.reasoning or bool(parts.reasoning)
            if parts.reasoning:
                count = headed
        return count


class OutputParser:
    """Incremental parser of an answer: by channels, or by the marks of reasoning and then those of calls.

    Parameters
    ----------
    form : the format of the answer
    """

    def __init__(self, form: OutputFormat) -> None:
        self._form = form
        self._channels = None if form.channels is None else HarmonyReader(inside=form.inside)
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

    def push(self, text: str) -> AnswerParts:
        """Parse more text, and return the parts that are certain."""
        if self._channels is not None:
            return self._visible_parts(self._channels.push(text))
        thought = ""
        if self._thinker is not None:
            thought, text = self._thinker.push(text)
        return self._visible_parts(self._split_calls(thought, text))

    def end(self) -> AnswerParts:
        """Return the parts that were held back."""
        if self._channels is not None:
            return self._visible_parts(self._channels.end())
        thought, text = ("", "") if self._thinker is None else self._thinker.end()
        thought, content, pieces = self._split_calls(thought, text)
        if self._caller is not None:
            more, last = self._caller.end()
            content, pieces = content + more, pieces + last
        return self._visible_parts(AnswerParts(thought, content, pieces))

    def _split_calls(self, thought: str, text: str) -> AnswerParts:
        return (
            AnswerParts(thought, text, []) if self._caller is None else AnswerParts(thought, *self._caller.push(text))
        )

    def _visible_parts(self, parts: AnswerParts) -> AnswerParts:
        if self._form.merged:
            return AnswerParts("", parts.reasoning + parts.content, parts.call_deltas)
        return parts if self._form.show_reasoning else parts._replace(reasoning="")
