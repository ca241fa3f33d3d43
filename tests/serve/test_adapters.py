"""Adapters of a served model: one engine for all, answers as each gives alone, also when all are opened anew."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from tests.devices import device
from tests.serve.servers import Address, ask, running
from tests.serve.test_reload import reload, until
from volumetric.cli.serve import _BaseModel
from volumetric.generate import Model, load

FIXTURES = Path(__file__).parents[1] / "fixtures"
NAMES = ("llama", "plain", "wide")


def opened() -> Model:
    return load(FIXTURES / "hf_tiny/llama", device=device("cpu"), compute="float32", context=64)


def with_adapters() -> dict[str, Model]:
    model = opened()
    return {"llama": model} | model.with_batched_adapters({name: FIXTURES / "peft" / name for name in NAMES[1:]})


def likelihoods(address: Address, name: str) -> list[float]:
    """How likely the tokens of an answer are: the model has no text."""
    asked = {"model": name, "prompt": [*range(3, 27)], "max_tokens": 5, "logprobs": 1, "ignore_eos": True}
    status, answer = ask(address, "/v1/completions", json.dumps(asked).encode())
    assert status == 200, answer
    return answer["choices"][0]["logprobs"]["token_logprobs"]


@pytest.mark.thorough
def test_requests_for_several_adapters_share_an_engine_and_no_answers() -> None:
    with running(with_adapters()) as address:
        served = address.server.serving.models
        assert len({id(one.engine) for one in served.values()}) == 1
        alone = {name: likelihoods(address, name) for name in NAMES}
        assert len({tuple(one) for one in alone.values()}) == len(NAMES)
        asked = [*NAMES, *reversed(NAMES)] * 2
        with ThreadPoolExecutor(len(asked)) as pool:
            assert [*pool.map(partial(likelihoods, address), asked)] == [alone[name] for name in asked]
        _, told = ask(address, "/metrics")
        lines = set(told.splitlines())
        assert 'volumetric_jobs_total{model="llama"} 15' in lines
        for name in NAMES[1:]:
            assert f'volumetric_adapter_jobs_total{{model="llama",adapter="{name}"}} 5' in lines
            assert f'volumetric_adapter_generated_tokens_total{{model="llama",adapter="{name}"}} 25' in lines
        assert 'volumetric_jobs_total{model="wide"}' not in told


@pytest.mark.thorough
def test_a_model_and_its_adapters_are_opened_anew_together() -> None:
    with running(with_adapters()) as address:
        expected = {name: likelihoods(address, name) for name in NAMES}
        server, before = address.server, dict(address.server.serving.models)
        base = _BaseModel(opened)
        base.lora |= {name: str(FIXTURES / "peft" / name) for name in NAMES[1:]}
        server._openers = {"llama": base.open, **{name: partial(base.adapted, name) for name in NAMES[1:]}}
        reload(server)
        until(lambda: all(server.serving.models[name] is not one for name, one in before.items()))
        until(lambda: not server._before)
        old = before["llama"].engine
        assert old is not None
        until(lambda: not old.alive)
        assert len({id(one.engine) for one in server.serving.models.values()}) == 1
        assert {name: likelihoods(address, name) for name in NAMES} == expected
