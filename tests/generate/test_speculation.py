"""Speculative decoding: the same tokens as without a draft, however good the guesses are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import volumetric
from tests.generate.guesses import Guesses
from tests.generate.letters import LETTERS, deep_letters, letters, loaded_letters, next_letter_logits, recurrent_letters
from volumetric.base.errors import GenerationError, SpecError
from volumetric.devices.cpu import CpuDevice
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.generate import Model
from volumetric.generate.drafters import DraftLength, PromptLookup
from volumetric.layers import MultiHeadAttention
from volumetric.run.device import RunOptions

TINY = Path(__file__).parents[1] / "fixtures" / "hf_tiny"


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3_moe", "mamba", "falcon_h1"])
def test_tokens_do_not_depend_on_guesses(family: str):
    prompt = [5, 80, 33, 7]
    with volumetric.load(TINY / family, device="cpu", context=48) as model:
        kinds: list[dict[str, Any]] = [
            {},
            {"temperature": 1.1, "seed": 3, "repetition_penalty": 1.3, "top_p": 0.9},
            {"temperature": 0.8, "seed": 4, "logprobs": 2},
        ]
        for kind in kinds:
            explicit: dict[str, Any] = {"ignore_eos": True, "max_tokens": 20, "temperature": 0.0} | kind
            alone = model.generate(prompt, **explicit)
            for share in (0.0, 0.7, 1.0):
                guesses = Guesses(alone.token_ids, len(prompt), share, seed=int(10 * share))
                made = model.generate(prompt, draft=guesses, **explicit)
                assert made.token_ids == alone.token_ids
                assert made.logprobs == alone.logprobs
                assert made.stats.drafted_tokens > 0
                assert made.stats.acceptance is not None
                assert (made.stats.acceptance == 1.0) == (share == 1.0)
                assert guesses.closed == 1


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_session_goes_on_after_a_draft_as_without_one(share: float):
    for model in (
        recurrent_letters(CpuDevice()),
        deep_letters(CpuDevice(), MultiHeadAttention(embed_dim=8, num_heads=2)),
    ):
        alone = model.generate("abc", max_tokens=16, ignore_eos=True)
        for leave in (1, 2, 5, 16):
            with model.session() as session, model.session() as plain:
                for one, draft in ((session, Guesses(alone.token_ids, 3, share, leave)), (plain, None)):
                    stream = one.stream("abc", max_tokens=16, ignore_eos=True, draft=draft)
                    assert [next(stream).token_id for _ in range(leave)] == list(alone.token_ids[:leave])
                    stream.close()
                    assert stream.generation.token_ids == alone.token_ids[:leave]
                # What was drawn behind right guesses, and not told any more, may be held, too.
                assert session.tokens[: len(plain.tokens)] == plain.tokens
                longer = [*session.tokens, 3, 4]
                assert (
                    session.stream(longer, max_tokens=5).run().token_ids
                    == plain.stream(longer, max_tokens=5).run().token_ids
                    == model.generate(longer, max_tokens=5).token_ids
                )


def test_the_end_of_the_context_and_of_the_text_are_the_same():
    model = letters(context=12)
    variants: list[dict[str, Any]] = [{"ignore_eos": True}, {}, {"stop": ["fg"]}, {"max_tokens": 2}]
    for rest in variants:
        alone = model.generate("abab", **rest)
        made = model.generate("abab", draft=letters(context=12), **rest)
        assert (made.text, made.token_ids, made.finish_reason) == (alone.text, alone.token_ids, alone.finish_reason)
        assert made.stats.accepted_tokens >= len(made.token_ids) - 3
    short = model.generate("abab", draft=letters(context=6), ignore_eos=True)
    assert short.token_ids == model.generate("abab", ignore_eos=True).token_ids


def test_a_worse_model_drafts_and_a_recurrent_one():
    other = next_letter_logits()
    other[2] = other[5]
    model = recurrent_letters(ReferenceDevice())
    for draft in (letters(other), recurrent_letters(ReferenceDevice())):
        for rest in ({}, {"temperature": 1.5, "seed": 2}):
            explicit: dict[str, Any] = {"max_tokens": 20, "ignore_eos": True} | rest
            made = model.generate("abc", draft=draft, **explicit)
            assert made.token_ids == model.generate("abc", **explicit).token_ids
            assert made.stats.drafted_tokens > 0


def test_lookup_proposes_what_followed_last():
    lookup = PromptLookup()
    assert lookup.propose([1, 2, 3, 4, 1, 2], 3) == [3, 4, 1]
    assert lookup.propose([1, 2, 3, 4, 1, 2, 9], 3) == []
    assert lookup.propose([1, 2, 3, 4, 1, 2, 9, 1, 2], 3) == [9, 1, 2]
    # Three tokens tell more than two, though these have occurred later.
    assert lookup.propose([1, 2, 3, 4, 1, 2, 9, 1, 2, 3, 4, 1, 2], 2) == [9, 1]
    assert lookup.propose([5], 3) == []
    made = letters().generate("abcdabcabc", draft="lookup", ignore_eos=True, max_tokens=20)
    assert made.stats.accepted_tokens > 5


def test_what_is_predicted_is_proposed_from_its_first_token_on():
    lookup = PromptLookup([7, 8, 9, 7, 5])
    assert lookup.propose([1, 2], 4) == []
    assert lookup.propose([1, 2, 7], 4) == [8, 9, 7, 5]
    assert lookup.propose([1, 2, 7, 6, 9], 2) == [7, 5]
    assert lookup.propose([1, 2, 7, 6, 9, 7], 4) == [5]
    assert lookup.propose([1, 2, 7, 6, 9, 7, 5], 4) == []


def test_drafts_are_as_long_as_they_pay():
    length = DraftLength()
    assert [length.most(price) for price in (0.0, 0.3, 0.5, 0.7, 0.9)] == [4, 3, 1, 0, 0]
    for _ in range(6):
        length.count(4, 4)
    assert (length.most(), length.most(0.6), length.most(0.95)) == (16, 16, 2)
    for _ in range(20):
        length.count(4, 0)
    assert (length.most(), length.most(0.3)) == (1, 0)
    assert any(length.most(0.3) for _ in range(100))  # it is tried again


@pytest.mark.thorough
def test_draws_have_the_distribution_of_the_model():
    """Chi squared over what followed each letter, against the exact probabilities, beside guesses of another model."""
    model, other = letters(), next_letter_logits()[::-1].copy()
    draft = letters(other)
    logits = next_letter_logits() / 1.7
    right = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    seen = np.zeros((len(LETTERS), len(LETTERS)))
    drafted = accepted = 0
    for seed in range(120):
        guesses = draft if seed % 2 else "lookup"
        made = model.generate("abcab", temperature=1.7, seed=seed, max_tokens=24, ignore_eos=True, draft=guesses)
        chain = [1, *made.token_ids]
        np.add.at(seen, (chain[:-1], chain[1:]), 1)
        drafted, accepted = drafted + made.stats.drafted_tokens, accepted + made.stats.accepted_tokens
    assert 0.02 < accepted / drafted < 0.9
    expected = seen.sum(-1, keepdims=True) * right
    squared = ((seen - expected) ** 2 / expected).sum()
    freedom = len(LETTERS) * (len(LETTERS) - 1)
    assert abs(squared - freedom) < 4 * np.sqrt(2 * freedom)


def test_a_draft_that_cannot_be_one_is_refused():
    model = letters()
    with pytest.raises(SpecError, match="a model or 'lookup', got 'look'"):
        model.generate("a", draft="look")
    with pytest.raises(SpecError, match="got int"):
        model.generate("a", draft=3)
    loaded = loaded_letters(np.zeros((5, 5), np.float32), text=False)
    other = Model(replace(loaded, name="other"), ReferenceDevice(), RunOptions(context=32))
    with pytest.raises(GenerationError, match="other has 5 tokens, but letters has 9"):
        model.generate("a", draft=other)
    assert model.generate("f").text == "gh"
