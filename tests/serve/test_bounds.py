"""Bounds of requests: what is refused by its size before it costs anything, and whom nobody waits for."""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.generate.byte_tokens import byte_tokens
from tests.generate.letters import letters, recurrent_letters
from tests.serve.servers import PATIENCE, Address, ask, running, until
from volumetric.base.errors import DoesNotFitError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate.grammar import Grammars
from volumetric.serve import descriptors
from volumetric.serve.bodies import decode_body
from volumetric.serve.fields.completion_request import CompletionRequest
from volumetric.serve.grammar_processes import GrammarTrials
from volumetric.serve.problem import RequestError

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SAY = {"role": "user", "content": "a"}
CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.fixture(scope="module")
def server():
    with running({"letters": letters()}, max_body=2**23) as address:
        yield address


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        (TEXT, {"prompt": "a", "stop_token_ids": list(range(1025))}, "stop_token_ids", "at most 1024 items"),
        (TEXT, {"prompt": "a", "stop_token_ids": [1] * 1_000_000}, "stop_token_ids", "at most 1024 items"),
        (
            TEXT,
            {"prompt": "a", "logit_bias": {str(i): 1 for i in range(10)}},
            "logit_bias",
            "10 tokens, the model has 9",
        ),
        (TEXT, {"prompt": "a", "guided_choice": ["a"] * 65_537}, "guided_choice", "at most 65536 items"),
        (TEXT, {"prompt": [1] * 1_000_000}, "prompt", "1000000 tokens, the context holds"),
        (TEXT, {"prompt": [[1] * 33, [1]]}, "prompt", "33 tokens, the context holds"),
        (
            TEXT,
            {"prompt": "a" * 100_000},
            "prompt",
            "has 100000 characters, the context holds 32 tokens of at most 1 c",
        ),
        (TEXT, {"prompt": "a" * 33}, "prompt", "33 tokens, the context holds"),
        (TEXT, {"prompt": "a", **{f"k{i}": 1 for i in range(256)}}, None, "257 fields, at most 256"),
        (CHAT, {"messages": [SAY] * 8193}, "messages", "at most 8192 items"),
        (CHAT, {"messages": [SAY | {"content": [{"type": "text", "text": "a"}] * 1025}]}, "content", "at most 1024"),
        (CHAT, {"messages": [{"role": "assistant", "tool_calls": [CALL] * 1025}]}, "tool_calls", "at most 1024 items"),
        (CHAT, {"messages": [SAY | {"content": "a" * 100_000}]}, "messages", "100000 characters"),
        (CHAT, {"messages": [SAY], "prediction": {"type": "content", "content": "a" * 100_000}}, "messages", "100000"),
        ("/v1/responses", {"input": [SAY] * 8193}, "input", "at most 8192 items"),
        ("/tokenize", {"prompt": "a" * 100_000}, "prompt", "100000 characters"),
        ("/tokenize", {"messages": [SAY] * 8193}, "messages", "at most 8192 items"),
        ("/detokenize", {"tokens": [1] * (2**20 + 1)}, "tokens", "at most 1048576 items"),
    ],
)
def test_lists_and_texts_have_bounds(server: Address, path: str, body: dict[str, Any], param: str | None, message: str):
    status, told = ask(server, path, json.dumps(body).encode())
    assert status == 400, told
    assert message in told["error"]["message"]
    assert (told["error"]["param"] or "").endswith(param or "")
    assert ask(server, "/health")[0] == 200


@pytest.mark.thorough
def test_at_a_bound_is_within_it(server: Address):
    body = {"prompt": "a", "max_tokens": 1, "stop_token_ids": [8] * 1024, "logit_bias": {str(i): 0 for i in range(9)}}
    assert ask(server, TEXT, json.dumps(body).encode())[0] == 200
    assert ask(server, TEXT, json.dumps({"prompt": [0] * 32, "max_tokens": 1}).encode())[0] == 200
    assert ask(server, "/detokenize", json.dumps({"tokens": [1] * 10_000}).encode()) == (200, {"prompt": "b" * 10_000})


def test_a_lenient_server_gives_up_on_many_fields():
    fields = {f"k{i}": 1 for i in range(200)}
    with pytest.raises(RequestError, match="unknown field"):
        decode_body(json.dumps({"prompt": "a", **fields}).encode(), CompletionRequest, lenient=True)


@pytest.mark.parametrize("one", ["[]", "{}", "[[]]", '{"a":[]}', '[{},"[[[]]]"]'])
def test_lists_and_objects_have_a_number(one: str):
    body = f'{{"prompt": [{",".join([one] * 100_001)}]}}'
    with pytest.raises(RequestError, match="more than 100000 lists and objects"):
        decode_body(body.encode(), CompletionRequest)


