"""The sampler against slow, obvious definitions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.oracles.sampler import log_probabilities, top_p_mask
from volumetric.base.errors import GenerationError
from volumetric.generate.params import SamplingParams
from volumetric.generate.sampler import Sampler
from volumetric.run.logits import top_k_indices

VOCAB = 5000
# Steps coarse enough that different scores have different probabilities, and some are equal.
scores_of = hnp.arrays(np.float32, st.integers(1, 60), elements=st.integers(-480, 480).map(lambda i: i / 16))


def random_logits(seed: int = 0, size: int = VOCAB) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 3, size).astype(np.float32)


def draws(logits, count=200, prompt=(), **params) -> list[int]:
    sampler = Sampler(SamplingParams(**{"temperature": 1.0, "seed": 0} | params), prompt)
    return [sampler.draw(logits).token for _ in range(count)]


def support(logits, top_k=0, top_p=1.0, min_p=0.0, temperature=1.0) -> set[int]:
    """Tokens that may be drawn, by the definitions, one after the other."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    order = order[: top_k or None]
    p = [math.exp(float(logits[i] - logits[order[0]]) / temperature) for i in order]
    total, kept, so_far = sum(p), 0, 0.0
    while kept < len(p) and so_far < top_p * total:
        so_far += p[kept]
        kept += 1
    return {order[i] for i in range(max(kept, 1)) if p[i] >= min_p * p[0]}


def test_greedy_is_arg_max_and_leaves_the_logits_alone():
    logits = random_logits()
    before = logits.copy()
    assert draws(logits, 1, temperature=0.0) == [int(np.argmax(before))]
    np.testing.assert_array_equal(logits, before)


def test_same_seed_same_tokens():
    logits = random_logits()
    assert draws(logits, seed=7) == draws(logits, seed=7)
    assert draws(logits, seed=7) != draws(logits, seed=8)


def test_a_fresh_seed_is_reported_and_repeats():
    logits = random_logits()
    first = Sampler(SamplingParams(temperature=1.0))
    again = Sampler(SamplingParams(temperature=1.0, seed=first.seed))
    assert [first.draw(logits).token for _ in range(50)] == [again.draw(logits).token for _ in range(50)]


def test_seeded_draws_do_not_change_between_releases():
    logits = np.linspace(0, 3, 50, dtype=np.float32)
    assert draws(logits, 8, seed=42, top_k=10) == [41, 41, 43, 49, 42, 45, 44, 48]


@pytest.mark.thorough
def test_frequencies_follow_the_softmax():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    counts = np.bincount(draws(logits, 20000), minlength=4) / 20000
    # Four standard deviations of a binomial of this size.
    np.testing.assert_allclose(counts, [0.5, 0.3, 0.15, 0.05], atol=4 * 0.5 / math.sqrt(20000))


@pytest.mark.parametrize(
    "chain",
    [
        {"top_k": 5},
        {"top_p": 0.3},
        {"min_p": 0.2},
        {"top_k": 8, "top_p": 0.6},
        {"top_k": 8, "top_p": 0.8, "min_p": 0.3, "temperature": 1.7},
        {"top_p": 0.5, "temperature": 0.5},
    ],
)
def test_draws_cover_exactly_the_support(chain):
    logits = random_logits(3, 40)
    assert set(draws(logits, 4000, **chain)) == support(logits, **chain)


@pytest.mark.thorough
@given(scores_of, st.integers(0, 70), st.floats(0.01, 1.0), st.floats(0, 1), st.floats(0.05, 4))
def test_no_draw_leaves_the_support(logits, top_k, top_p, min_p, temperature):
    chain: dict[str, Any] = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "temperature": temperature}
    allowed = support(logits, **chain)
    # The sum that reaches top_p can differ in its last bits from the one written out above.
    slack = support(logits, top_k, min(1.0, top_p + 1e-9), min_p, temperature)
    assert set(draws(logits, 20, **chain)) <= allowed | slack


@given(hnp.arrays(np.float32, st.integers(1, 60), elements=st.integers(-3, 3)), st.integers(1, 70))
def test_top_k_prefers_low_ids_among_equals(scores, k):
    expected = sorted(sorted(range(scores.size), key=lambda i: (-scores[i], i))[:k])
    assert top_k_indices(scores, k).tolist() == expected


