"""The engine's random numbers, plans of draws, and draws on the host are those of Python."""

from __future__ import annotations

import itertools

import numpy as np

from tests.oracles.sampler import ReferenceSampler
from tests.web.engine_page import EnginePage
from volumetric.base import rng
from volumetric.devices.gpu.kernels import token_draw
from volumetric.generate.params import SamplingParams

_SEEDS = (0, 1, 42, 2**32 - 1, 2**53 - 1)
_NAMES = {
    "temperature": "temperature",
    "top_k": "topK",
    "top_p": "topP",
    "min_p": "minP",
    "repetition_penalty": "repetitionPenalty",
}


def _imported(engine: EnginePage, name: str) -> str:
    return f"const own = await import('{engine.server.url}/engine/{name}');"


def test_random_numbers(engine: EnginePage) -> None:
    streams = engine.run(
        f"{_imported(engine, 'random.js')} return [...seeds, 2n ** 64n - 1n].map(seed => {{"
        "  const s = new own.RandomStream(seed); s.ahead(70);"
        "  const first = [s.take(), s.take(), s.take()]; return [...first, ...s.ahead(64)]; })",
        seeds=_SEEDS,
    )
    for seed, numbers in zip((*_SEEDS, 2**64 - 1), streams, strict=True):
        assert numbers == rng.generator(seed).random(67).tolist()


def test_plans_of_draws(engine: EnginePage) -> None:
    temperatures = [0.0, 0.009, 0.01, 0.3, 0.7, 1.0, 1 / np.log(2), 2.0, 99.9, 100.0, 101.0]
    temperatures += np.random.default_rng(1).uniform(0.01, 3, 20).tolist()
    cases = [
        {"temperature": float(t), "topK": k, "topP": p, "minP": m}
        for t, k, p, m in itertools.product(temperatures, (0, 1, 40, 256, 300), (1.0, 0.95, 0.1), (0.0, 0.05, 1.0))
    ]
    result = engine.run(
        f"{_imported(engine, 'draw_plan.js')} const words = new Uint32Array(own.ROW_WORDS);"
        "own.writeNumbers(words, numbers, 1021);"
        "const plans = cases.map(one => own.drawPlan(one, 1000)).map(plan => plan && Array.from(plan));"
        "return {table: own.drawTable(), numbers: words, plans}",
        cases=cases,
        numbers=rng.generator(3).random(128).tolist(),
    )
    for case, words in zip(cases, result["plans"], strict=True):
        keys = {python: case[js] for python, js in list(_NAMES.items())[:4]}
        plan = token_draw.plan(**keys, width=1000)
        assert words == (None if plan is None else plan.tolist()), case
    assert result["table"].tolist() == token_draw.table().tolist()
    written = result["numbers"][12:].reshape(128, 2)[(1021 + np.arange(128)) % 128]
    assert written.tolist() == token_draw.numbers(rng.generator(3).random(128)).tolist()


def test_draws_on_the_host(engine: EnginePage) -> None:
    logits = (4 * np.random.default_rng(2).standard_normal((40, 60))).astype(np.float32)
    logits[:, 7] = logits[:, 9]  # equals
    cases = [
        {"temperature": 0.0},
        {"temperature": 0.8},
        {"temperature": 1.5, "top_k": 5},
        {"temperature": 1.2, "top_p": 0.6},
        {"temperature": 2.0, "top_k": 30, "top_p": 0.9, "min_p": 0.01},
        {"temperature": 500.0, "min_p": 0.5},
        {"temperature": 1.0, "repetition_penalty": 1.5},
    ]
    result = engine.run(
        f"""
        const {{RandomStream}} = await import('{engine.server.url}/engine/random.js');
        {_imported(engine, "sampling.js")}
        return cases.map(options => {{
          const params = own.samplingParams({{seed: 9, ...options}}), randoms = new RandomStream(9);
          const seen = params.repetitionPenalty === 1 ? null : new Set([3, 4]);
          return Array.from({{length: 40}}, (_, i) => {{
            const row = logits.subarray(60 * i, 60 * i + 60);
            const token = own.drawToken(row, params, params.temperature ? randoms.take() : 0, seen);
            seen?.add(token);
            return token;
          }});
        }});
        """,
        logits=logits,
        cases=[{_NAMES[name]: value for name, value in case.items()} for case in cases],
    )
    for case, tokens in zip(cases, result, strict=True):
        sampler = ReferenceSampler(SamplingParams(seed=9, **case), (3, 4))
        assert tokens == [sampler.draw(row).token for row in logits], case
