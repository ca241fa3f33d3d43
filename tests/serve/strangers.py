"""Servers for tests that speak something else than they should, or stop in the middle."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

MODELS = b'{"object": "list", "data": [{"id": "letters"}]}'


def answered(body: bytes, kind: str = "application/json", status: str = "200 OK") -> bytes:
    """Return an answer of a known length."""
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


def streamed(*events: Any, whole: bool = True) -> bytes:
    """Return a stream of events, each in a chunk; texts are sent as they are. It breaks off unless it is `whole`."""
    data = [event.encode() if isinstance(event, str) else f"data: {json.dumps(event)}".encode() for event in events]
    chunks = b"".join(b"%x\r\n%b\n\n\r\n" % (len(one) + 2, one) for one in data)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + (b"0\r\n\r\n" if whole else b"")


def said(text: str, **rest: Any) -> dict[str, Any]:
    """Return a piece of a chat completion."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} | rest


@contextmanager
def stranger(answer: bytes, models: bytes | None = None) -> Iterator[str]:
    """Give every request this answer, but one for the models; yields the URL."""
    known = answered(MODELS) if models is None else models
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def work() -> None:
            while True:
                try:
                    sock, _ = listening.accept()
                except OSError:  # the test is over
                    return
                with sock:
                    asked = sock.recv(1 << 16)
                    sock.sendall(known if asked.startswith(b"GET ") else answer)
                    sock.shutdown(socket.SHUT_WR)
                    while asked and sock.recv(1 << 16):  # else what was not read would end the connection as an error
                        pass

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join(10)
