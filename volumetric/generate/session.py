"""Session: one growing sequence of tokens on a device, reused from prompt to prompt."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from volumetric.generate.params import SamplingParams
from volumetric.generate.scheduling.device_calls import DeviceCalls
from volumetric.generate.scheduling.jobs import Job
from volumetric.generate.session_state import SessionState
from volumetric.generate.token_stream import Stream
from volumetric.run.device import State

if TYPE_CHECKING:
    from volumetric.generate.compiled_model import CompiledModel
    from volumetric.generate.drafters import Draft
    from volumetric.generate.prompt import Prompt


class Session:
    """Owns the device state of one sequence, which consecutive generations reuse.

    A prompt is computed only from its first difference to the session's tokens, so that each turn of a chat costs only
    its own tokens; see `volumetric.generate.session_state` for states that cannot be truncated everywhere. Results
    computed in another order differ in their last bits, so that a seed repeats a text exactly only from the same
    history; `reset` clears it.

    Parameters
    ----------
    model : the model to run; the session shares its weights and compiled plan
    state, tokens : a state to take over, and its token ids; default: a new, empty one
    """

    def __init__(self, model: CompiledModel, state: State | None = None, tokens: Iterable[int] = ()) -> None:
        model.require_generator()
        self._model = model
        self._held = SessionState(model.executable, state, tokens)
        self._rounds = DeviceCalls(model.executable)
        self._live: Stream | None = None

    @property
    def tokens(self) -> tuple[int, ...]:
        """Token ids in the state."""
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
        """Start to generate after `prompt`; a stream that still runs on this session is cancelled.

        Parameters
        ----------
        prompt : text, token ids, or chat messages (``{"role": …, "content": …}``); the whole, not only the new part
        params : complete sampling parameters; without them the model's defaults and `explicit` apply
        template_args, parse_special : see `Model.encode`
        on_end : called once when the stream has ended, by success, error or cancellation
        draft : source of draft tokens for speculative decoding: a smaller model with the same tokenizer, or
            ``"lookup"`` for the tokens that followed earlier in the text; the output is the same, see
            `volumetric.generate.drafters`
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
            from volumetric.generate.drafters import drafters  # only needed for drafts

            drafter = drafters(self._model, draft)
        job = Job(prompt=ids, params=merged, drafter=drafter, session_state=self._held)
        self._live = Stream(self._model, job, self._rounds, self._held, on_end)
        return self._live

    def fork(self) -> Session:
        """Return a second session with the same tokens; both continue independently."""
        return Session(self._model, self._held.settled_state().fork(), self.tokens)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write tokens and state to a file, from which `Model.session` continues, also on another device.

        The file has keys and values in the device's precision, some kilobytes per token; the prompt and the text can be
        read from it. It is replaced atomically.

        Raises
        ------
        CheckpointError : the file cannot be written
        GenerationError : the session is closed
        """
        from volumetric.generate.saved_session import save_session  # imports msgspec, only needed for saving

        state = self._held.settled_state()
        save_session(path, self.tokens, state)

    def reset(self) -> None:
        """Clear all tokens."""
        self._stop()
        self._held.reset()

    def close(self) -> None:
        """End a running stream and free the device memory of the state."""
        self._stop()
        self._held.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _stop(self) -> None:
        sequence, self._live = self._live, None
        if sequence is not None and not sequence.ended:
            sequence.close()
