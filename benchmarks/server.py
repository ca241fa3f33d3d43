"""`volumetric serve` in a process of its own, for benchmarks that ask it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from volumetric.serve.server import Server as NetworkServer

_PATIENCE: Final = 600.0
"""Seconds in which a server must have opened its models."""
SERVE: Final = (sys.executable, "-m", "volumetric", "serve")


@dataclass(frozen=True)
class Server:
    """A server that is ready.

    Attributes
    ----------
    process, port : where it runs
    log : a file of what it writes to stderr, or None where that is shown
    """

    process: subprocess.Popen[str]
    port: int
    log: IO[str] | None

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def logged(self) -> str:
        """Return what it has written to stderr."""
        if self.log is None:
            return ""
        self.log.seek(0)
        return self.log.read()


def run_until_closed(server: NetworkServer, sock: socket.socket, ready: str = "") -> None:
    """Serve for a parent: print the port and `ready`, and run until our input is closed."""

    def until_closed() -> None:
        sys.stdin.read()
        server.stop()

    threading.Thread(target=until_closed, daemon=True).start()
    server.run(sock, on_ready=lambda: print(sock.getsockname()[1], ready, flush=True))


@contextmanager
def serving(*arguments: str, command: Sequence[str] = SERVE, log: bool = False) -> Iterator[Server]:
    """Start a server on a free port, wait until it is ready, and end it behind the block if it runs still.

    Parameters
    ----------
    arguments : models and flags
    command : what they are given to
    log : keep what it writes to stderr
    """
    with tempfile.TemporaryFile("w+") as file:  # a pipe that nobody reads would stop the server when it is full
        whole = [*command, *arguments, "--port", "0", "--quiet", "--offline"]
        with subprocess.Popen(whole, stderr=file if log else None, text=True) as process:
            try:
                yield Server(process, port_of(process.pid), file if log else None)
            finally:
                process.kill()


def chat(port: int, body: dict[str, Any], seconds: float) -> tuple[int, Any]:
    """Return status and answer of a chat."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=seconds) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def port_of(pid: int) -> int:
    """Wait until a server listens and is ready, and return where."""
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and _runs(pid):
        time.sleep(0.2)
        for port in _listening(pid):
            try:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/health")
                if connection.getresponse().status == 200:
                    return port
            except OSError:
                continue
    raise SystemExit("the server did not start")


def _runs(pid: int) -> bool:
    """Whether a process has not ended; one that nobody has waited for yet has a state of its own."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def _listening(pid: int) -> list[int]:
    """Ports on which a process listens."""
    names = {str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in names]
