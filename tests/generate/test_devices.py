"""Sessions on the fast devices, whose greedy loops may run ahead: the same tokens as on the reference device."""

from __future__ import annotations

from pathlib import Path

import pytest

import volumetric

LLAMA = Path(__file__).parents[1] / "fixtures" / "hf_tiny" / "llama"
PROMPT = [5, 80, 33, 7]


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def pair(request):
    models = [volumetric.load(LLAMA, device=device, context=16) for device in ("reference", request.param)]
    yield models
    for model in models:
        model.close()


@pytest.mark.thorough
def test_generation_fills_the_context_and_ends(pair):
    reference, fast = (model.generate(PROMPT, max_tokens=100, ignore_eos=True) for model in pair)
    assert fast.token_ids == reference.token_ids
    assert (len(fast.token_ids), fast.finish_reason) == (13, "length")


@pytest.mark.thorough
def test_leaving_the_greedy_loop_keeps_what_was_taken(pair):
    made = []
    for model in pair:
        with model.session() as session:
            stream = session.stream(PROMPT, ignore_eos=True)
            ids = [next(stream).token_id for _ in range(3)]
            stream.close()
            going_on = session.stream([*session.tokens, 9], max_tokens=4, ignore_eos=True).run()
            made.append((ids, session.tokens, going_on.stats.cached_tokens, going_on.token_ids))
    assert made[0] == made[1]
    assert made[1][2] == len(PROMPT) + 2


@pytest.mark.thorough
def test_forks_and_trimmed_prefixes(pair):
    made = []
    for model in pair:
        with model.session() as session:
            session.stream(PROMPT, max_tokens=4, ignore_eos=True).run()
            with session.fork() as fork:
                one = fork.stream([*PROMPT[:2], 1], max_tokens=4, ignore_eos=True).run()
                two = session.stream([*PROMPT[:3], 2], max_tokens=4, ignore_eos=True).run()
            made.append((one.token_ids, two.token_ids, one.stats.cached_tokens, two.stats.cached_tokens))
    assert made[0] == made[1]
    assert made[1][2:] == (2, 3)


@pytest.mark.thorough
def test_a_seed_repeats(pair):
    _, fast = pair
    drawn = [fast.generate(PROMPT, temperature=1.5, seed=3, max_tokens=10).token_ids for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert fast.generate(PROMPT, temperature=1.5, seed=4, max_tokens=10).token_ids != drawn[0]
