"""A model compiled for a device: what a loader read, its executable, and what there is to know of them.

`Model` (`volumetric.generate.model`) generates with one. What computes for it, such as schedulers and sessions, knows
it as it stands here.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.base.errors import GenerationError, SpecError
from volumetric.generate.adapters import Adapters, adapted, compiled, overlaid
from volumetric.generate.footprint import Footprint, footprint
from volumetric.generate.hidden import with_hidden
from volumetric.generate.info import ModelInfo
from volumetric.generate.params import Merged, SamplingParams, merge
from volumetric.generate.prompt import Prompt, check_ids, encode_prompt
from volumetric.generate.scheduling.limits import PREFILL_ROWS
from volumetric.loaders import LoadedModel
from volumetric.loaders.chat_contents import Contents
from volumetric.loaders.tokenizer import StreamDecoder, Tokenizer
from volumetric.network import INPUT, OUTPUT, Network, Params
from volumetric.run.adapted import AdaptedExecutable, Shared, adapted_executable
from volumetric.run.device import Device, Executable, RunOptions
from volumetric.run.lower import lower
from volumetric.run.preparable import Preparable

if TYPE_CHECKING:
    from volumetric.loaders.peft_merge import Lora


class CompiledModel:
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
    adapters : name → scale
    load_seconds : time that `load` took, compilation included
    """

    def __init__(
        self,
        loaded: LoadedModel,
        device: Device,
        options: RunOptions,
        lora: Lora = (),
        beside: CompiledModel | None = None,
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

    def decoder(self, shown: Set[int] = frozenset()) -> StreamDecoder | None:
        """Return a fresh incremental decoder, None where the model has no tokenizer.

        Special tokens have no text, but for those whose ids are in `shown`.
        """
        tokenizer = self.loaded.tokenizer
        return None if tokenizer is None else tokenizer.decoder(shown=shown)

    @cached_property
    def contents(self) -> Contents | None:
        """What encodes messages so that no control tokens come of what they hold; None without a tokenizer."""
        return None if self.tokenizer is None else Contents(self.tokenizer, self.loaded.chat_template)

    def encode(
        self,
        prompt: Prompt,
        *,
        template_args: Mapping[str, Any] | None = None,
        parse_special: bool | None = None,
        limit: int | None = None,
    ) -> list[int]:
        """Turn a prompt into token ids.

        Parameters
        ----------
        prompt : text, token ids, or chat messages
        template_args : further names for the chat template
        parse_special : whether control tokens count that are written in a text, or in what messages hold. None: in a
            text, whose author writes the whole prompt, and not in messages, whose contents may be anybody's
        limit : that of `Tokenizer.encode`

        Raises
        ------
        GenerationError : nothing is left, an id is outside of the vocabulary, the model has no tokenizer or chat
            template, or the template refuses the messages
        """
        self.require_tokens()
        args, contents = template_args or {}, lambda: self.contents
        ids = encode_prompt(prompt, self.loaded, args, contents, parse_special=parse_special, limit=limit)
        check_ids(ids, self.plan)
        return ids

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

    @cached_property
    def bidirectional(self) -> bool:
        """Whether tokens see those after them, which makes the model an encoder that cannot generate."""
        return any(step.attrs["spec"].two_way for step in self.plan.steps if "spec" in step.attrs)

    def prepare(self) -> None:
        """Compile all kernels that calls may need, which are kept on disk. Else the first call that needs one does.

        Devices that compile nothing by call, or have no list of what they compile, do nothing.
        """
        if not isinstance(self.executable, Preparable):
            return
        self.executable.prepare()
        if not self.bidirectional:
            from volumetric.devices.cpu.sampling import SAMPLING

            SAMPLING.prepare()

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

    def set_adapter(self, name: str, scale: float = 1.0) -> None:
        """Scale an adapter; 0 switches it off. Nothing is moved, and nothing is compiled.

        What a session has computed before stays as it was: reset it where its text shall be seen with the new scale.

        Parameters
        ----------
        name : one of `adapters`: the name of its directory
        scale : 1 is as it was trained

        Raises
        ------
        SpecError : there is no such adapter, or the scale is not a finite number
        UnsupportedError : the adapter replaces whole modules
        """
        self.adapters.set_scale(name, scale)

    def beside(self, lora: Lora) -> Self:
        """Return a model with adapters of its own, which uses this one's weights where they lie.

        It takes the memory of its adapters and of its states alone, however large the model is; on the reference
        device its weights are a copy. Either may be closed first. Both run calls of their own; see `together`.

        Parameters
        ----------
        lora : adapters, see `load`; those that this model has do not count

        Raises
        ------
        CheckpointError, UnsupportedError : as `load`, for the adapters
        """
        return type(self)(self.plain, self.device, self.executable.options, lora, beside=self)

    def together(self, lora: Mapping[str, Lora]) -> dict[str, Self]:
        """Return models with adapters of their own whose sequences run in the same calls as those of this one.

        A `Scheduler` of this model takes jobs of all of them (`Job.adapter`), and computes their rows together: the
        weights are in memory once, and a call reads them once for all. An adapter that replaces whole modules has
        calls of its own, see `beside`. Each model is closed by itself, in any order; sessions of this one that are
        open go on without the others.

        Parameters
        ----------
        lora : name of a model → its adapters, see `load`

        Raises
        ------
        CheckpointError, UnsupportedError : as `load`, for the adapters
        SpecError : this model has adapters already, or a name is empty
        """
        if self.adapters or isinstance(self.executable, AdaptedExecutable):
            raise SpecError(f"{self.name} has adapters already", hint="open it without lora=, and name all adapters")
        if not all(lora):
            raise SpecError("a model with adapters has no name", hint="the empty name is that of the model without any")
        every = {name: adapted(self.plain, self.plan, one)[1] for name, one in lora.items()}
        each = {name: one for name, one in every.items() if one and not one.replaces}
        if not each:
            return {name: self.beside(one) for name, one in lora.items()}
        first, total = 0, sum(map(len, each.values()))
        for one in each.values():
            first = one.place(first, total)
        plan, params = overlaid(self.plan, self.params, each.values())
        mixed = compiled(self.device, plan, params, self.executable.options, self.executable)
        scales = {"": np.zeros(total, np.float32), **{name: one.weights for name, one in each.items()}}
        shared = Shared(mixed, self.executable, scales)
        self.use(adapted_executable(shared, ""), self.adapters)
        models: dict[str, Self] = {}
        for name in lora:
            if name not in each:
                models[name] = self.beside(lora[name])
                continue
            models[name] = twin = copy.copy(self)
            twin.__dict__.pop("text_encoder", None)
            twin.use(adapted_executable(shared, name), each[name])
        return models

    def merge(self) -> LoadedModel:
        """Return the model with the adapters in force added to its weights; `loaders.convert.save_model` writes it.

        Each weight keeps the scheme that it is stored in, so packed ones are rounded; open the model with
        ``dtype="float32"`` to merge without.
        """
        return dataclasses.replace(self.loaded, params=self.adapters.merged(self.loaded.params))
