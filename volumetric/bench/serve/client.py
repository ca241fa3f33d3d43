"""A client with little overhead: a streamed chat completion over a plain socket, with the time of each chunk."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value

_HOST: Final = re.compile(r"[\w-]{1,63}(\.[\w-]{1,63})*\.?|[0-9a-f]*:[0-9a-f:.]*(%[\w.-]+)?", re.IGNORECASE | re.ASCII)
"""A host name, or an IPv4 or IPv6 address."""
_PATH: Final = re.compile(r"[!-~]*")


@dataclass(frozen=True, slots=True)
class ServerTarget:
    """A server, by the base URL of its ``/chat/completions``.

    Attributes
    ----------
    url : the URL as passed
    secure : whether it uses TLS
    host, port, path : parts of the URL; the path ends with ``/v1``
    key : API key that the server requires
    """

    url: str
    secure: bool
    host: str
    port: int
    path: str
    key: str

    @classmethod
    def of(cls, url: str, key: str = "none") -> ServerTarget:
        """Return the target of a URL, with or without ``/v1``.

        Raises
        ------
        SpecError : it is not a URL of a server, or the key is invalid in a header
        """
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise SpecError(f"{url!r} is not a URL: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError(f"{url!r} is not a URL of a server", hint="expected a URL such as http://127.0.0.1:8080")
        if not _HOST.fullmatch(parts.hostname) or not _PATH.fullmatch(parts.path):
            raise SpecError(f"{url!r} is not a URL of a server", hint="percent-encode other characters in it")
        key = key.strip()
        if not (key.isascii() and key.isprintable()):
            raise SpecError(
                "the API key has characters that are invalid in an HTTP header", hint="check VOLUMETRIC_API_KEY"
            )
        secure, path = parts.scheme == "https", parts.path.rstrip("/")
        path = path if path.endswith("/v1") else f"{path}/v1"
        return cls(url, secure, parts.hostname, port or (443 if secure else 80), path, key)

    @property
    def base(self) -> str:
        """The URL with ``/v1`` at its end."""
        return f"{'https' if self.secure else 'http'}://{self.authority}{self.path}"

    @property
    def authority(self) -> str:
        """Host and port, in the format of the ``Host`` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """The data of a stream event.

    Attributes
    ----------
    text, thought : content, and reasoning
    finished : a text has ended
    last : this is the last event
    tokens, prompt_tokens, cached_tokens : the server's counts; 0 if it does not report them
    error : message of an error that ends the answer
    """

    text: str = ""
    thought: str = ""
    finished: bool = False
    last: bool = False
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    error: str = ""


def parse_event(line: bytes) -> StreamEvent | None:
    """Parse a line of a stream; return None for comments, event names and empty lines.

    Fields may be missing or null.

    Raises
    ------
    ValueError : the data is not a chunk of a chat completion
    """
    if not line.startswith(b"data:"):
        return None
    data = line[5:].strip()
    if data == b"[DONE]":
        return StreamEvent(last=True)
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, Mapping):
        raise ValueError(f"expected a chunk of a chat completion, got {format_value(data.decode(errors='replace'))}")
    if event.get("error"):
        return StreamEvent(error=error_of(data))
    choices = [choice for choice in _list(event.get("choices")) if isinstance(choice, Mapping)]
    deltas = [_fields(choice.get("delta")) for choice in choices]
    usage = _fields(event.get("usage"))
    return StreamEvent(
        text="".join(_text(delta.get("content")) for delta in deltas),
        thought="".join(_text(delta.get("reasoning_content") or delta.get("reasoning")) for delta in deltas),
        finished=any(choice.get("finish_reason") for choice in choices),
        tokens=_count(usage.get("completion_tokens")),
        prompt_tokens=_count(usage.get("prompt_tokens")),
        cached_tokens=_count(_fields(usage.get("prompt_tokens_details")).get("cached_tokens")),
    )


def error_of(body: bytes) -> str:
    """Return the message of an error response, or else the beginning of the body."""
    try:
        error = json.loads(body)["error"]
        return str(error["message"] if isinstance(error, Mapping) else error)[:1000]
    except (ValueError, KeyError, TypeError, RecursionError):
        return body.decode(errors="replace").strip()[:300]


def _fields(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int:
    return value if isinstance(value, int) else 0


_LONGEST_LINE = 1 << 20


@dataclass(slots=True)
class ClientAnswer:
    """A client's measurement of one answer.

    Attributes
    ----------
    first : seconds from the request to the first text
    gaps : seconds between chunks of text
    tokens, prompt_tokens, cached_tokens : the server's counts; if not reported, `tokens` counts chunks
    error : why the answer is incomplete
    """

    first: float = 0.0
    gaps: list[float] = field(default_factory=list)
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    text: str = ""
    error: str = ""


async def ask(target: ServerTarget, body: Mapping[str, Any], timeout: float) -> ClientAnswer:
    """Send a chat completion, and read its stream to the end. Errors are stored in the result."""
    answer = ClientAnswer()
    try:
        async with asyncio.timeout(timeout):
            await _ask(target, {**body, "stream": True, "stream_options": {"include_usage": True}}, answer)
    except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        answer.error = f"{type(error).__name__}: {error}"[:300]
    return answer


async def _ask(target: ServerTarget, body: Mapping[str, Any], answer: ClientAnswer) -> None:
    """Send a chat completion, and store the data of its stream, or its error, in `answer`."""
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(
        target.host, target.port, limit=_LONGEST_LINE, ssl=target.secure or None
    )
    try:
        began = last = time.perf_counter()
        writer.write(
            f"POST {target.path}/chat/completions HTTP/1.1\r\nHost: {target.authority}\r\n"
            f"Authorization: Bearer {target.key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
            + data
        )
        version, *status = (await reader.readline()).split(b" ", 2)[:2]
        if not version.startswith(b"HTTP/1"):
            answer.error = f"the response is not HTTP: {version[:100].decode(errors='replace').strip()!r}"
            return
        headers = [line async for line in _headers(reader)]
        if status != [b"200"]:
            answer.error = f"{b' '.join(status).decode(errors='replace')} {error_of(await reader.read(10_000))}"
            return
        chunked = any(line.lower().startswith(b"transfer-encoding") and b"chunked" in line for line in headers)
        finished = False
        async for line in _lines(reader, chunked=chunked):
            piece = parse_event(line)
            if piece is None:
                continue
            if piece.error:
                answer.error = piece.error[:300]
                return
            finished = finished or piece.finished or piece.last
            if piece.tokens:
                answer.tokens, answer.prompt_tokens = piece.tokens, piece.prompt_tokens
                answer.cached_tokens = piece.cached_tokens
            if text := piece.text or piece.thought:
                now = time.perf_counter()
                if answer.text:
                    answer.gaps.append(now - last)
                else:
                    answer.first = now - began
                last, answer.text = now, answer.text + text
            if piece.last:
                break
        if not finished:
            answer.error = (
                "the stream ended before the answer"
                if answer.text
                else "the response is not a stream of a chat completion"
            )
        answer.tokens = answer.tokens or len(answer.gaps) + bool(answer.text)
    finally:
        writer.close()


async def _headers(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while (line := (await reader.readline()).rstrip()) != b"":
        yield line


async def _lines(reader: asyncio.StreamReader, *, chunked: bool) -> AsyncIterator[bytes]:
    """Yield lines of the body as soon as they are complete."""
    rest = b""
    while True:
        if chunked:
            size = int((await reader.readline()).split(b";")[0] or b"0", 16)
            data = (await reader.readexactly(size + 2))[:-2]
        else:
            data = await reader.read(1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