@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.999, 1.0])
def test_top_p_of_a_flat_vocabulary_needs_more_than_the_first_sort(top_p):
    weights = np.ones(VOCAB)
    assert np.count_nonzero(top_p_mask(weights, top_p)) == math.ceil(top_p * VOCAB)


def test_top_p_keeps_at_least_one():
    assert top_p_mask(np.array([0.1, 0.9]), 1e-9).tolist() == [False, True]


def test_a_tiny_temperature_is_greedy_and_does_not_overflow():
    logits = random_logits()
    assert set(draws(logits, 20, temperature=1e-30)) == {int(np.argmax(logits))}


def test_bias_bans_and_promotes():
    logits = random_logits(0, 30)
    best = int(np.argmax(logits))
    assert best not in draws(logits, 300, logit_bias={best: -math.inf})
    assert set(draws(logits, 50, temperature=0.0, logit_bias={3: 1000.0})) == {3}


def test_bias_outside_of_the_vocabulary_is_an_error():
    with pytest.raises(GenerationError, match=r"token 99.*30 tokens"):
        draws(random_logits(0, 30), 1, logit_bias={99: 1.0})


def test_repetition_penalty_sees_the_prompt_within_the_window():
    logits = np.array([2.0, 1.9, -1.0], np.float32)
    greedy = {"temperature": 0.0, "repetition_penalty": 2.0}
    assert draws(logits, 1, prompt=(0,), **greedy) == [1]
    assert draws(logits, 1, prompt=(0, 2, 2), repetition_window=2, **greedy) == [0]
    # Negative logits move down as well: -1.0 · 2 = -2.0 leaves token 1 in front.
    assert draws(np.array([-1.0, -1.5], np.float32), 1, prompt=(0,), **greedy) == [1]


@pytest.mark.parametrize("window", [0, 1, 2, 5, -1])
@pytest.mark.parametrize("prompt", [(), (3,), (0, 1, 2, 3, 0, 1, 2)])
def test_the_repetition_window_slides_over_prompt_and_answer(window, prompt):
    """Each token is the largest logit after those of the last `window` tokens were divided (they are positive)."""
    logits = np.array([2.0, 1.9, 1.7, 1.4, 1.01], np.float32)
    said = list(prompt)
    for _ in range(12):
        recent = set(said if window < 0 else said[len(said) - window :] if window <= len(said) else said)
        said.append(int(np.argmax([score / 2 if i in recent else score for i, score in enumerate(logits)])))
    greedy = {"temperature": 0.0, "repetition_penalty": 2.0, "repetition_window": window}
    assert draws(logits, 12, prompt=prompt, **greedy) == said[len(prompt) :]


def test_presence_and_frequency_count_generated_tokens_only():
    logits = np.array([1.0, 0.5, 0.0], np.float32)
    assert draws(logits, 1, prompt=(0, 0), temperature=0.0, presence_penalty=5.0) == [0]
    assert draws(logits, 4, temperature=0.0, presence_penalty=0.75) == [0, 1, 0, 0]
    assert draws(logits, 6, temperature=0.0, frequency_penalty=0.4) == [0, 0, 1, 0, 1, 2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_unusable_logits_are_an_error(bad, temperature):
    logits = random_logits(0, 16)
    logits[3] = bad
    if bad == -math.inf:
        logits[:] = bad
    with pytest.raises(GenerationError, match="logits"):
        draws(logits, 1, temperature=temperature)


def test_banning_everything_is_an_error():
    with pytest.raises(GenerationError, match="no token is possible"):
        draws(random_logits(0, 3), 1, logit_bias=dict.fromkeys(range(3), -math.inf))


def test_log_probabilities_are_of_the_unchanged_logits():
    logits = random_logits(5, 20)
    p = np.exp(logits.astype(np.float64)) / np.exp(logits.astype(np.float64)).sum()
    drawn = Sampler(SamplingParams(temperature=0.2, top_k=1, logprobs=3, seed=0)).draw(logits)
    order = np.argsort(-logits)
    assert drawn.token == order[0]
    assert drawn.logprob == pytest.approx(math.log(p[order[0]]))
    assert drawn.top_logprobs is not None
    assert [i for i, _ in drawn.top_logprobs] == order[:3].tolist()
    assert [v for _, v in drawn.top_logprobs] == pytest.approx(np.log(p[order[:3]]))
    assert log_probabilities(logits, 4, 0) == (pytest.approx(math.log(p[4])), ())
