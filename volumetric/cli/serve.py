"""The verb ``serve``: an HTTP server with the interface of OpenAI's API."""

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
"""Variable of the environment that may hold the key; on a command line every user of the machine can read it."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NAME = re.compile(r"[\w.-]+|\[?[0-9A-Fa-f:.]+\]?")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s]+/?")
_MIB = 2**20


@Parameter(name="*", group=ADDRESS)
@dataclass(frozen=True, kw_only=True)
class AddressOptions:
    """Where the server listens, and to whom.

    Parameters
    ----------
    host : str
        Address to listen at. Any other than this machine's own takes a key, or --no-auth.
    port : int
        Port to listen at; 0 takes a free one.
    api_key : str
        Key that clients must show. Better in the variable VOLUMETRIC_API_KEY, or in --api-key-file.
    api_key_file : list[str]
        File whose first line is a key; any number of times, one for each user. PATH:SHARE gives the requests of a key
        so many times the slots that those of others have.
    no_auth : bool
        Let everybody in who reaches the address.
    allow_host : list[str]
        Name under which the server may be asked for, as behind a proxy that keeps the name; any number of times. It
        always answers to localhost, and on other addresses than this machine's own to addresses and this machine's
        name. * lets any name in, and with it web pages of others where there is no key.
    cors : list[str]
        Origin of web pages that may ask, such as https://example.org; any number of times.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Parameter(name=["--port", "-p"])] = 8080
    api_key: str | None = None
    api_key_file: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=False)] = ()
    no_auth: Annotated[bool, Parameter(negative="", show_default=False)] = False
    allow_host: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=False)] = ()
    cors: Annotated[tuple[str, ...], Parameter(negative="", show_default=False, consume_multiple=False)] = ()

    def keys(self) -> dict[str, float]:
        """Return the keys, and how much of the slots the requests of each have.

        Raises
        ------
        UsageError : keys were given in two ways, or twice; a file cannot be read; there is none for an address that
            others reach
        """
        if self.api_key is not None and self.api_key_file:
            raise UsageError("--api-key and --api-key-file were given", hint="one of them")
        # One that is given and empty is no wish to have none: it is a variable of a shell that is not set.
        api_key = self.api_key if self.api_key is not None else os.environ.get(KEY) or None
        keys = {} if api_key is None or self.api_key_file else {api_key.strip(): 1.0}
        for one in self.api_key_file:
            path, share = _with_share(one)
            try:
                key = Path(path).read_text(encoding="utf-8-sig").partition("\n")[0].strip()
            except (OSError, UnicodeDecodeError) as error:
                raise UsageError(f"--api-key-file: {error}") from None
            if key in keys:
                raise UsageError(f"--api-key-file {path} has a key that another one has, too", hint="one for each user")
            keys[key] = share
        if not keys and not self.local and not self.no_auth:
            raise UsageError(
                f"--host {self.host} can be reached by others, and there is no key",
                hint=f"set {KEY} or --api-key-file, or say --no-auth",
            )
        return keys

    @property
    def local(self) -> bool:
        """Whether only this machine reaches the address."""
        return self.host in _LOOPBACK

    def hosts(self) -> frozenset[str] | None:
        """Return the names under which the server may be asked for; None: any. Raises `UsageError` for what is none."""
        from volumetric.serve.middleware import host_of

        for name in self.allow_host:
            if name != "*" and not _NAME.fullmatch(name):
                raise UsageError(
                    f"--allow-host {name} is no name", hint="as in llm.example.org, without scheme and port"
                )
        if "*" in self.allow_host:
            return None
        machine = socket.gethostname()
        own = (self.host,) if self.local else (self.host, machine, f"{machine.partition('.')[0]}.local")
        return frozenset(map(host_of, (*_LOOPBACK, *own, *self.allow_host)))

    def origins(self) -> tuple[str, ...]:
        """Return the origins, as browsers tell them. Raises `UsageError` for what no browser tells."""
        for origin in self.cors:
            if origin not in ("*", "null") and not _ORIGIN.fullmatch(origin):
                raise UsageError(f"--cors {origin} is no origin", hint="as in https://example.org, or * for all")
        return tuple(origin.lower().rstrip("/") for origin in self.cors)


