"""The texts of one request, collected from the events of its jobs; and its stream as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING

from volumetric.generate.token_events import Generation, TokenEvent
from volumetric.serve.problem import RequestError, problem_of
from volumetric.serve.serving import json_bytes

if TYPE_CHECKING:
    from volumetric.generate.scheduling.jobs import JobEvent
    from volumetric.serve.answer_fields import Answer
    from volumetric.serve.engine import SubmittedJobs


class AnswerTexts:
    """Collects the texts of a request from events."""

    def __init__(self, running: SubmittedJobs) -> None:
        self._first = {}
        count = 0
        for ticket in running.tickets:
            self._first[ticket] = count
            count += ticket.job.n
        self._tickets = list(running.tickets)
        self._whole: list[Generation | None] = [None] * count
        self._left = count

    def take(self, event: JobEvent) -> int:
        """Store an event, and return the index of its text. Raises `RequestError` for an error event."""
        if event.error is not None:
            raise problem_of(event.error) from event.error
        index = self.index_of(event)
        if event.generation is not None:
            self._left -= self._whole[index] is None
            self._whole[index] = event.generation
        return index

    def index_of(self, event: JobEvent) -> int:
        """Return the index of an event's text."""
        return self._first[event.ticket] + event.choice

    @property
    def ended(self) -> bool:
        """Whether all texts have ended."""
        return not self._left

    @property
    def by_prompt(self) -> list[list[Generation]]:
        """The texts of each prompt, after all have ended."""
        whole = iter(one for one in self._whole if one is not None)
        return [[next(whole) for _ in range(ticket.job.n)] for ticket in self._tickets]


class StreamedTexts:
    """The stream of a request, as bytes.

    Parameters
    ----------
    running : the jobs of the request
    shape : format of the answer

    Attributes
    ----------
    ended : the last bytes were returned
    """

    def __init__(self, running: SubmittedJobs, shape: Answer) -> None:
        self.ended = False
        self._texts = AnswerTexts(running)
        self._shape = shape
        self._begun: set[int] = set()
        self._frames: dict[int, tuple[bytes, bytes]] = {}
        self._context = copy_context()  # of the request, whose id the log names

    def begin(self) -> bytes:
        """Return what precedes the first token."""
        return b"".join(self._shape.begun())

    def push(self, events: Sequence[JobEvent]) -> bytes:
        """Return what events add to the stream. An error is the last event of it: no finish reason follows."""
        if len(events) == 1 and events[0].generation is None and (token := events[0].token) is not None:
            # Nearly always. Between such tokens nothing but the text differs, in most answers.
            frame = self._frames.get(self._texts.index_of(events[0]))
            if frame is not None:
                return json_bytes(token.text).join(frame) if token.text else b""
        try:
            return self._joined(events)
        except Exception as error:  # the status has been sent, so that only the stream can carry the error
            self.ended, problem = True, self._context.run(problem_of, error)
            try:
                return self._shape.failed(problem)
            except Exception:
                return b""

    def _joined(self, events: Sequence[JobEvent]) -> bytes:
        """Return the chunks of several events: the tokens of a text share one."""
        shape, came, reasons = self._shape, dict[int, list[TokenEvent]](), dict[int, str]()
        problem: RequestError | None = None
        for event in events:
            try:
                index = self._context.run(self._texts.take, event)
            except RequestError as refusal:
                problem = refusal
                break
            if event.token is not None:
                came.setdefault(index, []).append(event.token)
            if event.generation is not None:
                reasons[index] = event.generation.finish_reason
        pieces: list[bytes] = []
        for index in sorted(came.keys() | reasons.keys()):
            if index not in self._begun:
                self._begun.add(index)
                pieces += map(shape.framed, shape.opening(index))
            if index in came:
                pieces.append(shape.chunks(index, came[index]))
                if (frame := shape.frame(index)) is not None:
                    self._frames[index] = frame
            if index in reasons:
                pieces += map(shape.framed, shape.closing(index, reasons[index]))
        if problem is not None:
            pieces.append(shape.failed(problem))
        elif self._texts.ended:
            pieces += shape.ended(self._texts.by_prompt)
        self.ended = problem is not None or self._texts.ended
        return b"".join(pieces)
