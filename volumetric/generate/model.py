"""Model: a network with its weights, its tokenizer and a device."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from volumetric._typing import F32Array
from volumetric.errors import GenerationError, SpecError
from volumetric.generate.adapters import Adapters, Adapts, adapted, compiled, overlaid
from volumetric.generate.encoding import Encodes
from volumetric.generate.events import Generation
from volumetric.generate.footprint import Footprint, footprint
from volumetric.generate.hidden import with_hidden
from volumetric.generate.info import ModelInfo
from volumetric.generate.params import Merged, SamplingParams, merge
from volumetric.generate.predicting import Predicts
from volumetric.generate.preparing import prepare
from volumetric.generate.prompt import Message, Prompt, Prompts, check_messages, items_of
from volumetric.generate.scheduling.limits import PREFILL_ROWS, PROMPT_ROWS, TOGETHER
from volumetric.generate.session import Session
from volumetric.generate.stream import Stream
from volumetric.generate.transcript import Decoder
from volumetric.loaders import LoadedModel
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.network import INPUT, OUTPUT, Network, Params
from volumetric.runtime.adapted import Shared, adapted_executable
from volumetric.runtime.device import Device, Executable, RunOptions
from volumetric.runtime.lower import lower

if TYPE_CHECKING:
    from volumetric.generate.batch import BatchStream
    from volumetric.generate.perplexity import Perplexity
    from volumetric.loaders.peft_merge import Lora


class Model(Prompts, Encodes, Adapts, Predicts):
    """A network bound to a device, with tokenizer and chat template where the source has them.

    Parameters
    ----------
    loaded : what a loader read
    device : where to run
    options : how to run
    lora : adapters, see `load`
    beside : a model of the same `loaded` on the same device, whose weights are used where that can be, see `beside`

    Attributes
    ----------
    plain : what the loader read, without adapters
    executable : the compiled plan with its resident weights, shared by all sessions
    load_seconds : time that `load` took, compilation included
    """

    def __init__(
        self, loaded: LoadedModel, device: Device, options: RunOptions, lora: Lora = (), beside: Model | None = None
    ) -> None:
        self.device = device
        self.plain = loaded
        self.plan = plan = lower(with_hidden(loaded), options.context)
        self.loaded, adapters = adapted(loaded, plan, lora)
        params, like = self.loaded.params, None if beside is None else beside.executable
        if adapters:
            plan, params = overlaid(plan, params, [adapters])
        executable = compiled(device, plan, params, options, like)
        if adapters:
            executable = adapted_executable(Shared(executable, None, {"": adapters.weights}), "")
        self.use(executable, adapters)
        self.load_seconds = 0.0

    def use(self, executable: Executable, adapters: Adapters) -> None:
        """Run on an executable with these adapters in force from now on, in new sessions."""
        self.executable, self.adapters = executable, adapters
        self._idle: list[Session] = []

    @property
    def name(self) -> str:
        """Short name of the source."""
        return self.loaded.name

    @property
    def network(self) -> Network:
        """The network."""
        return self.loaded.network

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration in Hugging Face's terms; empty for networks of other origin."""
        return self.loaded.config

    @property
    def params(self) -> Params:
        """The weights."""
        return self.loaded.params

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer, None where the source has none."""
        return self.loaded.tokenizer

    @cached_property
    def footprint(self) -> Footprint:
        """Size of the stored weights."""
        return footprint(self.params)

    @cached_property
    def info(self) -> ModelInfo:
        """How the model was opened."""
        return ModelInfo(
            name=self.name,
            path=self.loaded.path,
            device=self.device.info.name,
            dtype=self.footprint.dtype,
            context=self.executable.options.context,
            context_length=self.loaded.context_length,
            vocab_size=self.plan.values[self.plan.outputs[OUTPUT]].width,
            options=self.executable.options,
        )

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a text: the union of all that the model's files name."""
        return frozenset(self.loaded.generation.eos_ids)

    @property
    def device_bytes(self) -> int:
        """Bytes of weights, scratch and one full context on the device."""
        memory = self.executable.memory
        return memory.weights + memory.scratch + memory.state_per_token * self.executable.options.context

    def room_after(self, tokens: int) -> int:
        """Return how many tokens fit into the context after `tokens`; raise `GenerationError` if those do not."""
        context, limit = self.executable.options.context, self.loaded.context_length
        if tokens <= context:
            return context - tokens
        more = (tokens - context) * self.executable.memory.state_per_token / 2**20
        if limit and tokens > limit:
            hint = f"this model sees at most {limit} tokens: shorten the prompt"
        else:
            hint = f"shorten the prompt, or open the model with context={tokens} or more ({more:.1f} MiB more)"
        raise GenerationError(f"the prompt has {tokens} tokens, the context holds {context}", hint=hint)

    def merged(self, **explicit: Any) -> Merged:
        """Return the sampling parameters in force for `explicit` ones, and where each comes from."""
        return merge(self.loaded.generation, explicit)

    def sampling(self, params: SamplingParams | None = None, **explicit: Any) -> SamplingParams:
        """Return complete sampling parameters: `explicit` over `params`, or over the model's own defaults."""
        if params is None:
            return self.merged(**explicit).params
        if not isinstance(params, SamplingParams):
            raise SpecError(
                f"params must be SamplingParams, got {type(params).__name__}",
                hint="single ones by name: temperature=0.7",
            )
        stated = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
        return merge(None, stated | {name: value for name, value in explicit.items() if value is not None}).params

    def decoder(self, shown: Set[int] = frozenset()) -> Decoder | None:
        """Return a fresh incremental decoder, None where the model has no tokenizer.

        Special tokens have no text, but for those whose ids are in `shown`.
        """
        tokenizer = self.loaded.tokenizer
        return None if tokenizer is None else tokenizer.decoder(shown=shown)

    def logits(self, ids: Sequence[int] | NDArray[np.integer]) -> F32Array:
        """Return the output for every token of `ids`, float32 ``[T, V]``.

        Raises
        ------
        GenerationError : no ids, more than the context holds, an id outside of the vocabulary, or a network that does
            not read tokens
        """
        self.require_tokens()
        tokens = np.array(self.encode(ids), np.int32)
        self.room_after(tokens.size)
        state = self.executable.new_state()
        # An encoder's rows see each other both ways, so its input cannot be cut.
        rows = tokens.size if self.bidirectional else PREFILL_ROWS
        parts = [
            self.executable.forward(state, tokens[start : start + rows], last_only=False)
            for start in range(0, tokens.size, rows)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

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

    @cached_property
    def bidirectional(self) -> bool:
        """Whether tokens see those after them, which makes the model an encoder that cannot generate."""
        return any(step.attrs["spec"].two_way for step in self.plan.steps if "spec" in step.attrs)

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
        from volumetric.generate.saved_session import restore_session  # brings msgspec

        return restore_session(self, restore)

    def prepare(self) -> None:
        """Compile all kernels that calls may need, which are kept on disk. Else the first call that needs one does."""
        prepare(self.executable, draws=not self.bidirectional)

    def require_generator(self) -> None:
        """Raise `GenerationError` unless the network reads tokens and predicts the next one."""
        self.require_tokens()
        if self.bidirectional:
            raise GenerationError(f"{self.name} is an encoder and cannot generate text", hint="use model.embed(texts)")

    def require_tokens(self) -> None:
        """Raise `GenerationError` unless the network reads tokens."""
        value = self.plan.values[self.plan.inputs[INPUT]]
        if value.dtype != "int32":
            axes = ", ".join(map(str, ("samples", *value.shape[1:])))
            raise GenerationError(
                f"{self.name} does not read tokens but {value.dtype} [{axes}]",
                hint="model.predict(inputs) takes rows, and volumetric run MODEL --in FILE",
            )

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
