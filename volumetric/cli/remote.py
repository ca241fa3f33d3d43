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
from volumetric.bench.serve.client import Piece, Target, error_of, piece_of
from volumetric.cli import console
from volumetric.cli.talk import Messages, Talk
from volumetric.generate.params import SamplingParams

_PATIENCE = 600.0
_FIELDS = {
    "stop_ids": "stop_token_ids",
    "allowed_ids": "allowed_token_ids",
    "include_stop": "include_stop_str_in_output",
}
"""Sampling parameters whose field in a request has another name."""
_WHERE: Final = "is it the address of such a server, as in http://127.0.0.1:8080?"
_AGAIN: Final = "is the server still up? then ask again"
_ELSE: Final = "its log may tell more"
_HINTS: Final = {
    401: "VOLUMETRIC_API_KEY holds the key that the server wants",
    404: _WHERE,
    429: "it has much to do: try again",
    503: "it has much to do, loads or shuts down: try again",
}
"""What to do about a status."""


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

    def _reply(self, messages: Messages) -> None:
        """Stream the server's reply to stdout, and add it to the conversation; Ctrl-C ends the reply."""
        fields = {_FIELDS.get(name, name): value for name, value in self.settings.items()}
        if fields.pop("logprobs", None) is not None:
            console.note("logprobs: not shown here")
        body = fields | {"model": self.model, "messages": messages, "stream": True}
        text, tokens, began, first, thinking = "", 0, time.monotonic(), 0.0, False
        with closing(_pieces(self.server, body | {"stream_options": {"include_usage": True}})) as pieces:
            try:
                for piece in pieces:
                    tokens = piece.tokens or tokens
                    # Reasoning is shown, and not sent back with the conversation.
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
            except KeyboardInterrupt:  # closing the connection ends the answer at the server, too
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
            raise GenerationError(f"{base} is no server of OpenAI's API: {error!r}"[:200], hint=_WHERE) from None
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
            f"{server.base} does not answer: {error}", hint="is the server up? `volumetric serve` starts one"
        ) from None
    if answer.status != 200:
        reason = error_of(answer.read(10_000)) or answer.reason
        raise GenerationError(f"the server refuses: {reason}", hint=_HINTS.get(answer.status, _ELSE))
    return answer


def _pieces(server: Target, body: dict[str, Any]) -> Generator[Piece, None, None]:
    """Yield the pieces of an answer. Raises `GenerationError` where the server refuses or the answer breaks off."""
    with closing(_connection(server)) as connection:
        answer = _request(connection, server, "POST", "/chat/completions", body)
        finished = False
        try:
            for line in answer:
                piece = piece_of(line)
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
