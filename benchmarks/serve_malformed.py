"""Malformed requests for `serve_fuzz.py`, made from valid ones; the same seed makes the same requests."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from benchmarks import serve_killers
from volumetric.serve.fields.chat_request import ChatRequest, Message
from volumetric.serve.fields.completion_request import CompletionRequest
from volumetric.serve.fields.embedding_request import EmbeddingRequest
from volumetric.serve.fields.response_request import ResponseRequest
from volumetric.serve.fields.token_requests import DetokenizeRequest, TokenizeRequest

_SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
_TOOL = {"type": "function", "function": {"name": "f", "description": "F.", "parameters": _SCHEMA}}
VALID: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "messages": [{"role": "system", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}],
        "max_tokens": 2,
        "temperature": 0.5,
        "stop": ["c"],
        "logit_bias": {"1": 1.0},
        "logprobs": True,
        "top_logprobs": 1,
        "stream": False,
    },
    "/v1/responses": {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "b"}]},
            {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "1", "output": "a"},
        ],
        "max_output_tokens": 2,
        "instructions": "a",
        "text": {"format": {"type": "text"}},
        "include": ["message.output_text.logprobs"],
        "stream": False,
    },
    "/v1/completions": {"prompt": ["a", "b"], "max_tokens": 2, "top_p": 0.9, "top_k": 5, "seed": 1, "n": 1},
    "/v1/embeddings": {"input": ["a"], "encoding_format": "float"},
    "/tokenize": {"prompt": "a b", "add_special_tokens": True},
    "/detokenize": {"tokens": [1, 2]},
}
KINDS: dict[str, type[msgspec.Struct]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/responses": ResponseRequest,
    "/v1/completions": CompletionRequest,
    "/v1/embeddings": EmbeddingRequest,
    "/tokenize": TokenizeRequest,
    "/detokenize": DetokenizeRequest,
}
BOUND = {
    "/v1/chat/completions": {"max_tokens": 2},
    "/v1/responses": {"max_output_tokens": 2},
    "/v1/completions": {"max_tokens": 2},
}
"""What keeps a request short that turns out to be valid."""
_LONG = "x" * 3000
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 17, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, -1e308, 5e-324,
    "", " ", "\0", "a", "1", "true", "null", _LONG, "\ud800", "\u202e\uffff", "😀" * 40, "{{7*7}}", "{% for %}",
    [], [None], [[]], [{}], [0], [-1], [2**70], ["a"], [True], [_LONG], ["a"] * 99, [1.5], [[1, 2], [3]],
    {}, {"a": 1}, {"type": None}, {"type": "function"}, {"type": "json_schema"}, {"": ""}, {"1": 2}, {"x": 1e9},
    {"role": "user"}, {"role": "user", "content": None},
    {"type": "json_schema", "json_schema": {"schema": {"type": 5}}},
    {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/nowhere"}}}, {"$ref": "#"},
    {"type": "array", "minItems": 10**9},
    {"type": "string", "pattern": "(((((a*)*)*)*)*)$"}, {"anyOf": []}, {"enum": []}, _SCHEMA, [_TOOL], [_TOOL, _TOOL],
    [{"type": "function", "function": {"name": "f" * 999}}],
    [{"type": "function", "function": {"name": "f", "parameters": 3}}],
    "root ::= root", 'root ::= "a"', "start: /(/", "%llguidance {", "[a-z]{1,99999}",
    "(a|b|ab)*c{0,1000}", "\\p{L}+(?=x)",
)  # fmt: skip
_NUMBERS = (
    b"1e999",
    b"-1e999",
    b"NaN",
    b"Infinity",
    b"-Infinity",
    b"1" * 500,
    b"0x1",
    b"01",
    b"1.",
    b".5",
    b"-",
    b"1e",
)


@dataclass(frozen=True)
class Sent:
    """A request as it goes out.

    Attributes
    ----------
    kind : what was done to it
    data : all bytes
    ends : whether the server can know that it is whole
    """

    kind: str
    data: bytes
    ends: bool = True


def posted(
    path: str, body: bytes, *, kind: str = "application/json", length: int | None = None, more: str = ""
) -> bytes:
    """Return a request."""
    size = len(body) if length is None else length
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {size}\r\n{more}"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def chunked(path: str, chunks: bytes) -> bytes:
    """Return a request whose body comes in chunks, as they are given."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n"
    )
    return f"{head}Connection: close\r\n\r\n".encode() + chunks


