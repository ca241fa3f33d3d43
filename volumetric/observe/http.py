"""An observer that answers HTTP on this machine: aggregates of the last steps as JSON. Nothing listens unless asked."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from volumetric.errors import DeviceError
from volumetric.observe.events import LayerEvent
from volumetric.observe.window import WindowObserver

LOCALHOST = "127.0.0.1"


class HttpObserver:
    """Serves ``GET /`` (aggregates over the window) and ``GET /latest`` (the newest event of each layer).

    Parameters
    ----------
    port : TCP port; 0 takes a free one, see `address`
    window : steps of the aggregates
    host : address to listen on; only this machine can reach the default

    Raises
    ------
    DeviceError
        The port cannot be listened on.
    """

    def __init__(self, port: int = 0, *, window: int = 100, host: str = LOCALHOST) -> None:
        self._window, self._latest = WindowObserver(window), WindowObserver(1)
        pages = {"/": self._window.describe, "/latest": self._latest.describe}

        class Handler(BaseHTTPRequestHandler):
            timeout = 10  # seconds; a client that stays silent must not hold a thread forever

            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                body = json.dumps({"error": "try / or /latest"} if page is None else page()).encode()
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (the base class names it so)
                """Say nothing: stderr belongs to the program."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except (OSError, OverflowError) as error:
            raise DeviceError(f"cannot listen on {host}:{port}: {error}", hint="choose another port") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where it answers, as ``http://127.0.0.1:40123``."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}"

    def observe(self, event: LayerEvent) -> None:
        """Keep an event."""
        self._window.observe(event)
        self._latest.observe(event)

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
