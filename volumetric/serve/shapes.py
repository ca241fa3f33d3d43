"""Shapes: how generations look as chat completions and as text completions, whole and in pieces."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from volumetric.generate.events import Generation, TokenEvent, TopLogprobs
from volumetric.serve.reasoning import ReasoningReader, Thinking
from volumetric.serve.tools.form import CallForm
from volumetric.serve.tools.reader import CallPiece, CallReader

Told = dict[str, Any]
"""What becomes JSON."""


@dataclass(slots=True, kw_only=True)
class Shape:
    """What all answers to one request have in common; chat and text completions fill in the rest.

    Attributes
    ----------
    model : the name by which the client knows it
    fingerprint : of weights, scheme and version: where it is the same, a seed gives the same text
    text_of : text of a single token
    tops : alternatives to tell of each token; None: no log-probabilities
    with_usage : whether pieces of a stream mention usage
    """

    model: str
    fingerprint: str
    text_of: Callable[[int], str]
    tops: int | None = None
    with_usage: bool = False
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    prefix = "cmpl-"
    whole_kind = piece_kind = "text_completion"

    def __post_init__(self) -> None:
        self.id = self.id or f"{self.prefix}{uuid.uuid4().hex}"

    def _head(self, kind: str) -> Told:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }

    def whole(self, prompts: Sequence[Sequence[Generation]]) -> Told:
        """Return the answer to prompts with some texts each."""
        texts = [one for generations in prompts for one in generations]
        choices = [self.choice(i, one) for i, one in enumerate(texts)]
        return {
            **self._head(self.whole_kind),
            "choices": choices,
            "usage": self.cost(prompts),
            "timings": timings(texts[0]),
        }

    def pieces(self, choices: list[Told]) -> Told:
        """Return a piece of a stream."""
        told = {**self._head(self.piece_kind), "choices": choices}
        return told | {"usage": None} if self.with_usage else told

    def usage(self, prompts: Sequence[Sequence[Generation]]) -> Told:
        """Return the last piece of a stream, which tells what it cost."""
        return {**self._head(self.piece_kind), "choices": [], "usage": self.cost(prompts)}

    def cost(self, prompts: Sequence[Sequence[Generation]]) -> Told:
        """Return how many tokens went in and came out, and for what."""
        told = usage(prompts)
        told["completion_tokens_details"]["reasoning_tokens"] = sum(
            self.reasoning_tokens(one) for generations in prompts for one in generations
        )
        return told

    def reasoning_tokens(self, generation: Generation) -> int:
        """Return how many tokens of a text are reasoning; text completions do not tell it apart."""
        return 0

    def opening(self, index: int) -> Told | None:
        """Return what comes before the first token of a text, if anything does."""
        return None

    def choice(self, index: int, generation: Generation) -> Told:
        """Return a whole text."""
        return {
            "index": index,
            "text": generation.text,
            "logprobs": self._tokens(_told_of(generation)),
            "finish_reason": generation.finish_reason,
        }

    def piece(self, index: int, tokens: Sequence[TokenEvent]) -> Told | None:
        """Return some tokens of a text; None where there is nothing to tell of them yet."""
        if self.tops is None and not any(token.text for token in tokens):
            return None
        return {
            "index": index,
            "text": "".join(token.text for token in tokens),
            "logprobs": self._tokens([(one.token_id, one.logprob or 0.0, one.top_logprobs or ()) for one in tokens]),
            "finish_reason": None,
        }

    def closing(self, index: int, reason: str) -> list[Told]:
        """Return what comes after the last token of a text."""
        return [{"index": index, "text": "", "logprobs": None, "finish_reason": reason}]

    def _tokens(self, drawn: Sequence[tuple[int, float, TopLogprobs]]) -> Told | None:
        """Return log-probabilities in the shape of text completions."""
        if self.tops is None:
            return None
        texts = [self.text_of(token) for token, _, _ in drawn]
        return {
            "tokens": texts,
            "token_logprobs": [_finite(logprob) for _, logprob, _ in drawn],
            "top_logprobs": [{self.text_of(i): _finite(value) for i, value in tops} for _, _, tops in drawn],
        }


class TextShape(Shape):
    """Text completions."""


@dataclass(slots=True, kw_only=True)
class ChatShape(Shape):
    """Chat completions.

    Attributes
    ----------
    calls : form of calls, where there are tools
    thinking : how the model reasons, if it does
    """

    calls: CallForm | None = None
    thinking: Thinking | None = None
    _thinkers: dict[int, ReasoningReader] = field(default_factory=dict)
    _readers: dict[int, CallReader] = field(default_factory=dict)

    prefix = "chatcmpl-"
    whole_kind = "chat.completion"
    piece_kind = "chat.completion.chunk"

    def opening(self, index: int) -> Told:
        """Return who speaks."""
        if self.calls is not None:
            self._readers[index] = CallReader(self.calls)
        if self.thinking is not None:
            self._thinkers[index] = ReasoningReader(self.thinking)
        return self._piece(index, {"role": "assistant", "content": ""})

    def choice(self, index: int, generation: Generation) -> Told:
        """Return a whole message."""
        text, thought = generation.text, ""
        if self.thinking is not None:
            thinker = ReasoningReader(self.thinking)
            thought, text = map("".join, zip(thinker.push(text), thinker.end(), strict=True))
        message: Told = {"role": "assistant", "content": text, "refusal": None, **self._reasoning(thought)}
        reason: str = generation.finish_reason
        if self.calls is not None:
            reader = CallReader(self.calls)
            parts = [reader.push(text), reader.end()]
            message["content"] = "".join(content for content, _ in parts).strip() or None
            calls = _whole_calls([piece for _, pieces in parts for piece in pieces])
            if calls:
                message["tool_calls"] = calls
                reason = _reason(reason, len(calls))
        return {
            "index": index,
            "message": message,
            "logprobs": self._tokens(_told_of(generation)),
            "finish_reason": reason,
        }

    def piece(self, index: int, tokens: Sequence[TokenEvent]) -> Told | None:
        """Return some tokens of a message."""
        thought, text = "", "".join(token.text for token in tokens)
        if thinker := self._thinkers.get(index):
            thought, text = thinker.push(text)
        delta = self._delta(index, thought, text)
        if not delta and self.tops is None:
            return None
        drawn = [(one.token_id, one.logprob or 0.0, one.top_logprobs or ()) for one in tokens]
        return self._piece(index, delta or {"content": ""}, logprobs=self._tokens(drawn))

    def closing(self, index: int, reason: str) -> list[Told]:
        """Return what was held back, and why a message ended."""
        thought, text = thinker.end() if (thinker := self._thinkers.get(index)) else ("", "")
        lefts = [self._delta(index, thought, text)]
        if reader := self._readers.get(index):
            lefts.append(_delta(*reader.end()))
            reason = _reason(reason, reader.calls)
        return [*(self._piece(index, left) for left in lefts if left), self._piece(index, {}, reason=reason)]

    def _delta(self, index: int, thought: str, text: str) -> Told:
        reader = self._readers.get(index)
        told = _delta(text, ()) if reader is None else _delta(*reader.push(text))
        return self._reasoning(thought) | told

    def _reasoning(self, thought: str) -> Told:
        """Return reasoning by the names that DeepSeek and vLLM gave it."""
        if not thought or self.thinking is None or not self.thinking.told:
            return {}
        return {"reasoning_content": thought, "reasoning": thought}

    def reasoning_tokens(self, generation: Generation) -> int:
        """Return how many tokens of a text are reasoning."""
        return 0 if self.thinking is None else self.thinking.tokens(generation.token_ids, self.text_of)

    def _piece(self, index: int, delta: Told, *, logprobs: Told | None = None, reason: str | None = None) -> Told:
        return {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}

    def _tokens(self, drawn: Sequence[tuple[int, float, TopLogprobs]]) -> Told | None:
        if self.tops is None:
            return None
        content = [
            self._token(token, logprob) | {"top_logprobs": [self._token(*one) for one in tops]}
            for token, logprob, tops in drawn
        ]
        return {"content": content, "refusal": None}

    def _token(self, token: int, logprob: float) -> Told:
        text = self.text_of(token)
        # A token may be part of a character; then its text does not tell its bytes.
        data = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
        return {"token": text, "logprob": _finite(logprob), "bytes": data}


def _reason(reason: str, calls: int) -> str:
    """A message with calls ends for them, unless it was cut off."""
    return "tool_calls" if calls and reason == "stop" else reason


def _delta(content: str, pieces: Sequence[CallPiece]) -> Told:
    delta: Told = {"content": content} if content else {}
    if pieces:
        delta["tool_calls"] = [_call_delta(piece) for piece in pieces]
    return delta


def _call_delta(piece: CallPiece) -> Told:
    if piece.id is None:
        return {"index": piece.index, "function": {"arguments": piece.arguments}}
    function = {"name": piece.name, "arguments": piece.arguments}
    return {"index": piece.index, "id": piece.id, "type": "function", "function": function}


def _whole_calls(pieces: Sequence[CallPiece]) -> list[Told]:
    calls: list[Told] = []
    for piece in pieces:
        if piece.id is not None:
            calls.append({"id": piece.id, "type": "function", "function": {"name": piece.name, "arguments": ""}})
        calls[-1]["function"]["arguments"] += piece.arguments
    return calls


def _told_of(generation: Generation) -> list[tuple[int, float, TopLogprobs]]:
    if generation.logprobs is None or generation.top_logprobs is None:
        return []
    return list(zip(generation.token_ids, generation.logprobs, generation.top_logprobs, strict=True))


def _finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI says −9999 where a token cannot be drawn."""
    return max(logprob, -9999.0)


def usage(prompts: Sequence[Sequence[Generation]]) -> Told:
    """Return how many tokens went in and came out; a prompt counts once, whatever number of texts it has."""
    asked = sum(generations[0].stats.prompt_tokens for generations in prompts)
    cached = sum(generations[0].stats.cached_tokens for generations in prompts)
    stats = [one.stats for generations in prompts for one in generations]
    made = sum(one.generated_tokens for one in stats)
    accepted = sum(one.accepted_tokens for one in stats)
    return {
        "prompt_tokens": asked,
        "completion_tokens": made,
        "total_tokens": asked + made,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": sum(one.drafted_tokens for one in stats) - accepted,
        },
    }


def timings(generation: Generation) -> Told:
    """Return times of a text, by llama-server's names."""
    stats = generation.stats
    return {
        "cache_n": stats.cached_tokens,
        "prompt_n": stats.prompt_tokens - stats.cached_tokens,
        "prompt_ms": round(1000 * stats.prompt_seconds, 3),
        "predicted_n": stats.generated_tokens,
        "draft_n": stats.drafted_tokens,
        "draft_n_accepted": stats.accepted_tokens,
        "predicted_ms": round(1000 * (stats.first_token_seconds + stats.generation_seconds), 3),
    }
