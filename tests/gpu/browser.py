"""A browser's WebGPU: modules compiled by Tint, the compiler of Chromium.

Chromium is started without a window on a page of a server of this process, which hands out the modules and takes what
the compiler says of them. No driver library is needed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

_REQUIRED = "VOLUMETRIC_REQUIRE_BROWSER"
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless=new", "--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-dev-shm-usage",
)  # fmt: skip
_PAGE = (Path(__file__).parent / "browser.html").read_bytes()


class NoBrowserError(RuntimeError):
    """There is no browser with WebGPU here."""


def find() -> str:
    """Return the path of Chromium: what ``$CHROMIUM`` says, or the first that is installed. Raises `NoBrowserError`."""
    for name in (os.environ.get("CHROMIUM"), *_NAMES):
        found = shutil.which(name) if name else None
        if found is not None:
            return found
    raise NoBrowserError("Chromium is not installed (Debian: apt install chromium)")


def find_or_skip() -> None:
    """Skip a test where there is no browser, unless ``$VOLUMETRIC_REQUIRE_BROWSER`` demands one."""
    try:
        find()
    except NoBrowserError as error:
        if os.environ.get(_REQUIRED):
            raise
        pytest.skip(f"{error}; {_REQUIRED}=1 demands it")


def refusals(texts: Mapping[str, str], pipelines: Mapping[str, Any] | None = None, *, seconds: float = 300) -> Any:
    """Return what the compiler says against each of the modules that it refuses.

    Parameters
    ----------
    texts : name → WGSL
    pipelines : names of modules that shall become pipelines too, with buffers bound → their bindings as
        `GPUBindGroupLayoutEntry` objects

    Raises
    ------
    NoBrowserError : it is not installed, offers no WebGPU, or does not answer within `seconds`
    """
    work = json.dumps({"modules": texts, "pipelines": dict(pipelines or {})}).encode()
    answer: list[Any] = []
    done = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, kind = (work, "application/json") if self.path == "/work" else (_PAGE, "text/html")
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            answer.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()
            done.set()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [find(), *_FLAGS, f"--user-data-dir={profile}", f"http://127.0.0.1:{server.server_address[1]}/"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            done.wait(seconds)
        finally:
            end(browser)
            server.shutdown()
            server.server_close()
    if not answer:
        raise NoBrowserError(f"Chromium has not answered within {seconds:.0f} s")
    if "error" in answer[0]:
        raise NoBrowserError(answer[0]["error"])
    return answer[0]["refused"]


def end(browser: subprocess.Popen[bytes]) -> None:
    """End the browser with its GPU process: the session that it was started in."""
    os.killpg(browser.pid, 15)
    try:
        browser.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(browser.pid, 9)
        browser.wait()
