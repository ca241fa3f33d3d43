"""Processes that speak HTTP for the server: the same answers, refusals, back-pressure and ends as without them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generate.letters import letters, recurrent_letters
from tests.serve.servers import JSON, PATIENCE, Address, ask, running, slow_letters, until
from volumetric.base.errors import SpecError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Limits, Scheduler
from volumetric.serve import engine, http_front
from volumetric.serve.http_front import HttpFront
from volumetric.serve.http_link import HttpLink, LinkMessage, unpacked_frame, unpacked_texts
from volumetric.serve.serving import ServerSettings

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="connections are passed over Unix sockets")

SAY = [{"role": "user", "content": "ab"}]
HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


def models() -> dict[str, Any]:
    return {"letters": letters(), "random": recurrent_letters(ReferenceDevice()), "slow": slow_letters()}


@pytest.fixture(scope="module")
def server() -> Iterator[Address]:
    with running(models(), limits=Limits(slots=8), max_body=4096, http_workers=2) as address:
        yield address


@pytest.fixture(scope="module")
def alone() -> Iterator[Address]:
    with running(models(), limits=Limits(slots=8), max_body=4096) as address:
        yield address


def scheduler_of(address: Address, name: str) -> Scheduler:
    served = address.server.serving.models[name].engine
    assert served is not None
    return served.scheduler


def front(address: Address) -> HttpFront:
    served = address.server._server
    assert isinstance(served, HttpFront)
    return served


def raw(address: Address, path: str, body: dict[str, Any], version: str = "1.1") -> bytes:
    """Return a whole response as it comes, without what no two have in common."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/{version}\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", address.port), PATIENCE) as sock:
        sock.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        whole = b"".join(iter(lambda: sock.recv(2**16), b""))
    times = rb'"created\w*":\d+|"timings":{[^}]*}|(date|content-length|x-request-id): [^\r]*'
    return re.sub(rb"[0-9a-f]{32}|" + times, b"", whole)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": ["ab", "b"], "n": 2, "temperature": 1, "seed": 3, "model": "random"}),
        ("/v1/completions", {"prompt": "a" * 40}),
        ("/v1/completions", {"prompt": "a", "best": 1}),
        ("/v1/completions", {"prompt": "a", "suffix": " " * 5000}),
        ("/v1/chat/completions", {"messages": SAY, "logprobs": True}),
        ("/v1/nothing", {}),
    ],
    ids=["texts", "too long", "field", "large", "chat", "path"],
)
def test_bytes_are_those_of_a_server_without_workers(
    server: Address, alone: Address, path: str, body: dict[str, Any]
) -> None:
    assert raw(server, path, body) == raw(alone, path, body)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "ab", "n": 3, "temperature": 1, "seed": 3, "model": "random", "max_tokens": 9}),
        ("/v1/chat/completions", {"messages": SAY, "stream_options": {"include_usage": True}}),
        ("/v1/chat/completions", {"messages": SAY, "logprobs": True, "top_logprobs": 2}),
        ("/v1/completions", {"prompt": "ab", "echo": True}),
        ("/v1/responses", {"input": "ab"}),
    ],
    ids=["texts", "chat", "logprobs", "echo", "response"],
)
def test_streams_are_those_of_a_server_without_workers(
    server: Address, alone: Address, version: str, path: str, body: dict[str, Any]
) -> None:
    events = [event_texts(raw(address, path, body | {"stream": True}, version)) for address in (server, alone)]
    assert events[0] == events[1] != {}


