"""A local HTTP server for JSON, server-sent events and actions. It listens only if created."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

from volumetric.base.errors import DeviceError, VolumetricError

LOCALHOST = "127.0.0.1"
_MOST_BODY: Final = 1 << 20
"""Maximum bytes of an action."""
Events = Callable[[], AbstractContextManager[Iterator[str] | None]]
"""Opens an iterator of event data, with ``""`` as keep-alive; None: too many clients."""


class LocalServer:
    """Answers GET requests on this machine, and POST requests for actions.

    Requests must name this machine in their `Host` header, so that no page of another address reaches the server by a
    name that it lets point here.

    Parameters
    ----------
    pages : path → JSON data
    texts : path → a page of HTML
    events : path → events, sent as server-sent events (``text/event-stream``)
    actions : path → function of the JSON body of a POST request that returns JSON data; a `VolumetricError` becomes
        status 400 with its sentence
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
            timeout = 10  # seconds, so that a silent client does not block a thread forever

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
                path = self._admitted_path()
                if path is None:
                    return
                act, length = acting.get(path), self.headers.get("Content-Length", "")
                if act is None or not length.isdecimal() or int(length) > _MOST_BODY:
                    self.close_connection = True
                    self._refuse(404 if act is None else 413, f"POST {path} takes at most {_MOST_BODY:,} bytes")
                    return
                if not self.headers.get("Content-Type", "").startswith("application/json"):
                    self.close_connection = True  # a form of another page cannot send this type without being asked
                    self._refuse(415, "send application/json")
                    return
                try:
                    answer = json.dumps(act(json.loads(self.rfile.read(int(length)))), allow_nan=False).encode()
                except (VolumetricError, ValueError, RecursionError) as error:
                    self._refuse(400, str(error))
                else:
                    self._answer(200, "application/json", answer)

            def _admitted_path(self) -> str | None:
                """Return the path of a request that may be answered; refuse others."""
                path, _, query = self.path.partition("?")
                if self.headers.get("Host", "").rpartition(":")[0] not in own_names:
                    self._refuse(403, "this server answers only requests to this machine's own address")
                    return None
                asked = parse_qs(query).get("token", [""])[0]
                if token is not None and not secrets.compare_digest(asked.encode(), token.encode()):
                    self._refuse(403, "open the address with the token that the program printed")
                    return None
                return path

            def _refuse(self, status: int, sentence: str) -> None:
                self._answer(status, "application/json", json.dumps({"error": sentence}).encode())

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _flow(self, events: Events) -> None:
                self.close_connection = True
                with events() as source:
                    if source is None:
                        self.send_error(503, "too many clients are listening")
                        return
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self.send_header("Cache-Control", "no-store")
                    self.end_headers()
                    try:
                        for data in source:  # writing a comment fails if the client is gone
                            self.wfile.write(f"data: {data}\n\n".encode() if data else b":\n\n")
                            self.wfile.flush()
                    except OSError:
                        return  # the client is gone

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class names it so)
                """Log nothing: stderr belongs to the program."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise DeviceError(f"cannot listen on {host}:{port}: {error}", hint="choose another port") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """URL of the server, such as ``http://127.0.0.1:40123``."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
