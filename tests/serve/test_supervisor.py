"""Who supervises a server, as systemd does, hears when it is ready, and as long as no device hangs."""

from __future__ import annotations

import contextlib
import signal
import socket
from pathlib import Path

import openai
import pytest

from tests.generate.letters import letters
from tests.serve.servers import PATIENCE, hang_devices, running, until
from volumetric.generate import Limits
from volumetric.serve import supervisor as supervising
from volumetric.serve.engine import Engine
from volumetric.serve.server import Server, listen
from volumetric.serve.serving import ServerSettings


@pytest.mark.thorough
def test_who_supervises_the_server_hears_when_it_is_ready_and_that_no_device_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    goes = hang_devices(monkeypatch)
    watch, looks = Engine.watch, [0]

    def watching(self: Engine) -> None:
        watch(self)
        looks[0] += 1

    monkeypatch.setattr(Engine, "watch", watching)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(tmp_path / "notify"))
        supervisor.settimeout(PATIENCE)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        heard: list[bytes] = []
        with running({"letters": letters()}, step_seconds=0.2) as address, address.client() as client:
            while heard.count(b"READY=1") < 1 or heard.count(b"WATCHDOG=1") < 2:
                heard.append(supervisor.recv(100))
            with pytest.raises(openai.InternalServerError, match="the device has not answered for"):
                client.completions.create(model="letters", prompt="ab")
            supervisor.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while supervisor.recv(100):
                    pass
            before = looks[0]
            until(lambda: looks[0] >= before + 3)
            with pytest.raises(BlockingIOError):
                supervisor.recv(100)
            goes.set()
            supervisor.settimeout(PATIENCE)
            assert supervisor.recv(100) == b"WATCHDOG=1"
        while heard[-1] != b"STOPPING=1":
            heard.append(supervisor.recv(100))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    supervising.tell(supervising.READY)  # nobody is there any more


@pytest.mark.thorough
def test_signals_mean_afterwards_what_they_meant_before():
    """A server takes them over while it runs, and gives them back."""
    numbers, during = (signal.SIGTERM, signal.SIGINT), []
    before = [signal.getsignal(number) for number in numbers]
    server = Server({"letters": letters}, ServerSettings(), Limits(), drain=0.0)

    def ready() -> None:
        during.append(signal.getsignal(signal.SIGTERM))
        server.stop()

    server.run(listen("127.0.0.1", 0), on_ready=ready)
    assert during != before[:1]
    assert [signal.getsignal(number) for number in numbers] == before
