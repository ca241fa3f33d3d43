"""The command ``serve``: an HTTP server with OpenAI's API."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Group, Parameter

from volumetric.base.errors import SpecError
from volumetric.cli import console, exits
from volumetric.cli.exits import UsageError
from volumetric.cli.loading import open_for
from volumetric.cli.options import (
    DeviceOptions,
    Drafts,
    OutputOptions,
    SizeOptions,
    SourceOptions,
    choose_model,
)

if TYPE_CHECKING:
    from volumetric.generate import Model

ADDRESS = Group("Address and access", sort_key=2)
LOAD = Group("Load", sort_key=2)
KEY = "VOLUMETRIC_API_KEY"
"""Environment variable for the key; every user of the machine can read a command line."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NAME = re.compile(r"[\w.-]+|\[?[0-9A-Fa-f:.]+\]?")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]+/?")
_MIB = 2**20


@Parameter(name="*", group=ADDRESS)
@dataclass(frozen=True, kw_only=True)
class AddressOptions:
    """Address and access.

    Parameters
    ----------
    host : str
        Address to listen on. Any other than a loopback address requires a key, or --no-auth.
    port : int
        Port to listen on; 0 chooses a free one.
    api_key : str
        Key that clients must send. The variable VOLUMETRIC_API_KEY or --api-key-file is safer.
    api_key_file : list[str]
        File whose first line is a key; may be repeated, with one key per user. PATH:SHARE sets the share of slots of
        the key's requests, relative to 1 for other keys.
    no_auth : bool
        Allow access without a key.
    allow_host : list[str]
        Allowed Host header, for example behind a proxy that keeps it; may be repeated. localhost is always allowed, and
        on addresses other than loopback also IP addresses and this machine's name. * allows any name, and without a key
        thereby also access from foreign web pages.
    cors : list[str]
        Allowed origin of web pages, such as https://example.org; may be repeated.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Parameter(name=["--port", "-p"])] = 8080
    api_key: str | None = None
    api_key_file: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=False)] = ()
    no_auth: Annotated[bool, Parameter(negative="", show_default=False)] = False
    allow_host: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=False)] = ()
    cors: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=False)] = ()

    def keys(self) -> dict[str, float]:
        """Return the keys, and the share of slots of each key's requests.

        Raises
        ------
        UsageError : keys are set in two ways, or twice; a file cannot be read; there is no key, although others can
            reach the address
        """
        if self.api_key is not None and self.api_key_file:
            raise UsageError("--api-key and --api-key-file exclude each other", hint="give only one of them")
        # An empty key does not mean no key: it is probably an unset shell variable.
        api_key = self.api_key if self.api_key is not None else os.environ.get(KEY) or None
        keys = {} if api_key is None or self.api_key_file else {api_key.strip(): 1.0}
        for one in self.api_key_file:
            path, share = _with_share(one)
            try:
                key = Path(path).read_text(encoding="utf-8-sig").partition("\n")[0].strip()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"--api-key-file: {error}") from None
            if key in keys:
                raise UsageError(
                    f"--api-key-file {path} has the same key as another file", hint="use a different key for each user"
                )
            keys[key] = share
        if not keys and not self.local and not self.no_auth:
            raise UsageError(
                f"other machines can reach --host {self.host}, but there is no key",
                hint=f"set {KEY} or --api-key-file, or add --no-auth",
            )
        return keys

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the address."""
        return self.host in _LOOPBACK

    def hosts(self) -> frozenset[str] | None:
        """Return the allowed host names; None: any. Raises `UsageError` for an invalid name."""
        from volumetric.serve.middleware import host_of

        for name in self.allow_host:
            if name != "*" and not _NAME.fullmatch(name):
                raise UsageError(
                    f"--allow-host {name} is not a host name", hint="as in llm.example.org, without scheme and port"
                )
        if "*" in self.allow_host:
            return None
        machine = socket.gethostname()
        own = (self.host,) if self.local else (self.host, machine, f"{machine.partition('.')[0]}.local")
        return frozenset(map(host_of, (*_LOOPBACK, *own, *self.allow_host)))

    def origins(self) -> tuple[str, ...]:
        """Return the allowed origins in the format of browsers. Raises `UsageError` for an invalid one."""
        for origin in self.cors:
            if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin):
                raise UsageError(f"--cors {origin} is not an origin", hint="as in https://example.org, or * for all")
        return tuple(origin.lower().rstrip("/") for origin in self.cors)


