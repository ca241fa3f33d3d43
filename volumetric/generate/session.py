"""Session: one growing sequence of tokens on a device, reused from prompt to prompt."""

from __future__ import annotations

import itertools
import operator
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric._typing import F32Array
from volumetric.errors import GenerationError
from volumetric.generate.params import SamplingParams
from volumetric.generate.stream import Stream
from volumetric.generate.transcript import Transcript
from volumetric.runtime.batch import greedy_ids, only
from volumetric.runtime.device import Chooser, Drawing, Piece, State

if TYPE_CHECKING:
    from volumetric.generate.drafting import Draft
    from volumetric.generate.model import Model
    from volumetric.generate.prompt import Prompt

PREFILL_ROWS = 512
"""Rows of a prompt that go to the device in one call: bounds its scratch memory and the wait for an interrupt."""


class Session:
    """Owns the device state of one sequence.

    A prompt that begins like what the session holds is computed only from the first difference on, which makes each
    turn of a chat cost its own tokens. Numbers computed in another order differ in their last bits, so a seed repeats
    a text exactly only from the same history; `reset` gives the empty one.

    Keys and values are cut back to that difference. What has one value for the whole sequence, as the state of a
    recurrent layer, cannot be, nor can rows come back that were given away behind a window; where a state has such
    (`State.forgets`) the session keeps a copy from the end of the last prompt, and goes back to it, or to the start.

    Parameters
    ----------
    model : the model to run; the session shares its weights and compiled plan
    state, tokens : a state to take over, and the token ids that it holds; a new, empty one unless given
    """

    def __init__(self, model: Model, state: State | None = None, tokens: Iterable[int] = ()) -> None:
        self._model = model
        self._state: State | None = model.executable.new_state() if state is None else state
        self._tokens = list(tokens)
        self._forgets = self._state.forgets
        self._mark: State | None = None
        """Copy of the state before the last token of the last prompt, where going back takes one."""
        self._before: State | None = None
        """Copy of the state before tokens of which some may be taken away again, where that takes one."""
        self._live: Stream | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids that the state holds."""
        return tuple(self._tokens)

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        template_args: Mapping[str, Any] | None = None,
        on_end: Callable[[], None] | None = None,
        draft: Draft = None,
        **explicit: Any,
    ) -> Stream:
        """Start to generate after `prompt`; a stream still running on this session is cancelled.

        Parameters
        ----------
        prompt : text, token ids, or chat messages (``{"role": …, "content": …}``); the whole of it, not what is new
        params : complete sampling parameters; without them the model's defaults and `explicit` count
        template_args : further names for the chat template
        on_end : called once when the stream has ended, in whatever way
        draft : what proposes tokens that this model checks together: a smaller model of the same tokens, or
            ``"lookup"`` for what followed the last tokens earlier in the text; the text is the same, see
            `volumetric.generate.drafting`
        explicit : single sampling parameters by name

        Raises
        ------
        GenerationError : the prompt is empty, does not fit into the context, or cannot be encoded
        SpecError : a sampling parameter is unknown or out of range
        """
        ids = self._model.encode(prompt, template_args=template_args)
        self._model.room_after(len(ids))
        merged = self._model.sampling(params, **explicit)
        self._stop()
        drafter = None
        if draft is not None:
            from volumetric.generate.drafting import drafter_for  # for those who draft

            drafter = drafter_for(self._model, draft)
        self._live = Stream(self, Transcript(self._model, ids, merged), on_end, drafter)
        return self._live

    def prefill(self, ids: Sequence[int]) -> tuple[F32Array, int]:
        """Make the state hold exactly `ids`.

        Returns
        -------
        logits : after the last of `ids`, float32 ``[V]``
        reused : how many of `ids` the state held already
        """
        same = map(operator.eq, self._tokens, ids)
        shared = sum(1 for _ in itertools.takewhile(bool, same))
        kept = self._go_back(min(shared, len(ids) - 1))  # the last token is always fed: its logits are what is wanted
        last = len(ids) - 1 if self._forgets else kept
        for start in range(kept, last, PREFILL_ROWS):
            self._feed(ids[start : min(start + PREFILL_ROWS, last)])
        if self._forgets and (self._mark is None or self._mark.position < last):
            self._mark = self._open().fork()
        logits = np.empty((1, 0), np.float32)
        for start in range(last, len(ids), PREFILL_ROWS):
            logits = self._feed(ids[start : start + PREFILL_ROWS])
        return logits[-1], kept

    def _go_back(self, position: int) -> int:
        """Forget what was fed from `position` on, or from further back where there is no copy of then."""
        state = self._open()
        mark = self._mark
        if mark is not None and mark.position > position:
            self._mark = None  # it holds tokens that will be others
        if 0 < position < min(state.reach, state.position):
            if mark is None or mark.reach > position:
                state.reset()
            else:
                self._state = state = mark.fork()
            position = min(position, state.position)
        state.trim(position)
        del self._tokens[position:]
        return position

    def step(self, token: int) -> F32Array:
        """Append `token` and return the logits after it, float32 ``[V]``."""
        return self._feed((token,))[-1]

    def _feed(self, ids: Sequence[int]) -> F32Array:
        logits = self._model.executable.forward(self._open(), np.array(ids, np.int32), last_only=True)
        self._tokens.extend(ids)
        return logits

    def ahead(self, ids: Sequence[int]) -> F32Array:
        """Append `ids` and return the logits after each, float32 ``[T, V]``; `back` may take all but one away again."""
        state = self._open()
        self._before = state.fork() if self._forgets and len(ids) > 1 else None
        logits = self._model.executable.forward(state, np.array(ids, np.int32), last_only=False)
        self._tokens.extend(ids)
        return logits

    def back(self, position: int) -> None:
        """Keep the tokens before `position`, which is behind the first one that `ahead` appended last."""
        state, before = self._open(), self._before
        self._before = None
        if position >= state.reach:
            state.trim(position)
        elif before is not None:
            self._state = before
            if ids := self._tokens[before.position : position]:
                self._model.executable.run([Piece(before, np.array(ids, np.int32), "none")])
        del self._tokens[position:]

    def greedy(self, token: int) -> Generator[int, None, None]:
        """Append `token`, yield the most likely next one, append that, and so on; the device's fastest way."""
        yield from self._following(token, greedy_ids(self._model.executable, self._open(), token))

    def drawn(self, token: int, chooser: Chooser) -> Generator[int, None, None] | None:
        """As `greedy`, with tokens that the device draws; None where it cannot."""
        executable = self._model.executable
        if not isinstance(executable, Drawing) or not executable.draws([chooser]):
            return None
        loop = executable.drawn([self._open()], [token], [chooser])
        return self._following(token, only(loop))

    def _following(self, token: int, loop: Generator[int, None, None]) -> Generator[int, None, None]:
        """Yield what a loop of the device makes after `token`."""
        state = self._open()
        try:
            with closing(loop):
                for following in loop:
                    self._tokens.append(token)
                    token = following
                    yield following
        finally:
            if state.position > len(self._tokens):  # fed, but the logits after it were refused
                self._tokens.append(token)

    def fork(self) -> Session:
        """Return a second session that holds the same tokens; both go on independently."""
        return Session(self._model, self._open().fork(), self._tokens)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokens and state to a file, from which `Model.session` goes on: later, or on another device.

        The file has keys and values in the precision in which the device holds them, some kilobytes a token; the
        prompt and the text can be read out of it. It is replaced in one step.

        Raises
        ------
        CheckpointError : the file cannot be written
        GenerationError : the session is closed
        """
        from volumetric.generate.saved_session import save_session  # brings msgspec, for those who save

        save_session(path, self._tokens, self._open())

    def reset(self) -> None:
        """Forget all tokens."""
        self._stop()
        self._open().reset()
        self._mark = None
        self._tokens.clear()

    def close(self) -> None:
        """End a running stream and let go of the device memory of the state."""
        self._stop()
        self._state = self._mark = None
        self._tokens.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None and not live.ended:
            live.close()

    def _open(self) -> State:
        if self._state is None:
            raise GenerationError("the session is closed", hint="make another with model.session()")
        return self._state
