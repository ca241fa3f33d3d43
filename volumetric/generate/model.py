"""Model: a network with its weights, its tokenizer and a device, which generates, encodes and predicts."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from volumetric.base.errors import GenerationError
from volumetric.generate.adapters import Adapters
from volumetric.generate.compiled_model import CompiledModel
from volumetric.generate.encoding import Encodes
from volumetric.generate.events import Generation
from volumetric.generate.params import SamplingParams
from volumetric.generate.predicting import Predicts
from volumetric.generate.prompt import Message, Prompt, check_messages, items_of
from volumetric.generate.scheduling.limits import PROMPT_ROWS, TOGETHER
from volumetric.generate.session import Session
from volumetric.generate.stream import Stream
from volumetric.run.device import Executable

if TYPE_CHECKING:
    from volumetric.generate.batch import BatchStream
    from volumetric.generate.drafting import Drafter
    from volumetric.generate.perplexity import Perplexity


class Model(Encodes, Predicts):
    """A network bound to a device, with tokenizer and chat template where the source has them.

    Parameters and attributes are those of `CompiledModel`.
    """

    def use(self, executable: Executable, adapters: Adapters) -> None:
        """Run on an executable with these adapters in force from now on, in new sessions."""
        super().use(executable, adapters)
        self._idle: list[Session] = []

    def perplexity(
        self, text: str | Sequence[int], *, window: int | None = None, stride: int | None = None
    ) -> Perplexity:
        """Return how well the model predicts a text: ``exp`` of the mean ``−log p`` of its tokens.

        Parameters
        ----------
        text : text, encoded as a prompt is, or token ids
        window : tokens that are fed from an empty sequence at a time; None: as many as the context holds. The first
            token of a window has nothing before it and does not count, the others see all before them in it.
        stride : tokens from the start of a window to that of the next; None: as many as a window holds. With less, the
            windows overlap, and a token counts in the first window that holds it alone.

        Raises
        ------
        GenerationError : fewer than two tokens, an encoder, or logits that are not numbers
        SpecError : `window` is below 2 or more than the context, or `stride` below 1 or more than `window`
        """
        from volumetric.generate.perplexity import perplexity

        return perplexity(self, self.encode(text), window, stride)

    def generate(self, prompt: Prompt, params: SamplingParams | None = None, **explicit: Any) -> Generation:
        """Generate after `prompt` and return the whole.

        Parameters
        ----------
        prompt : text, token ids, or chat messages
        params : complete sampling parameters
        explicit : single sampling parameters (see `SamplingParams`), over `params` or the model's own defaults;
            ``template_args`` and ``parse_special``, see `encode`; and ``draft``, a smaller model of the same tokens or
            ``"lookup"``, whose guesses are checked together (see `Session.stream`)

        Returns
        -------
        Generation
            text, token ids, finish reason, counts and times

        Raises
        ------
        GenerationError : the prompt is empty, does not fit, or cannot be encoded; logits are not numbers
        SpecError : a sampling parameter is unknown or out of range
        """
        return self.stream(prompt, params, **explicit).run()

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **explicit: Any) -> Stream:
        """Generate after `prompt`, token by token; parameters as for `generate`.

        Each stream starts from an empty sequence, so a seed always gives the same text. Use a `session` to go on
        from what was computed before.
        """
        try:
            session = self._idle.pop()
        except IndexError:
            self.require_generator()
            session = Session(self)

        def give_back() -> None:
            if self._idle:
                session.close()
                return
            session.reset()
            self._idle.append(session)

        try:
            return session.stream(prompt, params, on_end=give_back, **explicit)
        except BaseException:
            give_back()
            raise

    def generate_batch(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        together: int = TOGETHER,
        prompt_rows: int = PROMPT_ROWS,
        **explicit: Any,
    ) -> list[Generation]:
        """Generate after several prompts, whose tokens are computed together: each weight is read once for all.

        Every prompt has its own sampler, seed, stop texts and end, as with `generate`; on the CPU device the tokens are
        those of `generate` too. A generation that has ended makes room for the next prompt at once.

        Parameters
        ----------
        prompts : any number; text, token ids or chat messages, of any lengths
        params : complete sampling parameters for all, or one for each prompt. One seed for all seeds each prompt alike.
        together : sequences computed at once, at most; each needs a cache on the device
        prompt_rows : tokens of prompts computed at once beside sequences that decode, at most; more of them start the
            next generation sooner and slow the others down
        explicit : single sampling parameters, ``template_args`` and ``parse_special``, as for `generate`

        Returns
        -------
        list of Generation
            in the order of the prompts

        Raises
        ------
        GenerationError, SpecError : as `generate`, before anything is computed, for any of the prompts
        """
        return self.stream_batch(prompts, params, together=together, prompt_rows=prompt_rows, **explicit).run()

    def stream_batch(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        together: int = TOGETHER,
        prompt_rows: int = PROMPT_ROWS,
        **explicit: Any,
    ) -> BatchStream:
        """Generate after several prompts, token by token: an iterator over ``(number of the prompt, TokenEvent)``.

        Parameters as for `generate_batch`.
        """
        from volumetric.generate.batch import BatchStream  # for those with several prompts

        self.require_generator()
        return BatchStream(self, prompts, params, together=together, prompt_rows=prompt_rows, **explicit)

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None, **explicit: Any) -> Generation:
        """Generate the reply to a conversation, through the model's chat template; parameters as for `generate`.

        Raises
        ------
        GenerationError : as `generate`, and for anything but a list of messages
        """
        if isinstance(messages, str):
            raise GenerationError(
                "chat takes a list of messages, got text",
                hint='chat([{"role": "user", "content": text}]); generate(text) continues a plain text',
            )
        conversation = items_of(messages, "chat takes a list of messages")
        check_messages(conversation)
        return self.generate(conversation, params, **explicit)

    def session(self, *, restore: str | os.PathLike[str] | None = None) -> Session:
        """Return a new sequence, after `prepare`: empty, or where the one was that `Session.save` wrote to a file.

        Parameters
        ----------
        restore : the file; by this model with the same weights, on any device. Keys and values are converted to what is
            held here

        Raises
        ------
        GenerationError : the model is an encoder, or does not read tokens; the context is too short for the file's
        CheckpointError : the file cannot be read, is damaged, or of another network
        """
        self.require_generator()
        self.prepare()
        if restore is None:
            return Session(self)
        from volumetric.generate.saved_session import read_session  # brings msgspec

        return Session(self, *read_session(self.executable, restore))

    def drafters_for(self, model: CompiledModel) -> Callable[[], Drafter]:
        """Return what makes drafters of this model, which propose tokens for a larger one of the same tokens.

        Raises
        ------
        GenerationError : the other model has other tokens
        """
        from volumetric.generate.draft_model import DraftModel, check_tokens_agree  # for those who draft

        check_tokens_agree(model, self)
        return lambda: DraftModel(self.session(), self.executable.options.context)

    def close(self) -> None:
        """Free the device memory. The model cannot be used afterwards."""
        for session in self._idle:
            session.close()
        self._idle.clear()
        self.close_encoder()
        self.executable.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        c = self.info
        return f"<Model {c.name!r} {c.dtype} on {c.device}, context {c.context}>"
