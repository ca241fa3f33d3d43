"""Several generations at once: one call of the device computes the next token of all of them.

Each prompt has a stream of its own, with its own sampler, stop texts and end, exactly as if it ran alone. What differs
is where its logits come from: all streams tell their next token, one batched call computes the logits of all, and
each goes on with its row. A stream that ends leaves at once, and the next prompt takes its place.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric._typing import F32Array
from volumetric.errors import GenerationError, SpecError
from volumetric.generate.events import Generation, TokenEvent
from volumetric.generate.params import SamplingParams
from volumetric.generate.prompt import items_of
from volumetric.generate.session import Session
from volumetric.generate.stream import Stream
from volumetric.runtime.device import State
from volumetric.runtime.logits import most_likely

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.generate.prompt import Prompt

TOGETHER = 16
"""Sequences computed together unless told otherwise: each one has a cache, and more gain little on a CPU."""


class _Seat(Session):
    """A session whose single steps were computed with those of others, before they are asked for."""

    ready: F32Array

    @property
    def state(self) -> State:
        """Where the sequence stands on the device."""
        return self._open()

    def step(self, token: int) -> F32Array:
        """Return the row that was computed for `token`."""
        self._tokens.append(token)
        return self.ready

    def greedy(self, token: int) -> Generator[int, None, None]:
        """Yield the most likely token of each row."""
        while True:
            token = most_likely(self.step(token))
            yield token


class BatchStream:
    """Iterator over ``(number of the prompt, TokenEvent)``; `Model.stream_batch` makes it.

    Events of a prompt come in order; prompts take turns. The work happens inside of ``next``.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None,
        *,
        together: int = TOGETHER,
        template_args: Mapping[str, Any] | None = None,
        **explicit: Any,
    ) -> None:
        if not isinstance(together, Integral) or together < 1:
            raise SpecError(f"together must be a whole number of 1 or more, got {together!r}")
        every = items_of(prompts, "generate_batch takes a list of prompts")
        each = [params] * len(every) if params is None or not isinstance(params, Sequence) else list(params)
        if len(each) != len(every):
            raise SpecError(f"{len(every)} prompts need one set of parameters or {len(every)}, got {len(each)}")
        self._model = model
        self._prompts = [model.encode(prompt, template_args=template_args) for prompt in every]
        self._params = [model.sampling(one, **explicit) for one in each]
        for ids in self._prompts:
            model.room_after(len(ids))
        # All prompts are known to be good before the first one costs anything.
        self._together = together
        self._streams: dict[int, Stream] = {}
        self._events = self._run()

    def __iter__(self) -> Iterator[tuple[int, TokenEvent]]:
        return self

    def __next__(self) -> tuple[int, TokenEvent]:
        return next(self._events)

    def run(self) -> list[Generation]:
        """Generate to the end and return all generations, in the order of the prompts."""
        for _ in self:
            pass
        return self.generations

    @property
    def generations(self) -> list[Generation]:
        """The generations so far, of those prompts that have begun; one that could go on is ``cancelled``."""
        return [self._streams[number].generation for number in sorted(self._streams)]

    def close(self) -> None:
        """End all generations now."""
        self._events.close()

    def _run(self) -> Generator[tuple[int, TokenEvent], None, None]:
        waiting = deque(range(len(self._prompts)))
        seats = [_Seat(self._model) for _ in range(min(self._together, len(waiting)))]
        free, live = list(seats), dict[int, _Seat]()
        try:
            while waiting or live:
                fresh = {waiting.popleft(): free.pop() for _ in range(min(len(waiting), len(free)))}
                for number, seat in fresh.items():
                    seat.reset()
                    self._streams[number] = seat.stream(self._prompts[number], self._params[number])
                if live:
                    self._compute(live)
                live |= fresh
                for number in tuple(live):
                    event = self._next(number)
                    if event is None or event.finish_reason is not None:
                        self._streams[number].close()
                        free.append(live.pop(number))
                    if event is not None:
                        yield number, event
        finally:
            for seat in seats:
                seat.close()

    def _next(self, number: int) -> TokenEvent | None:
        try:
            return next(self._streams[number], None)
        except GenerationError as error:
            raise GenerationError(f"prompt {number}: {error}", hint=error.hint) from error

    def _compute(self, live: Mapping[int, _Seat]) -> None:
        """Feed the last token of each live stream; all of them wait for the call, so it counts in the time of each."""
        began = time.perf_counter()
        tokens = np.array([self._streams[number].last_token for number in live], np.int32)
        rows = self._model.executable.forward_batch([seat.state for seat in live.values()], tokens)
        for seat, row in zip(live.values(), rows, strict=True):
            seat.ready = row
        for number in live:
            self._streams[number].add_seconds(time.perf_counter() - began)
