"""Models that are opened anew while requests are under way: none is dropped, and none waits for what is gone."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.generate.letters import letters
from tests.serve.servers import PATIENCE, running, slow_letters, until
from volumetric.base.errors import CheckpointError, ShuttingDownError
from volumetric.generate import Limits, Model
from volumetric.serve.engine import Engine
from volumetric.serve.server import Server, listen
from volumetric.serve.serving import ServedModel, ServerSettings


def reload(server) -> None:
    server._loop.call_soon_threadsafe(lambda: server._start(server._reload()))


@pytest.mark.thorough
def test_a_request_keeps_the_model_that_it_began_with(monkeypatch: pytest.MonkeyPatch):
    """Also one whose prompt is not made into tokens yet, so that no engine knows of it."""
    with running({"letters": letters()}) as address, address.client() as client:
        server, held, go = address.server, threading.Event(), threading.Event()
        before = server.serving.models["letters"]
        tokenizer = before.model.tokenizer
        assert tokenizer is not None
        encode, first = tokenizer.encode, [True]

        def slowly(*args, **rest):
            if first and first.pop():
                held.set()
                assert go.wait(PATIENCE)
            return encode(*args, **rest)

        monkeypatch.setattr(tokenizer, "encode", slowly)
        server._openers = {"letters": letters}
        with ThreadPoolExecutor(1) as pool:
            ask = pool.submit(
                lambda: client.chat.completions.create(model="letters", messages=[{"role": "user", "content": "ab"}])
            )
            assert held.wait(PATIENCE)
            reload(server)
            until(lambda: server.serving.models["letters"] is not before)
            time.sleep(0.15)  # longer than the server waits between two looks
            assert before.engine is not None
            assert before.engine.alive
            go.set()
            assert ask.result(PATIENCE).choices[0].message.content == "cdefgh"
        until(lambda: not before.engine or not before.engine.alive)
        assert client.completions.create(model="letters", prompt="a").choices[0].text == "bcdefgh"


@pytest.mark.thorough
def test_reloads_wait_for_each_other_and_leave_what_cannot_be_replaced(caplog: pytest.LogCaptureFixture):
    opened: list[int] = []

    def again() -> Model:
        opened.append(1)
        time.sleep(0.05)
        if len(opened) == 2:
            raise CheckpointError("the file is gone")
        return letters()

    with running({"letters": letters()}) as address, address.client() as client:
        address.server._openers = {"letters": again}
        for _ in range(4):  # the first runs, the second waits, and the others would do the same
            reload(address.server)
        until(lambda: len(opened) == 2 and not address.server._opening.locked())
        assert "letters was not reloaded: the file is gone" in caplog.text
        assert client.completions.create(model="letters", prompt="a").choices[0].text == "bcdefgh"


@pytest.mark.thorough
def test_a_server_that_ends_tells_requests_of_models_that_were_replaced():
    with running({"random": slow_letters()}, drain=0.2) as address, address.client() as client:
        server = address.server
        before = server.serving.models["random"]
        stream = client.completions.create(
            model="random", prompt="ab", extra_body={"ignore_eos": True}, temperature=1, stream=True
        )
        next(iter(stream))
        server._openers = {"random": letters}
        reload(server)
        until(lambda: server.serving.models["random"] is not before)
        server.stop()
        with pytest.raises(openai.APIError, match="shut down"):
            list(stream)


def test_an_engine_that_is_closed_takes_nothing():
    async def closed() -> None:
        served = ServedModel("letters", letters(), None)
        engine = Engine(served.model, Limits())
        engine.close()
        with pytest.raises(ShuttingDownError, match="closed"):
            engine.submit([])
        served.hold()
        assert served.busy
        served.close()

    asyncio.run(closed())


def test_a_server_ends_while_it_opens_a_model():
    opening, go = threading.Event(), threading.Event()

    def slowly() -> Model:
        opening.set()
        assert go.wait(PATIENCE)
        return letters()

    server = Server({"letters": slowly}, ServerSettings(), Limits())
    thread = threading.Thread(target=server.run, args=(listen("127.0.0.1", 0),))
    thread.start()
    try:
        assert opening.wait(PATIENCE)
        server.stop()
        thread.join(PATIENCE / 2)
        assert not thread.is_alive()
    finally:
        go.set()
        thread.join(PATIENCE)


@pytest.mark.thorough
def test_a_server_that_ends_at_once_says_nothing_of_those_who_were_waiting(caplog: pytest.LogCaptureFixture):
    with running({"random": slow_letters()}) as address, address.client() as client:
        stream = client.completions.create(
            model="random", prompt="ab", extra_body={"ignore_eos": True}, temperature=1, stream=True
        )
        next(iter(stream))
        address.server.stop()
        address.server.stop()
        with pytest.raises(Exception, match=r"."):
            list(stream)
    assert "Traceback" not in caplog.text
    assert "Exception in ASGI" not in caplog.text
