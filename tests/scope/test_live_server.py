"""The server behind a page: hostile requests, slow pages, pages that come again, and a prompt end."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.scope import ScopeDocument, ScopeView
from volumetric.scope.live_server import VIEWERS, WAITING, LiveServer

DOCUMENT = ScopeDocument(title="t", source="s", views=(ScopeView(kind="scene", name="network", label="N", data={}),))


class Source:
    """Counts its acts."""

    def __init__(self) -> None:
        self.acts = 0
        self.closed = False
        self.number = 0

    def connect(self, send: Any) -> None:
        self.send = send

    def snapshot(self) -> list[Mapping[str, Any]]:
        return [{"view": "network", "kind": "snapshot", "number": self.number}]

    def act(self, view: str, action: Mapping[str, Any]) -> Mapping[str, Any]:
        if action.get("do") == "fail":
            raise SpecError("no such thing")
        if action.get("do") == "crash":
            raise KeyError("a bug")
        self.acts += 1
        return {"acts": self.acts}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def live(capfd: pytest.CaptureFixture[str]) -> Iterator[tuple[LiveServer, Source]]:
    """A server; nothing may be written to stderr whatever clients do."""
    source = Source()
    server = LiveServer(DOCUMENT, source)
    yield server, source
    server.close()
    assert source.closed
    assert capfd.readouterr().err == ""


def place(server: LiveServer) -> tuple[str, int, str]:
    parts = urlsplit(server.address)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port, parts.query


def answer(server: LiveServer, raw: bytes) -> bytes:
    """Return what the server answers to bytes, which end there."""
    host, port, _ = place(server)
    with socket.create_connection((host, port), 20) as client:
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        parts = []
        try:
            while part := client.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            pass
        return b"".join(parts)


def post(server: LiveServer, body: bytes, **headers: str) -> tuple[int, Any]:
    host, port, query = place(server)
    client = http.client.HTTPConnection(host, port, timeout=20)
    client.request("POST", f"/act?{query}", body, {"Content-Type": "application/json", **headers})
    result = client.getresponse()
    return result.status, json.loads(result.read())


def test_malformed_requests_are_refused_and_the_server_goes_on(live):
    server, source = live
    host, port, query = place(server)
    here = f"Host: {host}:{port}\r\n"
    kind = "Content-Type: application/json\r\n"
    ask = f"POST /act?{query} HTTP/1.1\r\n{here}{kind}"
    for text, status in (
        ("\r\n\r\n", None),
        ("GET\r\n\r\n", 400),
        ("\x00\xff\x16\x03\x01\x02\r\n\r\n", 400),
        (f"GET /?{query} HTTP/9.9\r\n{here}\r\n", 505),
        (f"BREW /?{query} HTTP/1.1\r\n{here}\r\n", 501),
        (f"GET /{'x' * 70_000} HTTP/1.1\r\n\r\n", 414),
        (f"GET /?{query} HTTP/1.1\r\n{here}" + "".join(f"X-{i}: 1\r\n" for i in range(200)) + "\r\n", 431),
        (f"GET /?{query} HTTP/1.1\r\n{here}Y: {'y' * 70_000}\r\n\r\n", 431),
        (f"GET /?{query} HTTP/1.1\r\n\r\n", 403),
        (f"GET /?{query} HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403),
        (f"GET /?{query} HTTP/1.1\r\nHost: {host}.evil.example:{port}\r\n\r\n", 403),
        (f"GET /?{query} HTTP/1.1\r\n{here}Host: evil.example\r\n\r\n", 403),
        (f"GET / HTTP/1.1\r\n{here}\r\n", 403),
        (f"GET /?token= HTTP/1.1\r\n{here}\r\n", 403),
        (f"GET /?token=%ff%00%f0%9f HTTP/1.1\r\n{here}\r\n", 403),
        (f"GET /?token={'é' * 30} HTTP/1.1\r\n{here}\r\n", 403),
        (f"GET /events HTTP/1.1\r\n{here}\r\n", 403),
        (f"GET /../../etc/passwd?{query} HTTP/1.1\r\n{here}\r\n", 404),
        (f"GET http://evil.example/?{query} HTTP/1.1\r\n{here}\r\n", 404),
        (f"GET /?{query} HTTP/1.1\r\n{here}\r\n", 200),
        (f"GET /?{query} HTTP/1.1\r\nHost: localhost:9999\r\n\r\n", 200),
        (f"POST /?{query} HTTP/1.1\r\n{here}{kind}Content-Length: 2\r\n\r\n{{}}", 404),
        (f"POST /act HTTP/1.1\r\n{here}{kind}Content-Length: 2\r\n\r\n{{}}", 403),
        (f"POST /act?{query} HTTP/1.1\r\n{here}Content-Length: 2\r\n\r\n{{}}", 415),
        (f"POST /act?{query} HTTP/1.1\r\n{here}Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{{}}", 415),
        (f"{ask}\r\n", 411),
        (f"{ask}Content-Length: -1\r\n\r\n", 411),
        (f"{ask}Content-Length: 2.5\r\n\r\n", 411),
        (f"{ask}Content-Length: \u0662\r\n\r\n", 411),
        (f"{ask}Content-Length: {'9' * 5000}\r\n\r\n", 411),
        (f"{ask}Content-Length: 999999999\r\n\r\n", 413),
        (f"{ask}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411),
        (f"{ask}Content-Length: 50\r\n\r\n{{}}", None),
        (f"{ask}Content-Length: 2\r\n\r\n{{}}", 400),
        (f"{ask}Content-Length: 4\r\n\r\n\x00\x01\x02\x03", 400),
        (f"{ask}Content-Length: 4\r\n\r\nnull", 400),
        (f"{ask}Content-Length: 5\r\n\r\n1e999", 400),
        (f"{ask}Content-Length: 100000\r\n\r\n{'[' * 100_000}", 400),
        (f'{ask}Content-Length: 26\r\n\r\n{{"view":1,"action":{{"a":1}}}}', 400),
        (f"{ask}Origin: http://evil.example\r\nContent-Length: 2\r\n\r\n{{}}", 403),
        (f"{ask}Origin: null\r\nContent-Length: 2\r\n\r\n{{}}", 403),
        (f"{ask}Sec-Fetch-Site: cross-site\r\nContent-Length: 2\r\n\r\n{{}}", 403),
    ):
        got = answer(server, text.encode("latin-1", "replace"))
        line = got.split(b"\r\n")[0]
        assert b"Traceback" not in got
        if status is None:
            assert got == b"" or line.split()[1][:1] == b"4", (text[:60], got[:200])
        elif line.startswith(b"HTTP/"):
            assert int(line.split()[1]) == status, (text[:60], got[:200])
        else:  # a request without a version gets no status line
            assert f"Error code: {status}".encode() in got, (text[:60], got[:200])
    assert source.acts == 0
    assert post(server, b'{"view": "network", "action": {"do": "x"}}') == (200, {"acts": 1})
    origin = f"http://{host}:{port}"
    assert post(server, b'{"view": "network", "action": {"do": "x"}}', Origin=origin) == (200, {"acts": 2})


def test_errors_of_acts_are_sentences(live):
    server, _ = live
    assert post(server, b'{"view": "a", "action": {"do": "fail"}}') == (400, {"error": "no such thing"})
    assert post(server, b'{"view": "a", "action": {"do": "crash"}}') == (
        500,
        {"error": "the program failed: KeyError: 'a bug'"},
    )


class Listener:
    """Reads the events of a server."""

    def __init__(self, server: LiveServer) -> None:
        host, port, query = place(server)
        self.client = http.client.HTTPConnection(host, port, timeout=20)
        self.client.request("GET", f"/events?{query}")
        self.answer = self.client.getresponse()

    def next(self) -> Any:
        while True:
            line = self.answer.readline()
            if not line:
                return None
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def close(self) -> None:
        self.answer.close()
        self.client.close()


def test_a_page_gets_the_state_first_also_when_it_comes_again(live):
    server, source = live
    for number in range(2):
        source.number = number
        page = Listener(server)
        assert page.next() == {"view": "network", "kind": "snapshot", "number": number}
        source.send({"view": "network", "kind": "frame", "t": 7})
        assert page.next()["t"] == 7
        page.close()


def test_a_seventeenth_page_is_refused_until_another_goes(live):
    server, source = live
    pages = [Listener(server) for _ in range(VIEWERS)]
    assert [page.next()["kind"] for page in pages] == ["snapshot"] * VIEWERS
    late = Listener(server)
    assert late.answer.status == 503
    assert json.loads(late.answer.read())["error"] == "too many pages are open: close one of them"
    assert server.viewer_count == VIEWERS
    for page in pages:
        page.close()
    late.close()
    again = threading.Event()
    while server.viewer_count == VIEWERS:  # the server notices when it writes
        source.send({"view": "network", "kind": "frame"})
        again.wait(0.01)
    page = Listener(server)
    assert page.next()["kind"] == "snapshot"
    page.close()


def test_a_page_that_reads_nothing_holds_up_nobody(live):
    server, source = live
    host, port, query = place(server)
    with socket.create_connection((host, port), 20) as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(f"GET /events?{query} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        assert server.wait_for_viewers(20)
        page = Listener(server)
        assert page.next()["kind"] == "snapshot"
        large = np.zeros(50_000, np.uint8)
        for t in range(3 * WAITING):
            source.send({"view": "network", "kind": "frame", "t": t, "node": large})
            if t % 100 == 0:
                source.send({"view": "network", "kind": "changed", "t": t})
        kinds = [server._viewers[0]._messages[i] for i in range(len(server._viewers[0]._messages))]
        assert len(kinds) == WAITING
        stayed = [json.loads(text)["t"] for text, may_drop in kinds if not may_drop and "changed" in text]
        assert stayed[-1] == 3 * WAITING // 100 * 100 - (0 if 3 * WAITING % 100 else 100)
        source.send({"view": "network", "kind": "end"})
        while page.next()["kind"] != "end":
            pass
        page.close()


def test_closing_ends_pages_that_listen_and_those_that_do_not():
    source = Source()
    server = LiveServer(DOCUMENT, source)
    host, port, _ = place(server)
    page, silent = Listener(server), socket.create_connection((host, port), 20)
    assert page.next()["kind"] == "snapshot"
    source.send({"view": "network", "kind": "last"})
    server.close()
    assert page.next()["kind"] == "last"
    assert page.next() is None
    silent.settimeout(20)
    with suppress(ConnectionResetError):
        assert silent.recv(1) == b""
    silent.close()
    page.close()
    with pytest.raises(OSError):
        socket.create_connection((host, port), 1)
