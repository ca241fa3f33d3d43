"""Batches of generations: each must be what `generate` makes of its prompt alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.generate.letters import letters
from volumetric.base.errors import GenerationError, SpecError

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"
PROMPTS = [[5, 80, 33, 7], [1], [9, 9, 2], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [60, 61]]


def test_texts_ends_and_reasons_are_those_of_generate():
    model = letters()
    prompts = ["abc", "g", "abcdefg", "f", "b", "h"]
    variants: list[dict[str, Any]] = [
        {},
        {"max_tokens": 3},
        {"stop": ["gh", "de"]},
        {"ignore_eos": True, "max_tokens": 12},
    ]
    for explicit in variants:
        for together in (1, 2, 16):
            batch = model.generate_batch(prompts, together=together, **explicit)
            for made, prompt in zip(batch, prompts, strict=True):
                alone = model.generate(prompt, **explicit)
                assert (made.text, made.token_ids, made.finish_reason) == (
                    alone.text,
                    alone.token_ids,
                    alone.finish_reason,
                )


def test_each_prompt_may_have_its_own_parameters():
    model = letters()
    each = [model.sampling(temperature=1.5, seed=seed, max_tokens=seed + 2) for seed in range(5)]
    batch = model.generate_batch(["a"] * 5, each, together=3)
    assert [made.token_ids for made in batch] == [model.generate("a", one).token_ids for one in each]
    assert [made.seed for made in batch] == list(range(5))
    with pytest.raises(SpecError, match="3 prompts"):
        model.generate_batch(["a"] * 3, each)


def test_one_seed_seeds_every_prompt_alike_and_none_gives_fresh_ones():
    model = letters()
    same = model.generate_batch(["a"] * 3, temperature=2.0, seed=4, max_tokens=8)
    assert len({made.token_ids for made in same}) == 1
    fresh = model.generate_batch(["a"] * 3, temperature=2.0, max_tokens=8)
    assert len({made.seed for made in fresh}) == 3


def test_events_come_in_order_and_prompts_take_turns():
    stream = letters().stream_batch(["g", "abc", "f"], together=2)
    events = list(stream)
    assert [number for number, _ in events[:4]] == [0, 1, 0, 1]
    for number, made in enumerate(stream.generations):
        own = [event for i, event in events if i == number]
        assert [event.index for event in own] == list(range(len(own)))
        assert "".join(event.text for event in own) == made.text
        assert [event.finish_reason for event in own] == [None] * (len(own) - 1) + [made.finish_reason]
    assert stream.generations[1].stats.generation_seconds > 0


def test_a_long_prompt_is_computed_in_pieces_beside_sequences_that_decode():
    model = letters()
    each = [model.sampling(max_tokens=count, ignore_eos=True) for count in (1, 9, 2)]
    stream = model.stream_batch(["a", "b", "abcdefgabc"], each, together=2, prompt_rows=3)
    order = [number for number, _ in stream]
    # The third prompt takes the place of the first after one call, and four calls with pieces of 3, 3, 3 and 1.
    assert order == [0, 1, 1, 1, 1, 1, 2, 1, 2, 1, 1, 1]
    for made, prompt, one in zip(stream.generations, ["a", "b", "abcdefgabc"], each, strict=True):
        assert made.token_ids == model.generate(prompt, one).token_ids
    stats = stream.generations[2].stats
    assert (stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens) == (10, 0, 2)
    assert stats.first_token_seconds >= stats.prompt_seconds > 0
    with pytest.raises(SpecError, match="prompt_rows"):
        model.stream_batch(["a"], prompt_rows=0)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "mistral"])
def test_tokens_on_the_cpu_do_not_depend_on_how_prompts_are_cut(family):
    random = np.random.default_rng(1)
    prompts = [random.integers(1, 90, size).tolist() for size in (3, 30, 1, 17, 9, 26, 5)]
    with volumetric.load(TINY / family, device="cpu", context=48) as model:
        explicit: dict[str, Any] = {"ignore_eos": True, "max_tokens": 6, "temperature": 1.1, "seed": 3, "logprobs": 1}
        alone = [model.generate(prompt, **explicit) for prompt in prompts]
        for prompt_rows in (1, 4, 7, 64):
            batch = model.generate_batch(prompts, together=3, prompt_rows=prompt_rows, **explicit)
            assert [made.token_ids for made in batch] == [made.token_ids for made in alone]
            assert [made.logprobs for made in batch] == [made.logprobs for made in alone]


def test_leaving_early_cancels_what_runs():
    stream = letters().stream_batch(["a", "b", "c"], together=2)
    for _ in range(4):
        next(stream)
    stream.close()
    assert [(made.text, made.finish_reason) for made in stream.generations] == [
        ("bc", "cancelled"),
        ("cd", "cancelled"),
    ]


def test_a_bad_prompt_is_found_before_anything_runs():
    model = letters(context=8)
    with pytest.raises(GenerationError, match="empty"):
        model.stream_batch(["abc", ""])
    with pytest.raises(GenerationError, match="context holds 8"):
        model.stream_batch(["abc", "abcdefgha"])
    with pytest.raises(SpecError, match="together"):
        model.stream_batch(["abc"], together=0)
    assert model.generate_batch([]) == []


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "mistral"])
@pytest.mark.parametrize("count", [1, 3, 17])
def test_greedy_ids_on_the_cpu_are_those_of_generate(family, count):
    with volumetric.load(TINY / family, device="cpu", context=48) as model:
        prompts = [PROMPTS[i % len(PROMPTS)][i // len(PROMPTS) :] or [i] for i in range(count)]
        explicit: dict[str, Any] = {"ignore_eos": True, "max_tokens": 12}
        greedy: dict[str, Any] = explicit | {"temperature": 0.0}
        batch = model.generate_batch(prompts, **greedy)
        for made, prompt in zip(batch, prompts, strict=True):
            assert made.token_ids == model.generate(prompt, **greedy).token_ids
        sampled = model.generate_batch(prompts, temperature=1.2, seed=7, **explicit)
        assert sampled[-1].token_ids == model.generate(prompts[-1], temperature=1.2, seed=7, **explicit).token_ids
