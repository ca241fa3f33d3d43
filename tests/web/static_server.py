"""A server of files for pages, as any static host: with ranges, and with faults on demand."""

from __future__ import annotations

import json
import re
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_KINDS = {
    ".js": "text/javascript",
    ".mjs": "text/javascript",
    ".html": "text/html",
    ".css": "text/css",
    ".json": "application/json",
    ".wasm": "application/wasm",
}
_BYTES = "application/octet-stream"
_PAGE = b"<!doctype html><meta charset=utf-8><title>engine</title><link rel=icon href=data:,><body></body>"


class StaticServer:
    """Files of folders, by the first part of their address.

    Attributes
    ----------
    folders : first part of an address → folder
    cuts : address → bytes after which the connection breaks, once for each entry
    ranges : whether requests for a range are honoured
    marks : whether files have an ETag
    shared : whether pages of other hosts may read the files (CORS)
    headers : further headers of every answer
    requests : address and range of every request
    """

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}
        self.cuts: dict[str, list[int]] = {}
        self.ranges = True
        self.marks = True
        self.shared = False
        self.headers: Mapping[str, str] = {}
        self.requests: list[tuple[str, str | None]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()

    def contents(self, address: str) -> bytes | None:
        """Return the bytes at an address, None if there are none."""
        if address == "/":
            return _PAGE
        folder, _, name = address.lstrip("/").partition("/")
        path = self.folders[folder] / name if folder in self.folders else None
        return path.read_bytes() if path is not None and path.is_file() else None


def _handler(server: StaticServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            address, wanted = self.path.partition("?")[0], self.headers.get("Range")
            server.requests.append((address, wanted))
            body = server.contents(address)
            if body is None:
                self.send_error(404)
                return
            start = re.fullmatch(r"bytes=(\d+)-", wanted or "")
            first = int(start[1]) if start and server.ranges else 0
            if first and first >= len(body):
                self.send_error(416)
                return
            self.send_response(206 if first else 200)
            self.send_header(
                "Content-Type", _KINDS.get(Path(address).suffix, "text/html" if address == "/" else _BYTES)
            )
            self.send_header("Content-Length", str(len(body) - first))
            self.send_header("Cache-Control", "no-store")
            if server.marks:
                self.send_header("ETag", f'"{zlib.crc32(body):08x}"')
            if server.shared:
                self.send_header("Access-Control-Allow-Origin", "*")
            for name, value in server.headers.items():
                self.send_header(name, value)
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
            self.end_headers()
            cuts = server.cuts.get(address)
            if cuts:
                self.wfile.write(body[first : first + cuts.pop(0)])
                self.wfile.flush()
                time.sleep(0.2)  # so that the browser hands on what it has before it learns of the end
                self.connection.close()
                return
            self.wfile.write(body[first:])

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
            pass

        def handle(self) -> None:
            try:
                super().handle()
            except (ConnectionError, ValueError, OSError):
                self.close_connection = True

    return Handler


@contextmanager
def static_server() -> Iterator[StaticServer]:
    """Run a server while the context lasts."""
    server = StaticServer()
    try:
        yield server
    finally:
        server.close()


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON."""
    path.write_text(json.dumps(value))