@Parameter(name="*", group=LOAD)
@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """Limits of the load.

    Parameters
    ----------
    max_seqs : int
        Most texts computed together, for each model.
    kv_memory : int
        MiB for the KV cache and states of all models; default: a quarter of the free memory. It is divided so that each
        model can hold the same number of full-length sequences.
    prefix_memory : int
        MiB of it for cached prefixes, of all models; 0 caches none.
    max_stall : int
        Most milliseconds that a new prompt may delay running answers.
    max_queue : int
        Most waiting requests.
    max_queue_tokens : int
        Most prompt tokens of waiting requests.
    queue_timeout : float
        Most seconds that a request may wait.
    request_timeout : float
        Seconds after which a request fails.
    step_timeout : float
        Seconds without a response after which a device counts as hung, and /health reports it; 0: never.
    max_body : int
        Most MiB of a request body.
    body_timeout : float
        Seconds within which the body of a request must arrive.
    max_connections : int
        Most open connections; more are refused.
    http_workers : int
        Processes that speak HTTP in place of the server's own, for many streams on a fast device; 0: none.
    drain : float
        Seconds that running requests have to finish at a shutdown.
    """

    max_seqs: Annotated[int, Parameter(name=["--max-seqs", "-np", "--parallel", "--max-num-seqs"])] = 16
    kv_memory: int | None = None
    prefix_memory: int | None = None
    max_stall: int = 80
    max_queue: int = 64
    max_queue_tokens: int = 65_536
    queue_timeout: float = 60.0
    request_timeout: float = 600.0
    step_timeout: float = 300.0
    max_body: int = 8
    body_timeout: float = 120.0
    max_connections: int = 2048
    http_workers: int = 0
    drain: float = 30.0


def serve(
    *models: str,
    alias: Annotated[list[str] | None, Parameter(negative="")] = None,
    address: AddressOptions = AddressOptions(),
    load: LoadOptions = LoadOptions(),
    source: SourceOptions = SourceOptions(),
    device: DeviceOptions = DeviceOptions(),
    size: SizeOptions = SizeOptions(),
    chat_template: str | None = None,
    lora: Annotated[list[str] | None, Parameter(name="--lora", negative="")] = None,
    draft: Drafts = None,
    reasoning: Literal["auto", "none"] = "auto",
    temperature: Annotated[float, Parameter(name=["--temperature", "--temp"])] = 1.0,
    parse_special: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    lenient: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    output: OutputOptions = OutputOptions(),
) -> int:
    """Serve models at /v1/chat/completions, /v1/completions, /v1/embeddings and /v1/models, and a chat page at /.

    Ctrl-C or SIGTERM shuts down after running requests have finished, a second one at once; SIGHUP reloads the models.

    Parameters
    ----------
    models : str
        The models, see generate.
    alias : list
        Name of a model for clients, in the order of the models; may be repeated. Default: the models' own names.
    chat_template : str
        Jinja template, or a file with it, in place of the model's template.
    lora : list
        NAME=DIRECTORY: also serve the first model with this adapter, as NAME; may be repeated.
    draft : str
        Speculative decoding, used if it saves time: a smaller model with the same tokenizer, for the first model and
        its adapters, or "lookup" in the text so far, for all models. Answers stay the same.
    reasoning : str
        "auto" returns reasoning separately, as reasoning_content, if the template has marks for it; "none" leaves it in
        the answers.
    temperature : float
        Sampling temperature if neither the request nor the model's files specify sampling; 0 is greedy.
    parse_special : bool
        Parse control tokens in messages as such, not as text. Unsafe: the author of a part of a message can then end
        the message, and write as the system.
    lenient : bool
        Drop and log fields of requests that have no effect, instead of refusing the requests.
    """
    output.apply()
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            hint = "install the server with: pip install 'volumetric-engine[serve]'"
            raise UsageError(f"{name} is not installed", hint=hint)
    keys = address.keys()
    openers = _openers(models, alias or (), lora or (), partial(_open, source, device, size, chat_template))
    drafts: dict[str, Callable[[], Model] | Literal["lookup"]] = {}
    if draft == "lookup":
        drafts |= dict.fromkeys(openers, "lookup")
    elif draft is not None:
        guessing = partial(_open, replace(source, dtype=None), device, size, None, draft)
        drafts = {name: guessing for i, name in enumerate(openers) if i == 0 or i >= max(1, len(models))}

    from volumetric.generate.scheduling.limits import Limits
    from volumetric.serve.log import json_lines
    from volumetric.serve.server import Server, listen
    from volumetric.serve.serving import ServerSettings

    try:
        limits = Limits(
            slots=load.max_seqs,
            state_bytes=_state_bytes(load.kv_memory),
            prefix_bytes=2**28 if load.prefix_memory is None else load.prefix_memory * _MIB,
            max_stall=load.max_stall / 1000,
            queue=load.max_queue,
            queue_tokens=load.max_queue_tokens,
            queue_seconds=load.queue_timeout,
        )
        settings = ServerSettings(
            api_keys=keys,
            hosts=address.hosts(),
            addresses=not address.local,
            origins=address.origins(),
            max_body=load.max_body * _MIB,
            body_seconds=load.body_timeout,
            connections=load.max_connections,
            http_workers=load.http_workers,
            request_seconds=load.request_timeout,
            step_seconds=load.step_timeout,
            temperature=temperature,
            reasoning=reasoning,
            parse_special=parse_special,
            lenient=lenient,
        )
        server = Server(openers, settings, limits, drain=load.drain, drafts=drafts)
    except SpecError as error:
        raise UsageError(str(error), hint=error.hint) from None
    sock = listen(address.host, address.port)
    if settings.hosts is None and not keys:
        console.note("--allow-host * without a key: any web page can reach this server by DNS rebinding")
    where = f"[{address.host}]" if ":" in address.host else address.host
    url = f"http://{where}:{sock.getsockname()[1]}"
    if not output.quiet:
        logging.getLogger("volumetric.serve").setLevel(logging.INFO)
    console.note(f"listening at {url}; loading {', '.join(openers)}…")
    with json_lines((console.NOTES,)):
        server.run(sock, on_ready=lambda: console.note(f"ready: {url}/v1 serves {', '.join(openers)}"))
    return exits.OK


