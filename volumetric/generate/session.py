"""Session: one growing sequence of tokens on a device, reused from prompt to prompt."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from volumetric.generate.held import Held
from volumetric.generate.params import SamplingParams
from volumetric.generate.scheduling.job import Job
from volumetric.generate.scheduling.rounds import Rounds
from volumetric.generate.stream import Stream
from volumetric.run.device import State

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.drafting import Draft
    from volumetric.generate.prompt import Prompt


class Session:
    """Owns the device state of one sequence, which one generation after the other goes on in.

    A prompt that begins like what the session holds is computed only from the first difference on, which makes each
    turn of a chat cost its own tokens; see `volumetric.generate.held` for states that cannot go back everywhere.
    Numbers computed in another order differ in their last bits, so a seed repeats a text exactly only from the same
    history; `reset` gives the empty one.

    Parameters
    ----------
    model : the model to run; the session shares its weights and compiled plan
    state, tokens : a state to take over, and the token ids that it holds; a new, empty one unless given
    """

    def __init__(self, model: CompiledModel, state: State | None = None, tokens: Iterable[int] = ()) -> None:
        model.require_generator()
        self._model = model
        self._held = Held(model.executable, state, tokens)
        self._rounds = Rounds(model.executable)
        self._live: Stream | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids that the state holds."""
        return self._held.tokens

    def stream(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        template_args: Mapping[str, Any] | None = None,
        parse_special: bool | None = None,
        on_end: Callable[[], None] | None = None,
        draft: Draft | None = None,
        **explicit: Any,
    ) -> Stream:
        """Start to generate after `prompt`; a stream still running on this session is cancelled.

        Parameters
        ----------
        prompt : text, token ids, or chat messages (``{"role": …, "content": …}``); the whole of it, not what is new
        params : complete sampling parameters; without them the model's defaults and `explicit` count
        template_args, parse_special : see `Model.encode`
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
        ids = self._model.encode(prompt, template_args=template_args, parse_special=parse_special)
        self._model.room_after(len(ids))
        merged = self._model.sampling(params, **explicit)
        self._stop()
        drafter = None
        if draft is not None:
            from volumetric.generate.drafting import drafters  # most generate without a draft

            drafter = drafters(self._model, draft)
        job = Job(prompt=ids, params=merged, drafter=drafter, held=self._held)
        self._live = Stream(self._model, job, self._rounds, self._held, on_end)
        return self._live

    def fork(self) -> Session:
        """Return a second session that holds the same tokens; both go on independently."""
        return Session(self._model, self._held.seen().fork(), self.tokens)

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

        state = self._held.seen()
        save_session(path, self.tokens, state)

    def reset(self) -> None:
        """Forget all tokens."""
        self._stop()
        self._held.reset()

    def close(self) -> None:
        """End a running stream and let go of the device memory of the state."""
        self._stop()
        self._held.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None and not live.ended:
            live.close()
