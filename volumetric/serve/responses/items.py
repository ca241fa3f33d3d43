"""Output: an answer as items, and the stream events of each step."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from volumetric.serve.answer_fields import JsonObject
from volumetric.serve.tools.call_reader import AnswerParts, CallDelta

_PREFIXES: Final = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}


class ResponseItems:
    """The items of one answer; whole answers and streams are built by the same steps.

    Attributes
    ----------
    items : the items so far; the last one may still grow
    """

    def __init__(self) -> None:
        self.items: list[JsonObject] = []
        self._open: JsonObject | None = None
        self._blank = ""
        self._events: list[JsonObject] = []

    def push(self, parts: AnswerParts, logprobs: Sequence[JsonObject] = ()) -> list[JsonObject]:
        """Add a part of an answer, and return its events.

        Parameters
        ----------
        logprobs : log-probabilities of the content's tokens
        """
        if parts.reasoning:
            self._text("reasoning", parts.reasoning, ())
        text = self._blank + parts.content
        if text.isspace() and self._kind != "message":
            self._blank = text  # white space around reasoning and calls does not make a message
        elif text or (logprobs and self._kind == "message"):
            self._blank = ""
            self._text("message", text, logprobs)
        for piece in parts.call_deltas:
            self._add_call(piece)
        return self._take_events()

    def end(self, status: str) -> list[JsonObject]:
        """End the last item, incomplete unless `status` is ``"completed"``; an answer has at least one item."""
        if not self.items:
            self._text("message", self._blank, ())
        self._close(status)
        return self._take_events()

    @property
    def _kind(self) -> str | None:
        return None if self._open is None else self._open["type"]

    def _take_events(self) -> list[JsonObject]:
        events, self._events = self._events, []
        return events

    def _add_event(self, kind: str, **rest: object) -> None:
        assert self._open is not None
        place = {"item_id": self._open["id"]} if "item" not in rest else {}
        self._events.append({"type": f"response.{kind}", **place, "output_index": len(self.items) - 1, **rest})

    def _begin(self, kind: str, **rest: object) -> JsonObject:
        self._close("completed")
        item: JsonObject = {"id": _PREFIXES[kind] + uuid.uuid4().hex, "type": kind, "status": "in_progress", **rest}
        self._open = item
        self.items.append(item)
        self._add_event("output_item.added", item=_copy(item))
        return item

    def _text(self, kind: str, text: str, logprobs: Sequence[JsonObject]) -> None:
        """Continue or begin a message or reasoning."""
        reasons = kind == "reasoning"
        if self._open is None or self._open["type"] != kind:
            item = self._begin(kind, content=[], **({"summary": []} if reasons else {"role": "assistant"}))
            part: JsonObject = {"type": "reasoning_text", "text": ""}
            if not reasons:
                part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item["content"].append(part)
            self._add_event("content_part.added", content_index=0, part=_copy(part))
        assert self._open is not None
        part = self._open["content"][0]
        part["text"] += text
        rest: JsonObject = {} if reasons else {"logprobs": list(logprobs)}
        if not reasons:
            part["logprobs"] += logprobs
        name = "reasoning_text" if reasons else "output_text"
        self._add_event(f"{name}.delta", content_index=0, delta=text, **rest)

    def _add_call(self, piece: CallDelta) -> None:
        """Begin a call, or continue its arguments."""
        if piece.id is not None:
            self._begin("function_call", call_id=piece.id, name=piece.name, arguments="")
        if piece.arguments:
            assert self._open is not None
            self._open["arguments"] += piece.arguments
            self._add_event("function_call_arguments.delta", delta=piece.arguments)

    def _close(self, status: str) -> None:
        item = self._open
        if item is None:
            return
        if item["type"] == "function_call":
            self._add_event("function_call_arguments.done", name=item["name"], arguments=item["arguments"])
        else:
            part, reasons = item["content"][0], item["type"] == "reasoning"
            rest = {} if reasons else {"logprobs": part["logprobs"]}
            name = "reasoning_text" if reasons else "output_text"
            self._add_event(f"{name}.done", content_index=0, text=part["text"], **rest)
            self._add_event("content_part.done", content_index=0, part=_copy(part))
        item["status"] = status
        self._add_event("output_item.done", item=_copy(item))
        self._open = None


def _copy(item: JsonObject) -> JsonObject:
    """Copy an item, or a part of one: it may grow before an event is sent."""
    return {key: [_copy(one) for one in value] if key == "content" else value for key, value in item.items()}
