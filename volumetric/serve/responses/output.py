"""Output: an answer as items, and the stream events of each step."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from volumetric.serve.told import Told
from volumetric.serve.tools.reader import CallPiece, Parts

_PREFIXES: Final = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_"}


class Output:
    """The items of one answer; whole answers and streams are built by the same steps.

    Attributes
    ----------
    items : the items so far; the last one may still grow
    """

    def __init__(self) -> None:
        self.items: list[Told] = []
        self._open: Told | None = None
        self._blank = ""
        self._events: list[Told] = []

    def push(self, parts: Parts, logprobs: Sequence[Told] = ()) -> list[Told]:
        """Add a part of an answer, and return its events.

        Parameters
        ----------
        logprobs : log-probabilities of the content's tokens
        """
        if parts.thought:
            self._text("reasoning", parts.thought, ())
        text = self._blank + parts.said
        if text.isspace() and self._kind != "message":
            self._blank = text  # white space around reasoning and calls does not make a message
        elif text or (logprobs and self._kind == "message"):
            self._blank = ""
            self._text("message", text, logprobs)
        for piece in parts.pieces:
            self._called(piece)
        return self._told()

    def end(self, status: str) -> list[Told]:
        """End the last item, incomplete unless `status` is ``"completed"``; an answer has at least one item."""
        if not self.items:
            self._text("message", self._blank, ())
        self._close(status)
        return self._told()

    @property
    def _kind(self) -> str | None:
        return None if self._open is None else self._open["type"]

    def _told(self) -> list[Told]:
        events, self._events = self._events, []
        return events

    def _tell(self, kind: str, **rest: object) -> None:
        assert self._open is not None
        place = {"item_id": self._open["id"]} if "item" not in rest else {}
        self._events.append({"type": f"response.{kind}", **place, "output_index": len(self.items) - 1, **rest})

    def _begin(self, kind: str, **rest: object) -> Told:
        self._close("completed")
        item: Told = {"id": _PREFIXES[kind] + uuid.uuid4().hex, "type": kind, "status": "in_progress", **rest}
        self._open = item
        self.items.append(item)
        self._tell("output_item.added", item=_copy(item))
        return item

    def _text(self, kind: str, text: str, logprobs: Sequence[Told]) -> None:
        """Continue or begin a message or reasoning."""
        reasons = kind == "reasoning"
        if self._open is None or self._open["type"] != kind:
            item = self._begin(kind, content=[], **({"summary": []} if reasons else {"role": "assistant"}))
            part: Told = {"type": "reasoning_text", "text": ""}
            if not reasons:
                part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item["content"].append(part)
            self._tell("content_part.added", content_index=0, part=_copy(part))
        assert self._open is not None
        part = self._open["content"][0]
        part["text"] += text
        rest: Told = {} if reasons else {"logprobs": list(logprobs)}
        if not reasons:
            part["logprobs"] += logprobs
        name = "reasoning_text" if reasons else "output_text"
        self._tell(f"{name}.delta", content_index=0, delta=text, **rest)

    def _called(self, piece: CallPiece) -> None:
        """Begin a call, or continue its arguments."""
        if piece.id is not None:
            self._begin("function_call", call_id=piece.id, name=piece.name, arguments="")
        if piece.arguments:
            assert self._open is not None
            self._open["arguments"] += piece.arguments
            self._tell("function_call_arguments.delta", delta=piece.arguments)

    def _close(self, status: str) -> None:
        item = self._open
        if item is None:
            return
        if item["type"] == "function_call":
            self._tell("function_call_arguments.done", name=item["name"], arguments=item["arguments"])
        else:
            part, reasons = item["content"][0], item["type"] == "reasoning"
            rest = {} if reasons else {"logprobs": part["logprobs"]}
            name = "reasoning_text" if reasons else "output_text"
            self._tell(f"{name}.done", content_index=0, text=part["text"], **rest)
            self._tell("content_part.done", content_index=0, part=_copy(part))
        item["status"] = status
        self._tell("output_item.done", item=_copy(item))
        self._open = None


def _copy(item: Told) -> Told:
    """Copy an item, or a part of one: it may grow before an event is sent."""
    return {key: [_copy(one) for one in value] if key == "content" else value for key, value in item.items()}
