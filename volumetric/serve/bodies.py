"""Bodies of requests: read up to a bound, and told apart by what they should be."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from volumetric.serve.fields.reading import read
from volumetric.serve.problem import LAST, RequestError

if TYPE_CHECKING:
    from volumetric.serve.serving import Settings

T = TypeVar("T", bound=msgspec.Struct)

_DRAINED: Final = 8
"""So many times the longest body is taken and thrown away: who still sends does not read, and would lose the answer."""
SMALL: Final = 2**14
"""Bytes of a body that is read at once; longer ones are read beside the event loop."""
PATIENCE: Final = 30.0
"""Seconds that may pass between two parts of a body."""


async def body_of(request: Request, kind: type[T]) -> T:
    """Return the body of a request.

    Raises
    ------
    RequestError : it is too long, does not come, says that it is no JSON, or is not what `kind` is
    """
    form = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if form != "application/json":
        # It also makes browsers ask first, so that no web page can post to a server on this machine.
        raise RequestError(
            415,
            'Content-Type must be application/json: with curl, -H "Content-Type: application/json"',
            param="Content-Type",
            code="unsupported_media_type",
        )
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RequestError(
            415,
            "bodies are taken as they are, not compressed: leave Content-Encoding out",
            param="Content-Encoding",
            code="unsupported_media_type",
        )
    settings: Settings = request.app.state.serving.settings
    most = settings.max_body
    body, length = bytearray(), 0
    told = request.headers.get("content-length", "")
    says = int(told) if told.isdecimal() else 0
    if says > _DRAINED * most:
        raise _too_large(most, headers=LAST)
    holds = most if says <= most else 0  # a body that says to be too long is not held, only taken
    now = asyncio.get_running_loop().time
    until = now() + settings.body_seconds
    try:
        async with asyncio.timeout_at(min(now() + PATIENCE, until)) as timeout:
            async for chunk in request.stream():
                timeout.reschedule(min(now() + PATIENCE, until))
                length += len(chunk)
                if length <= holds:
                    body += chunk
                elif length > _DRAINED * most:
                    raise _too_large(most, headers=LAST)
    except TimeoutError:
        late = now() >= until
        told = f"no more of the body came for {PATIENCE:g} s"
        told = f"the body did not come within {settings.body_seconds:g} s" if late else told
        raise RequestError(408, told, code="body_timeout", headers=LAST) from None
    except ClientDisconnect:
        raise RequestError(400, "the body ended early", code="invalid_json") from None
    if length > most:
        raise _too_large(most)
    reading = partial(read, bytes(body), kind, lenient=settings.lenient)
    return reading() if length <= SMALL else await request.app.state.serving.aside(reading)


def _too_large(most: int, **rest: Any) -> RequestError:
    return RequestError(413, f"the body has more than {most} bytes", code="body_too_large", **rest)
