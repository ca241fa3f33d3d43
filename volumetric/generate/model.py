"""Model: a network with its weights, its tokenizer and a device, which generates, encodes and predicts."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from volumetric.base.errors import GenerationError
from volumetric.base.scope_pages import ScopePage, page_of
from volumetric.generate.compiled_model import CompiledModel
from volumetric.generate.encoding import EncoderMethods
from volumetric.generate.lora_adapters import Adapters
from volumetric.generate.params import SamplingParams
from volumetric.generate.prompt import Message, Prompt, check_messages, items_of
from volumetric.generate.sample_predictions import PredictorMethods
from volumetric.generate.scheduling.limits import PROMPT_ROWS, TOGETHER
from volumetric.generate.session import Session
from volumetric.generate.token_events import Generation
from volumetric.generate.token_stream import Stream
from volumetric.run.device import Executable

if TYPE_CHECKING:
    from volumetric.base.text_table import TextTable
    from volumetric.generate.batch_stream import BatchStream
    from volumetric.generate.drafters import Drafter
    from volumetric.generate.perplexity import Perplexity


class Model(EncoderMethods, PredictorMethods):
    """A network bound to a device, with tokenizer and chat template if the source has them.

    Parameters and attributes are those of `CompiledModel`.
    """

    def use(self, executable: Executable, adapters: Adapters) -> None:
        """Use another executable and adapters for new sessions."""
        super().use(executable, adapters)
        self._idle: list[Session] = []

    def perplexity(
        self, text: str | Sequence[int], *, window: int | None = None, stride: int | None = None
    ) -> Perplexity:
        """Return the perplexity of a text: ``exp`` of the mean ``−log p`` of its tokens.

        Parameters
        ----------
        text : text, encoded like a prompt, or token ids
        window : tokens of a window, each fed from an empty sequence; None: the context. The first token of a window is
            not predicted; the others see all earlier tokens of the window.
        stride : tokens between the starts of two windows; None: the window. With fewer, the windows overlap, and a
            token counts only in the first window that contains it.

        Raises
        ------
        GenerationError : there are fewer than two tokens, the model is an encoder, or logits are NaN or infinite
        SpecError : `window` is below 2 or more than the context, or `stride` below 1 or more than `window`
        """
        from volumetric.generate.perplexity import perplexity

        return perplexity(self, self.encode(text), window, stride)

    def generate(self, prompt: Prompt, params: SamplingParams | None = None, **explicit: Any) -> Generation:
        """Generate after `prompt`, and return the whole text.

        Parameters
        ----------
        prompt : text, token ids, or chat messages
        params : complete sampling parameters
        explicit : single sampling parameters (see `SamplingParams`), which override `params` or the model's defaults;
            ``template_args`` and ``parse_special``, see `encode`; and ``draft``, a smaller model with the same
            tokenizer or ``"lookup"``, for speculative decoding (see `Session.stream`)

        Returns
        -------
        Generation
            text, token ids, finish reason, counts and times

        Raises
        ------
        GenerationError : the prompt is empty, does not fit, or cannot be encoded; logits are NaN or infinite
        SpecError : a sampling parameter is unknown or out of range
        """
        return self.stream(prompt, params, **explicit).run()

    def stream(self, prompt: Prompt, params: SamplingParams | None = None, **explicit: Any) -> Stream:
        """Generate after `prompt`, token by token; for the parameters see `generate`.

        Each stream starts from an empty sequence, so that a seed always gives the same text. Use a `session` to reuse
        earlier computation.
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
        """Generate after several prompts in a batch: each weight is read once for all.

        Every prompt has its own sampler, seed, stop texts and end, as with `generate`; on the CPU device the tokens are
        also the same. A generation that has ended is replaced by the next prompt at once.

        Parameters
        ----------
        prompts : text, token ids or chat messages, of any number and lengths
        params : complete sampling parameters for all prompts, or a list with those of each. A common seed seeds each
            prompt the same way.
        together : most sequences in a batch; each needs a cache on the device
        prompt_rows : most prompt tokens in a call with decoding sequences; a larger value starts the next generation
            sooner and slows the others down
        explicit : single sampling parameters, ``template_args`` and ``parse_special``, see `generate`

        Returns
        -------
        list of Generation
            in the order of the prompts

        Raises
        ------
        GenerationError, SpecError : see `generate`; for any of the prompts, before anything is computed
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

        For the parameters see `generate_batch`.
        """
        from volumetric.generate.batch_stream import BatchStream  # only needed for several prompts

        self.require_generator()
        return BatchStream(self, prompts, params, together=together, prompt_rows=prompt_rows, **explicit)

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None, **explicit: Any) -> Generation:
        """Generate the reply to a conversation with the model's chat template; for the parameters see `generate`.

        Raises
        ------
        GenerationError : see `generate`; also for anything but a list of messages
        """
        if isinstance(messages, str):
            raise GenerationError(
                "chat requires a list of messages, got text",
                hint='use chat([{"role": "user", "content": text}]); generate(text) continues a plain text',
            )
        conversation = items_of(messages, "chat requires a list of messages")
        check_messages(conversation)
        return self.generate(conversation, params, **explicit)

    def session(self, *, restore: str | os.PathLike[str] | None = None) -> Session:
        """Return a new session, after `prepare`: empty, or restored from a file of `Session.save`.

        Parameters
        ----------
        restore : the file, saved by this model with the same weights, on any device. Keys and values are converted to
            this model's precision

        Raises
        ------
        GenerationError : the model is an encoder, does not read tokens, or has too short a context for the file
        CheckpointError : the file cannot be read, is damaged, or belongs to another network
        """
        self.require_generator()
        self.prepare()
        if restore is None:
            return Session(self)
        from volumetric.generate.saved_session import read_session  # imports msgspec

        return Session(self, *read_session(self.executable, restore))

    def drafters_for(self, model: CompiledModel) -> Callable[[], Drafter]:
        """Return a function that creates drafters with this model, for a larger one with the same tokenizer.

        Raises
        ------
        GenerationError : the other model has other tokens
        """
        from volumetric.generate.draft_model import DraftModel, check_tokens_agree  # only needed for drafts

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

    def __call__(self, x: Any, **options: Any) -> Any:
        """Generate after a text or chat messages, else predict: ``model("Once upon")``, ``model([[0.5, 1.0]])``.

        Parameters
        ----------
        x : text, or a list of messages: see `generate`; anything else: see `predict`
        options : further arguments of the method

        Returns
        -------
        Generation, or an array
            a `Generation` prints as its text
        """
        is_text = isinstance(x, str) or (isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], Mapping))
        return self.generate(x, **options) if is_text else self.predict(x, **options)

    def summary(self) -> TextTable:
        """Return the table that ``print(model)`` shows: its layers, with the types of the weights."""
        from volumetric.network.network_table import network_table

        return network_table(self.loaded.network, self.loaded.params, title=repr(self)[1:-1])

    def scope(self, prompt: str | Sequence[int] | None = None, *, other: Model | None = None) -> ScopePage:
        """Return a page of the model: its layers as a tower and as a table.

        Parameters
        ----------
        prompt : text or token ids; adds the attention of its tokens, and the likeliest tokens at every layer
        other : a model to compare with, whose differences are shown layer by layer

        Examples
        --------
        >>> model.scope("The capital of France is").show()  # doctest: +SKIP
        """
        return page_of("model", self, prompt=prompt, other=other)

    def __str__(self) -> str:
        return str(self.summary())

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return self.summary()._repr_html_()

    def __repr__(self) -> str:
        c = self.info
        return f"<Model {c.name!r} {c.dtype} on {c.device}, context {c.context}>"