def _with_share(text: str) -> tuple[str, float]:
    """Return the path and the share of ``PATH`` or ``PATH:SHARE``."""
    path, colon, share = text.rpartition(":")
    try:
        return (path, float(share)) if colon and path else (text, 1.0)
    except ValueError:
        return text, 1.0


def _openers(
    models: tuple[str, ...],
    alias: Sequence[str],
    lora: Sequence[str],
    open_one: Callable[..., Model],
) -> dict[str, Callable[[], Model]]:
    """Return names of models and adapters, and the function that opens each."""
    chosen = models or (choose_model(None),)
    if len(alias) > len(chosen):
        raise UsageError(
            f"{len(alias)} times --alias for {len(chosen)} models", hint="give at most one --alias per model"
        )
    names = [*alias, *map(_name, chosen[len(alias) :])]
    openers: dict[str, Callable[[], Model]] = {
        name: partial(open_one, model) for name, model in zip(names, chosen, strict=True)
    }
    base = _BaseModel(openers[names[0]])
    openers[names[0]] = base.open
    for one in lora:
        name, equals, path = one.partition("=")
        if not (name and equals and path):
            raise UsageError(f"--lora must be NAME=DIRECTORY, got {one}", hint="as in --lora poet=adapters/poet")
        if name in openers:
            raise UsageError(f"two models have the name {name!r}", hint="rename the adapter, or the model with --alias")
        base.lora[name] = path
        openers[name] = partial(base.adapted, name)
    if len(openers) < len(chosen) + len(lora):
        raise UsageError(f"two models have the same name: {', '.join(names)}", hint="rename them with --alias")
    return openers


class _BaseModel:
    """The base model of adapters, which are opened with it, use its weights, and share its device calls.

    Attributes
    ----------
    lora : name → path of each adapter
    """

    def __init__(self, open_it: Callable[[], Model]) -> None:
        self._open = open_it
        self._adapted: dict[str, Model] = {}
        self.lora: dict[str, str] = {}

    def open(self) -> Model:
        """Open the model and its adapters; called again at a reload."""
        for left in self._adapted.values():  # models that were not taken
            left.close()
        model = self._open()
        try:
            self._adapted = (
                model.with_batched_adapters({name: [path] for name, path in self.lora.items()}) if self.lora else {}
            )
            for one in (model, *self._adapted.values()):
                one.prepare()
        except BaseException:
            model.close()
            raise
        return model

    def adapted(self, name: str) -> Model:
        """Return the model with an adapter, once for each `open`."""
        if name not in self._adapted:
            raise SpecError("the model of an adapter is not open")
        return self._adapted.pop(name)


def _name(model: str) -> str:
    """Return the default name of a model: the last part of its path or id."""
    return Path(model.removeprefix("pkg:").partition("@")[0]).name.removesuffix(".gguf")


def _open(
    source: SourceOptions,
    device: DeviceOptions,
    size: SizeOptions,
    chat_template: str | None,
    model: str,
) -> Model:
    opened = open_for(model, source, device, context=size.context, threads=size.threads, chat_template=chat_template)
    opened.prepare()  # compile all kernels before the server is ready
    return opened


def _state_bytes(mib: int | None) -> int | None:
    """Return the memory of states in bytes: as requested, else a quarter of the free memory."""
    if mib is not None:
        if mib < 1:
            raise UsageError(f"--kv-memory must be 1 MiB or more, got {mib}")
        return mib * _MIB
    from volumetric.generate.process_memory import available_bytes

    free = available_bytes()
    return None if free is None else free // 4
