"""Requests and keys take turns, and a client that does not read takes no slots from those who do."""

from __future__ import annotations

import json
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.generate.letters import deep_letters, letters, recurrent_letters
from tests.serve.servers import PATIENCE, Address, running, slowed, until
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Limits, Model
from volumetric.layers import MultiHeadAttention
from volumetric.serve import engine
from volumetric.serve.engine import Engine


def engine_of(address: Address) -> Engine:
    (served,) = address.server.serving.models.values()
    assert served.engine is not None
    return served.engine


@pytest.mark.thorough
def test_a_request_of_many_texts_does_not_keep_another_one_waiting():
    model = slowed(recurrent_letters(ReferenceDevice()), 0.03)
    with running({"letters": model}, limits=Limits(slots=4, turn=8)) as address, address.client() as client:
        many: dict[str, Any] = {"prompt": ["ab"] * 6, "n": 2, "max_tokens": 28, "temperature": 1}
        many["extra_body"] = {"ignore_eos": True}
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(lambda: client.completions.create(model="letters", **many))
            scheduler = engine_of(address).scheduler
            until(lambda: scheduler.stats.running == 4)
            client.completions.create(model="letters", prompt="ab", max_tokens=1, temperature=1)
            assert not first.done()
            assert len(first.result(PATIENCE).choices) == 12


@pytest.mark.thorough
def test_each_key_has_its_share(monkeypatch: pytest.MonkeyPatch):
    keys = {"sesame": 1.0, "lentil": 3.0}
    with running({"letters": letters()}, api_key="first", api_keys=keys) as address:
        submit, told = engine_of(address).scheduler.submit, []
        monkeypatch.setattr(engine_of(address).scheduler, "submit", lambda job: (told.append(job), submit(job))[1])
        for key in ("lentil", "sesame", "first", "lentil"):
            with address.client(key) as client:
                client.completions.create(model="letters", prompt=["a", "b"], max_tokens=1)
    assert [job.weight for job in told] == [3, 3, 1, 1, 1, 1, 3, 3]
    owners = [job.owner for job in told[::2]]
    assert owners[0] == owners[3]
    assert len(set(owners)) == 3
    assert not set(owners) & {"sesame", "lentil", "first"}  # keys stay where they are
    assert all(told[i].request == told[i + 1].request for i in range(0, 8, 2))
    assert len({job.request for job in told[:4]}) == 2


@pytest.mark.thorough
def test_a_client_that_does_not_read_has_no_slot_until_it_does(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine, "UNREAD", 64)
    model = letters(context=3000, context_length=3000)
    with running({"letters": model}, limits=Limits(slots=1, turn=None)) as address, address.client() as client:
        body = {"prompt": "ab", "stream": True, "max_tokens": 2500, "logprobs": 5, "ignore_eos": True}
        body["stream_options"] = {"include_usage": True}
        data = json.dumps(body).encode()
        scheduler = engine_of(address).scheduler
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.settimeout(PATIENCE)
            sock.connect(("127.0.0.1", address.port))
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            sock.sendall(f"{head}Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
            until(lambda: scheduler.stats.yielded and not scheduler.stats.running)
            assert client.completions.create(model="letters", prompt="ab").choices[0].text == "cdefgh"
            until(lambda: scheduler._waiting.paused)
            assert scheduler.stats.generated_tokens < 2000
            told = b"".join(iter(lambda: sock.recv(2**16), b""))
        assert b'"completion_tokens":2500' in told
        assert b"data: [DONE]" in told
        assert scheduler.stats.preempted == 0


@pytest.mark.thorough
def test_memory_is_that_of_all_models_together():
    """Each has what holds as many whole sequences."""

    def attending(context: int) -> Model:
        return deep_letters(ReferenceDevice(), MultiHeadAttention(embed_dim=8, num_heads=2), context=context)

    models = {name: attending(context) for name, context in {"short": 16, "long": 48, "more": 16}.items()}
    limits = Limits(state_bytes=8_000_000, prefix_bytes=4001)
    with running(models, limits=limits) as address:
        engines = {name: served.engine for name, served in address.server.serving.models.items()}
        assert [e.scheduler.limits.state_bytes for e in engines.values() if e] == [1_600_000, 4_800_000, 1_600_000]
        assert [e.scheduler.limits.prefix_bytes for e in engines.values() if e] == [800, 2400, 800]
        address.server._openers = {"short": lambda: attending(16)}
        before, loop = engines["short"], address.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(lambda: address.server._start(address.server._reload()))
        until(lambda: address.server.serving.models["short"].engine is not before)
        again = address.server.serving.models["short"].engine
        assert again is not None
        assert again.scheduler.limits.state_bytes == 1_600_000