@Parameter(name="*", group=LOAD)
@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How much the server takes on.

    Parameters
    ----------
    max_seqs : int
        Texts computed together, for each model.
    kv_memory : int
        MiB of all keys, values and states together, of all models; a quarter of the free memory unless given. Each
        model has as much of it as holds the same number of whole sequences.
    prefix_memory : int
        MiB of it that kept prefixes may take, of all models; 0 keeps none.
    max_stall : int
        Milliseconds that a new prompt may keep those waiting who are being answered.
    max_queue : int
        Requests that may wait.
    max_queue_tokens : int
        Tokens of their prompts.
    queue_timeout : float
        Seconds that a request may wait for its turn.
    request_timeout : float
        Seconds after which a request fails.
    step_timeout : float
        Seconds after which a device that has not answered counts as hung, and /health says so; 0: never.
    max_body : int
        MiB of a request.
    body_timeout : float
        Seconds in which the body of a request must have come.
    max_connections : int
        Connections that may be open at a time; more are refused.
    drain : float
        Seconds that requests under way have when the server is to end.
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
    """Serve models at /v1/chat/completions, /v1/completions, /v1/embeddings and /v1/models, and a page to talk at /.

    Ctrl-C or SIGTERM lets requests under way end, a second one ends at once; SIGHUP opens the models anew.

    Parameters
    ----------
    models : str
        As for generate; any number of them.
    alias : list
        Name of each model for clients, in the order of the models; their own names unless given.
    chat_template : str
        Jinja template, or a file of one, in the place of the model's own.
    lora : list
        NAME=DIRECTORY: serve the first model with this adapter as NAME, too; any number of times.
    draft : str
        What proposes tokens that a model checks together, where that saves time: a smaller model of the same tokens,
        for the first model and its adapters, or "lookup" in the text so far, for all models. Answers are the same.
    reasoning : str
        "auto" tells what a model thinks apart from its answers, as reasoning_content, where its template has marks for
        it; "none" leaves it in them.
    temperature : float
        At which tokens are drawn where neither a request nor the model's files say anything of sampling; 0 takes the
        likeliest.
    parse_special : bool
        Let control tokens that are written in messages count as such, and not as text: whoever writes a part of a
        message can end it then, and speak as the system.
    lenient : bool
        Leave fields of requests out that would have no effect, and log their names, instead of refusing them.
    """
    output.apply()
    for name in ("starlette", "uvicorn"):
        if importlib.util.find_spec(name) is None:
            hint = "the server is an extra: pip install 'volumetric-engine[serve]'"
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
    from volumetric.serve.run import Server, listen
    from volumetric.serve.serving import Settings

    try:
        limits = Limits(
            seats=load.max_seqs,
            state_bytes=_state_bytes(load.kv_memory),
            prefix_bytes=2**28 if load.prefix_memory is None else load.prefix_memory * _MIB,
            max_stall=load.max_stall / 1000,
            queue=load.max_queue,
            queue_tokens=load.max_queue_tokens,
            queue_seconds=load.queue_timeout,
        )
        settings = Settings(
            api_keys=keys,
            hosts=address.hosts(),
            addresses=not address.local,
            origins=address.origins(),
            max_body=load.max_body * _MIB,
            body_seconds=load.body_timeout,
            connections=load.max_connections,
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
        console.note(
            "any web page can reach this server by a name that it lets point here: --allow-host * without a key"
        )
    where = f"[{address.host}]" if ":" in address.host else address.host
    url = f"http://{where}:{sock.getsockname()[1]}"
    if not output.quiet:
        logging.getLogger("volumetric.serve").setLevel(logging.INFO)
    console.note(f"listening at {url}; opening {', '.join(openers)}…")
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
    """Return names of models and adapters, and what opens each."""
    chosen = models or (choose_model(None),)
    if len(alias) > len(chosen):
        raise UsageError(
            f"{len(alias)} names were given for {len(chosen)} models", hint="one --alias for each, or fewer"
        )
    names = [*alias, *map(_name, chosen[len(alias) :])]
    openers: dict[str, Callable[[], Model]] = {
        name: partial(open_one, model) for name, model in zip(names, chosen, strict=True)
    }
    base = _Base(openers[names[0]])
    openers[names[0]] = base.open
    for one in lora:
        name, equals, path = one.partition("=")
        if not (name and equals and path):
            raise UsageError(f"--lora {one} is no NAME=DIRECTORY", hint="as in --lora poet=adapters/poet")
        if name in openers:
            raise UsageError(f"two models are called {name!r}", hint="name adapters otherwise, or models with --alias")
        base.lora[name] = path
        openers[name] = partial(base.adapted, name)
    if len(openers) < len(chosen) + len(lora):
        raise UsageError(f"two models are called alike: {', '.join(names)}", hint="name them with --alias")
    return openers


class _Base:
    """The model that adapters belong to: those are opened with it, use its weights, and share its calls.

    Attributes
    ----------
    lora : name → path of each
    """

    def __init__(self, open_it: Callable[[], Model]) -> None:
        self._open = open_it
        self._adapted: dict[str, Model] = {}
        self.lora: dict[str, str] = {}

    def open(self) -> Model:
        """Open it and its adapters, also once more."""
        for left in self._adapted.values():  # nobody has taken them
            left.close()
        model = self._open()
        try:
            self._adapted = model.together({name: [path] for name, path in self.lora.items()}) if self.lora else {}
            for one in (model, *self._adapted.values()):
                one.prepare()
        except BaseException:
            model.close()
            raise
        return model

    def adapted(self, name: str) -> Model:
        """Return the model with an adapter, once for each opening."""
        if name not in self._adapted:
            raise SpecError("an adapter is opened before its model")
        return self._adapted.pop(name)


def _name(model: str) -> str:
    """Return the name of a model that has no other: the last part of its path or id."""
    return Path(model.removeprefix("pkg:").partition("@")[0]).name.removesuffix(".gguf")


def _open(
    source: SourceOptions,
    device: DeviceOptions,
    size: SizeOptions,
    chat_template: str | None,
    model: str,
) -> Model:
    opened = open_for(model, source, device, context=size.context, threads=size.threads, chat_template=chat_template)
    opened.prepare()  # a server that is ready has no kernel to compile
    return opened


def _state_bytes(mib: int | None) -> int | None:
    """Return the memory of states in bytes: what was asked for, or a quarter of what is free."""
    if mib is not None:
        if mib < 1:
            raise UsageError(f"--kv-memory must be 1 MiB or more, got {mib}")
        return mib * _MIB
    from volumetric.generate.memory import available_bytes

    free = available_bytes()
    return None if free is None else free // 4
