"""Request bodies: read up to a size limit, and converted from JSON into types.

Errors name the place of an unknown field, and suggest the field that may have been meant.
"""

from __future__ import annotations

import asyncio
import logging
import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request

from volumetric.base.hints import format_value, suggestion
from volumetric.generate.params import ALIASES
from volumetric.serve.fields.foreign_fields import drop_foreign_fields
from volumetric.serve.problem import LAST, RequestError, bad_request

if TYPE_CHECKING:
    from volumetric.serve.prepared_requests import PreparedRequest
    from volumetric.serve.serving import ServerSettings

T = TypeVar("T", bound=msgspec.Struct)

logger: logging.Logger = logging.getLogger(__name__)

_DRAINED: Final = 8
"""Up to this many times `max_body` is read and dropped: a client that is still sending would miss the answer."""
SMALL: Final = 2**14
"""Bytes of a body that is parsed in the event loop; longer ones are parsed in a thread."""
PATIENCE: Final = 30.0
"""Most seconds between two chunks of a body."""
_ALIASES: Final = {
    **ALIASES,
    "stop_ids": "stop_token_ids",
    "json_schema": "guided_json",
    "regex": "guided_regex",
    "no_stop_trim": "include_stop_str_in_output",
}
"""Field names of other servers, and ours."""
NO_EFFECT: Final = frozenset(
    {
        "user",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "verbosity",
        "request_id",
        "rid",
    }
)
"""Fields for accounting: they are accepted, and do not change the answer."""
_UNKNOWN = re.compile(r"unknown field `(?P<name>[^`]*)`")
_MISSING = re.compile(r"missing required field `(?P<name>[^`]*)`")
_PLACE = re.compile(r" - at `\$\.?(?P<place>[^`]*)`$")
_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")
_LONG = re.compile(r"Expected `\w+` of length <= (?P<most>\d+)")
_MOST_FIELDS: Final = 256
"""Fields of a body."""
_MOST_PARTS: Final = 100_000
"""Most lists and objects of a body. 8 MiB can hold millions; each takes ten times its two characters of memory, and
building all of them blocks everything else for a second."""
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.|\\\Z)*+(?:"|\Z)', re.DOTALL)
"""A JSON string, or an unterminated one, so that no quotation mark is scanned twice."""
_MOST_LEFT_OUT: Final = 100
"""Most fields without effect in one request; a request with more is refused."""


async def read_body(request: Request, kind: type[T]) -> T:
    """Return the body of a request.

    Raises
    ------
    RequestError : the body is too long, does not arrive, is not declared as JSON, or does not match `kind`
    """
    form = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if form != "application/json":
        # It also makes browsers send a preflight request, so that no web page can post to a server on this machine.
        raise RequestError(
            415,
            'Content-Type must be application/json: with curl, -H "Content-Type: application/json"',
            param="Content-Type",
            code="unsupported_media_type",
        )
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise RequestError(
            415,
            "compressed bodies are not supported: leave Content-Encoding out",
            param="Content-Encoding",
            code="unsupported_media_type",
        )
    settings: ServerSettings = request.app.state.serving.settings
    most = settings.max_body
    body, length = bytearray(), 0
    header = request.headers.get("content-length", "")
    says = int(header) if header.isdecimal() else 0
    if says > _DRAINED * most:
        raise _too_large(most, headers=LAST)
    holds = most if says <= most else 0  # a body whose Content-Length is too long is read and dropped
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
        message = f"no part of the body arrived for {PATIENCE:g} s"
        message = f"the body did not arrive within {settings.body_seconds:g} s" if late else message
        raise RequestError(408, message, code="body_timeout", headers=LAST) from None
    except ClientDisconnect:
        raise RequestError(400, "the body ended early", code="invalid_json") from None
    if length > most:
        raise _too_large(most)
    prepared = _prepared(request)
    if prepared is not None:
        return msgspec.msgpack.decode(prepared.body, type=kind)
    reading = partial(decode_body, bytes(body), kind, lenient=settings.lenient)
    return reading() if length <= SMALL else await request.app.state.serving.run_in_thread(reading)


def prompts_of(request: Request) -> list[list[int]] | None:
    """Return the token ids of a request's prompts if a process for HTTP has made them, with the models of now."""
    prepared = _prepared(request)
    return None if prepared is None or prepared.version != request.app.state.serving.version else prepared.prompts


def _prepared(request: Request) -> PreparedRequest | None:
    return request.scope.get("state", {}).get("prepared")


def _too_large(most: int, **rest: Any) -> RequestError:
    return RequestError(413, f"the body has more than {most} bytes", code="body_too_large", **rest)


def decode_body(body: bytes, kind: type[T], *, lenient: bool = False, dropped: list[str] | None = None) -> T:
    """Parse the body of a request.

    Parameters
    ----------
    kind : the type of the body
    lenient : drop and log fields that `kind` does not have, instead of refusing them
    dropped : gets the names of fields without effect, in place of the log

    Raises
    ------
    RequestError : the body is not JSON, has a field that `kind` does not have, or a field of another type
    """
    if not _has_few_parts(body):
        raise bad_request(f"the body has more than {_MOST_PARTS} lists and objects", code="invalid_value")
    try:
        fields: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the body is not JSON: {str(error)[:200]}", code="invalid_json") from None
    if not isinstance(fields, dict):
        raise bad_request(f"the body must be a JSON object, got {type(fields).__name__}", code="invalid_json")
    if len(fields) > _MOST_FIELDS:
        raise bad_request(
            f"the body has {len(fields)} fields, at most {_MOST_FIELDS} are allowed", code="invalid_value"
        )
    known = set(kind.__struct_fields__)
    for other, name in _ALIASES.items():
        if other in fields and name in known:
            if name in fields:
                raise bad_request(f"{other} and {name} are the same field: send only one of them", param=other)
            fields[name] = fields.pop(other)
    for name in (NO_EFFECT - known) & fields.keys():
        del fields[name]
    for name in drop_foreign_fields(fields, known, lenient=lenient) if fields.keys() - known else ():
        _report(name, dropped)
    # Clients send null for fields they leave unset, whether this server has them or not.
    required = _required(kind)
    fields = {name: value for name, value in fields.items() if value is not None or name in required}
    for _ in range(_MOST_LEFT_OUT if lenient else 0):
        try:
            return convert_fields(fields, kind)
        except RequestError as problem:
            if problem.code != "unknown_field" or not _drop_field(fields, problem.param or ""):
                raise
            _report(problem.param or "", dropped)
    return convert_fields(fields, kind)


def _report(name: str, dropped: list[str] | None) -> None:
    """Log a field without effect, or add it to a list."""
    if dropped is None:
        logger.warning("a request has the field %s, which has no effect here", format_value(name))
    else:
        dropped.append(name)


def _has_few_parts(body: bytes) -> bool:
    """Whether a body has no more lists and objects than allowed; brackets inside strings do not count."""
    if body.count(b"[") + body.count(b"{") <= _MOST_PARTS:
        return True
    count = end = 0
    for text in _TEXT.finditer(body):
        count += body.count(b"[", end, text.start()) + body.count(b"{", end, text.start())
        end = text.end()
        if count > _MOST_PARTS:
            return False
    return count + body.count(b"[", end) + body.count(b"{", end) <= _MOST_PARTS


def _drop_field(node: Any, place: str) -> bool:
    """Remove the field at a place such as ``messages[0].mood``; return False if it does not exist."""
    *path, (_, name) = _STEP.findall(place)
    for number, step in path:
        try:
            node = node[int(number) if number else step]
        except (KeyError, IndexError, TypeError):
            return False
    if not isinstance(node, dict) or name not in node:
        return False
    del node[name]
    return True


def convert_fields(fields: dict[str, Any], kind: type[T], where: str = "") -> T:
    """Convert a JSON object to a type; `where` is its place in the body.

    Raises
    ------
    RequestError : it has a field that `kind` does not have, or a field of another type
    """
    try:
        return msgspec.convert(fields, kind)
    except msgspec.ValidationError as error:
        raise _problem(str(error), kind, where) from None
    except RecursionError:
        raise bad_request("the body is nested too deeply", code="invalid_json") from None


@cache
def _required(kind: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(field.name for field in msgspec.structs.fields(kind) if field.required)


def _problem(message: str, kind: type[msgspec.Struct], where: str) -> RequestError:
    """Convert an error of msgspec to one in OpenAI's format."""
    inner = match["place"].removesuffix("[...]") if (match := _PLACE.search(message)) else None
    place = ".".join(part for part in (where, inner) if part) or None
    text = _PLACE.sub("", message)
    missing, unknown = _MISSING.search(text), _UNKNOWN.search(text)
    if missing is not None:
        full = f"{place}.{missing['name']}" if place else missing["name"]
        return bad_request(f"{full} is missing", param=full, code="missing_required_parameter")
    if (long := _LONG.search(text)) is not None:
        return bad_request(f"{place} must have at most {long['most']} items", param=place, code="invalid_value")
    if unknown is None:
        return bad_request(f"{place or 'body'}: {text[:1].lower()}{text[1:]}", param=place, code="invalid_type")
    name = unknown["name"]
    full = f"{place}.{name}" if place else name
    known = kind.__struct_fields__ if inner is None else ()
    # Unknown fields are mostly other servers' fields, not typos: suggest only close matches.
    hint = suggestion(name, known, "this server does not support it, so leave it out", alike=0.85)
    return bad_request(f"unknown field {full!r}: {hint}", param=full, code="unknown_field")
