"""A local HTTP server for JSON, server-sent events and actions. It listens only if created."""

from __future__ import annotations

import json
import re
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

from volumetric.base.errors import DeviceError, VolumetricError

LOCALHOST = "127.0.0.1"
_MOST_BODY: Final = 1 << 20
"""Maximum bytes of an action."""
_MOST_CONNECTIONS: Final = 128
"""Maximum number of open connections; further ones are closed at once."""
_GRACE: Final = 0.5  # seconds for clients to take their last events before connections are closed
_LENGTH: Final = re.compile(r"[0-9]{1,9}", re.ASCII)
Events = Callable[[], AbstractContextManager[Iterator[str] | None]]
"""Opens an iterator of event data, with ``""`` as keep-alive; None: too many clients."""


class _Connections(ThreadingHTTPServer):
    """A server with a limited number of connections, which it can close. It reports no errors of clients."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._open: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, if there are not too many."""
        with self._changed:
            full = len(self._open) >= _MOST_CONNECTIONS
            if not full:
                self._open.add(request)
        if full:
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        super().shutdown_request(request)
        with self._changed:
            self._open.discard(request)
            self._changed.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report nothing: stderr belongs to the program, and a client that goes away is no error of it."""

    def close_all(self) -> None:
        """Stop listening, and close all connections after a moment."""
        self.server_close()
        with self._changed:
            self._changed.wait_for(lambda: not self._open, _GRACE)
            left = list(self._open)
        for one in left:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class LocalServer:
    """Answers GET requests on this machine, and POST requests for actions.

    Requests must name this machine in their `Host` header, so that no page of another address reaches the server by a
    name that it lets point here (DNS rebinding). An action must come from a page of this server, or from no page.
    Tokens are compared in constant time.

    Parameters
    ----------
    pages : path → JSON data
    texts : path → a page of HTML
    events : path → events, sent as server-sent events (``text/event-stream``)
    actions : path → function of the JSON body of a POST request that returns JSON data; a `VolumetricError` becomes
        status 400 with its sentence, any other error status 500 with its name
    token : secret that every request must have as ``?token=``; None: none
    port : TCP port; 0 takes a free one, see `address`
    host : address to listen on; only this machine can reach the default

    Raises
    ------
    DeviceError
        The port cannot be listened on.
    """

    def __init__(
        self,
        pages: Mapping[str, Callable[[], Any]],
        events: Mapping[str, Events] | None = None,
        *,
        texts: Mapping[str, str] | None = None,
        actions: Mapping[str, Callable[[Any], Any]] | None = None,
        token: str | None = None,
        port: int = 0,
        host: str = LOCALHOST,
    ) -> None:
        flowing, shown, acting = events or {}, texts or {}, actions or {}
        known = " or ".join((*shown, *pages, *flowing))
        own_names = {LOCALHOST, "localhost", "[::1]", host}

        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # seconds, so that a silent or slow client does not block a thread forever
            server_version = sys_version = ""

            def do_GET(self) -> None:
                path = self._admitted_path()
                if path is None:
                    return
                if path in flowing:
                    self._flow(flowing[path])
                    return
                if path in shown:
                    self._answer(200, "text/html; charset=utf-8", shown[path].encode())
                    return
                page = pages.get(path)
                body = json.dumps({"error": f"try {known}"} if page is None else page()).encode()
                self._answer(404 if page is None else 200, "application/json", body)

            def do_POST(self) -> None:
                self.close_connection = True
                path = self._admitted_path()
                if path is None:
                    return
                act, length = acting.get(path), self.headers.get("Content-Length", "")
                if act is None:
                    self._refuse(404, "there is no such action")
                elif not self._from_here():
                    self._refuse(403, "actions are only for pages of this server")
                elif not self.headers.get("Content-Type", "").startswith("application/json"):
                    self._refuse(415, "send application/json")  # which a form of another page cannot
                elif "Transfer-Encoding" in self.headers or _LENGTH.fullmatch(length) is None:
                    self._refuse(411, "send the length of the action")
                elif int(length) > _MOST_BODY:
                    self._refuse(413, f"an action has at most {_MOST_BODY:,} bytes")
                else:
                    self._do(act, int(length))

            def _do(self, act: Callable[[Any], Any], length: int) -> None:
                """Read an action, do it and answer."""
                body = self.rfile.read(length)
                if len(body) != length:
                    return  # the client is gone
                try:
                    answer = json.dumps(act(json.loads(body)), allow_nan=False).encode()
                except (VolumetricError, ValueError, RecursionError) as error:
                    self._refuse(400, str(error))
                except Exception as error:  # the program behind the page goes on
                    self._refuse(500, f"the program failed: {type(error).__name__}: {error}")
                else:
                    self._answer(200, "application/json", answer)

            def _from_here(self) -> bool:
                """Return whether a request comes from a page of this server, or from no page."""
                origin = self.headers.get("Origin")
                if origin is not None and origin != f"http://{self.headers.get('Host', '')}":
                    return False
                return self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

            def _admitted_path(self) -> str | None:
                """Return the path of a request that may be answered; refuse others."""
                path, _, query = self.path.partition("?")
                hosts = self.headers.get_all("Host") or [""]
                if len(hosts) != 1 or re.sub(r":[0-9]{1,5}\Z", "", hosts[0]) not in own_names:
                    self._refuse(403, "this server answers only requests to this machine's own address")
                    return None
                asked = parse_qs(query).get("token", [""])[0]
                if token is not None and not secrets.compare_digest(asked.encode(errors="replace"), token.encode()):
                    self._refuse(403, "open the address with the token that the program printed")
                    return None
                return path

            def _refuse(self, status: int, sentence: str) -> None:
                self._answer(status, "application/json", json.dumps({"error": sentence}).encode())

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self._end_headers()
                self.wfile.write(body)

            def _end_headers(self) -> None:
                """End the headers: nothing is stored, and no other page learns the address."""
                self.send_header("Cache-Control", "no-store")
                self.send_header("Referrer-Policy", "no-referrer")
                self.send_header("X-Content-Type-Options", "nosniff")
                self.end_headers()

            def _flow(self, events: Events) -> None:
                self.close_connection = True
                with events() as source:
                    if source is None:
                        self._refuse(503, "too many pages are open: close one of them")
                        return
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self._end_headers()
                    try:
                        for data in source:  # writing a comment fails if the client is gone
                            self.wfile.write(f"data: {data}\n\n".encode() if data else b":\n\n")
                            self.wfile.flush()
                    except OSError:
                        return  # the client is gone

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class names it so)
                """Log nothing: stderr belongs to the program."""

        try:
            self._server = _Connections((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise DeviceError(f"cannot listen on {host}:{port}: {error}", hint="choose another port") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """URL of the server, such as ``http://127.0.0.1:40123``."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Stop listening, and close the connections."""
        self._server.shutdown()
        self._server.close_all()
        self._thread.join()