def event_texts(response: bytes) -> dict[Any, str]:
    """Return all text of a stream, by choice: how many tokens share a chunk is up to times."""
    body = b"".join(re.split(rb"\r\n[0-9a-f]+\r\n|\A[^\0]*?\r\n\r\n(?:[0-9a-f]+\r\n)?", response))
    assert response.startswith(b"HTTP/1.1 200 OK\r\n")
    assert (b"transfer-encoding: chunked" in response.lower()) == response.rstrip().endswith(b"\r\n0")
    texts: dict[Any, str] = {}
    for line in body.split(b"\n"):
        if line.startswith(b"data: {"):
            chunk = json.loads(re.sub(rb",+(?=[,}])|(?<={),", b"", line.removeprefix(b"data: ")))
            if chunk.get("usage"):
                texts["usage"] = str(chunk["usage"])
            if chunk.get("type") == "response.output_text.delta":
                texts["delta"] = texts.get("delta", "") + chunk["delta"]
            for choice in chunk.get("choices", ()):
                text = choice["text"] if "text" in choice else choice["delta"].get("content", "")
                texts[choice["index"]] = texts.get(choice["index"], "") + text + (choice["finish_reason"] or "")
    return texts


def test_many_clients_get_what_one_gets(server: Address) -> None:
    def text(number: int) -> str:
        with server.client() as client:
            chunks = client.completions.create(
                model="random", prompt="ab", seed=number, temperature=1.2, max_tokens=16, stream=True
            )
            return "".join(chunk.choices[0].text for chunk in chunks)

    texts = [text(number) for number in range(6)]
    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(text, [*range(6), *range(6)])) == texts * 2


def test_a_client_that_leaves_gives_its_slot_back(server: Address) -> None:
    body = json.dumps({"model": "random", "prompt": "ab", "ignore_eos": True, "stream": True, "n": 2}).encode()
    scheduler = scheduler_of(server, "random")
    for streamed in (False, True):
        whole = body if streamed else body.replace(b'"stream": true', b'"stream": false')
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
            sock.sendall(HEAD + f"Content-Length: {len(whole)}\r\n\r\n".encode() + whole)
            if streamed:
                sock.recv(100)
    until(lambda: scheduler.idle)


