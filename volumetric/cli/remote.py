"""A conversation with a server of OpenAI's API."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from volumetric.bench.serve.target import Target
from volumetric.cli import console
from volumetric.cli.talk import Messages, Talk
from volumetric.errors import GenerationError
from volumetric.generate.params import SamplingParams

_PATIENCE = 600.0
_FIELDS = {"stop_ids": "stop_token_ids"}
"""Sampling parameters whose field in a request has another name."""


@dataclass
class RemoteConversation(Talk):
    """A conversation whose answers come from a server.

    Attributes
    ----------
    server : what answers
    model : one of the server's
    """

    server: Target
    model: str

    def check(self, settings: dict[str, Any]) -> str:
        """Return what requests say; what they do not is up to the server."""
        SamplingParams(**settings)
        return "\n".join(f"{name}={value!r}" for name, value in settings.items()) or "all as the server has it"

    def begin_anew(self) -> None:
        """Forget nothing: the server is told the whole conversation each time."""

    def _reply(self, asked: Messages) -> None:
        fields = {_FIELDS.get(name, name): value for name, value in self.settings.items()}
        if fields.pop("logprobs", None) is not None:
            console.note("logprobs: not shown here")
        body = fields | {"model": self.model, "messages": asked, "stream": True}
        text, tokens, began, first, thinking = "", 0, time.monotonic(), 0.0, False
        with closing(_events(self.server, body | {"stream_options": {"include_usage": True}})) as events:
            try:
                for event in events:
                    if event.get("usage"):
                        tokens = event["usage"]["completion_tokens"]
                    deltas = [choice["delta"] for choice in event.get("choices", ())]
                    # Reasoning is shown, and not sent back with the conversation.
                    if thought := "".join(delta.get("reasoning_content") or "" for delta in deltas):
                        first, thinking = first or time.monotonic(), True
                        console.write(thought)
                    piece = "".join(delta.get("content") or "" for delta in deltas)
                    if piece:
                        if thinking:
                            console.write("\n\n")
                            thinking = False
                        first = first or time.monotonic()
                        console.write(piece)
                        text += piece
            except KeyboardInterrupt:  # closing the connection ends the answer at the server, too
                pass
            self._keep(asked, text, begun=bool(text))
        if tokens and first:
            seconds = max(time.monotonic() - first, 1e-9)
            speed = f"{(tokens - 1) / seconds:.1f} tok/s"
            console.note(f"generated {tokens} tok, {speed} · first token {first - began:.2f} s")


def remote(url: str, model: str | None, settings: dict[str, Any], messages: Messages) -> RemoteConversation:
    """Return a conversation with a server, whose models are asked for.

    Raises
    ------
    SpecError : `url` is none
    GenerationError : there is no server, or it has no such model
    """
    server = Target.of(url, os.environ.get("VOLUMETRIC_API_KEY", "-"))
    base = server.base
    with closing(_connection(server)) as connection:
        answer = _request(connection, server, "GET", "/models", None)
        try:
            names = [str(one["id"]) for one in json.loads(answer.read())["data"]]
        except (ValueError, KeyError, TypeError) as error:
            raise GenerationError(f"{base} is no server of OpenAI's API: {error!r}"[:200]) from None
    if not names or (model is not None and model not in names):
        raise GenerationError(f"{base} has no model {model!r}", hint=f"it has: {', '.join(names) or 'none'}")
    chosen = model or names[0]
    console.note(f"{chosen} at {base}; /help lists the commands")
    return RemoteConversation(server, chosen, settings=settings, messages=messages)


def _connection(server: Target) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if server.secure else http.client.HTTPConnection
    return kind(server.host, server.port, timeout=_PATIENCE)


def _request(
    connection: http.client.HTTPConnection, server: Target, method: str, path: str, body: dict[str, Any] | None
) -> http.client.HTTPResponse:
    """Return an answer whose status is 200. Raises `GenerationError`."""
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Bearer {server.key}",
    }
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, server.path + path, data, headers)
        answer = connection.getresponse()
    except (OSError, http.client.HTTPException) as error:
        raise GenerationError(
            f"{server.base} does not answer: {error}", hint="is the server up? volumetric serve"
        ) from None
    if answer.status != 200:
        raise GenerationError(f"the server refuses: {_told(answer.read(10_000))}")
    return answer


def _events(server: Target, body: dict[str, Any]) -> Generator[dict[str, Any], None, None]:
    """Yield the pieces of a stream. Raises `GenerationError` where the server refuses or the connection breaks."""
    with closing(_connection(server)) as connection:
        answer = _request(connection, server, "POST", "/chat/completions", body)
        try:
            for line in answer:
                if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                    continue
                event = json.loads(line[6:])
                if "error" in event:
                    raise GenerationError(f"the server ended the answer: {_told(line[6:])}")
                yield event
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise GenerationError(f"the answer broke off: {error}") from None


def _told(body: bytes) -> str:
    """Return the message of an error, or the body itself."""
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace")[:300]