def bytes_of(value: Any) -> bytes:
    """Return JSON, with lone surrogates as they are."""
    return json.dumps(value).encode()


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Return data with some bytes flipped, cut out, put in, repeated or cut off."""
    found = bytearray(data)
    for _ in range(rng.randrange(1, 5)):
        at, length = rng.randrange(len(found) + 1), rng.randrange(1, 9)
        match rng.randrange(6):
            case 0:
                found[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                del found[at : at + length]
            case 2:
                found[at:at] = rng.randbytes(length)
            case 3:
                found[at:at] = found[at : at + 4 * length] * rng.randrange(1, 40)
            case 4:
                found[at : at + length] = rng.choice(
                    (b'"', b"{", b"]", b",", b":", b"\\u", b"\\ud800", b"null", b"\x00")
                )
            case _:
                del found[at:]
    return bytes(found)


def field(rng: random.Random, path: str) -> Sent:
    """Some field with some value."""
    name = rng.choice(sorted(KINDS[path].__struct_fields__))
    body = {**VALID[path], **BOUND.get(path, {}), name: rng.choice(ODD)}
    return Sent("field", posted(path, bytes_of(body)))


def message(rng: random.Random, path: str) -> Sent:
    """Some field of a message with some value."""
    told = {"role": rng.choice(("user", "assistant", "tool", "system", "developer")), "content": "a"}
    told[rng.choice(sorted(Message.__struct_fields__))] = rng.choice(ODD)
    body = {"messages": [{"role": "user", "content": "a"}, told], "max_tokens": 2}
    return Sent("message", posted("/v1/chat/completions", bytes_of(body)))


def deeper(rng: random.Random, path: str) -> Sent:
    """Some value somewhere in a valid body with some other one."""
    body = json.loads(json.dumps({**VALID[path], "tools": [_TOOL]} if "chat" in path else VALID[path]))
    at: Any = body
    while True:
        key = rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        inner = at[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.3:
            at[key] = rng.choice(ODD)
            break
        at = inner
    return Sent("value", posted(path, bytes_of({**body, **BOUND.get(path, {})})))


def unknown(rng: random.Random, path: str) -> Sent:
    """A field that there is not."""
    name = rng.choice(("temprature", "functions", "prediction", "web_search_options", "", "\0", _LONG, "$", "a.b", "`"))
    return Sent("unknown", posted(path, bytes_of({**VALID[path], name: rng.choice(ODD)})))


def flipped(rng: random.Random, path: str) -> Sent:
    """Bytes of a body changed."""
    return Sent("bytes", posted(path, mutated(rng, bytes_of(VALID[path]))))


def number(rng: random.Random, path: str) -> Sent:
    """A number that is none, or too large."""
    body = bytes_of({**VALID[path], "at": 0})
    name = rng.choice((b"max_tokens", b"temperature", b"seed", b"n", b"tokens", b"input", b"prompt", b"priority"))
    return Sent("number", posted(path, body.replace(b'"at": 0', b'"' + name + b'": ' + rng.choice(_NUMBERS))))


def nested(rng: random.Random, path: str) -> Sent:
    """Values within values."""
    depth = rng.choice((70, 500, 5000, 100_000))
    opened, closed = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")))
    value = opened * depth + b"1" + closed * rng.choice((depth, depth - 1, 0))
    name = rng.choice(
        ("messages", "prompt", "input", "tools", "guided_json", "logit_bias", "chat_template_kwargs", "tokens")
    )
    return Sent("nested", posted(path, b'{"' + name.encode() + b'": ' + value + b"}"))


def schema(rng: random.Random, path: str) -> Sent:
    """Forms of answers that are none, or too large."""
    depth = rng.randrange(1, 300)
    inner: Any = rng.choice(ODD)
    for _ in range(depth):
        inner = rng.choice(
            ({"type": "object", "properties": {"a": inner}}, {"type": "array", "items": inner}, {"anyOf": [inner]})
        )
    form = rng.choice(
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": inner}}},
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": inner}}]},
            {"guided_json": inner},
            {"guided_regex": rng.choice(ODD)},
            {"grammar": rng.choice(ODD)},
            {"guided_choice": rng.choice(ODD)},
        )
    )
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 2, **form}
    return Sent("schema", posted("/v1/chat/completions", bytes_of(body)))


def encoding(rng: random.Random, path: str) -> Sent:
    """A body in another encoding, or that is none."""
    text = json.dumps(VALID[path])
    data = rng.choice(
        (
            text.encode("utf-16"),
            text.encode("utf-32-le"),
            b"\xef\xbb\xbf" + text.encode(),
            text.replace("a", "\udcff").encode(errors="surrogateescape"),
            text.encode().replace(b"a", b"\xc0\x80"),
            text.encode().replace(b"a", b"\xed\xa0\x80"),
            rng.randbytes(rng.randrange(500)),
            b"",
            b"--x\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--x--",
            b"a=1&b=2",
        )
    )
    return Sent("encoding", posted(path, data))


def content_type(rng: random.Random, path: str) -> Sent:
    """A body that says to be something else."""
    kinds = (
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        ";",
        _LONG,
    )
    return Sent("type", posted(path, bytes_of(VALID[path]), kind=rng.choice(kinds)))


def lengths(rng: random.Random, path: str) -> Sent:
    """A length that is not that of the body."""
    body = bytes_of(VALID[path])
    if rng.random() < 0.5:
        return Sent("length", posted(path, body, length=rng.randrange(len(body))))
    return Sent("cut off", posted(path, body, length=len(body) + rng.randrange(1, 10_000)), ends=False)


def chunks(rng: random.Random, path: str) -> Sent:
    """Chunks that are cut off, or are none."""
    body = bytes_of(VALID[path])
    first = f"{len(body):x}".encode()
    match rng.randrange(4):
        case 0:
            return Sent("chunks cut off", chunked(path, first + b"\r\n" + body[: rng.randrange(len(body))]), ends=False)
        case 1:
            return Sent("chunks cut off", chunked(path, first + b"\r\n" + body + b"\r\n"), ends=False)
        case 2:
            size = rng.choice((b"-1", b"zz", b"ffffffffffffffffff", b"", b"1 2", b"\x00"))
            return Sent("no chunks", chunked(path, size + b"\r\n" + body + b"\r\n0\r\n\r\n"))
        case _:
            return Sent("chunks", chunked(path, b"1\r\n{\r\n1\r\n]\r\n0\r\n\r\n"))


def heads(rng: random.Random, path: str) -> Sent:
    """A head that is no HTTP, or asks for something else."""
    good = posted(path, bytes_of(VALID[path]))
    at = good.index(b"\r\n\r\n")
    match rng.randrange(5):
        case 0:
            return Sent(
                "head",
                mutated(rng, good[:at].replace(b"\r\nConnection: close", b"")) + b"\r\nConnection: close" + good[at:],
                ends=False,
            )
        case 1:
            return Sent("head", rng.randbytes(rng.randrange(1, 300)), ends=False)
        case 2:
            method = rng.choice((b"GET", b"PUT", b"DELETE", b"PATCH", b"TRACE", b"OPTIONS"))
            return Sent("method", good.replace(b"POST", method, 1))
        case 3:
            other = rng.choice(
                (b"/v1/%00", b"/v1//chat", b"/" + b"a" * 5000, b"/v1/models/%ff%fe", b"/v1/chat/completions/", b"/?a=%")
            )
            return Sent("path", good.replace(path.encode(), other, 1))
        case _:
            header = rng.choice(
                (
                    "Host: evil.example",
                    "Content-Encoding: gzip",
                    "Expect: 100-continue",
                    "Authorization: Bearer \x80",
                    "X: " + "y" * 20_000,
                    "Upgrade: websocket\r\nConnection: Upgrade",
                    "Transfer-Encoding: gzip",
                )
            )
            return Sent(
                "header", posted(path, bytes_of(VALID[path]), more=f"{header}\r\n"), ends="Upgrade" not in header
            )


def costly(rng: random.Random, path: str) -> Sent:
    """A request that costs more than it looks."""
    return Sent("costly", posted(*serve_killers.encoded(rng)))


def large(rng: random.Random, path: str) -> Sent:
    """A body of 10 MB."""
    return Sent("large", posted(path, b'{"prompt": "' + b"a" * 10_000_000 + b'"}'))


MAKERS: dict[Callable[[random.Random, str], Sent], float] = {
    field: 20, message: 8, deeper: 10, unknown: 3, flipped: 25, number: 4, nested: 3, schema: 6, encoding: 5,
    content_type: 2, lengths: 2, chunks: 2, heads: 6, large: 0.1, costly: 4,
}  # fmt: skip


def request(seed: int, index: int) -> Sent:
    """Return the request of a number; the same for the same seed."""
    rng = random.Random(f"{seed} {index}")
    return rng.choices(list(MAKERS), list(MAKERS.values()))[0](rng, rng.choice(sorted(VALID)))
