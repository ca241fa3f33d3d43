"""Servers for tests: real ones, on sockets of this machine, in a thread."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import openai
import pytest

from tests.generate.letters import recurrent_letters
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Limits, Model
from volumetric.generate.scheduling.device_calls import DeviceCalls
from volumetric.serve import server as serving_run
from volumetric.serve.server import Server, listen
from volumetric.serve.serving import ServerSettings

PATIENCE = 60.0
JSON = {"Content-Type": "application/json"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a town.",
        "parameters": {
            "type": "object",
            "properties": {"town": {"type": "string", "maxLength": 10}, "days": {"enum": [1, 2, 3]}},
            "required": ["town", "days"],
            "additionalProperties": False,
        },
    },
}
"""A tool that models can be told of."""


@dataclass(frozen=True)
class Address:
    """A server that runs."""

    server: Server
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: str = "none", **rest: Any) -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=PATIENCE, **rest)


def until(what: Callable[[], object]) -> None:
    """Wait for what another thread brings about."""
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def hang_devices(patch: pytest.MonkeyPatch) -> threading.Event:
    """Let devices hang as long as the event that this returns is not set; servers look at them all the time."""
    step, goes = DeviceCalls.run, threading.Event()

    def hanging(self: DeviceCalls, *args: Any) -> Any:
        assert goes.wait(PATIENCE)
        return step(self, *args)

    patch.setattr(DeviceCalls, "run", hanging)
    patch.setattr(serving_run, "_LOOK", 0.02)
    return goes


def slow_letters() -> Model:
    """Random letters of which each takes a twentieth of a second, where they are drawn at a temperature."""
    return slowed(recurrent_letters(ReferenceDevice()), 0.05)


def slowed(model: Model, seconds: float) -> Model:
    """Let each token take so long, where it is drawn at a temperature."""
    step = model.executable.run

    def slowly(*args: Any, **rest: Any) -> Any:
        time.sleep(seconds)
        return step(*args, **rest)

    model.executable.run = slowly
    return model


def ask(address: Address, path: str, body: bytes | None = None, headers: dict[str, str] = JSON) -> tuple[int, Any]:
    """Return the status and the body of an answer; JSON as what it says."""
    connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=PATIENCE)
    connection.request("GET" if body is None else "POST", path, body, headers if body is not None else {})
    answer = connection.getresponse()
    told = answer.read()
    connection.close()
    return answer.status, json.loads(told) if answer.headers.get_content_type() == "application/json" else told.decode()


@contextmanager
def an_event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Give this thread an event loop: litellm makes one where there is none, and never closes it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield loop
    finally:
        asyncio.set_event_loop(None)
        loop.close()


@contextmanager
def running(
    models: Mapping[str, Model],
    *,
    limits: Limits | None = None,
    drain: float = 5.0,
    drafts: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Iterator[Address]:
    """Serve `models` while the context lasts; they are closed behind it. Texts are greedy unless told otherwise."""
    sock, ready = listen("127.0.0.1", 0), threading.Event()
    openers = {name: lambda model=model: model for name, model in models.items()}
    chosen: dict[str, Any] = {"temperature": 0.0, **settings}
    server = Server(openers, ServerSettings(**chosen), limits or Limits(), drain=drain, drafts=drafts or {})
    thread = threading.Thread(target=server.run, args=(sock,), kwargs={"on_ready": ready.set})
    thread.start()
    try:
        assert ready.wait(PATIENCE)
        yield Address(server, sock.getsockname()[1])
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()
