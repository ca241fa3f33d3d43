"""A model compiled for a device: the loaded files, the executable, and facts about both.

`Model` (`volumetric.generate.model`) adds generation. Schedulers and sessions use only this class.
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
from volumetric.base.moved_modules import renamed_members
from volumetric.generate.footprint import Footprint, footprint
from volumetric.generate.hidden_states import with_hidden
from volumetric.generate.lora_adapters import Adapters, apply_adapters, compile_plan, overlay_adapters
from volumetric.generate.model_info import ModelInfo
from volumetric.generate.params import MergedParams, SamplingParams, merge
from volumetric.generate.prompt import Prompt, check_ids, encode_prompt
from volumetric.generate.scheduling.limits import PREFILL_ROWS
from volumetric.loaders import LoadedModel
from volumetric.loaders.chat_contents import MessageContents
from volumetric.loaders.stream_decoder import StreamDecoder
from volumetric.loaders.tokenizer import Tokenizer
from volumetric.network import INPUT, OUTPUT, Network, Params
from volumetric.run.adapted_executable import AdaptedExecutable, SharedExecutables, adapted_executable
from volumetric.run.device import Device, Executable, RunOptions
from volumetric.run.lower import lower
from volumetric.run.preparable import Preparable

if TYPE_CHECKING:
    from volumetric.loaders.peft_merge import Lora
    from volumetric.run.plan import Plan


@renamed_members(beside="with_adapters", together="with_batched_adapters")
class CompiledModel:
    """A network bound to a device, with tokenizer and chat template if the source has them.

    Parameters
    ----------
    loaded : result of a loader
    device : device to run on
    options : options of the run
    lora : adapters, see `load`
    beside : a model of the same `loaded` on the same device, whose weights are shared if possible, see `beside`

    Attributes
    ----------
    plain : result of the loader, without adapters
    executable : the compiled plan with its resident weights, shared by all sessions
    adapters : name → scale
    load_seconds : duration of `load`, compilation included
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
        self.plan: Plan
        self.plan = plan = lower(with_hidden(loaded), options.context)
        self.loaded: LoadedModel
        self.loaded, adapters = apply_adapters(loaded, plan, lora)
        params, like = self.loaded.params, None if beside is None else beside.executable
        if adapters:
            plan, params = overlay_adapters(plan, params, [adapters])
        executable = compile_plan(device, plan, params, options, like)
        if adapters:
            executable = adapted_executable(SharedExecutables(executable, None, {"": adapters.weights}), "")
        self.use(executable, adapters)
        self.load_seconds: float = 0.0

    def use(self, executable: Executable, adapters: Adapters) -> None:
        """Use another executable and adapters for new sessions."""
        self.executable: Executable = executable
        self.adapters: Adapters = adapters

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
        """The Hugging Face configuration; empty for networks from other sources."""
        return self.loaded.config

    @property
    def params(self) -> Params:
        """The weights."""
        return self.loaded.params

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The tokenizer; None if the source has none."""
        return self.loaded.tokenizer

    @cached_property
    def footprint(self) -> Footprint:
        """Size of the stored weights."""
        return footprint(self.params)

    @cached_property
    def info(self) -> ModelInfo:
        """Facts about the open model."""
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
        """Ids that end a text: the union of those in the model's files."""
        return frozenset(self.loaded.generation.eos_ids)

    @property
    def device_bytes(self) -> int:
        """Bytes of weights, scratch and one full context on the device."""
        memory = self.executable.memory
        return memory.weights + memory.scratch + memory.state_per_token * self.executable.options.context

    def room_after(self, tokens: int) -> int:
        """Return how many tokens fit into the context after `tokens`. Raises `GenerationError` for too many."""
        context, limit = self.executable.options.context, self.loaded.context_length
        if tokens <= context:
            return context - tokens
        more = (tokens - context) * self.executable.memory.state_per_token / 2**20
        if limit and tokens > limit:
            hint = f"this model supports at most {limit} tokens: shorten the prompt"
        else:
            hint = f"shorten the prompt, or open the model with context={tokens} or more ({more:.1f} MiB more)"
        raise GenerationError(f"the prompt has {tokens} tokens, the context holds {context}", hint=hint)

    def merged(self, **explicit: Any) -> MergedParams:
        """Return the sampling parameters for `explicit` ones, and the source of each."""
        return merge(self.loaded.generation, explicit)

    def sampling(self, params: SamplingParams | None = None, **explicit: Any) -> SamplingParams:
        """Return complete sampling parameters: `explicit` over `params`, or over the model's own defaults."""
        if params is None:
            return self.merged(**explicit).params
        if not isinstance(params, SamplingParams):
            raise SpecError(
                f"params must be SamplingParams, got {type(params).__name__}",
                hint="pass single parameters by name: temperature=0.7",
            )
        stated = {f.name: getattr(params, f.name) for f in dataclasses.fields(params)}
        return merge(None, stated | {name: value for name, value in explicit.items() if value is not None}).params

    def decoder(self, shown: Set[int] = frozenset()) -> StreamDecoder | None:
        """Return a new incremental decoder; None if the model has no tokenizer.

        Special tokens have no text, except for the ids in `shown`.
        """
        tokenizer = self.loaded.tokenizer
        return None if tokenizer is None else tokenizer.decoder(shown=shown)

    @cached_property
    def contents(self) -> MessageContents | None:
        """Encoder of message contents, which treats control tokens in them as text; None without a tokenizer."""
        return None if self.tokenizer is None else MessageContents(self.tokenizer, self.loaded.chat_template)

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
        template_args : further arguments for the chat template
        parse_special : whether control tokens in a text, or in message contents, are parsed. None: in a text, because
            its author writes the whole prompt, but not in messages, whose contents may be untrusted
        limit : see `Tokenizer.encode`

        Raises
        ------
        GenerationError : the prompt is empty, an id is outside of the vocabulary, the model has no tokenizer or chat
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
        GenerationError : there are no ids, or more than the context holds, an id is outside of the vocabulary, or the
            network does not read tokens
        """
        self.require_tokens()
        tokens = np.array(self.encode(ids), np.int32)
        self.room_after(tokens.size)
        state = self.executable.new_state()
        # An encoder's rows attend in both directions, so that its input cannot be split.
        rows = tokens.size if self.bidirectional else PREFILL_ROWS
        parts = [
            self.executable.forward(state, tokens[start : start + rows], last_only=False)
            for start in range(0, tokens.size, rows)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @cached_property
    def bidirectional(self) -> bool:
        """Whether tokens attend to later ones, as in an encoder, which cannot generate."""
        return any(step.attrs["spec"].two_way for step in self.plan.steps if "spec" in step.attrs)

    def prepare(self) -> None:
        """Compile and cache all kernels that calls may need. Otherwise the first call that needs one does.

        Does nothing on devices that do not compile per call, or cannot list their kernels.
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
                f"{self.name} reads {value.dtype} [{axes}], not tokens",
                hint="use model.predict(inputs), or volumetric run MODEL --in FILE",
            )

    def set_adapter(self, name: str, scale: float = 1.0) -> None:
        """Scale an adapter; 0 switches it off. Nothing is copied or compiled.

        Sessions keep what they have computed: `reset` them to recompute their text with the new scale.

        Parameters
        ----------
        name : key of `adapters`: the name of the adapter's directory
        scale : 1 is the trained scale

        Raises
        ------
        SpecError : the adapter does not exist, or the scale is not a finite number
        UnsupportedError : the adapter replaces whole modules
        """
        self.adapters.set_scale(name, scale)

    def with_adapters(self, lora: Lora) -> Self:
        """Return a model with other adapters that shares this one's weights.

        It only needs memory for its adapters and states; on the reference device its weights are a copy. Either model
        may be closed first. Their device calls are separate; see `together`.

        Parameters
        ----------
        lora : adapters, see `load`; those of this model are not included

        Raises
        ------
        CheckpointError, UnsupportedError : see `load`, for the adapters
        """
        return type(self)(self.plain, self.device, self.executable.options, lora, beside=self)

    def with_batched_adapters(self, lora: Mapping[str, Lora]) -> dict[str, Self]:
        """Return models with other adapters whose sequences run in the same device calls as this one's.

        A `Scheduler` of this model accepts jobs for all of them (`Job.adapter`), and computes their rows together: the
        weights are in memory once, and a call reads them once for all. An adapter that replaces whole modules has
        separate calls, see `beside`. The models can be closed in any order; open sessions of this model continue
        without the others.

        Parameters
        ----------
        lora : name of a model → its adapters, see `load`

        Raises
        ------
        CheckpointError, UnsupportedError : see `load`, for the adapters
        SpecError : this model has adapters already, or a name is empty
        """
        if self.adapters or isinstance(self.executable, AdaptedExecutable):
            raise SpecError(
                f"{self.name} already has adapters", hint="open it without lora=, and pass all adapters here"
            )
        if not all(lora):
            raise SpecError(
                "the name of a model with adapters is empty", hint="the empty name means the model without adapters"
            )
        every = {name: apply_adapters(self.plain, self.plan, one)[1] for name, one in lora.items()}
        each = {name: one for name, one in every.items() if one and not one.replaces}
        if not each:
            return {name: self.with_adapters(one) for name, one in lora.items()}
        first, total = 0, sum(map(len, each.values()))
        for one in each.values():
            first = one.place(first, total)
        plan, params = overlay_adapters(self.plan, self.params, each.values())
        mixed = compile_plan(self.device, plan, params, self.executable.options, self.executable)
        scales = {"": np.zeros(total, np.float32), **{name: one.weights for name, one in each.items()}}
        shared = SharedExecutables(mixed, self.executable, scales)
        self.use(adapted_executable(shared, ""), self.adapters)
        models: dict[str, Self] = {}
        for name in lora:
            if name not in each:
                models[name] = self.with_adapters(lora[name])
                continue
            models[name] = twin = copy.copy(self)
            twin.__dict__.pop("text_encoder", None)
            twin.use(adapted_executable(shared, name), each[name])
        return models

    def merge(self) -> LoadedModel:
        """Return the model with the active adapters merged into its weights; `loaders.convert.save_model` writes it.

        Each weight keeps its stored scheme, so that packed weights are rounded again; open the model with
        ``dtype="float32"`` to merge without rounding.
        """
        return dataclasses.replace(self.loaded, params=self.adapters.merged_params(self.loaded.params))
