"""Shapes: chat completions and text completions built from generations, whole and as chunks."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from volumetric.generate.token_events import Generation, TokenEvent, TopLogprobs
from volumetric.serve.answer_fields import (
    AnswerTimings,
    DrawnToken,
    JsonObject,
    chunk_tokens,
    drawn_tokens,
    finite_logprob,
    logprob_fields,
    timings,
    usage,
)
from volumetric.serve.event_stream import sse_event
from volumetric.serve.output_parser import OutputFormat, OutputParser
from volumetric.serve.problem import RequestError
from volumetric.serve.serving import json_bytes
from volumetric.serve.tools.call_reader import AnswerParts, CallDelta, merge_deltas


@dataclass(slots=True, kw_only=True)
class CompletionAnswer:
    """Base class of the answers to one request; chat and text completions fill in the rest.

    Attributes
    ----------
    model : the model's name for clients
    fingerprint : hash of weights, scheme and version: if equal, a seed gives the same text
    text_of : function that returns the text of a token
    tops : number of alternatives returned for each token; None: no log-probabilities
    with_usage : whether chunks of a stream have the field ``usage``
    each_usage : whether each chunk carries the usage so far
    with_timings : whether each chunk carries the timings so far
    sizes : number of tokens of each prompt
    texts : number of answers to each prompt
    """

    model: str
    fingerprint: str
    text_of: Callable[[int], str]
    tops: int | None = None
    with_usage: bool = False
    each_usage: bool = False
    with_timings: bool = False
    sizes: Sequence[int] = ()
    texts: int = 1
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    _lengths: dict[int, int] = field(default_factory=dict)
    """Number of characters of each text's tokens that have been returned."""
    _pace: AnswerTimings | None = None

    prefix = "cmpl-"
    whole_kind = piece_kind = "text_completion"

    def __post_init__(self) -> None:
        self.id = self.id or f"{self.prefix}{uuid.uuid4().hex}"
        if self.each_usage or self.with_timings:
            self._pace = AnswerTimings()

    def _head(self, kind: str) -> JsonObject:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def whole(self, prompts: Sequence[Sequence[Generation]]) -> JsonObject:
        """Return the answer for all texts of all prompts."""
        texts = [one for generations in prompts for one in generations]
        choices = [self.choice(i, one) for i, one in enumerate(texts)]
        return {
            **self._head(self.whole_kind),
            "choices": choices,
            "usage": self.cost(prompts),
            "timings": timings(texts[0]),
        }

    def begun(self) -> Iterable[bytes]:
        """Return nothing: a stream begins with its first text."""
        return ()

    def framed(self, fields: JsonObject) -> bytes:
        """Return the event of a chunk of a text."""
        whole = {**self._head(self.piece_kind), "choices": [fields]}
        if self.with_usage:
            whole["usage"] = None
        if self._pace is not None:
            size = self.sizes[fields["index"] // self.texts] if self.sizes else 0
            if self.each_usage:
                whole["usage"] = self._pace.usage(fields["index"], size)
            if self.with_timings:
                whole["timings"] = self._pace.timings(fields["index"], size)
        return sse_event(json_bytes(whole))

    def chunks(self, index: int, tokens: Sequence[TokenEvent]) -> bytes:
        """Return the events of some tokens of a text, see `piece`."""
        return b"".join(map(self.framed, self.piece(index, tokens)))

    def frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return what encloses the JSON of a text in the event of further tokens; None if more than the text varies."""
        if self.tops is not None or self._pace is not None:
            return None
        mark = uuid.uuid4().hex
        head, _, tail = self.framed(self.text_chunk(index, mark)).partition(json_bytes(mark))
        return head, tail

    def text_chunk(self, index: int, text: str, logprobs: JsonObject | None = None) -> JsonObject:
        """Return the chunk of a text."""
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}

    def failed(self, problem: RequestError) -> bytes:
        """Return the event of an error."""
        return sse_event(problem.encoded)

    def ended(self, prompts: Sequence[Sequence[Generation]]) -> Iterable[bytes]:
        """Return the usage, if requested, and the end of a stream."""
        if self.with_usage:
            yield sse_event(json_bytes({**self._head(self.piece_kind), "choices": [], "usage": self.cost(prompts)}))
        yield sse_event(b"[DONE]")

    def cost(self, prompts: Sequence[Sequence[Generation]]) -> JsonObject:
        """Return the token usage."""
        counts = usage(prompts)
        counts["completion_tokens_details"]["reasoning_tokens"] = sum(
            self.reasoning_tokens(one) for generations in prompts for one in generations
        )
        return counts

    def reasoning_tokens(self, generation: Generation) -> int:
        """Return the number of reasoning tokens of a text; text completions do not separate reasoning."""
        return 0

    def opening(self, index: int) -> list[JsonObject]:
        """Return the chunks before the first token of a text."""
        return []

    def choice(self, index: int, generation: Generation) -> JsonObject:
        """Return the choice of a whole text."""
        return {
            "index": index,
            "text": generation.text,
            "logprobs": None if self.tops is None else self._tokens(index, drawn_tokens(generation)),
            "finish_reason": generation.finish_reason,
        }

    def piece(self, index: int, tokens: Sequence[TokenEvent]) -> list[JsonObject]:
        """Return the chunks of some tokens of a text; none while there is nothing to return yet."""
        text, logprobs = self._piece_of(index, tokens)
        if not text and self.tops is None:
            return []
        return [self.text_chunk(index, text, logprobs)]

    def closing(self, index: int, reason: str) -> list[JsonObject]:
        """Return the chunks after the last token of a text."""
        return [{"index": index, "text": "", "logprobs": None, "finish_reason": reason}]

    def _piece_of(self, index: int, tokens: Sequence[TokenEvent]) -> tuple[str, JsonObject | None]:
        """Count some tokens of a text, and return their text, and log-probabilities if requested."""
        if self._pace is not None:
            self._pace.count(index, tokens)
        logprobs = None if self.tops is None else self._tokens(index, chunk_tokens(tokens))
        return "".join(token.text for token in tokens), logprobs

    def _tokens(self, index: int, drawn: Sequence[DrawnToken]) -> JsonObject:
        """Return log-probabilities of the next tokens of a text, in the format of text completions."""
        ids, scores, tops = zip(*drawn, strict=True) if drawn else ((), (), ())
        return self.scored(index, ids, scores, tops)

    def scored(
        self, index: int, ids: Sequence[int], scores: Sequence[float | None], tops: Sequence[TopLogprobs | None]
    ) -> JsonObject:
        """Return tokens with their log-probabilities, if known, and their offsets in the text."""
        texts = [self.text_of(token) for token in ids]
        *begins, self._lengths[index] = accumulate(map(len, texts), initial=self._lengths.get(index, 0))
        return {
            "tokens": texts,
            "token_logprobs": [None if score is None else finite_logprob(score) for score in scores],
            "top_logprobs": [
                None if row is None else {self.text_of(token): finite_logprob(score) for token, score in row}
                for row in tops
            ],
            "text_offset": begins,
        }


class TextAnswer(CompletionAnswer):
    """Text completions."""


@dataclass(slots=True, kw_only=True)
class ChatAnswer(CompletionAnswer):
    """Chat completions.

    Attributes
    ----------
    form : the format of the answers; None: all generated text is content
    """

    form: OutputFormat | None = None
    _readers: dict[int, OutputParser] = field(default_factory=dict)

    prefix = "chatcmpl-"
    whole_kind = "chat.completion"
    piece_kind = "chat.completion.chunk"

    def opening(self, index: int) -> list[JsonObject]:
        """Return the chunk with the role."""
        if self.form is not None:
            self._readers[index] = self.form.reader()
        return [self._piece(index, {"role": "assistant", "content": ""})]

    def choice(self, index: int, generation: Generation) -> JsonObject:
        """Return the choice of a whole message."""
        form, text = self.form, generation.text
        thought, text, pieces = ("", text, ()) if form is None else form.parse(text)
        message: JsonObject = {"role": "assistant", "content": text, "refusal": None, **_reasoning(thought)}
        reason: str = generation.finish_reason
        if form is not None and form.tools:
            message["content"] = text.strip() or None
            if calls := _whole_calls(pieces):
                message["tool_calls"] = calls
                reason = _reason(reason, len(calls))
        return {
            "index": index,
            "message": message,
            "logprobs": None if self.tops is None else self._tokens(index, drawn_tokens(generation)),
            "finish_reason": reason,
        }

    def frame(self, index: int) -> tuple[bytes, bytes] | None:
        """Return what encloses further content; None if a reader must split it from reasoning and calls."""
        return CompletionAnswer.frame(self, index) if self.form is None else None

    def text_chunk(self, index: int, text: str, logprobs: JsonObject | None = None) -> JsonObject:
        """Return the chunk of content."""
        return self._piece(index, {"content": text}, logprobs=logprobs)

    def piece(self, index: int, tokens: Sequence[TokenEvent]) -> list[JsonObject]:
        """Return the chunks of some tokens of a message."""
        text, logprobs = self._piece_of(index, tokens)
        delta = ({"content": text} if text else {}) if self.form is None else _delta(self._readers[index].push(text))
        if not delta and self.tops is None:
            return []
        return [self._piece(index, delta or {"content": ""}, logprobs=logprobs)]

    def closing(self, index: int, reason: str) -> list[JsonObject]:
        """Return the chunks with held-back text and the finish reason."""
        if self.form is None:
            return [self._piece(index, {}, reason=reason)]
        reader = self._readers[index]
        left = _delta(reader.end())
        pieces = [self._piece(index, left)] if left else []
        return [*pieces, self._piece(index, {}, reason=_reason(reason, reader.calls))]

    def reasoning_tokens(self, generation: Generation) -> int:
        """Return the number of reasoning tokens of a text."""
        return 0 if self.form is None else self.form.reasoning_tokens(generation, self.text_of)

    def _piece(
        self, index: int, delta: JsonObject, *, logprobs: JsonObject | None = None, reason: str | None = None
    ) -> JsonObject:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _tokens(self, index: int, drawn: Sequence[DrawnToken]) -> JsonObject:
        return {"content": logprob_fields(drawn, self.text_of), "refusal": None}


def _reason(reason: str, calls: int) -> str:
    """Return the finish reason: ``tool_calls`` for a message with calls, unless it was cut off."""
    return "tool_calls" if calls and reason == "stop" else reason


def _reasoning(thought: str) -> JsonObject:
    """Return reasoning under the field names of DeepSeek and vLLM."""
    return {"reasoning_content": thought, "reasoning": thought} if thought else {}


def _delta(parts: AnswerParts) -> JsonObject:
    delta = _reasoning(parts.reasoning)
    if parts.content:
        delta["content"] = parts.content
    if parts.call_deltas:
        delta["tool_calls"] = [_call_delta(piece) for piece in merge_deltas(parts.call_deltas)]
    return delta


def _call_delta(piece: CallDelta) -> JsonObject:
    if piece.id is None:
        return {"index": piece.index, "function": {"arguments": piece.arguments}}
    function = {"name": piece.name, "arguments": piece.arguments}
    return {"index": piece.index, "id": piece.id, "type": "function", "function": function}


def _whole_calls(pieces: Sequence[CallDelta]) -> list[JsonObject]:
    calls: list[JsonObject] = []
    for piece in pieces:
        if piece.id is not None:
            calls.append({"id": piece.id, "type": "function", "function": {"name": piece.name, "arguments": ""}})
        calls[-1]["function"]["arguments"] += piece.arguments
    return calls
