"""Serving: the models of a server by their names, and the settings that all requests share."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

import volumetric
from volumetric.base.errors import GenerationError, SpecError
from volumetric.base.hints import shown
from volumetric.generate.params import Merged, SamplingParams
from volumetric.run.adapted import AdaptedExecutable
from volumetric.serve.chat_format import ChatFormat, chat_format
from volumetric.serve.engine import Engine
from volumetric.serve.problem import RequestError
from volumetric.serve.trials import Compilers, Trials

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.serve.fields.sampled import Sampled


LARGE = 2**16
"""Characters of a text that takes long to be made into tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a server allows.

    Attributes
    ----------
    api_key : what clients must show; None: nothing, unless there are more
    api_keys : more of them, and how much of the slots the requests of each have, relative to `api_key`, which has 1
    hosts : names under which the server may be asked for, see `volumetric.serve.middleware`; None: any
    addresses : it may be asked for by any address of a machine, too
    origins : web pages that may ask, by their origin; none unless named
    max_body : bytes of a request
    body_seconds : after which they must have come
    connections : that may be open at a time; more are refused
    request_seconds : after which a request fails
    step_seconds : after which a step of a device counts as hung; 0: never
    temperature : at which tokens are drawn where neither a request nor the model's files say anything of sampling
    reasoning : ``"auto"`` tells reasoning apart from answers where the chat template has marks for it; ``"none"``
        leaves it in them
    parse_special : control tokens that are written in messages count as such, and not as text
    lenient : fields of requests that are not known are left out, and logged, instead of refused
    """

    api_key: str | None = None
    api_keys: Mapping[str, float] = field(default_factory=dict[str, float])
    hosts: frozenset[str] | None = None
    addresses: bool = False
    origins: tuple[str, ...] = ()
    max_body: int = 8 * 2**20
    body_seconds: float = 120.0
    connections: int = 2048
    request_seconds: float = 600.0
    step_seconds: float = 300.0
    temperature: float = 1.0
    reasoning: Literal["auto", "none"] = "auto"
    parse_special: bool = False
    lenient: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        for key, weight in self.keys.items():
            if not key.strip():
                hint = "leave it out, or set it to something that is hard to guess"
                raise SpecError("the API key is empty", hint=hint)
            if not (key.isascii() and key.isprintable()):
                hint = "take letters, digits, - and _"
                raise SpecError("the API key has characters that no header can hold", hint=hint)
            if not 0 < weight < float("inf"):
                raise SpecError(f"the share of an API key must be a number above 0, got {weight!r}")
        if self.max_body < 1 or self.connections < 1 or not (self.request_seconds > 0 and self.body_seconds > 0):
            raise SpecError("limits of requests must be above 0")
        if not self.step_seconds >= 0:
            raise SpecError("seconds of a step must be 0 or more")
        SamplingParams(temperature=self.temperature)

    @property
    def keys(self) -> Mapping[str, float]:
        """All keys, and their shares; empty where everybody may ask."""
        return ({} if self.api_key is None else {self.api_key: 1.0}) | dict(self.api_keys)


class Served:
    """A model under a name: an engine where it generates, its encoder where it makes embeddings.

    Parameters
    ----------
    name : what clients call it
    model : it stays open as long as it is served
    engine : None for an encoder
    draft : what proposes tokens for the model, and is closed with it
    """

    def __init__(
        self, name: str, model: Model, engine: Engine | None, draft: Model | Literal["lookup"] | None = None
    ) -> None:
        self.name = name
        self.model = model
        self.engine = engine
        self.draft: Model | Literal["lookup"] | None = draft
        self.embedding = asyncio.Lock()
        self.forms: Trials | GenerationError = GenerationError(f"texts of {name} cannot be held to a form")
        """What makes grammars for it, or why nothing does."""
        self._formats: dict[bool, ChatFormat] = {}
        self._requests: set[asyncio.Task[Any]] = set()

    @cached_property
    def fingerprint(self) -> str:
        """Equal where the same seed gives the same text: model, adapters, scheme, options and version."""
        info = self.model.info
        what = [volumetric.__version__, info.name, info.dtype, info.device, repr(info.options)]
        what += [repr(dict(self.model.adapters))] if self.model.adapters else []
        return "fp_" + hashlib.blake2b("\0".join(what).encode(), digest_size=6).hexdigest()

    @cached_property
    def window(self) -> int:
        """See `ModelInfo.window`: the most tokens of an answer that says nothing of them."""
        return self.model.info.window

    def chat_format(self, *, tools: bool) -> ChatFormat:
        """Return the format of conversations with tools, or without any; the model's template is read once for each."""
        style = self._formats.get(tools)
        if style is None:
            template = self.model.loaded.chat_template
            source = "" if template is None else template.source_for(tools=tools)
            style = self._formats[tools] = chat_format(source, self.special_id)
        return style

    def sampling(self, settings: Settings, **explicit: Any) -> Merged:
        """Return the sampling parameters of a request, and where each comes from. Raises `SpecError`.

        Where nobody says anything of it, texts are drawn at the server's temperature, as clients of OpenAI's API
        expect: then a seed counts, and several texts differ.
        """
        if "temperature" in explicit or self._recommends:
            return self.model.merged(**explicit)
        merged = self.model.merged(**explicit, temperature=settings.temperature)
        return replace(merged, sources={**merged.sources, "temperature": "server"})

    @cached_property
    def _recommends(self) -> bool:
        """Whether the model's files say how to sample from it."""
        return self.model.loaded.generation.do_sample

    def hold(self) -> None:
        """Let the request of this task have the model until the task ends, whatever is opened meanwhile."""
        task = asyncio.current_task()
        if task is not None:
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    @property
    def busy(self) -> bool:
        """Whether requests have it: those that wait for tokens or a grammar, too."""
        alone = self.engine is not None and self.engine.users == 1
        return bool(self._requests) or (alone and self.engine is not None and self.engine.busy)

    def close(self) -> None:
        """End what is under way, and let go of the model."""
        if self.engine is not None and not self.engine.close():
            return  # its device still reads what closing would give back
        self.model.close()
        used = self.engine is not None and self.engine.users > 0
        if self.draft is not None and not isinstance(self.draft, str) and not used:
            self.draft.close()

    @property
    def adapter(self) -> str:
        """Name by which the engine's scheduler knows the adapters of the model; "" for none, or for all that it has."""
        executable = self.model.executable
        return executable.name if isinstance(executable, AdaptedExecutable) else ""

    def shares_calls(self, model: Model) -> bool:
        """Whether another model has its sequences computed in the calls of this one."""
        one, other = self.model.executable, model.executable
        if isinstance(one, AdaptedExecutable) and isinstance(other, AdaptedExecutable):
            return one.shared is other.shared
        return False

    def describe(self, created: int, settings: Settings) -> dict[str, Any]:
        """Return what ``/v1/models`` tells."""
        info, defaults = self.model.info, None if self.engine is None else self.sampling(settings)
        if defaults is not None:  # answers are as long as the context leaves room for, unless a request says otherwise
            defaults = replace(defaults, sources={k: v for k, v in defaults.sources.items() if k != "max_tokens"})
        return {
            "id": self.name,
            "object": "model",
            "created": created,
            "owned_by": "volumetric",
            "max_model_len": info.context,
            "meta": {
                "dtype": info.dtype,
                "device": info.device,
                "context_length": info.context_length,
                "vocab_size": info.vocab_size,
                "embeddings": self.engine is None,
                "draft": self.draft if self.draft is None or isinstance(self.draft, str) else self.draft.name,
                "sampling": "" if defaults is None else str(defaults),
                "system_fingerprint": self.fingerprint,
            },
        }

    def told_of(self, body: Sampled) -> dict[str, Any]:
        """Return what all answers to a request tell, as a `Shape` takes it."""
        return {
            "model": self.name,
            "fingerprint": self.fingerprint,
            "text_of": self.text_of,
            "tops": body.tops,
            "with_usage": body.streams_usage,
            "each_usage": body.streams_each_usage,
            "with_timings": bool(body.timings_per_token),
        }

    def special_id(self, text: str) -> int | None:
        """Return the id of a special token, which no text contains; None where there is none of this text."""
        tokenizer = self.model.tokenizer
        id = None if tokenizer is None else tokenizer.token_id(text)
        return None if tokenizer is None or id is None or tokenizer.decode([id]) else id

    def text_of(self, token: int) -> str:
        """Return the text of a single token."""
        return self.text([token])

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of tokens, special ones included; empty without a tokenizer."""
        tokenizer = self.model.tokenizer
        return "" if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=False)


@dataclass(slots=True)
class Serving:
    """What a server has.

    Attributes
    ----------
    models : by name
    settings : see `Settings`
    created : when the server started, in Unix time
    ready : it takes requests; not while it loads, and not while it shuts down
    pool : for tokenizers and templates
    encoders : for models that make embeddings
    compilers : of the grammars of all models
    """

    models: Mapping[str, Served]
    settings: Settings
    created: int
    ready: bool = False
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="tokenizer"))
    compilers: Compilers = field(default_factory=Compilers)
    encoders: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="encoder"))
    _large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    answered: dict[tuple[str, int], int] = field(default_factory=dict)
    """(path, status) → answers, for ``/metrics``."""

    def model(self, name: str | None) -> Served:
        """Return the model that a request names; the only one, or the first, where it names none.

        The request has it until its task ends.

        Raises
        ------
        RequestError : there is no such model, or the server is not ready
        """
        self.check_ready()
        served = next(iter(self.models.values())) if name in (None, "", "default") else self.models.get(name)
        if served is None:
            known = ", ".join(self.models)
            raise RequestError(
                404, f"there is no model {shown(name)} here; there is: {known}", param="model", code="model_not_found"
            )
        served.hold()
        return served

    def check_ready(self) -> None:
        """Raise `RequestError` unless the server takes requests."""
        if not self.ready:
            message = "the server is loading or shutting down"
            raise RequestError(503, message, kind="unavailable_error", code="unavailable", retry_after=1)

    @property
    def engines(self) -> Iterator[Engine]:
        """All engines, each once."""
        engines = dict.fromkeys(served.engine for served in self.models.values())
        return (engine for engine in engines if engine is not None)

    async def aside(self, what: Any, *args: Any, size: int = 0) -> Any:
        """Run what takes long but needs no device, beside the event loop.

        What is of a large `size`, in characters, waits for its like and for nothing else: the other thread is for all
        who ask for less.
        """
        loop = asyncio.get_running_loop()
        async with self._large if size > LARGE else contextlib.nullcontext():
            return await loop.run_in_executor(self.pool, what, *args)

    async def encoding(self, what: Any, *args: Any) -> Any:
        """Run what an encoder computes, beside the event loop and beside what all other requests need."""
        return await asyncio.get_running_loop().run_in_executor(self.encoders, what, *args)


def generates(model: Model) -> bool:
    """Whether a model predicts the next token; one that does not can make embeddings."""
    try:
        model.require_generator()
    except GenerationError:
        return False
    return True


def sequence_bytes(model: Model) -> int:
    """Return the memory of the state of a sequence as long as the context."""
    memory = model.executable.memory
    return memory.state_fixed + memory.state_per_token * model.executable.options.context


def encoded(value: object) -> bytes:
    """Return JSON."""
    return msgspec.json.encode(value)


def size_of(value: object) -> int:
    """Return the characters of all texts within something, and one for each item of a list or mapping."""
    size, ahead = 0, [value]
    while ahead:
        one = ahead.pop()
        if isinstance(one, str):
            size += len(one)
        elif isinstance(one, Mapping):
            size += len(one)
            ahead += [*one, *one.values()]
        elif isinstance(one, (list, tuple)):
            size += len(one)
            ahead += one
    return size
