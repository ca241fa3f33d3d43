"""A conversation with a server of OpenAI's API."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

from volumetric.base.errors import GenerationError
from volumetric.bench.serve.client import ServerTarget, StreamEvent, error_of, parse_event
from volumetric.cli import console
from volumetric.cli.chat_history import ChatHistory, Messages
from volumetric.generate.params import SamplingParams

_PATIENCE = 600.0
_FIELDS = {
    "stop_ids": "stop_token_ids",
    "allowed_ids": "allowed_token_ids",
    "include_stop": "include_stop_str_in_output",
}
"""Sampling parameters → their field names in requests, if different."""
_WHERE: Final = "check the URL, such as http://127.0.0.1:8080"
_AGAIN: Final = "check that the server still runs, and try again"
_ELSE: Final = "see the server's log"
_HINTS: Final = {
    401: "set VOLUMETRIC_API_KEY to the server's key",
    404: _WHERE,
    429: "it is busy: try again",
    503: "it is busy, loading or shutting down: try again",
}
"""Hint for each status."""


@dataclass
class RemoteConversation(ChatHistory):
    """A conversation with a server.

    Attributes
    ----------
    server : the server
    model : name of one of its models
    """

    server: ServerTarget
    model: str

    def check(self, settings: dict[str, Any]) -> str:
        """Return the sampling parameters that requests set; the server decides the others."""
        SamplingParams(**settings)
        return "\n".join(f"{name}={value!r}" for name, value in settings.items()) or "the server's defaults"

    def begin_anew(self) -> None:
        """Do nothing: each request contains the whole conversation."""

    def _reply(self, messages: Messages) -> None:
        """Stream the server's reply to stdout, and add it to the conversation; Ctrl-C stops the reply."""
        fields = {_FIELDS.get(name, name): value for name, value in self.settings.items()}
        if fields.pop("logprobs", None) is not None:
            console.note("logprobs: not shown here")
        body = fields | {"model": self.model, "messages": messages, "stream": True}
        text, tokens, began, first, thinking = "", 0, time.monotonic(), 0.0, False
        with closing(_pieces(self.server, body | {"stream_options": {"include_usage": True}})) as pieces:
            try:
                for piece in pieces:
                    tokens = piece.tokens or tokens
                    # Reasoning is shown, but not sent back with the conversation.
                    if piece.thought:
                        first, thinking = first or time.monotonic(), True
                        console.write(piece.thought)
                    if piece.text:
                        if thinking:
                            console.write("\n\n")
                            thinking = False
                        first = first or time.monotonic()
                        console.write(piece.text)
                        text += piece.text
            except KeyboardInterrupt:  # closing the connection also stops the answer on the server
                pass
            except GenerationError:
                if first:
                    self._keep(messages, text, begun=bool(text))
                raise
            self._keep(messages, text, begun=bool(text))
        if tokens and first:
            seconds = max(time.monotonic() - first, 1e-9)
            speed = f"{(tokens - 1) / seconds:.1f} tok/s"
            console.note(f"generated {tokens} tok, {speed} · first token {first - began:.2f} s")


def remote(url: str, model: str | None, settings: dict[str, Any], messages: Messages) -> RemoteConversation:
    """Return a conversation with a server, after a request for its list of models.

    Raises
    ------
    SpecError : `url` is not a URL
    GenerationError : there is no server, or it does not have the model
    """
    server = ServerTarget.of(url, os.environ.get("VOLUMETRIC_API_KEY", "-"))
    base = server.base
    with closing(_connection(server)) as connection:
        answer = _request(connection, server, "GET", "/models", None)
        try:
            names = [str(one["id"]) for one in json.loads(answer.read())["data"]]
        except (ValueError, KeyError, TypeError) as error:
            raise GenerationError(f"{base} is not a server of OpenAI's API: {error!r}"[:200], hint=_WHERE) from None
    if not names or (model is not None and model not in names):
        raise GenerationError(f"{base} has no model {model!r}", hint=f"its models are: {', '.join(names) or 'none'}")
    chosen = model or names[0]
    console.note(f"{chosen} at {base}; /help lists the commands")
    return RemoteConversation(server, chosen, settings=settings, messages=messages)


def _connection(server: ServerTarget) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if server.secure else http.client.HTTPConnection
    return kind(server.host, server.port, timeout=_PATIENCE)


def _request(
    connection: http.client.HTTPConnection, server: ServerTarget, method: str, path: str, body: dict[str, Any] | None
) -> http.client.HTTPResponse:
    """Return the response if its status is 200. Raises `GenerationError`."""
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
            f"{server.base} does not respond: {error}", hint="check that the server runs; `volumetric serve` starts one"
        ) from None
    if answer.status != 200:
        reason = error_of(answer.read(10_000)) or answer.reason
        raise GenerationError(f"the server refused the request: {reason}", hint=_HINTS.get(answer.status, _ELSE))
    return answer


def _pieces(server: ServerTarget, body: dict[str, Any]) -> Generator[StreamEvent, None, None]:
    """Yield the chunks of an answer. Raises `GenerationError` if the server refuses or the answer breaks off."""
    with closing(_connection(server)) as connection:
        answer = _request(connection, server, "POST", "/chat/completions", body)
        finished = False
        try:
            for line in answer:
                piece = parse_event(line)
                if piece is None:
                    continue
                if piece.error:
                    raise GenerationError(f"the server ended the answer: {piece.error}", hint=_ELSE)
                finished = finished or piece.finished
                if piece.last:
                    return
                yield piece
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise GenerationError(f"the answer broke off: {error}", hint=_AGAIN) from None
        if not finished:
            raise GenerationError("the answer broke off: the server closed the connection", hint=_AGAIN)
