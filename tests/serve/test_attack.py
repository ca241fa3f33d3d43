"""A server under attack: malformed requests, clients that send no more, a device that fails in the middle."""

from __future__ import annotations

import ctypes
import http.client
import json
import socket
from typing import Any

import openai
import pytest

from benchmarks import serve_fuzz
from tests.generate.letters import letters, recurrent_letters
from tests.serve.servers import PATIENCE, Address, ask, hang_devices, running, slow_letters, until
from volumetric.base.errors import DeviceError
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate.scheduling.device_calls import DeviceCalls
from volumetric.serve import bodies, heap, protocol


@pytest.fixture(scope="module")
def server():
    models = {"letters": letters(), "random": recurrent_letters(ReferenceDevice()), "slow": slow_letters()}
    with running(models, hosts=frozenset({"127.0.0.1", "localhost"}), max_body=2**20) as address:
        yield address


@pytest.mark.thorough
def test_malformed_requests_are_refused_in_openai_s_shape(server: Address, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bodies, "PATIENCE", 1.0)  # who cuts a body off waits to be told so
    counts, wrong = serve_fuzz.fuzz(server.port, count=250, seed=3, clients=4, patience=PATIENCE)
    assert not wrong, "\n".join(wrong)
    assert len({told.split(": ")[0] for told in counts}) > 15
    with server.client() as client:
        assert client.completions.create(model="letters", prompt="ab").choices[0].text == "cdefgh"


def sent(address: Address, data: bytes) -> tuple[int, Any]:
    """Send bytes, and nothing more; return status and body, or 0 where the server closes without a word."""
    with socket.create_connection(("127.0.0.1", address.port), PATIENCE) as sock:
        sock.sendall(data)
        answer = http.client.HTTPResponse(sock)
        try:
            answer.begin()
        except http.client.RemoteDisconnected:
            return 0, None
        return answer.status, json.loads(answer.read())


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def post(body: bytes, length: int | None = None) -> bytes:
    return HEAD + f"Content-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\r\n" * 4, 400, "invalid_http"),  # TLS
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n", 400, "invalid_http"),
        (post(b'{"prompt": [180591620717]}', 25), 400, "invalid_json|invalid_http"),  # what follows is no request
        (post(b'{"prompt": ' + b" " * 2**21), 413, "body_too_large"),
        (post(b'{"prompt": [1180591620717411303424]}'), 400, None),
        (post(b'{"prompt": "ab", "max_tokens": 1, "model": null, "seed": null}'), 200, None),
        (post(b'{"prompt": null}'), 400, "invalid_type"),
        (post(b"{", 2**40), 413, "body_too_large"),  # nobody waits for it to come
        (HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "invalid_http"),
        (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n\x1f\x8b", 415, "unsupported_media_type"),
        (b"GET /health HTTP/1.0\r\n\r\n", 200, None),  # as load balancers ask, without a name
        (b"GET /health HTTP/1.1\r\nHost: LocalHost:8080\r\n\r\n", 200, None),  # names have no case
        (b"GET /health HTTP/1.1\r\nHost: localhosts\r\n\r\n", 403, "unknown_host"),
    ],
)
def test_what_a_connection_may_say(server: Address, data: bytes, status: int, code: str | None):
    got, told = sent(server, data)
    assert got == status, told
    if status != 200:
        assert set(told["error"]) == {"message", "type", "param", "code"}
        assert told["error"]["code"] in ([None] if code is None else code.split("|"))


def test_who_sends_no_more_is_given_up(server: Address, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(bodies, "PATIENCE", 0.2)
    for data in (b"", HEAD, b"GET /health HTTP/1.1\r\n"):
        assert sent(server, data) == (0, None)
    status, told = sent(server, HEAD + b"Content-Length: 100\r\n\r\n{")
    assert (status, told["error"]["code"]) == (408, "body_timeout")
    kept = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    kept.request("GET", "/health")
    assert kept.getresponse().read() == b'{"status":"ok"}'
    assert kept.sock is not None
    kept.sock.sendall(b"GET /he")  # a second head that does not end
    assert kept.sock.recv(100) == b""
    kept.close()


def test_a_device_that_fails_fails_its_requests_alone(server: Address, monkeypatch: pytest.MonkeyPatch):
    run, due = DeviceCalls.run, [False]

    def failing(self: DeviceCalls, *args: Any) -> Any:
        if due[0]:
            due[0] = False
            raise DeviceError("the device is lost")
        return run(self, *args)

    monkeypatch.setattr(DeviceCalls, "run", failing)
    ask: dict[str, Any] = {"model": "slow", "prompt": "ab", "temperature": 1, "extra_body": {"ignore_eos": True}}
    with server.client() as client:
        stream = client.completions.create(**ask, stream=True)
        next(iter(stream))
        due[0] = True
        with pytest.raises(openai.APIError, match="the device is lost"):
            list(stream)
        due[0] = True
        with pytest.raises(openai.InternalServerError, match="the device is lost") as caught:
            client.completions.create(**ask)
        assert caught.value.code == "device_error"
        assert client.completions.create(model="letters", prompt="ab").choices[0].text == "cdefgh"
        assert client.completions.create(model="slow", prompt="ab", max_tokens=2).usage is not None
    engine = server.server.serving.models["slow"].engine
    assert engine is not None
    until(lambda: engine.scheduler.idle)


@pytest.mark.thorough
def test_a_device_that_hangs_is_told_of(monkeypatch: pytest.MonkeyPatch):
    """To those who wait, and to whoever watches over the server, which ends without it."""
    goes = hang_devices(monkeypatch)
    model = letters()
    with running({"letters": model}, step_seconds=0.5) as address, address.client() as client:
        for _ in range(2):
            with pytest.raises(openai.InternalServerError, match="the device has not answered for") as caught:
                client.completions.create(model="letters", prompt="ab")
            assert caught.value.code == "device_error"
            with pytest.raises(openai.InternalServerError, match="it seems to hang") as caught:
                client.get(f"{address.url}/health", cast_to=object)
            assert (caught.value.code, caught.value.status_code) == ("engine_stuck", 503)
            goes.set()
            until(lambda: ask(address, "/health")[0] == 200)
            assert client.completions.create(model="letters", prompt="ab").choices[0].text == "cdefgh"
            goes.clear()
        with pytest.raises(openai.InternalServerError, match="the device has not answered for"):
            client.completions.create(model="letters", prompt="ab")
        engine = address.server.serving.models["letters"].engine
        assert engine is not None
    assert engine.alive
    goes.set()
    engine._thread.join(PATIENCE)
    assert not engine.alive
    model.close()


def test_memory_is_given_back_where_the_system_has_a_way(monkeypatch: pytest.MonkeyPatch):
    heap.limit_arenas()
    heap.trim()
    heap._glibc.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())  # another C library
    heap.limit_arenas()
    heap.trim()
    heap._glibc.cache_clear()