def test_bodies_in_parts_and_those_that_wait_to_be_asked_for(server: Address) -> None:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE) as sock:
        sock.sendall(HEAD + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
        assert sock.recv(99).startswith(b"HTTP/1.1 100")
        for part in (b'{"prom', b'pt": ', b'"ab"}'):
            sock.sendall(b"%x\r\n%b\r\n" % (len(part), part))
        sock.sendall(b"0\r\n\r\n")
        received = bytearray()
        while b"cdefgh" not in received:
            received += sock.recv(2**16)
            assert received
        while not received.endswith(b"}"):
            received += sock.recv(2**16)
        sock.sendall(HEAD.replace(b"completions", b"nothing") + b"Expect: 100-continue\r\nContent-Length: 9\r\n\r\n")
        assert sock.recv(2**16).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": SAY}),
        (
            "/chat/completions",
            {"messages": [*SAY, {"role": "assistant", "content": "c"}], "continue_final_message": True},
        ),
        ("/v1/completions", {"prompt": ["ab", "b"]}),
        ("/v1/completions", {"prompt": "ab", "add_special_tokens": False, "echo": True, "max_tokens": 2}),
        ("/v1/completions", {"prompt": [[0, 1], [1]]}),
    ],
    ids=["chat", "begun", "texts", "echo", "ids"],
)
def test_requests_are_prepared_by_workers(
    server: Address, alone: Address, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    came = relayed(monkeypatch)
    until(lambda: raw(server, path, body) and "PREPARED" in came)
    came.clear()
    assert raw(server, path, body) == raw(alone, path, body)
    assert "PREPARED" in came
    assert "LAST" not in came


@pytest.mark.parametrize(
    "body",
    [{"messages": []}, {"messages": SAY, "mood": 1}, {"messages": SAY, "max_tokens": "9"}, {"messages": [{"role": 3}]}],
    ids=["none", "unknown", "type", "role"],
)
def test_refusals_of_prepared_requests_keep_their_words(server: Address, alone: Address, body: dict[str, Any]) -> None:
    assert raw(server, "/v1/chat/completions", body) == raw(alone, "/v1/chat/completions", body)
    assert b"HTTP/1.1 400" in raw(server, "/v1/chat/completions", body)


@pytest.mark.thorough
def test_ids_of_a_model_that_was_replaced_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may not know yet that a model has been opened anew, with another template or tokenizer."""
    came = relayed(monkeypatch)
    with running({"letters": letters()}, http_workers=1) as address:
        body = json.dumps({"messages": SAY}).encode()
        until(lambda: ask(address, "/v1/chat/completions", body)[0] == 200 and "PREPARED" in came)
        address.server.serving.version += 1
        model = address.server.serving.models["letters"].model
        assert model.loaded.chat_template is not None
        model.loaded.chat_template.templates["default"] = "{{ messages[0].content[:1] }}"
        model.loaded.chat_template._compiled.clear()
        answer = ask(address, "/v1/chat/completions", body)[1]
        assert answer["usage"]["prompt_tokens"] == 1


def relayed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the kind of each message of a request that a worker sends."""
    came, take = list[str](), http_front._RelayedRequest.take

    def noting(self: Any, kind: int, content: bytes) -> None:
        came.append(LinkMessage(kind).name)
        take(self, kind, content)

    monkeypatch.setattr(http_front._RelayedRequest, "take", noting)
    return came


def test_figures_are_those_of_all_workers(server: Address) -> None:
    def count() -> float:
        line = next(line for line in ask(server, "/metrics")[1].splitlines() if '"/tokenize",status="200"' in line)
        return float(line.split()[-1])

    ask(server, "/tokenize", b'{"prompt": "a"}')
    before = count()
    for _ in range(4):  # each on a connection of its own, in turns
        assert ask(server, "/tokenize", b'{"prompt": "a"}')[0] == 200
    assert count() == before + 4


def test_a_worker_that_dies_is_replaced(server: Address, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_front, "_PAUSE", 0.05)
    scheduler = scheduler_of(server, "slow")
    worker = front(server)._workers[0]
    process = worker._process
    assert process is not None
    with server.client() as one, server.client() as two:
        ask_slowly: dict[str, Any] = {"model": "slow", "prompt": "ab", "temperature": 1}
        ask_slowly["extra_body"] = {"ignore_eos": True}
        streams = [client.completions.create(**ask_slowly, stream=True) for client in (one, two)]
        assert all(next(iter(stream)) for stream in streams)
        os.kill(process.pid, signal.SIGKILL)
        until(lambda: scheduler.stats.running == 1)  # the other worker's client goes on
    until(lambda: worker._process is not process and worker._connections is not None)
    for _ in range(3):
        assert ask(server, "/health") == (200, {"status": "ok"})


@pytest.mark.thorough
def test_keys_hosts_and_connections_are_checked_as_ever() -> None:
    with running({"letters": letters()}, api_key="sesame", connections=2, http_workers=2) as address:
        assert ask(address, "/v1/models", None)[0] == 401
        assert ask(address, "/tokenize", b"{}", JSON | {"Authorization": "Bearer no"})[0] == 401
        assert ask(address, "/tokenize", b'{"prompt": "a"}', JSON | {"Authorization": "Bearer sesame"})[0] == 200
        held = [socket.create_connection(("127.0.0.1", address.port), PATIENCE) for _ in range(2)]
        with socket.create_connection(("127.0.0.1", address.port), PATIENCE) as sock:
            assert sock.recv(99).startswith(b"HTTP/1.1 503")
        for one in held:
            one.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("fields", "workers"), [({"logprobs": 5}, 1), ({}, 1), ({}, 0)], ids=["events", "texts", "texts without workers"]
)
def test_a_client_that_does_not_read_has_no_slot_until_it_does(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, Any], workers: int
) -> None:
    monkeypatch.setattr(engine, "UNREAD", 64)
    model = letters(context=3000, context_length=3000)
    with running({"letters": model}, limits=Limits(slots=1, turn=None), http_workers=workers) as address:
        body = {"prompt": "ab", "stream": True, "max_tokens": 2500, "ignore_eos": True, **fields}
        data = json.dumps(body | {"stream_options": {"include_usage": True}}).encode()
        scheduler = scheduler_of(address, "letters")
        with socket.socket() as sock, address.client() as client:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(PATIENCE)
            sock.connect(("127.0.0.1", address.port))
            sock.sendall(HEAD + f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
            until(lambda: scheduler.stats.yielded and not scheduler.stats.running)
            assert client.completions.create(model="letters", prompt="ab").choices[0].text == "cdefgh"
            assert scheduler.stats.generated_tokens < 2000
            answer = b"".join(iter(lambda: sock.recv(2**16), b""))
        assert b'"completion_tokens":2500' in answer
        assert b"data: [DONE]" in answer


@pytest.mark.thorough
def test_streams_under_way_end_well_or_are_told_when_the_server_ends() -> None:
    with running({"slow": slow_letters()}, drain=0.3, http_workers=2) as address, address.client() as client:
        stream = client.completions.create(
            model="slow", prompt="ab", extra_body={"ignore_eos": True}, temperature=1, stream=True
        )
        next(iter(stream))
        workers = front(address)._workers
        processes = [worker._process for worker in workers]
        address.server.stop()
        with pytest.raises(openai.APIError, match="shut down"):
            list(stream)
        until(lambda: not any(worker.alive for worker in workers))
    assert [process.returncode for process in processes if process is not None] == [0, 0]
    assert not any(Path(f"/proc/{process.pid}/fd").exists() for process in processes if process is not None)


@pytest.mark.parametrize("workers", [-1, 65, 1000])
def test_a_number_of_workers_out_of_range_is_refused(workers: int) -> None:
    with pytest.raises(SpecError, match="processes for HTTP must be from 0 to 64"):
        ServerSettings(http_workers=workers)


def test_texts_stay_between_the_messages_around_them() -> None:
    came: list[tuple[int, int, Any]] = []

    class Joined(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            other.data_received(bytes(data))

        def is_closing(self) -> bool:
            return False

    async def send() -> None:
        nonlocal other
        link, other = (HttpLink(lambda *message: came.append(message), lambda: None) for _ in range(2))
        link.connection_made(Joined())
        one, two = link.send_frame(7, b"<", b">"), link.send_frame(8, b"", b"]")
        link.send_text(one, b'"a"')
        link.send_text(two, "é".encode())
        link.send(LinkMessage.BODY, 7, b"b")
        link.send_text(one, b"")
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    other: Any = None
    asyncio.run(send())
    kinds = [LinkMessage(kind).name for kind, _, _ in came]
    assert kinds == ["FRAME", "FRAME", "TEXTS", "BODY", "TEXTS"]
    assert [unpacked_frame(content) for _, _, content in came[:2]] == [(1, b"<", b">"), (2, b"", b"]")]
    assert list(unpacked_texts(came[2][2])) == [(1, b'"a"'), (2, "é".encode())]
    assert list(unpacked_texts(came[4][2])) == [(1, b"")]


@settings(max_examples=30, deadline=None)
@given(
    messages=st.lists(st.tuples(st.sampled_from(LinkMessage), st.integers(0, 2**32 - 1), st.binary(max_size=40))),
    size=st.integers(1, 50),
)
def test_messages_arrive_whole_however_they_are_cut(messages: list[tuple[int, int, bytes]], size: int) -> None:
    came: list[tuple[int, int, bytes]] = []

    class Cut(asyncio.Transport):
        def write(self, data: bytes | bytearray | memoryview) -> None:
            for at in range(0, len(data), size):
                other.data_received(bytes(data[at : at + size]))

        def is_closing(self) -> bool:
            return False

    async def send() -> None:
        nonlocal other
        link, other = (HttpLink(lambda *message: came.append(message), lambda: None) for _ in range(2))
        link.connection_made(Cut())
        for message in messages:
            link.send(*message)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    other: Any = None
    asyncio.run(send())
    assert came == messages