@pytest.mark.parametrize("text", ["[{" * 60_000, '"[' * 100_001, "\\[" * 100_001, '["{' * 100_001])
def test_brackets_in_texts_are_no_lists(text: str):
    assert decode_body(json.dumps({"prompt": text}).encode(), CompletionRequest).prompt == text


@pytest.mark.parametrize("end", ["", "\\"])
def test_a_text_that_never_ends_is_looked_at_once(end: str):
    """From each of its quotation marks on it would take hours."""
    body = b'{"prompt": "' + b'\\"[' * 1_000_000 + end.encode()
    with pytest.raises(RequestError, match="not JSON"):
        decode_body(body, CompletionRequest)


@pytest.mark.thorough
def test_a_long_text_is_refused_by_its_beginning():
    """Where the longest token is so long that the length says nothing."""
    tokenizer = recurrent_letters(ReferenceDevice()).tokenizer
    assert tokenizer is not None
    tokenizer.__dict__["longest"] = 1000
    assert len(tokenizer.encode("ab" * 32_000, limit=100)) == 64_000
    with pytest.raises(DoesNotFitError, match="the first 65536 of 80000 characters of the prompt have 65536 tokens"):
        tokenizer.encode("ab" * 40_000, limit=100)
    assert len(tokenizer.encode("ab" * 40_000, limit=40_000)) == 80_000


@pytest.mark.thorough
def test_bodies_must_come_within_a_time():
    head = (
        "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9999\r\n\r\n"
    )
    with (
        running({"letters": letters()}, body_seconds=0.3) as address,
        socket.create_connection(("127.0.0.1", address.port), 0.02) as sock,
    ):
        sock.sendall(head.encode())
        got, until = b"", time.monotonic() + PATIENCE
        while not got.endswith(b"}}") and time.monotonic() < until:  # the head and the body come one after the other
            with contextlib.suppress(TimeoutError):
                got += sock.recv(2**16)
            if not got:
                with contextlib.suppress(OSError):
                    sock.sendall(b" ")  # parts come all the time
        assert got.startswith(b"HTTP/1.1 408 ")
        assert b"the body did not arrive within 0.3 s" in got


@pytest.mark.thorough
def test_connections_have_a_number():
    with running({"letters": letters()}, connections=3) as address:
        held = [socket.create_connection(("127.0.0.1", address.port), PATIENCE) for _ in range(3)]
        with socket.create_connection(("127.0.0.1", address.port), PATIENCE) as sock:
            answer = http.client.HTTPResponse(sock)
            answer.begin()
            assert (answer.status, answer.getheader("retry-after")) == (503, "1")
            assert json.loads(answer.read())["error"]["code"] == "too_many_connections"
            assert sock.recv(1) == b""
        held.pop().close()
        until(lambda: _status(address) == 200)
        for one in held:
            one.close()


def _status(address: Address) -> int:
    try:
        return ask(address, "/health")[0]
    except (OSError, http.client.HTTPException):  # refused, and gone before the answer was read
        return 0


def test_there_are_no_more_connections_than_files(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    given: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda _, bounds: given.append(bounds))
    for bounds, possible in (((1024, 4096), 2048), ((1024, 2000), 1744), ((10_000, 10_000), 2048), ((-1, -1), 2048)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, bounds=bounds: bounds)
        assert descriptors.allowed_connections(2048) == possible
    assert given == [(2304, 4096), (2000, 2000)]
    assert "at most 1744 connections" in caplog.text


@pytest.mark.thorough
@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_grammar_is_given_up_when_its_client_leaves(monkeypatch: pytest.MonkeyPatch, path: str):
    """Before its answer has begun there is a task of the request alone, and it ends."""
    begun, left, tokens = threading.Event(), threading.Event(), byte_tokens()
    kept: Callable[..., Any] = Grammars.cached_grammar
    monkeypatch.setattr(Grammars, "cached_grammar", lambda self, *key: begun.set() or kept(self, *key))
    build: Callable[..., Any] = Grammars.compile_source

    def build_later(self: Grammars, source: Any) -> Any:
        """Else the grammar, and a short answer, may be ready before the server knows that the client has left."""
        assert left.wait(PATIENCE)
        return build(self, source)

    monkeypatch.setattr(Grammars, "compile_source", build_later)
    body = {"prompt": "a"} if path == TEXT else {"messages": [SAY]}
    body |= {"guided_choice": [f"a{i}" for i in range(60_000)]}
    with running({"letters": letters()}, max_body=2**22) as address:
        served, compilers = address.server.serving.models["letters"], address.server.serving.compilers
        # Words are no tokens that llguidance knows; what is only tried may be of others.
        compilers._trials[tokens] = served.forms = GrammarTrials(Grammars(tokens), tokens)
        connection = http.client.HTTPConnection("127.0.0.1", address.port, timeout=PATIENCE)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        assert begun.wait(PATIENCE)
        connection.close()
        until(lambda: not served.busy)
        left.set()
        assert (path, 499) in address.server.serving.answered
