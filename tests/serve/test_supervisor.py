"""Who supervises a server, as systemd does, hears when it is ready, and as long as no device hangs."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.generate.letters import letters
from tests.serve.servers import PATIENCE, running
from volumetric.generate.scheduling.rounds import Rounds
from volumetric.serve import run as serving_run
from volumetric.serve import supervisor as supervising
from volumetric.serve.engine import Engine


def test_who_supervises_the_server_hears_when_it_is_ready_and_that_no_device_hangs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    step, goes = Rounds.run, threading.Event()

    def hanging(self: Rounds, *args: Any) -> Any:
        assert goes.wait(PATIENCE)
        return step(self, *args)

    monkeypatch.setattr(Rounds, "run", hanging)
    watch, looks = Engine.watch, [0]

    def watching(self: Engine) -> None:
        watch(self)
        looks[0] += 1

    monkeypatch.setattr(Engine, "watch", watching)
    monkeypatch.setattr(serving_run, "_LOOK", 0.02)
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
            before, until = looks[0], time.monotonic() + PATIENCE
            while looks[0] < before + 3 and time.monotonic() < until:
                time.sleep(0.01)
            with pytest.raises(BlockingIOError):
                supervisor.recv(100)
            goes.set()
            supervisor.settimeout(PATIENCE)
            assert supervisor.recv(100) == b"WATCHDOG=1"
        while heard[-1] != b"STOPPING=1":
            heard.append(supervisor.recv(100))
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    supervising.tell(supervising.READY)  # nobody is there any more
