"""Serving: the models of a server by their names, and the settings that all requests share."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

import volumetric
from volumetric.base.errors import GenerationError, SpecError
from volumetric.base.hints import format_value
from volumetric.generate.params import MergedParams, SamplingParams
from volumetric.run.adapted_executable import AdaptedExecutable
from volumetric.serve.chat_format import ChatFormat, chat_format
from volumetric.serve.engine import Engine
from volumetric.serve.grammar_processes import GrammarTrials, SharedTrials
from volumetric.serve.problem import RequestError

if TYPE_CHECKING:
    from volumetric.generate.model import Model
    from volumetric.serve.fields.sampling_fields import SamplingFields


LARGE = 2**16
"""Characters above which a text counts as slow to tokenise."""
MOST_WORKERS: Final = 64
"""Processes for HTTP at most: each is a Python interpreter with a copy of the tokenizers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of a server.

    Attributes
    ----------
    api_key : key that clients must send; None: no key, unless `api_keys` has some
    api_keys : further keys, and the share of slots of each key's requests, relative to `api_key`, which has 1
    hosts : allowed host names, see `volumetric.serve.middleware`; None: any
    addresses : any IP address is allowed as host, too
    origins : origins of web pages that may send requests (CORS); none by default
    max_body : most bytes of a request body
    body_seconds : seconds within which the body must arrive
    connections : most open connections; more are refused
    http_workers : processes that speak HTTP, each with its part of the connections; 0: the server's own does
    request_seconds : seconds after which a request fails
    step_seconds : seconds after which a step of a device counts as hung; 0: never
    temperature : sampling temperature if neither the request nor the model's files specify sampling
    reasoning : ``"auto"`` separates reasoning from answers if the chat template has marks for it; ``"none"`` leaves it
        in them
    parse_special : control tokens in messages are parsed as such, not as text
    lenient : unknown fields of requests are dropped and logged instead of refused
    """

    api_key: str | None = None
    api_keys: Mapping[str, float] = field(default_factory=dict[str, float])
    hosts: frozenset[str] | None = None
    addresses: bool = False
    origins: tuple[str, ...] = ()
    max_body: int = 8 * 2**20
    body_seconds: float = 120.0
    connections: int = 2048
    http_workers: int = 0
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
                hint = "leave it out, or set it to a value that is hard to guess"
                raise SpecError("the API key is empty", hint=hint)
            if not (key.isascii() and key.isprintable()):
                hint = "use only letters, digits, - and _"
                raise SpecError("the API key has characters that are invalid in an HTTP header", hint=hint)
            if not 0 < weight < float("inf"):
                raise SpecError(f"the share of an API key must be a number above 0, got {weight!r}")
        if self.max_body < 1 or self.connections < 1 or not (self.request_seconds > 0 and self.body_seconds > 0):
            raise SpecError("limits of requests must be above 0")
        if not 0 <= self.http_workers <= MOST_WORKERS:
            raise SpecError(
                f"the number of processes for HTTP must be from 0 to {MOST_WORKERS}, got {self.http_workers}",
                hint="2 keep up with one GPU; more than the machine has free cores make it slower",
            )
        if not self.step_seconds >= 0:
            raise SpecError("seconds of a step must be 0 or more")
        SamplingParams(temperature=self.temperature)

    @property
    def keys(self) -> Mapping[str, float]:
        """All keys, and their shares; empty if no key is required."""
        return ({} if self.api_key is None else {self.api_key: 1.0}) | dict(self.api_keys)


class ServedModel:
    """A model under a name: with an engine if it generates text, without one if it computes embeddings.

    Parameters
    ----------
    name : name for clients
    model : the model; it stays open as long as it is served
    engine : None for an encoder
    draft : proposer of tokens for the model, closed with it
    """

    def __init__(
        self, name: str, model: Model, engine: Engine | None, draft: Model | Literal["lookup"] | None = None
    ) -> None:
        self.name = name
        self.model = model
        self.engine = engine
        self.draft: Model | Literal["lookup"] | None = draft
        self.embedding: asyncio.Lock = asyncio.Lock()
        self.forms: GrammarTrials | GenerationError = GenerationError(f"texts of {name} cannot be constrained")
        """Compiler of grammars for the model, or the error why there is none."""
        self._formats: dict[bool, ChatFormat] = {}
        self._requests: set[asyncio.Task[Any]] = set()

    @cached_property
    def fingerprint(self) -> str:
        """Hash of model, adapters, scheme, options and version: if equal, the same seed gives the same text."""
        info = self.model.info
        what = [volumetric.__version__, info.name, info.dtype, info.device, repr(info.options)]
        what += [repr(dict(self.model.adapters))] if self.model.adapters else []
        return "fp_" + hashlib.blake2b("\0".join(what).encode(), digest_size=6).hexdigest()

    @cached_property
    def window(self) -> int:
        """The default ``max_tokens``, see `ModelInfo.window`."""
        return self.model.info.window

    def chat_format(self, *, tools: bool) -> ChatFormat:
        """Return the format of conversations with or without tools; each is read from the template once."""
        style = self._formats.get(tools)
        if style is None:
            template = self.model.loaded.chat_template
            source = "" if template is None else template.source_for(tools=tools)
            style = self._formats[tools] = chat_format(source, self.special_id)
        return style

    def sampling(self, settings: ServerSettings, **explicit: Any) -> MergedParams:
        """Return the sampling parameters of a request, and the source of each. Raises `SpecError`.

        If neither the request nor the model sets it, the server's temperature applies, as clients of OpenAI's API
        expect: then seeds have an effect, and several texts differ.
        """
        if "temperature" in explicit or self._recommends:
            return self.model.merged(**explicit)
        merged = self.model.merged(**explicit, temperature=settings.temperature)
        return replace(merged, sources={**merged.sources, "temperature": "server"})

    @cached_property
    def _recommends(self) -> bool:
        """Whether the model's files recommend sampling parameters."""
        return self.model.loaded.generation.do_sample

    def hold(self) -> None:
        """Keep the model open until the current task, a request, ends, even after a reload."""
        task = asyncio.current_task()
        if task is not None:
            self._requests.add(task)
            task.add_done_callback(self._requests.discard)

    @property
    def busy(self) -> bool:
        """Whether requests use it, including those that wait for tokens or a grammar."""
        alone = self.engine is not None and self.engine.users == 1
        return bool(self._requests) or (alone and self.engine is not None and self.engine.busy)

    def close(self) -> None:
        """End running jobs, and close the model."""
        if self.engine is not None and not self.engine.close():
            return  # the hung device still reads memory that closing would free
        self.model.close()
        used = self.engine is not None and self.engine.users > 0
        if self.draft is not None and not isinstance(self.draft, str) and not used:
            self.draft.close()

    @property
    def adapter(self) -> str:
        """Name of the model's adapters in the engine's scheduler; "" for none, or if all jobs share them."""
        executable = self.model.executable
        return executable.name if isinstance(executable, AdaptedExecutable) else ""

    def shares_calls(self, model: Model) -> bool:
        """Whether another model's sequences can share this one's device calls."""
        one, other = self.model.executable, model.executable
        if isinstance(one, AdaptedExecutable) and isinstance(other, AdaptedExecutable):
            return one.shared is other.shared
        return False

    def describe(self, created: int, settings: ServerSettings) -> dict[str, Any]:
        """Return the entry of ``/v1/models``."""
        info, defaults = self.model.info, None if self.engine is None else self.sampling(settings)
        if defaults is not None:  # answers may fill the rest of the context unless a request sets a limit
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

    def answer_options(self, body: SamplingFields) -> dict[str, Any]:
        """Return the fields that all answers to a request share, as arguments of `Shape`."""
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
        """Return the id of the special token with this text, or None."""
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
    """State of a server.

    Attributes
    ----------
    models : models by name
    settings : see `ServerSettings`
    created : when the server started, in Unix time
    ready : requests are accepted; false during loading and shutdown
    version : number of reloads of a model: what processes for HTTP know may be older
    pool : threads for tokenizers and templates
    encoders : threads for embeddings
    compilers : grammar compilers of all models
    """

    models: Mapping[str, ServedModel]
    settings: ServerSettings
    created: int
    ready: bool = False
    version: int = 0
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="tokenizer"))
    compilers: SharedTrials = field(default_factory=SharedTrials)
    encoders: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="encoder"))
    _large: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    answered: dict[tuple[str, int], int] = field(default_factory=dict)
    """(path, status) → number of responses, for ``/metrics``."""

    def model(self, name: str | None) -> ServedModel:
        """Return the model that a request names, or the first one if it names none.

        The model stays open until the request's task ends.

        Raises
        ------
        RequestError : there is no such model, or the server is not ready
        """
        self.check_ready()
        served = next(iter(self.models.values())) if name in (None, "", "default") else self.models.get(name)
        if served is None:
            known = ", ".join(self.models)
            raise RequestError(
                404,
                f"unknown model {format_value(name)}; the models are {known}",
                param="model",
                code="model_not_found",
            )
        served.hold()
        return served

    def check_ready(self) -> None:
        """Raise `RequestError` unless the server accepts requests."""
        if not self.ready:
            message = "the server is loading or shutting down"
            raise RequestError(503, message, kind="unavailable_error", code="unavailable", retry_after=1)

    @property
    def engines(self) -> Iterator[Engine]:
        """All engines, each once."""
        engines = dict.fromkeys(served.engine for served in self.models.values())
        return (engine for engine in engines if engine is not None)

    async def run_in_thread(self, what: Any, *args: Any, size: int = 0, quick: bool = False) -> Any:
        """Run a slow function that needs no device in a thread; a `quick` one at once, as a thread would cost more.

        Functions of a large `size`, in characters, run one at a time, so that the other thread stays free for small
        ones.
        """
        if quick:
            return what(*args)
        loop = asyncio.get_running_loop()
        async with self._large if size > LARGE else contextlib.nullcontext():
            return await loop.run_in_executor(self.pool, what, *args)

    async def encoding(self, what: Any, *args: Any) -> Any:
        """Run an encoder's computation in the encoders' thread."""
        return await asyncio.get_running_loop().run_in_executor(self.encoders, what, *args)


def generates(model: Model) -> bool:
    """Whether a model generates text; otherwise it computes embeddings."""
    try:
        model.require_generator()
    except GenerationError:
        return False
    return True


def sequence_bytes(model: Model) -> int:
    """Return the state memory of a sequence as long as the context."""
    memory = model.executable.memory
    return memory.state_fixed + memory.state_per_token * model.executable.options.context


def json_bytes(value: object) -> bytes:
    """Encode as JSON."""
    return msgspec.json.encode(value)


def size_of(value: object) -> int:
    """Return the characters of all nested texts, plus one for each item of a list or mapping."""
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
