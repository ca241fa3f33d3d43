"""What a request has taken is given back, however it ends; what is told of it is what was counted."""

from __future__ import annotations

import asyncio
import gc
import json
from types import SimpleNamespace
from typing import Any

import openai
import pytest
from starlette.requests import Request

from tests.generate.letters import letters
from tests.serve.servers import PATIENCE, ask, hang_devices, running, until
from volumetric.base.errors import SpecError
from volumetric.generate import Limits
from volumetric.generate.token_events import Generation, GenerationStats
from volumetric.serve import bodies
from volumetric.serve import server as serving_run
from volumetric.serve.answer_fields import usage
from volumetric.serve.fields.completion_request import CompletionRequest
from volumetric.serve.problem import RequestError
from volumetric.serve.serving import ServerSettings


@pytest.mark.thorough
def test_a_request_that_is_refused_in_the_middle_leaves_nothing_behind():
    """Its first prompts were taken on before the queue was full."""
    limits = Limits(slots=1, queue=3)
    with running({"letters": letters(context=2000, context_length=2000)}, limits=limits) as address:
        engine = address.server.serving.models["letters"].engine
        assert engine is not None
        with address.client() as client, pytest.raises(openai.RateLimitError, match="further texts"):
            client.completions.create(model="letters", prompt=["ab"] * 9, extra_body={"ignore_eos": True})
        scheduler = engine.scheduler
        until(lambda: scheduler.idle)
        stats = scheduler.stats
        assert stats.submitted > 0
        assert (stats.cancelled, stats.finished) == (stats.submitted, 0)
        assert not engine.waiting


@pytest.mark.thorough
def test_jobs_that_a_device_has_kept_waiting_too_long_are_not_computed_after_all(monkeypatch: pytest.MonkeyPatch):
    goes = hang_devices(monkeypatch)
    model = letters(context=2000, context_length=2000)
    with running({"letters": model}, step_seconds=0.2) as address, address.client() as client:
        engine = address.server.serving.models["letters"].engine
        assert engine is not None
        with pytest.raises(openai.InternalServerError, match="the device has not answered for"):
            client.completions.create(model="letters", prompt=["a", "b"], extra_body={"ignore_eos": True})
        assert not engine.waiting  # who was told waits no more
        goes.set()
        until(lambda: engine.scheduler.idle)
        assert (engine.scheduler.stats.cancelled, engine.scheduler.stats.finished) == (2, 0)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/completions", {"prompt": "a", "mood": 1}, 400),
        ("/v1/completions", {"prompt": "a" * 20_000, "mood": 1}, 400),  # which is read in a thread
        ("/v1/completions", {"prompt": "ab" * 2000}, 400),
        ("/v1/completions", {"prompt": "a", "guided_regex": "("}, 400),
        ("/nowhere", {}, 404),
    ],
)
def test_a_refused_request_is_freed_at_once(
    path: str, body: dict[str, Any], status: int, monkeypatch: pytest.MonkeyPatch
):
    """Its error, and with that the frames that have its body, wait for no search for cycles."""
    monkeypatch.setattr(serving_run, "_TIDY", 10 * PATIENCE)
    with running({"letters": letters()}) as address:
        gc.collect()
        gc.disable()
        try:
            assert ask(address, path, json.dumps(body).encode())[0] == status
            until(lambda: not [one for one in gc.get_objects() if type(one) is RequestError or type(one) is SpecError])
        finally:
            gc.enable()


@pytest.mark.thorough
def test_what_a_server_has_is_left_out_of_the_search_for_cycles_while_it_runs():
    before = gc.get_threshold()
    gc.unfreeze()
    gc.set_threshold(100_000, 10, 10)  # as the command line has it
    try:
        with running({"letters": letters()}):
            assert gc.get_freeze_count() > 10_000
            assert gc.get_threshold()[0] < 10_000
        assert gc.get_threshold() == (100_000, 10, 10)
        assert gc.get_freeze_count() == 0
    finally:
        gc.set_threshold(*before)
        gc.freeze()  # as it was


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose clock can be put forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


@pytest.mark.parametrize(("pause", "taken"), [(0.4, True), (1.1, False)])
def test_a_body_that_comes_slowly_but_comes_is_taken(pause: float, taken: bool):
    """Patience is for each part."""
    parts = [b'{"prompt"', b': "a', b'b"', b"}"]

    async def receive() -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, Clock)
        loop.ahead += pause * bodies.PATIENCE
        for _ in range(3):  # rounds of the loop, in which it finds what is due
            await asyncio.sleep(0)
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    app = SimpleNamespace(state=SimpleNamespace(serving=SimpleNamespace(settings=ServerSettings())))
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "app": app, "query_string": b""}
    body = bodies.read_body(Request(scope, receive), CompletionRequest)
    with asyncio.Runner(loop_factory=Clock) as runner:
        if taken:
            assert runner.run(body).prompt == "ab"
        else:
            with pytest.raises(RequestError, match="no part of the body arrived") as refused:
                runner.run(body)
            assert (refused.value.status, len(parts)) == (408, 4)


def test_usage_tells_what_was_drafted_in_vain():
    stats = GenerationStats(
        prompt_tokens=9,
        cached_tokens=4,
        generated_tokens=5,
        prompt_seconds=0.1,
        first_token_seconds=0.1,
        generation_seconds=0.1,
        peak_bytes=None,
        device_bytes=0,
        finish_reason="stop",
        drafted_tokens=7,
        accepted_tokens=3,
    )
    text = Generation(text="", token_ids=(1,) * 5, finish_reason="stop", stats=stats)
    assert json.loads(json.dumps(usage([[text, text], [text]]))) == {
        "prompt_tokens": 18,
        "completion_tokens": 15,
        "total_tokens": 33,
        "prompt_tokens_details": {"cached_tokens": 8},
        "completion_tokens_details": {"accepted_prediction_tokens": 9, "rejected_prediction_tokens": 12},
    }
