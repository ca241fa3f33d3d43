"""The format of a response, whole and as the events of a stream."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from volumetric.generate.params import SamplingParams
from volumetric.generate.token_events import Generation, TokenEvent
from volumetric.serve.answer_fields import DrawnToken, JsonObject, chunk_tokens, drawn_tokens, logprob_fields, usage
from volumetric.serve.event_stream import sse_event
from volumetric.serve.fields.response_request import ResponseRequest
from volumetric.serve.output_parser import OutputFormat, OutputParser
from volumetric.serve.problem import RequestError
from volumetric.serve.responses.items import ResponseItems
from volumetric.serve.serving import json_bytes
from volumetric.serve.tools.call_reader import AnswerParts


@dataclass(slots=True, kw_only=True)
class ResponseAnswer:
    """One answer as a response.

    Attributes
    ----------
    body : the request; the response repeats many of its fields
    params : sampling parameters
    model, text_of : see `Shape`
    form : the format of the answer
    """

    body: ResponseRequest
    params: SamplingParams
    model: str
    text_of: Callable[[int], str]
    form: OutputFormat
    id: str = field(default_factory=lambda: f"resp_{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    _output: ResponseItems = field(default_factory=ResponseItems)
    _reader: OutputParser = field(init=False)
    _drawn: list[DrawnToken] = field(default_factory=list)
    _number: int = 0

    def __post_init__(self) -> None:
        self._reader = self.form.reader()

    def whole(self, prompts: Sequence[Sequence[Generation]]) -> JsonObject:
        """Return the response."""
        ((one,),) = prompts
        answer_tokens = [
            token for drawn in drawn_tokens(one) for token in self._take(self.text_of(drawn[0]), [drawn])[1]
        ]
        self._output.push(self.form.parse(one.text), logprob_fields([*answer_tokens, *self._drawn], self.text_of))
        self._output.end(_status(one))
        return self._completed_event(one)

    def begun(self) -> Iterable[bytes]:
        """Return the events before the first token, which carry the empty response."""
        head = self._response("in_progress")
        for kind in ("response.created", "response.in_progress"):
            yield self.framed({"type": kind, "response": head})

    def opening(self, index: int) -> Sequence[JsonObject]:
        """Return nothing: an item begins with its first content."""
        return ()

    def chunks(self, index: int, tokens: Sequence[TokenEvent]) -> bytes:
        """Return the events of some tokens, encoded."""
        return b"".join(map(self.framed, self.piece(index, tokens)))

    def frame(self, index: int) -> None:
        """Return None: events are numbered."""

    def piece(self, index: int, tokens: Sequence[TokenEvent]) -> Sequence[JsonObject]:
        """Return the events of some tokens; log-probabilities cover tokens outside of reasoning and calls."""
        events: list[JsonObject] = []
        # With log-probabilities tokens are parsed one by one, because each may begin another item.
        for some in [tokens] if self.body.tops is None else [[token] for token in tokens]:
            drawn = [] if self.body.tops is None else chunk_tokens(some)
            parts, answer_tokens = self._take("".join(token.text for token in some), drawn)
            events += self._output.push(parts, logprob_fields(answer_tokens, self.text_of))
        return events

    def closing(self, index: int, reason: str) -> Sequence[JsonObject]:
        """Return the events of held-back text, and of the end of the last item."""
        return [
            *self._output.push(self._reader.end(), logprob_fields(self._drawn, self.text_of)),
            *self._output.end("incomplete" if reason == "length" else "completed"),
        ]

    def framed(self, fields: JsonObject) -> bytes:
        """Return an event, numbered."""
        number, self._number = self._number, self._number + 1
        return sse_event(json_bytes(fields | {"sequence_number": number}), fields["type"])

    def failed(self, problem: RequestError) -> bytes:
        """Return the last event of a failed response."""
        response = self._response("failed", error={"code": problem.code or problem.kind, "message": str(problem)})
        return self.framed({"type": "response.failed", "response": response})

    def ended(self, prompts: Sequence[Sequence[Generation]]) -> Iterable[bytes]:
        """Return the event with the whole response."""
        ((one,),) = prompts
        yield self.framed({"type": f"response.{_status(one)}", "response": self._completed_event(one)})

    def _take(self, text: str, drawn: Sequence[DrawnToken]) -> tuple[AnswerParts, Sequence[DrawnToken]]:
        """Parse some tokens; return their parts, and all pending tokens that belong to the content."""
        reasoned = self._reader.reasoning
        parts = self._reader.push(text)
        inside = reasoned or self._reader.reasoning or self._reader.calls
        self._drawn = [] if inside else [*self._drawn, *drawn]
        if not parts.content:
            return parts, ()
        answer_tokens, self._drawn = self._drawn, []
        return parts, answer_tokens

    def _completed_event(self, one: Generation) -> JsonObject:
        status = _status(one)
        details = {"incomplete_details": {"reason": "max_output_tokens"}} if status == "incomplete" else {}
        return self._response(status, output=self._output.items, usage=self._usage(one), **details)

    def _usage(self, one: Generation) -> JsonObject:
        counts = usage([[one]])
        cached = counts["prompt_tokens_details"]["cached_tokens"]
        reasoned = self.form.reasoning_tokens(one, self.text_of)
        return {
            "input_tokens": counts["prompt_tokens"],
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
            "output_tokens": counts["completion_tokens"],
            "output_tokens_details": {"reasoning_tokens": reasoned},
            "total_tokens": counts["total_tokens"],
        }

    def _response(self, status: str, **rest: object) -> JsonObject:
        """Return the response object with this status; `rest` replaces its fields."""
        body = self.body
        form = None if body.text is None else body.text.format
        effort = None if body.reasoning is None else body.reasoning.effort
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self.model,
            "output": [],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": None,
            "reasoning": {"effort": effort, "summary": None},
            "store": False,
            "temperature": self.params.temperature,
            "text": {"format": {"type": "text"} if form is None else form},
            "tool_choice": "auto" if body.tool_choice is None else body.tool_choice,
            "tools": body.tools or [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": self.params.top_p,
            "truncation": "disabled",
            "usage": None,
        } | rest


def _status(one: Generation) -> str:
    return "incomplete" if one.finish_reason == "length" else "completed"
